"""Says whether a run would start if it were submitted now: the command `when`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from itertools import takewhile
from math import inf
from pathlib import Path
from typing import Any

from rich.table import Table

from gke_ai.catalog.kueue.configuration import WITHOUT_VISIBILITY, minor
from gke_ai.catalog.quantities import readable
from gke_ai.catalog.versions import VISIBILITY_API
from gke_ai.forecast.outcome.reasons import NAMES
from gke_ai.forecast.rehearse import delays
from gke_ai.forecast.rehearse.applied import Applied
from gke_ai.forecast.rehearse.command import REFUSED, compare_state, restore_state, stop_at_signals
from gke_ai.forecast.rehearse.manifests import Change, Manifest
from gke_ai.forecast.rehearse.plain import NAME, Manifests
from gke_ai.forecast.rehearse.progress import phase
from gke_ai.forecast.rehearse.release import check_version, rehearsed
from gke_ai.forecast.rehearse.scratch import scratch
from gke_ai.forecast.rehearse.watching import Recorder
from gke_ai.forecast.render.measures import duration
from gke_ai.forecast.snapshot.command import read_file, take
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.forecast.when import answer as answers
from gke_ai.forecast.when import ending
from gke_ai.forecast.when.alone import KUEUE, ask_alone
from gke_ai.forecast.when.durations import records
from gke_ai.forecast.when.futures import HORIZON, REPLAYS, starts
from gke_ai.forecast.when.run_file import cluster_queue, read_run, read_server
from gke_ai.formats import console
from gke_ai.formats.sentences import join_names, plural
from gke_ai.kube.client import ApiClient, client_of, list_objects, request
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import key_of
from gke_ai.terminal import Stop, echo, write
from gke_ai.workspace.stack import Stack

SHOWN = 8
VISIBILITY = f"/apis/{VISIBILITY_API}/clusterqueues"
_NEEDED = ("Workload", "ClusterQueue", "LocalQueue", "ResourceFlavor")
# For how long Kueue may take to say something about the run, and then to do what follows from it, in seconds. Of runs
# of the same shape in a queue, it says something about the first alone.
_FIRST_WORD, _SETTLES = 15.0, 60.0


def show(
    stack: Stack, file: Path | None, server: str, snapshot: Path | None, seed: int | None, json_file: Path | None
) -> None:
    """Prints whether the run in a file, or one more replica of a server, starts, and why not.

    With a seed of draws, also within which time it starts.
    """
    state = read_file(snapshot) if snapshot else take(stack.name, stack.cluster())
    if missing := {*_NEEDED} & {*state.missing}:
        raise Stop(f"The snapshot has no {', '.join(sorted(missing))}, so the queue is unknown. List them.")
    check_version(state, snapshot.name if snapshot else stack.name)
    manifest, waking = (read_run(file, stack, state), None) if file else read_server(server, stack, state)
    stop_at_signals("question")
    found, notes = ask(manifest, state)
    found, more = with_end(found, state)
    notes += more
    if seed is not None and not found.starts and not found.never:
        found, more = with_interval(found, state, seed)
        notes += more
    if server:
        found = replace(found, run=f"A replica of {manifest.namespace}/{server.rpartition('/')[2]}")
    print()
    for text in (headline(found), *reasons(found, with_nodes=state.pools is not None), *([waking] if waking else [])):
        echo(str(text))
    console.show(tables(found))
    print()
    for text in notes:
        echo(text)
    if json_file:
        wakes = {"wakesWithinSeconds": round(waking.seconds)} if waking else {}
        write({json_file: json.dumps({**as_json(found), **wakes}, indent=1) + "\n"})


# ------------------------------------------------------------------------------------------------------------- asking
def ask(manifest: Manifest, snapshot: Snapshot) -> tuple[answers.Answer, list[str]]:
    """Brings a scratch cluster to the state of a snapshot and submits a run. Returns Kueue's answer, and notes."""
    source = Manifests(manifest.title, (), Change(apply=(manifest,)), snapshot)
    with scratch() as emulator:
        source.bring_up(emulator)
        state, notes = source.restored(emulator)
        written = restore_state(emulator, state)
        with Recorder(emulator.kubeconfig()) as recorder:
            notes += compare_state(emulator, NAME, written, recorder)
            if minor(used := rehearsed(snapshot)) == WITHOUT_VISIBILITY:
                notes.append(f"Kueue {used} does not show its order here: who is ahead follows from the Workloads.")
            api = client_of(emulator.kubeconfig(), 1)
            with phase(f"submit {manifest.title}"):
                queue = cluster_queue(manifest, snapshot)
                assert queue is not None
                return asked(api, recorder, manifest, queue, partial(source.start, emulator)), notes


