"""The real Kueue on a scratch control plane: starts it, writes Workloads, follows its decisions, reads its counts."""

from __future__ import annotations

import json
import math
import queue
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gke_ai.catalog.versions import KUEUE_API, KUEUE_VERSION
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.simulate.objects import Object, Queues
from gke_ai.kube.client import ApiClient, client_of, follow, list_objects, request
from gke_ai.kube.objects import holds
from gke_ai.manifests.kueue_chart import chart_values, manager_configuration, sharing
from gke_ai.terminal import Stop
from gke_ai.workspace.emulation import RUN

WORKLOADS = f"/apis/{KUEUE_API}/workloads"
READY_SECONDS, END_SECONDS = 300.0, 5.0
# The tag of the emulator's build that tries waiting workloads again 1 ms after quota is free, and whose clock of past
# usage is set.
BUILD = "-simulated"


@dataclass(frozen=True)
class Counts:
    """What Kueue itself counts, by cluster queue: workloads about to be tried, tried without success, and admitted.

    `attempts` is how often it tried the heads of all queues that have any.
    """

    active: Mapping[str, int] = field(default_factory=dict)
    inadmissible: Mapping[str, int] = field(default_factory=dict)
    reserving: Mapping[str, int] = field(default_factory=dict)
    attempts: int = 0


@dataclass(frozen=True)
class Log:
    """What Kueue's log says.

    `moved` is how often it moved waiting workloads back to be tried, by `queue/NAME` or `cohort/NAME`.
    `idle` is whether it has tried all that it is to try.
    """

    moved: Mapping[str, int] = field(default_factory=dict)
    idle: bool = True


class Kueue:
    """A running Kueue with the queues of a configuration."""

    def __init__(self, api: ApiClient, process: subprocess.Popen[str], log: Path) -> None:
        self._api = api
        self._process = process
        self._log = log
        self._changes: queue.SimpleQueue[Object] = queue.SimpleQueue()
        self._watch = threading.Thread(target=self._follow, daemon=True)
        self._watch.start()

    def write(self, puts: Iterable[Object], deletes: Iterable[Object]) -> None:
        """Writes and deletes Workloads. Leaves one that has changed since it was read: its change is still to come."""
        self._ask({"put": [*puts], "delete": [*deletes]})

    def log(self) -> Log:
        """Returns what Kueue's log says by now."""
        return Log(**self._ask({"log": True}))

    def nodes(self) -> list[Mapping[str, Any]]:
        """Returns the nodes on which Kueue places pods."""
        return list_objects(self._api, "/api/v1/nodes")

    def counts(self) -> Counts:
        """Returns Kueue's own counts."""
        answer = self._ask({"counts": True})
        active, inadmissible = ({name: pair[part] for name, pair in answer["pending"].items()} for part in (0, 1))
        return Counts(active, inadmissible, answer["reserving"], answer["attempts"])

    def sample(self, second: float, interval: float) -> None:
        """Sets Kueue's clock of past usage, and waits until it has counted the usage until then."""
        self._ask({"usage": second, "interval": interval})

    def changes(self, seconds: float) -> Iterator[Object]:
        """Yields the Workloads that changed since the last call. Waits for the first one for at most `seconds`."""
        try:
            yield self._changes.get(timeout=seconds)
            while True:
                yield self._changes.get_nowait()
        except queue.Empty:
            return

    def _ask(self, content: Object) -> Any:
        return ask(self._process, content, self._log)

    def _follow(self) -> None:
        def listed(items: Sequence[Mapping[str, Any]] | None) -> None:
            for item in items or []:
                self._changes.put({"apiVersion": KUEUE_API, "kind": "Workload", **item})

        def changed(item: Mapping[str, Any], gone: bool) -> None:
            if not gone:
                self._changes.put({**item})

        follow(self._api, WORKLOADS, listed, changed, threading.Event())


