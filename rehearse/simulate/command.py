"""The command of `python -m rehearse.simulate`: replays a day of submissions against the real Kueue.

    make simulate STACK=prod [CONFIG=changed.yaml] [TRACE=trace.csv] [JOBS=200] [SEED=1] [JSON=out.json]

A scratch control plane gets the queues of the configuration. Kueue decides on each submission of the trace; starts and
ends are simulated. Without a trace, one is generated. Your own stacks are not touched.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.table import Table

import settings
from ops.configuration_file import read_configuration
from ops.snapshot.command import read_file
from ops.stack import ROOT, Stop, on_emulator
from ops.terminal import new_console
from rehearse.command import stop_at_signals
from rehearse.progress import phase
from rehearse.scratch import scratch
from rehearse.simulate import imports
from rehearse.simulate.capacity import Capacity
from rehearse.simulate.generate import SOURCES, Figures, generate
from rehearse.simulate.kueue import started
from rehearse.simulate.objects import Queues
from rehearse.simulate.replay import Replay
from rehearse.simulate.result import HOUR, Day, day, end_of, pool_day
from rehearse.simulate.trace import Submission, read, written
from settings import BadConfiguration
from settings.reading import PREFIX

SHOW_EVERY = 2.0


def main() -> None:
    """Runs one of the commands: simulate, generate or import."""
    options = parser().parse_args()
    options.run(options)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the options."""
    shape = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(prog="python -m rehearse.simulate", description=__doc__, formatter_class=shape)
    commands = options.add_subparsers(required=True)
    for name, run, description in (
        ("day", simulate, "replay a trace"),
        ("generate", print_generated, f"print a trace with these distributions: {SOURCES}".replace("%", "%%")),
    ):
        command = commands.add_parser(name, help=description, description=description)
        command.set_defaults(run=run)
        command.add_argument("--stack", default="dev", help="name of the stack. Default: dev")
        command.add_argument("--config", type=_path, help="configuration. Default: Pulumi.STACK.yaml")
        command.add_argument(
            "--jobs", type=_positive, default=200, help="about how many runs to generate. Default: 200"
        )
        command.add_argument("--seed", type=int, default=1, help="seed of the generated trace. Default: 1")
        if run is simulate:
            command.add_argument("--trace", type=_path, help="trace as CSV. Default: a generated one")
            command.add_argument("--json", type=_path, help="file for the result as JSON")
    imported = commands.add_parser("import", help="print a trace in another format as CSV")
    imported.set_defaults(run=print_imported)
    imported.add_argument("format", choices=imports.FORMATS)
    imported.add_argument("file", type=Path)
    imported.add_argument(
        "--queue",
        action="append",
        default=[],
        metavar="[GROUP=]NAMESPACE/NAME",
        help="local queue for a group of the format (qos, type or vc), or for all groups",
    )
    imported.add_argument("--start", type=float, default=0.0, help="first hour of the part to print. Default: 0")
    imported.add_argument("--hours", type=float, default=24.0, help="length of the part to print. Default: 24")
    return options


def _path(text: str) -> Path | None:
    return Path(text).absolute() if text else None