def asked(
    api: ApiClient,
    recorder: Recorder,
    manifest: Manifest,
    queue: str,
    start: Callable[[], Applied],
    quiet: float = delays.QUIET_SECONDS,
) -> answers.Answer:
    """Submits a run to a cluster that has settled, and returns what Kueue decides about it and who is before it."""
    name = WorkloadName.of(manifest.namespace, manifest.kind, manifest.name)
    recorder.begin()
    update = start()
    try:
        if not update.succeeded():
            echo(f"The cluster refuses the run:\n{update.errors()}", file=sys.stderr)
            raise SystemExit(REFUSED)
        deadline = time.monotonic() + _FIRST_WORD
        while not ((own := answers.own_workload(recorder.timeline(True), name)) and answers.is_decided(own)):
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if own is None:
            raise Stop(
                f"Kueue creates no Workload for {manifest.title}, so it does not manage the run. Check the labels of "
                "its namespace, its priority class, and whether Kueue's configuration names its kind."
            )
        recorder.settle(quiet, _SETTLES)
        found = answers.answer(recorder.timeline(True), name, queue)
    finally:
        update.stop()
    return found if found.starts else _waiting(api, found, own)


def _waiting(api: ApiClient, found: answers.Answer, own: Mapping[str, Any]) -> answers.Answer:
    """Adds to an answer whether the run can ever start, who is ahead of it, and who holds its quota."""
    queues = list_objects(api, f"{KUEUE}/clusterqueues")
    shared = answers.sharing(found.queue, answers.roots(queues, list_objects(api, f"{KUEUE}/cohorts"))[0])
    workloads = list_objects(api, f"{KUEUE}/workloads")
    of_strict = (item["metadata"]["name"] for item in queues if item["spec"].get("queueingStrategy") == "StrictFIFO")
    strict = [name for name in of_strict if name in shared]
    me = key_of(own)
    by_name = {key_of(item): item for item in workloads if key_of(item) != me}
    before = [(key, found.queue) for key in takewhile(lambda key: key != me, pending(api, found.queue))]
    # The first run of a StrictFIFO queue keeps the quota that it waits for from others of its cohort.
    before += [(key, other) for other in strict if other != found.queue for key in pending(api, other)[:1]]
    never, cells = ask_alone(api, own, found.queue)
    return replace(
        found,
        never=never and (found.never or never),
        ahead=tuple(answers.waiting(by_name[key], name) for key, name in before if key in by_name),
        holders=tuple(answers.holders(by_name.values(), shared, cells, datetime.now(UTC))),
    )


def with_interval(found: answers.Answer, snapshot: Snapshot, seed: int) -> tuple[answers.Answer, list[str]]:
    """Adds to the answer about a run that waits when it starts in replays of the queue from now on."""
    with scratch() as emulator, phase(f"replay the queue {REPLAYS} times until the run starts"):
        waits = starts(emulator, snapshot, found.queue, found.workload, seed)
    if not waits:
        return found, ["Its queue is stopped, so no replay says when it starts."]
    ended = sum(record.ended is not None for record in records(snapshot.of("Workload")))
    note = f"Durations and arrivals are drawn from the runs in the snapshot, of which {ended:,} ended."
    # Kueue would admit it later too, but without nodes.
    waits = [seconds if seconds < found.left else inf for seconds in waits]
    return replace(found, waits=tuple(waits)), [note, *unplaced(snapshot), *by_usage(snapshot)]


def with_end(found: answers.Answer, snapshot: Snapshot) -> tuple[answers.Answer, list[str]]:
    """Adds to an answer how long nodes exist that the run can have. Returns notes on their ends."""
    groups, now = ending.choices(found, snapshot), snapshot.taken_at
    ends = ending.ends(snapshot, {name for names in groups for name in names})
    return replace(found, left=ending.left(ends, groups, now)), [*ending.notes(ends, now)]


def unplaced(snapshot: Snapshot) -> Iterator[str]:
    """Yields a note on flavors with topology, which the replays count as others."""
    flavors = snapshot.of("ResourceFlavor")
    if names := [item["metadata"]["name"] for item in flavors if item["spec"].get("topologyName")]:
        yield (
            f"The replays count the quota of {join_names(names)}, not where pods fit together: a run that requires one "
            "block can wait longer."
        )


def by_usage(snapshot: Snapshot) -> Iterator[str]:
    """Yields a note on the past usage of local queues: Kueue adds to it by its own clock, not by that of a replay."""
    if (snapshot.kueue or {}).get("admissionFairSharing"):
        yield (
            "The replays order runs by the past usage of their local queues and by what they admit. "
            "A run that runs for long adds too little to it."
        )


def pending(api: ApiClient, queue: str) -> list[tuple[str, str]]:
    """Returns the waiting Workloads of a cluster queue in Kueue's order, by namespace and name.

    Of a Kueue without the visibility API, it is the order of the Workloads.
    """
    answered = request(api, "GET", f"{VISIBILITY}/{queue}/pendingworkloads")
    if answered.code >= 400:
        workloads, local_queues = (list_objects(api, f"{KUEUE}/{kind}") for kind in ("workloads", "localqueues"))
        return list(answers.in_order(workloads, local_queues, queue))
    items = answered.body.get("items") or []
    ordered = sorted(items, key=lambda item: int(item.get("positionInClusterQueue") or 0))
    return [key_of(item) for item in ordered]


