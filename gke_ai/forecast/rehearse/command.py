"""The command of `python -m gke_ai.forecast.rehearse`: says what a change does in the queue before it is merged.

    make rehearse STACK=prod [CONFIG=changed.yaml] [BASE=Pulumi.prod.yaml] [SNAPSHOT=snapshot.json] [MINUTES=30]
                  [UNAVAILABLE=spot] [UPGRADE=kueue|pool/gpu] [JSON=out.json] [PICTURE=out.svg] [MARKDOWN=out.md]
                  [PRICES=prices.yaml]
    make rehearse MANIFESTS=folder SNAPSHOT=snapshot.json [BASE=folder] […]

A scratch emulator gets the base configuration, or the state of a snapshot. Then it gets the change, and everything that
follows is recorded until the cluster settles. Your own stacks are not touched, and the scratch emulator is deleted.

The exit code is 0 if the change was rehearsed, whatever it does; 1 if the rehearsal was not possible; 3 if a rule, a
policy or the cluster refuses the change. A change that is refused half-way has a result: that of its applied part.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

from gke_ai.catalog.capacity import MODES
from gke_ai.forecast.model import Duration, Forecast, Nodes
from gke_ai.forecast.names import join_names
from gke_ai.forecast.outcome import outcome
from gke_ai.forecast.rehearse import configurations, delays, plain, prepared, timers, upgrades
from gke_ai.forecast.rehearse.differences import Difference
from gke_ai.forecast.rehearse.progress import phase
from gke_ai.forecast.rehearse.restore import lasting_differences, restore
from gke_ai.forecast.rehearse.scratch import Scratch, scratch
from gke_ai.forecast.rehearse.sources import Configurations, Source, Started
from gke_ai.forecast.rehearse.watching import Recorder
from gke_ai.forecast.render import rehearsal_picture, table
from gke_ai.forecast.snapshot import kueue
from gke_ai.forecast.snapshot.command import read_file, take
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.forecast.timeline import histories
from gke_ai.ops.configuration_file import read_calibration, read_prices
from gke_ai.ops.stack import Stop, client_of, on_emulator, request
from gke_ai.ops.terminal import new_console, printable
from gke_ai.registered.prices import with_google
from gke_ai.report import page
from gke_ai.settings.calibration import Calibration

REFUSED = 3
# Patience in seconds of the emulator: for the base to settle, and for the change besides its horizon.
RESTORED_SETTLES, CHANGE_SETTLES = 30.0, 120.0
# Pulumi waits for a server's first replica. If nothing happens for so long, it waits for what does not come.
ENGINE_WAITS = 30.0


def main() -> None:
    """Rehearses a change."""
    options = parser().parse_args()
    options.stack = options.manifests.name if options.manifests else options.stack
    if not on_emulator():
        raise Stop("A rehearsal runs on the emulator:  make rehearse STACK=prod CONFIG=changed.yaml")
    prices = read_prices(options.prices)  # before minutes pass
    stop_at_signals()
    forecast = rehearse(options)
    if forecast is None:
        same = "manifests that decide in the queue are" if options.manifests else "configuration is"
        print(f"The {same} the same before and after, so there is no change to rehearse.")
        return
    if not options.manifests:
        prices = with_google(prices, read_calibration(configurations.changed(options.stack, options.config)))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(forecast.written())
    picture = options.picture or Path(os.environ["GKE_AI_STATE"]) / "reports" / f"{options.stack}-rehearsal.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(rehearsal_picture.drawn(forecast))
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(page.rehearsal_page(forecast, prices))
    console = new_console()
    for part in table.shown(forecast, prices):
        console.print()
        console.print(part)
    for file in filter(None, (options.json, picture, options.markdown)):
        print(f"Written: {file}")
    if forecast.refused:
        raise SystemExit(REFUSED)


def stop_at_signals(work: str = "rehearsal") -> None:
    """Lets the first Ctrl-C or SIGTERM stop the rehearsal, or other work. Later ones don't stop the cleaning up."""
    numbers = (signal.SIGTERM, signal.SIGINT)

    def stop(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)  # commands that start from now on inherit this
        print(f"\nThe {work} stops, and deletes its scratch emulator …", file=sys.stderr)
        sys.exit(f"The {work} was stopped.")

    for number in numbers:
        signal.signal(number, stop)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command's options."""
    options = argparse.ArgumentParser(
        prog="python -m gke_ai.forecast.rehearse",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def path(text: str) -> Path | None:
        return Path(text).absolute() if text else None

    options.add_argument("--stack", default="dev", help="name of the stack. Default: dev")
    options.add_argument("--config", type=path, help="configuration with the change. Default: Pulumi.STACK.yaml")
    options.add_argument("--base", type=path, help="configuration before the change. Default: see docs/rehearsal.md")
    options.add_argument(
        "--manifests", type=path, help="folder of manifests with the change, in place of a configuration"
    )
    options.add_argument(
        "--snapshot", type=path, help="snapshot of the cluster, from python -m gke_ai.forecast.snapshot"
    )
    options.add_argument("--minutes", type=int, default=30, help="horizon in minutes of Google Cloud. Default: 30")
    options.add_argument(
        "--unavailable",
        type=capacity_modes,
        default=(),
        metavar="MODE,…",
        help=f"capacity modes in which Google has no more nodes when the change begins: {', '.join(MODES)}",
    )
    options.add_argument(
        "--upgrade", type=upgrade, metavar="WHAT", help="rehearse an upgrade: kueue, jobset, kueue,jobset or pool/NAME"
    )
    options.add_argument("--compression", type=float, default=delays.COMPRESSION, help=argparse.SUPPRESS)
    options.add_argument("--json", type=path, help="file for the result as JSON")
    options.add_argument("--picture", type=path, help="file for the timeline as SVG. Default: in the emulator's state")
    options.add_argument("--markdown", type=path, help="file for the result as Markdown, for a comment")
    options.add_argument("--prices", type=path, help="price table in YAML, as for the report")
    return options


def capacity_modes(text: str) -> tuple[str, ...]:
    """Returns the capacity modes in a text, which commas separate."""
    modes = tuple(filter(None, text.replace(" ", "").split(",")))
    for mode in modes:
        if mode not in MODES:
            raise argparse.ArgumentTypeError(f"{mode} is not a capacity mode. Use {', '.join(MODES)}")
    return modes


def upgrade(text: str) -> upgrades.Upgrade | None:
    """Returns the upgrade that a text names."""
    try:
        return upgrades.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def rehearse(options: argparse.Namespace) -> Forecast | None:
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
            written = restore_state(emulator, state) if state else None
            with Recorder(emulator.kubeconfig()) as recorder:
                notes += compare_state(emulator, options.stack, written, recorder) if written else []
                api = client_of(emulator.kubeconfig(), 1)
                notes += timers.pods_ready(kueue.configuration(request(api, "GET", kueue.PATH)))
                if options.unavailable:
                    emulator.run("capacity", *(f"{mode}=0" for mode in options.unavailable))
                    notes.append(f"Google has no more nodes in capacity mode {join_names(list(options.unavailable))}.")
                start = partial(change.start, emulator)
                forecast = _change(emulator, options, start, ", ".join(changes), stated, recorder)
            remarks = google_remarks(forecast.nodes, options.unavailable, measured)
            return replace(forecast, notes=(*notes, *forecast.notes, *remarks))


def google_remarks(pools: Iterable[Nodes], unavailable: Iterable[str], measured: Calibration) -> list[str]:
    """Returns what Google said of the pools that have or get nodes, and of what replaces unavailable capacity."""
    machines = {(pool.machine, pool.capacity) for pool in pools if pool.came or pool.after}
    machines |= {(window.machine_type, mode) for window in measured.windows for mode in unavailable}
    return list(dict.fromkeys(remark for machine in sorted(machines) for remark in measured.remarks(*machine)))


def _source(options: argparse.Namespace, snapshot: Snapshot | None, folder: Path) -> Source:
    """The two sides of the change: manifests, or configurations of the program."""
    if not options.manifests:
        config = configurations.changed(options.stack, options.config)
        if not options.upgrade:
            base = configurations.base(options.stack, options.base, config, folder)
        elif options.base:
            raise Stop("An upgrade needs no BASE: it is rehearsed on CONFIG, or on the stack's own configuration.")
        else:
            base, config = options.upgrade.configurations(config, folder)
        return Configurations(options.stack, base, config, snapshot, options.upgrade, options.compression)
    if not snapshot:
        raise Stop(
            "Manifests say nothing about the nodes and Kueue. Add the state of the cluster: SNAPSHOT=snapshot.json"
        )
    if options.config or options.upgrade:
        other = "CONFIG" if options.config else "UPGRADE"
        raise Stop(f"MANIFESTS and {other} are two changes. Rehearse one of them.")
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
    emulator: Scratch,
    options: argparse.Namespace,
    start: Callable[[], Started],
    change: str,
    stated: list[Duration],
    recorder: Recorder,
) -> Forecast:
    compression = options.compression
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
            print(printable(f"The change is refused:\n{refused}"), file=sys.stderr)
            if not (done := update.done()):
                raise SystemExit(REFUSED)
            notes.append(f"Before it was refused, the change had {join_names(done)}.")
        recorder.applied()
        limit = CHANGE_SETTLES + options.minutes * 60 / compression
        with phase(f"watch until nothing changes for {quiet:.0f} s"):
            settled = recorder.settle(quiet, limit)
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
    notes += timers.uncounted(histories(recorded))
    forecast = outcome(
        recorded,
        options.stack,
        change,
        compression,
        options.minutes * 60,
        stated,
        notes,
        options.snapshot.name if options.snapshot else "",
    )
    return replace(forecast, refused=refused, upgrade=options.upgrade is not None)


def _await_update(update: Started, recorder: Recorder) -> None:
    """Waits until an update has ended, or waits for something that does not come."""
    while update.runs:
        if min(recorder.quiet, update.quiet) > ENGINE_WAITS and update.waits_for():
            return
        time.sleep(0.2)
