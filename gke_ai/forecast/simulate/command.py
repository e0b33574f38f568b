"""The command of `python -m gke_ai.forecast.simulate`: replays a day of submissions against the real Kueue.

    make simulate STACK=prod [CONFIG=changed.yaml] [COMPARE="a.yaml b.yaml"] [TRACE=trace.csv] [JOBS=200] [SEED=1]
                  [SEEDS=5] [PRICES=prices.yaml] [JSON=out.json] [PICTURE=out.svg]

A scratch control plane gets the queues of a configuration. Kueue decides on each submission of the trace; starts and
ends are simulated. Without a trace, one is generated. With several configurations, the same traces are replayed with
the queues of each. With several seeds, the result says how much days vary. Your own stacks are not touched.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from gke_ai import settings
from gke_ai.catalog.versions import KUEUE_VERSION
from gke_ai.forecast.rehearse.command import stop_at_signals
from gke_ai.forecast.rehearse.progress import phase
from gke_ai.forecast.rehearse.scratch import scratch
from gke_ai.forecast.render import simulation_picture
from gke_ai.forecast.render.table import simulated
from gke_ai.forecast.simulate import imports
from gke_ai.forecast.simulate.capacity import Capacity
from gke_ai.forecast.simulate.compared import Replayed, Side, simulation, written_days
from gke_ai.forecast.simulate.generate import SOURCES, generate
from gke_ai.forecast.simulate.kueue import started
from gke_ai.forecast.simulate.objects import Queues
from gke_ai.forecast.simulate.replay import Replay
from gke_ai.forecast.simulate.result import HOUR, day, end_of, pool_day
from gke_ai.forecast.simulate.trace import Submission, read, written
from gke_ai.forecast.simulation import MAX_CONFIGURATIONS, Simulation
from gke_ai.forecast.snapshot.command import read_file
from gke_ai.forecast.spread import MAX_SEEDS
from gke_ai.ops.configuration_file import read_configuration, read_prices
from gke_ai.ops.stack import ROOT, Stop, on_emulator
from gke_ai.ops.terminal import new_console
from gke_ai.registered.prices import Prices, with_google
from gke_ai.settings import BadConfiguration
from gke_ai.settings.reading import PREFIX

SHOW_EVERY = 2.0
NOTES = ("Kueue is real. Nodes, waits for capacity, stock-outs and Spot reclaims are a model: docs/simulation.md.",)


def main() -> None:
    """Runs one of the commands: simulate, generate or import."""
    options = parser().parse_args()
    options.run(options)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the options."""
    shape = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(
        prog="python -m gke_ai.forecast.simulate", description=__doc__, formatter_class=shape
    )
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
            "--jobs", type=_up_to(100_000), default=200, help="about how many runs to generate. Default: 200"
        )
        command.add_argument("--seed", type=int, default=1, help="seed of the generated trace. Default: 1")
        if run is simulate:
            command.add_argument("--trace", type=_path, help="trace as CSV. Default: a generated one")
            command.add_argument("--seeds", type=_up_to(MAX_SEEDS), default=1, help="number of seeds. Default: 1")
            command.add_argument(
                "--compare", type=_path, action="append", default=[], help="configuration to compare; repeatable"
            )
            command.add_argument("--prices", type=_path, help="price table in YAML, as for the report")
            command.add_argument("--json", type=_path, help="file for the result as JSON")
            command.add_argument("--picture", type=_path, help="file for the picture. Default: in the emulator's state")
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


def _up_to(most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"use a number from 1 to {most}")
        return int(text)

    return number


def simulate(options: argparse.Namespace) -> None:
    """Replays the traces with each configuration, and prints and writes the result."""
    if not on_emulator():
        raise Stop("A simulation runs on the emulator:  make simulate STACK=prod TRACE=trace.csv")
    files = [options.config or ROOT / f"Pulumi.{options.stack}.yaml", *options.compare]
    if len(files) > MAX_CONFIGURATIONS or len({*files}) < len(files):
        raise Stop(f"COMPARE: name at most {MAX_CONFIGURATIONS - 1} configurations, each one once.")
    read_prices(options.prices)  # stops before minutes pass if it is invalid
    queues = [queues_of(file) for file in files]
    seeds = range(options.seed, options.seed + options.seeds)
    traces = [read(options.trace)] * len(seeds) if options.trace else [generated(queues[0], options, s) for s in seeds]
    for file, of_file in zip(files, queues, strict=True):
        for trace in traces:
            check(file, of_file, trace)
    stop_at_signals("simulation")
    begun = time.monotonic()
    replays = []
    for name, of_file in zip(names_of(files), queues, strict=True):
        part = f" with {name}" if len(files) > 1 else ""
        work = [f"{part}, seed {seed}" if len(seeds) > 1 else part for seed in seeds]
        replays.append([replayed(of_file, *day) for day in zip(traces, seeds, work, strict=True)])
    # The days of a seed have the same length, because nodes are paid for until the end.
    ends = [max(end_of(replay.runs) for replay, _ in of_seed) for of_seed in zip(*replays, strict=True)]
    prices = with_google(read_prices(options.prices), queues[0].stack.measured)
    sides = [
        Side(name, of_file, [day_of(of_file, *ended, end, prices) for ended, end in zip(of_side, ends, strict=True)])
        for name, of_file, of_side in zip(names_of(files), queues, replays, strict=True)
    ]
    source = options.trace.name if options.trace else f"generated, about {options.jobs} runs"
    result = simulation(options.stack, source, seeds, sides, [*NOTES, *other_versions(files, queues)])
    picture = options.picture or Path(os.environ["GKE_AI_STATE"]) / "reports" / f"{options.stack}-simulation.svg"
    written_files = {picture: simulation_picture.drawn(result)}
    if options.json:
        written_files[options.json] = result.written(written_days(sides, seeds))
    show(result, time.monotonic() - begun)
    for file, content in written_files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        print(f"Written: {file}")
    print(f"Next: {next_step(options)}")