# ------------------------------------------------------------------------------------------------------------ printing
def headline(found: answers.Answer) -> str:
    """Returns the answer in one sentence."""
    pods = f" with {found.pods} of its {found.requested} pods" if 0 < found.pods < found.requested else ""
    on = f" on flavor {' and '.join(found.flavors)}" if found.flavors else ""
    where = f"{on} of cluster queue {found.queue}" if on else f" in cluster queue {found.queue}"
    if found.never:
        return f"{found.run} never starts in cluster queue {found.queue}: alone, it would wait for {found.never}."
    if found.preempts:
        ended = f"{plural(len(found.preempts), 'preempted run')} {'has' if len(found.preempts) == 1 else 'have'}"
        return f"{found.run} starts{pods} once {ended} ended,{where}."
    if found.lacks:
        return f"{found.run} is admitted{pods},{where}, but not all of its pods run: they wait for {found.lacks}."
    if found.admitted:
        return f"{found.run} starts at once{pods},{where}."
    return f"{found.run} waits{where}, for {found.waits_for}.{f' {interval(found)}' if found.waits else ''}"


def interval(found: answers.Answer) -> str:
    """Returns when the run starts in the replays, in one sentence."""
    low, middle, high = found.waits[0], found.waits[len(found.waits) // 2], found.waits[-1]
    horizon = min(HORIZON, max(found.left, 0.0))
    if low == inf:
        return f"It starts in none of the replays within {duration(horizon)}."
    span = f"{duration(low)} to {duration(high) if high < inf else f'more than {duration(horizon)}'}"
    median = f"in {duration(middle)}, " if middle < inf else ""
    return f"It starts {median}90 %: {span}."


def reasons(found: answers.Answer, with_nodes: bool) -> Iterator[str]:
    """Yields what else there is to say, in sentences."""
    for eviction in found.preempts:
        yield f"Kueue preempts {eviction.workload} of local queue {eviction.queue}, priority {eviction.priority}."
    if with_nodes and found.no_node:
        yield f"No node fits its pods. They wait for {found.no_node}."
    if not found.starts:
        same = sum(other.queue == found.queue for other in found.ahead)
        yield f"{plural(same, 'waiting run')} of its queue {'is' if same == 1 else 'are'} ahead of it."


def tables(found: answers.Answer) -> Iterator[Table]:
    """Yields who is ahead of a run that waits, and who holds its quota."""
    if found.starts or found.never:
        return
    for title, runs, columns in (
        ("Ahead of it", found.ahead, ("requests",)),
        ("Holds quota that it needs", found.holders, ("uses", "runs for")),
    ):
        if not runs:
            continue
        rows = [
            (other.name, other.queue, str(other.priority), amounts(other.requests), duration(other.seconds))
            for other in runs[:SHOWN]
        ]
        more = [(f"… and {len(runs) - SHOWN} more",)] if len(runs) > SHOWN else []
        titles = ("run", "cluster queue", "priority", *columns)
        table = console.new_table(titles, [*(row[: len(titles)] for row in rows), *more], title, titles[1:])
        table.columns[2].justify = "right"
        yield table


def as_json(found: answers.Answer) -> Mapping[str, object]:
    """Returns the answer as plain data."""
    return {
        "version": 2,
        "run": found.run,
        "clusterQueue": found.queue,
        "starts": found.starts,
        "flavors": found.flavors,
        "pods": found.pods,
        "requestedPods": found.requested,
        "preempts": [str(eviction.workload) for eviction in found.preempts],
        "waitsFor": found.waits_for,
        "never": found.never,
        "noNode": found.no_node,
        "podsWaitFor": found.lacks,
        "seconds": [None if seconds == inf else round(seconds) for seconds in found.waits],
        "nodesEndAfter": None if found.left == inf else round(found.left),
        "ahead": [_as_json(other) for other in found.ahead],
        "holders": [_as_json(other) for other in found.holders],
    }


def _as_json(other: answers.Run) -> Mapping[str, object]:
    requests = {name: readable(name, amount) for name, amount in other.requests.items()}
    return {"run": other.name, "clusterQueue": other.queue, "priority": other.priority, "requests": requests}


def amounts(requests: Mapping[str, Fraction]) -> str:
    """Formats amounts of resources: accelerators if there are any, else the rest."""
    chosen = {name: amount for name, amount in requests.items() if name in NAMES} or requests
    return ", ".join(
        plural(int(amount), NAMES[name]) if name in NAMES else f"{readable(name, amount)} {name}"
        for name, amount in sorted(chosen.items())
    )
