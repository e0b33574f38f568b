"""Says what a change does in the queue before it is merged: the command `rehearse`."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

from gke_ai.forecast.outcome.outcome import outcome
from gke_ai.forecast.outcome.timeline import histories
from gke_ai.forecast.rehearse import blocks, delays, plain, prepared, sources, timers, upgrades
from gke_ai.forecast.rehearse.applied import Applied
from gke_ai.forecast.rehearse.differences import Difference
from gke_ai.forecast.rehearse.engine import Update
from gke_ai.forecast.rehearse.progress import phase
from gke_ai.forecast.rehearse.release import check_version, rehearsed
from gke_ai.forecast.rehearse.restore import lasting_differences, restore
from gke_ai.forecast.rehearse.scratch import Scratch, scratch
from gke_ai.forecast.rehearse.watching import Recorder
from gke_ai.forecast.render import rehearsal_picture, table
from gke_ai.forecast.render.markdown import rehearsal_page
from gke_ai.forecast.result.forecast import Duration, Forecast, Nodes
from gke_ai.forecast.snapshot import kueue
from gke_ai.forecast.snapshot.command import read_file, take
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.formats import console
from gke_ai.formats.sentences import join_names
from gke_ai.kube.client import client_of, request
from gke_ai.settings.calibration import Calibration
from gke_ai.terminal import Stop, echo, write
from gke_ai.workspace.configuration_file import read_calibration, read_prices, read_region
from gke_ai.workspace.emulated import state
from gke_ai.workspace.prices import with_google

# The two sides of a change, and the change while it is applied. Both kinds of each have the same methods.
Source = sources.Configurations | plain.Manifests
Started = Update | Applied
Start = Callable[[], Started]
REFUSED = 3
# Patience in seconds of the emulator: for the base to settle, and for the change besides its horizon.
RESTORED_SETTLES, CHANGE_SETTLES = 30.0, 120.0
# Pulumi waits for a server's first replica. If nothing happens for so long, it waits for what does not come.
ENGINE_WAITS = 30.0


@dataclass(frozen=True)
class Options:
    """What is rehearsed, and under which assumptions.

    Attributes:
        stack: Name of the stack, or of the folder of manifests.
        config: Configuration with the change. Default: Pulumi.<stack>.yaml.
        base: Configuration or folder before the change. Default: see docs/rehearsal.md.
        manifests: Folder of manifests with the change, in place of a configuration.
        snapshot: Snapshot of the cluster.
        minutes: Horizon in minutes of Google Cloud.
        unavailable: Capacity modes in which Google has no more nodes when the change begins.
        upgrade: The upgrade that is the change.
        compression: Seconds of Google Cloud in one of the emulator.
        json: File for the result as JSON.
        picture: File for the picture. Default: in the emulator's state.
        blocks: File for the picture of the blocks, if the change moves pods there. Default: in the emulator's state.
        markdown: File for the result as Markdown.
        prices: A team's own price table in YAML. Default: Google's list prices, with a configuration.
    """

    stack: str = "dev"
    config: Path | None = None
    base: Path | None = None
    manifests: Path | None = None
    snapshot: Path | None = None
    minutes: int = 30
    unavailable: tuple[str, ...] = ()
    upgrade: upgrades.Upgrade | None = None
    compression: float = delays.COMPRESSION
    json: Path | None = None
    picture: Path | None = None
    blocks: Path | None = None
    markdown: Path | None = None
    prices: Path | None = None


def show(options: Options) -> None:
    """Rehearses a change, and prints and writes what it does. Exits with REFUSED if it is refused."""
    changed = None if options.manifests else sources.changed(options.stack, options.config)
    prices = read_prices(options.prices, changed)  # before minutes pass
    stop_at_signals()
    forecast = rehearse(options)
    if forecast is None:
        same = "manifests that decide in the queue are" if options.manifests else "configuration is"
        print(f"The {same} the same before and after, so there is no change to rehearse.")
        return
    if changed:
        prices = with_google(prices, read_calibration(changed), read_region(changed))
    written = {options.json: forecast.written()} if options.json else {}
    picture = options.picture or state("reports", f"{options.stack}-rehearsal.svg")
    written[picture] = rehearsal_picture.drawn(forecast)
    if forecast.placed_before or forecast.placed_after:
        written[options.blocks or state("reports", f"{options.stack}-blocks.svg")] = blocks.picture(forecast)
    if options.markdown:
        written[options.markdown] = rehearsal_page(forecast, prices)
    console.show(table.shown(forecast, prices))
    write(written)
    if forecast.refused:
        raise SystemExit(REFUSED)


def stop_at_signals(work: str = "rehearsal") -> None:
    """Lets the first Ctrl-C or SIGTERM, or the end of the terminal, stop the rehearsal, or other work.

    Later ones don't stop the cleaning up. Work that ignores the end of its terminal goes on.
    """
    of_terminal = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    numbers = (signal.SIGTERM, signal.SIGINT, *of_terminal)

    def stop(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)  # commands that start from now on inherit this
        print(f"\nThe {work} stops, and deletes its scratch emulator …", file=sys.stderr)
        sys.exit(f"The {work} was stopped.")

    for number in numbers:
        signal.signal(number, stop)


def rehearse(options: Options) -> Forecast | None:
    """Brings a scratch emulator to the state before the change, applies the change, and returns what it does.

    Returns None if the two sides are the same.
    """
    snapshot = read_file(options.snapshot) if options.snapshot else None
    with tempfile.TemporaryDirectory() as folder:
        change = _source(options, snapshot, Path(folder))
        if not (changes := change.changes()):
            return None
        measured = change.measured()
        stated = delays.durations(measured)
        with scratch() as emulator:
            change.bring_up(emulator)
            state, notes = change.restored(emulator)
            notes += blocks.uncounted(state)
            written = restore_state(emulator, state) if state else None
            with Recorder(emulator.kubeconfig()) as recorder:
                notes += compare_state(emulator, options.stack, written, recorder) if written else []
                if options.unavailable:
                    emulator.run("capacity", *(f"{mode}=0" for mode in options.unavailable))
                    notes.append(f"Google has no more nodes in capacity mode {join_names(list(options.unavailable))}.")
                start = partial(change.start, emulator)
                if written:
                    recorder.restored = written.taken_at
                forecast = _change(emulator, options, start, ", ".join(changes), stated, recorder)
                configured = kueue.configuration(request(client_of(emulator.kubeconfig(), 1), "GET", kueue.PATH))
                notes += timers.pods_ready(configured, rehearsed(snapshot))
            remarks = [*google_remarks(forecast.nodes, options.unavailable, measured), *chosen_by_google(forecast)]
            return replace(forecast, notes=(*notes, *forecast.notes, *remarks))


def chosen_by_google(forecast: Forecast) -> Iterator[str]:
    """Yields a remark for each pool that loses some of its nodes with their pods."""
    drained = {entry.cause.partition(",")[0] for entry in forecast.interruptions}
    for pool in forecast.nodes:
        if pool.came < pool.went and pool.after and f"node pool {pool.pool}" in drained:
            yield f"GKE chooses which nodes of pool {pool.pool} it removes, so other pods may end than here."


def google_remarks(pools: Iterable[Nodes], unavailable: Iterable[str], measured: Calibration) -> list[str]:
    """Returns what Google said of the pools that have or get nodes, and of what replaces unavailable capacity."""
    machines = {(pool.machine, pool.capacity) for pool in pools if pool.came or pool.after}
    machines |= {(window.machine_type, mode) for window in measured.windows for mode in unavailable}
    return list(dict.fromkeys(remark for machine in sorted(machines) for remark in measured.remarks(*machine)))


def _source(options: Options, snapshot: Snapshot | None, folder: Path) -> Source:
    """The two sides of the change: manifests, or configurations of the program."""
    if not options.manifests:
        config = sources.changed(options.stack, options.config)
        upgrade = options.upgrade and options.upgrade.of(config, snapshot)
        if snapshot and options.snapshot:
            check_version(snapshot, options.snapshot.name)
        if not upgrade:
            base = sources.base(options.stack, options.base, config, folder)
        elif options.base:
            raise Stop("An upgrade needs no --base: it is rehearsed on --config, or on the stack's own configuration.")
        else:
            base, config = upgrade.configurations(config, folder)
        return sources.Configurations(options.stack, base, config, snapshot, upgrade, options.compression)
    if not snapshot or not options.snapshot:
        raise Stop(
            "Manifests say nothing about the nodes and Kueue. Add the state of the cluster: --snapshot snapshot.json"
        )
    if options.config or options.upgrade:
        other = "--config" if options.config else "--upgrade"
        raise Stop(f"--manifests and {other} are two changes. Rehearse one of them.")
    return plain.source(options.manifests, options.base, snapshot, options.snapshot.name)


def restore_state(emulator: Scratch, snapshot: Snapshot) -> Snapshot:
    """Brings the scratch cluster to the state of a snapshot. Returns the snapshot as it was written."""
    with phase(f"bring it to the state of the snapshot of {snapshot.taken_at:%Y-%m-%d %H:%M} UTC"):
        return restore(snapshot, client_of(emulator.kubeconfig(), 1), emulator.state)


def compare_state(emulator: Scratch, stack: str, written: Snapshot, recorder: Recorder) -> Iterator[str]:
    """Yields what differs in the scratch cluster from the snapshot, as it was written."""
    api = client_of(emulator.kubeconfig(), 1)
    with phase("compare it with the snapshot"):
        recorder.settle(delays.QUIET_SECONDS, RESTORED_SETTLES)
        differing = lasting_differences(written, lambda: take(stack, api), RESTORED_SETTLES)
    yield from summarized(differing)
    yield from kueue.differing(written.kueue, kueue.configuration(request(api, "GET", kueue.PATH)))


def summarized(differing: Iterable[Difference]) -> Iterator[str]:
    """Yields a note for each kind whose objects differ from the snapshot."""
    for _, group in groupby(sorted(differing), key=lambda difference: difference.kind):
        first, *more = group
        others = f", and {len(more)} more of this kind" if more else ""
        yield f"Unlike the snapshot: {first}{others}."


def _change(
    emulator: Scratch, options: Options, start: Start, change: str, stated: list[Duration], recorder: Recorder
) -> Forecast:
    compression, horizon = options.compression, options.minutes * 60
    delayed = delays.arguments(stated, compression)
    quiet = delays.longest(delayed) + delays.QUIET_SECONDS
    notes: list[str] = []
    refused = ""
    with phase("wait until the base has settled"):
        if not recorder.settle(delays.QUIET_SECONDS, prepared.BASE_SETTLES):
            notes.append("The base did not settle before the change, so some results may belong to the base.")
    emulator.run("delay", *delayed)
    recorder.begin()
    update = start()
    try:
        with phase(f"apply the change: {change}"):
            _await_update(update, recorder)
        if not update.runs and not update.succeeded():
            refused = update.errors()
            echo(f"The change is refused:\n{refused}", file=sys.stderr)
            if not (done := update.done()):
                raise SystemExit(REFUSED)
            notes.append(f"Before it was refused, the change had {join_names(done)}.")
        recorder.applied()
        with phase(f"watch until nothing changes for {quiet:.0f} s"):
            settled = recorder.settle(quiet, CHANGE_SETTLES + horizon / compression)
        if owed := [] if settled else recorder.owed():
            notes.append(f"At the end, controllers still have to act on {join_names(owed)}.")
        notes += update.notes()
        if update.runs:
            notes.append(f"pulumi up still waits at the end: {update.waits_for() or 'for a resource'}.")
        elif not refused and not update.succeeded():
            notes.append(f"pulumi up failed in the end: {update.errors()}")
    finally:
        update.stop()
    recorded = recorder.timeline(settled)
    changed = histories(recorded)
    before, after = blocks.placements(changed)
    notes += [*timers.uncounted(changed), *blocks.moved(before, after)]
    snapshot = options.snapshot.name if options.snapshot else ""
    forecast = outcome(recorded, options.stack, change, compression, horizon, stated, notes, snapshot)
    upgrade = options.upgrade is not None
    return replace(forecast, refused=refused, upgrade=upgrade, placed_before=before, placed_after=after)


def _await_update(update: Started, recorder: Recorder) -> None:
    """Waits until an update has ended, or waits for something that does not come."""
    while update.runs:
        if min(recorder.quiet, update.quiet) > ENGINE_WAITS and update.waits_for():
            return
        time.sleep(0.2)