@contextmanager
def started(emulator: Scratch, queues: Queues, held: Sequence[Object] = ()) -> Iterator[Kueue]:
    """Starts Kueue with queues, and with Workloads that hold quota. Yields it once every queue is active."""
    values = emulator.state / "kueue.yaml"
    chart = chart_values(KUEUE_VERSION, 1, configuration(queues))
    chart["controllerManager"]["manager"]["image"]["tag"] += BUILD
    values.write_text(yaml.safe_dump(chart))
    nodes = emulator.state / "pools.json"
    nodes.write_text(json.dumps(queues.pools))
    log = emulator.state / "queues.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [RUN, "queues", KUEUE_VERSION, str(values), str(nodes)],
            env=emulator.environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
        )
        try:
            first = process.stdout.readline() if process.stdout else ""
            if not first:
                raise Stop(f"Kueue does not start:\n{_end_of(log)}")
            api = client_of(Path(json.loads(first)["kubeconfig"]).read_text(), 4)
            local = [pair for pair in queues.objects() if pair[1]["kind"] == "LocalQueue"]
            _create(api, (pair for pair in queues.objects() if pair not in local))
            kueue = Kueue(api, process, log)
            _hold(kueue, held)
            # Kueue reads the past usage of a local queue once, so its status is there from the start.
            kueue.write((item for _, item in local if "status" in item), ())
            _create(api, (pair for pair in local if "status" not in pair[1]))
            yield kueue
        finally:
            if process.stdin:
                process.stdin.close()  # it ends with its input
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:  # it still creates the control plane
                process.terminate()
                process.wait()


def configuration(queues: Queues) -> dict[str, Any]:
    """The configuration of Kueue's manager, as the program writes it but for what would cost time or cause restarts.

    No pod becomes ready in a simulation, so there is no limit for that. Kueue's own limit of 50 requests per second
    would slow it down without changing a decision.
    """
    stack = queues.stack
    shares = sharing(stack.queues.fair_sharing, stack.queues.admission_fair_sharing, stack.counted)
    written = manager_configuration(stack.namespaces, False, 0, reclaim_ended_pods=not stack.spaces, sharing=shares)
    return {
        **written,
        "leaderElection": {**written["leaderElection"], "leaderElect": False},
        "clientConnection": {"qps": 1000, "burst": 2000},
        **queues.manager,
    }


def ask(process: subprocess.Popen[str], content: Object, log: Path) -> Any:
    """Sends a request to the emulator's process and returns its answer. Stops with the end of its log if it ended."""
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write(json.dumps(content) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())
    except (OSError, ValueError):
        raise Stop(
            "Kueue's control plane has ended, so the simulation cannot go on. Run it again. "
            f"Its last output:\n{_end_of(log)}"
        ) from None


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:].strip() or "(none)"


def _hold(kueue: Kueue, held: Sequence[Object]) -> None:
    """Writes Workloads that hold quota before their local queues exist, and waits until Kueue has read them.

    Kueue learns the local queue of such a Workload only when it reads the queue. Without it, the end of the Workload
    makes it try none that wait: pkg/cache/queue/manager.go, addLocalQueueLocked and
    QueueAssociatedInadmissibleWorkloadsAfter
    """
    kueue.write(held, ())
    expected = Counter(item["status"]["admission"]["clusterQueue"] for item in held)
    deadline = time.monotonic() + READY_SECONDS  # after it, the replay itself says which counts differ
    while expected - Counter(kueue.counts().reserving) and time.monotonic() < deadline:
        time.sleep(0.3)


def _create(api: ApiClient, objects: Iterable[tuple[str, Object]]) -> None:
    """Creates the queues. Kueue's webhook answers only some seconds after its start."""
    deadline = time.monotonic() + READY_SECONDS
    for path, item in objects:
        while (answer := request(api, "POST", path, body=item)).code >= 400 and answer.code != 409:
            if answer.code < 500 and answer.code != 404:
                raise Stop(f"The cluster refuses {item['kind']} {item['metadata']['name']}: {answer.reason}")
            if time.monotonic() > deadline:
                raise Stop(f"Kueue does not answer within {READY_SECONDS:.0f} s: {answer.reason}")
            time.sleep(0.3)
    fewest = math.inf
    while inactive := [
        str(item["metadata"]["name"])
        for item in request(api, "GET", f"/apis/{KUEUE_API}/clusterqueues").body["items"]
        if not holds(item, "Active")
    ]:
        if len(inactive) < fewest:  # hundreds of queues take a busy machine minutes
            fewest, deadline = len(inactive), time.monotonic() + READY_SECONDS
        if time.monotonic() > deadline:
            raise Stop(f"Kueue does not make these queues active: {', '.join(inactive)}")
        time.sleep(0.3)