def names_of(files: list[Path]) -> list[str]:
    """Returns a short name for each file: its own name, or its path if another file has the same name."""
    names = [file.name for file in files]
    return [file.name if names.count(file.name) == 1 else str(file) for file in files]


def other_versions(files: list[Path], queues: list[Queues]) -> list[str]:
    """Returns a note for each configuration that installs another version of Kueue than the one that decides here."""
    return [
        f"{name} installs Kueue {version}. Kueue {KUEUE_VERSION} has decided here."
        for name, of_file in zip(names_of(files), queues, strict=True)
        if (version := of_file.stack.queues.kueue_version or KUEUE_VERSION) != KUEUE_VERSION
    ]


def check(file: Path, queues: Queues, trace: tuple[Submission, ...]) -> None:
    """Stops if a trace does not suit the queues of a configuration."""
    try:
        queues.check(trace)
    except Stop as stop:
        raise Stop(f"{file}: {stop}") from None


def replayed(queues: Queues, trace: tuple[Submission, ...], seed: int, work: str) -> tuple[Replay, Capacity]:
    """Replays a trace on a control plane of its own."""
    capacity = Capacity(seed, queues.stack.measured.spot)
    with scratch() as emulator, ExitStack() as control_plane:
        with phase(f"start Kueue with {len(queues.cluster_queues)} cluster queues{work}"):
            kueue = control_plane.enter_context(started(emulator, queues))
        replay = Replay(kueue, queues, trace, capacity)
        replay.run(_progress(len(trace), trace[-1].time, work))
    return replay, capacity


def day_of(queues: Queues, replay: Replay, capacity: Capacity, end: float, prices: Prices | None) -> Replayed:
    """Returns the day of a replay until an end."""
    pools = [pool_day(group, capacity, end, prices) for group in replay.groups(end)]
    return Replayed(day(queues, replay.runs, replay.late, pools, end), replay.runs)


def next_step(options: argparse.Namespace) -> str:
    """Returns what a reader can do next."""
    if not options.compare:
        return f"compare it with other queues:  make simulate STACK={options.stack} COMPARE=other.yaml SEEDS=5"
    if options.seeds == 1:
        return "find out whether the differences exceed the spread of days:  SEEDS=5"
    if not options.json:
        return "write the result for a report:  JSON=out.json"
    return f"show it to reviewers:  make report STACK={options.stack} SIMULATION={options.json}"


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


def generated(queues: Queues, options: argparse.Namespace, seed: int) -> tuple[Submission, ...]:
    """Returns a trace for all local queues. Stops if it has no submission."""
    trace = generate(queues.sources(), options.jobs, seed)
    if not trace:
        raise Stop(f"Seed {seed} gives no submission. Use more jobs, or another seed.")
    return trace


def print_generated(options: argparse.Namespace) -> None:
    """Prints a generated trace as CSV."""
    queues = queues_of(options.config or ROOT / f"Pulumi.{options.stack}.yaml")
    print(written(generated(queues, options, options.seed)), end="")


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


def _progress(total: int, last: float, work: str) -> Callable[[float, int], None]:
    """Returns what prints the time of the clock, at most every two seconds."""
    shown = time.monotonic()

    def show_progress(now: float, ended: int) -> None:
        nonlocal shown
        if time.monotonic() - shown > SHOW_EVERY:
            shown = time.monotonic()
            text = f"… hour {now / HOUR:.1f} of {last / HOUR:.1f}{work}, {ended:,} of {total:,} runs have ended"
            print(
                f"\r{text}\033[K" if sys.stdout.isatty() else text, end="" if sys.stdout.isatty() else "\n", flush=True
            )

    return show_progress


def show(result: Simulation, seconds: float) -> None:
    """Prints the result."""
    console = new_console()
    for part in simulated(result):
        console.print()
        console.print(part)
    print(f"\nReplayed in {seconds:.0f} s.")