def _positive(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError("use a number from 1 to 100000")
    return int(text)


def simulate(options: argparse.Namespace) -> None:
    """Replays a trace, and prints the result."""
    if not on_emulator():
        raise Stop("A simulation runs on the emulator:  make simulate STACK=prod TRACE=trace.csv")
    queues = queues_of(options.config or ROOT / f"Pulumi.{options.stack}.yaml")
    trace = read(options.trace) if options.trace else generated(queues, options)
    source = options.trace.name if options.trace else f"generated with seed {options.seed}"
    queues.check(trace)
    stop_at_signals("simulation")
    with scratch() as emulator, ExitStack() as control_plane:
        with phase(f"start Kueue with {len(queues.cluster_queues)} cluster queues"):
            kueue = control_plane.enter_context(started(emulator, queues))
        capacity = Capacity(options.seed, queues.stack.measured.spot)
        replay, begun = Replay(kueue, queues, trace, capacity), time.monotonic()
        runs = replay.run(_progress(len(trace), trace[-1].time))
        seconds = time.monotonic() - begun
    pools = [pool_day(group, capacity, end_of(runs)) for group in replay.groups(end_of(runs))]
    result = day(options.stack, source, queues, runs, replay.late, seconds, options.seed, pools)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(result.to_json(runs))
    show(result)
    if options.json:
        print(f"Written: {options.json}")


def queues_of(file: Path) -> Queues:
    """Returns the queues of a configuration. Stops if it is invalid, or has none."""
    if not file.is_file():
        raise Stop(f"There is no configuration {file}. Name one: CONFIG=examples/mixed-training-inference.yaml")
    config = read_configuration(file).get("config") or {}
    values = {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}
    project, region = str(config.get("gcp:project") or "project-id"), str(config.get("gcp:region") or "")
    try:
        # Tokens have no effect on queues.
        queues = Queues(settings.load(values, project, token_given=True, region=region))
    except BadConfiguration as bad:
        raise Stop(str(bad)) from None
    if not queues.by_local:
        raise Stop(f"{file} has no local queues, so nobody can submit a run. Add gke-ai:queues with localQueues.")
    return queues


def generated(queues: Queues, options: argparse.Namespace) -> tuple[Submission, ...]:
    """Returns a trace for all local queues. Stops if it has no submission."""
    trace = generate(queues.sources(), options.jobs, options.seed)
    if not trace:
        raise Stop(f"Seed {options.seed} gives no submission. Use more jobs, or another seed.")
    return trace


def print_generated(options: argparse.Namespace) -> None:
    """Prints a generated trace as CSV."""
    print(written(generated(queues_of(options.config or ROOT / f"Pulumi.{options.stack}.yaml"), options)), end="")


def print_imported(options: argparse.Namespace) -> None:
    """Prints a part of a trace in another format as CSV."""
    named = {group: queue for group, _, queue in (text.rpartition("=") for text in options.queue)}
    if options.format == "snapshot":
        trace = imports.import_snapshot(options.file, read_file(options.file))
    elif options.format == "philly":
        trace = imports.import_philly(options.file, named)
    else:
        trace = imports.import_table(options.file, options.format, named)
    print(written(imports.window(trace, options.start, options.hours)), end="")


def _progress(total: int, last: float) -> Callable[[float, int], None]:
    """Returns what prints the time of the clock, at most every two seconds."""
    shown = time.monotonic()

    def show_progress(now: float, ended: int) -> None:
        nonlocal shown
        if time.monotonic() - shown > SHOW_EVERY:
            shown = time.monotonic()
            text = f"… hour {now / HOUR:.1f} of {last / HOUR:.1f}, {ended:,} of {total:,} runs have ended"
            print(
                f"\r{text}\033[K" if sys.stdout.isatty() else text, end="" if sys.stdout.isatty() else "\n", flush=True
            )

    return show_progress


def show(result: Day) -> None:
    """Prints the result as a table."""
    title = f"Stack {result.stack}, trace {result.trace}: {result.hours:.1f} hours, replayed in {result.seconds:.0f} s"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("cluster queue", no_wrap=True)
    columns = ("runs", "never started", "waits p50", "p90", "p99", "longest", "preemptions")
    for column in (*columns, "accelerator-hours", "lost", "quota in use", "busiest hour"):
        table.add_column(column, justify="right")
    for queue in result.queues:
        shares = [used / queue.quota for used in queue.use] if queue.quota else []
        table.add_row(
            queue.queue,
            f"{queue.submitted:,}",
            f"{queue.never_started:,}",
            *(duration(queue.waited.get(name)) for name in ("p50", "p90", "p99", "longest")),
            f"{queue.preemptions:,}",
            f"{queue.used_hours:,.1f}",
            f"{queue.lost_hours:,.1f}",
            f"{sum(shares) / len(shares):.0%}" if shares else "–",
            f"{max(shares):.0%}" if shares else "–",
        )
    console = new_console()
    console.print()
    console.print(table)
    if result.late:
        print(f"Kueue decided {result.late} times after the clock had moved on: these times are too late.")
    print("Kueue is real. Nodes, waits for capacity, stock-outs and Spot reclaims are a model: docs/simulation.md.")


def duration(seconds: float | None) -> str:
    """Formats a duration in the unit that suits it."""
    if seconds is None:
        return "–"
    for unit, size in (("h", HOUR), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


__all__ = ["Figures", "main", "simulate"]
