"""Replays a day of submissions against the real Kueue: the command `simulate`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from gke_ai import settings
from gke_ai.catalog.machines.capacity import capacity_until, moment
from gke_ai.catalog.section_files import PREFIX, folder_of
from gke_ai.catalog.versions import KUEUE_VERSION
from gke_ai.forecast.rehearse.command import stop_at_signals
from gke_ai.forecast.rehearse.progress import phase
from gke_ai.forecast.rehearse.scratch import scratch
from gke_ai.forecast.render import shares, simulation_picture
from gke_ai.forecast.render.table import simulated
from gke_ai.forecast.result.simulation import MAX_CONFIGURATIONS, Simulation
from gke_ai.forecast.simulate import blocks, imports
from gke_ai.forecast.simulate.availability import Capacity
from gke_ai.forecast.simulate.compared import Side, simulation, written_days
from gke_ai.forecast.simulate.generate import generate
from gke_ai.forecast.simulate.kueue import started
from gke_ai.forecast.simulate.objects import Queues
from gke_ai.forecast.simulate.replay import Replay
from gke_ai.forecast.simulate.result import HOUR, Day, day, end_of, pool_day
from gke_ai.forecast.simulate.run import Run
from gke_ai.forecast.simulate.trace import Trace, read, written
from gke_ai.forecast.snapshot.command import read_file
from gke_ai.formats import console
from gke_ai.kube.blocks import BlockNode, block_nodes
from gke_ai.settings import BadConfiguration
from gke_ai.terminal import Stop, echo, write
from gke_ai.workspace.configuration_file import no_configuration, read_keys, read_prices
from gke_ai.workspace.emulated import state
from gke_ai.workspace.prices import Prices, with_google
from gke_ai.workspace.stack import Stack

SHOW_EVERY = 2.0
NOTES = ("Kueue is real. Nodes, waits for capacity, stock-outs and Spot reclaims are a model: docs/simulation.md.",)


@dataclass(frozen=True)
class Options:
    """Which days are replayed, and with which queues.

    Attributes:
        stack: Name of the stack.
        config: Its configuration. Default: Pulumi.<stack>.yaml.
        trace: Trace as CSV. Default: a generated one.
        jobs: About how many runs to generate.
        seed: Seed of the first generated trace.
        seeds: Number of seeds.
        compare: Configurations to compare.
        prices: A team's own price table in YAML. Default: Google's list prices.
        json: File for the result as JSON.
        picture: File for the picture. Default: in the emulator's state.
        blocks: File for the picture of the blocks, if Kueue places runs there. Default: in the emulator's state.
        begin: When the day begins, which decides when reservations end. Default: now.
    """

    stack: str = "dev"
    config: Path | None = None
    trace: Path | None = None
    jobs: int = 200
    seed: int = 1
    seeds: int = 1
    compare: tuple[Path, ...] = ()
    prices: Path | None = None
    json: Path | None = None
    picture: Path | None = None
    blocks: Path | None = None
    begin: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))

    @property
    def file(self) -> Path:
        """The configuration of the stack."""
        return Stack(self.stack, self.config).file


@dataclass(frozen=True)
class ConfiguredQueues:
    """The queues of a configuration, with a short name for it."""

    name: str
    file: Path
    queues: Queues


def simulate(options: Options) -> None:
    """Replays the traces with each configuration, and prints and writes the result."""
    files = [options.file, *options.compare]
    if len(files) > MAX_CONFIGURATIONS or len({*files}) < len(files):
        raise Stop(f"--compare: name at most {MAX_CONFIGURATIONS - 1} configurations, each one once.")
    names = names_of(files)
    configurations = [ConfiguredQueues(name, file, queues_of(file)) for name, file in zip(names, files, strict=True)]
    prices = read_prices(options.prices, options.file)  # stops before minutes pass if it is invalid
    first, seeds = configurations[0].queues, range(options.seed, options.seed + options.seeds)
    traces = [read(options.trace)] * len(seeds) if options.trace else [generated(first, options, s) for s in seeds]
    for own in configurations:
        for trace in traces:
            check(own.file, own.queues, trace)
    stop_at_signals("simulation")
    begun = time.monotonic()
    replays = {own.name: replays_of(own, len(files) > 1, traces, seeds, options.begin) for own in configurations}
    # The days of a seed have the same length, because nodes are paid for until the end.
    ends = [max(end_of(of_day.replay.runs) for of_day in of_seed) for of_seed in zip(*replays.values(), strict=True)]
    table = with_google(prices, first.stack.measured, first.stack.cluster.region)
    sides = [
        Side(own.name, own.queues, [day_of(own.queues, *day, table) for day in zip(days, ends, strict=True)])
        for own, days in zip(configurations, replays.values(), strict=True)
    ]
    source = options.trace.name if options.trace else f"generated, about {options.jobs} runs"
    runs = {name: [run for of_day in days for run in of_day.replay.runs] for name, days in replays.items()}
    said = [*NOTES, *notes(configurations, options.begin, runs), *table.remarks(priced(sides))]
    result = simulation(options.stack, source, seeds, sides, said)
    written_files = pictures(options, result, {name: days[0] for name, days in replays.items()})
    if options.json:
        written_files[options.json] = result.written(written_days(sides, seeds))
    console.show(simulated(result))
    print(f"\nReplayed in {time.monotonic() - begun:.0f} s.")
    write(written_files)
    print(f"Next: {next_step(options)}")


def replays_of(
    configuration: ConfiguredQueues, is_compared: bool, traces: Sequence[Trace], seeds: Sequence[int], begin: datetime
) -> list[Replayed]:
    """Replays a day for each seed with a configuration."""
    part = f" with {configuration.name}" if is_compared else ""
    work = [f"{part}, seed {seed}" if len(seeds) > 1 else part for seed in seeds]
    return [replayed(configuration.queues, *day, begin) for day in zip(traces, seeds, work, strict=True)]


def pictures(options: Options, result: Simulation, firsts: Mapping[str, Replayed]) -> dict[Path, str]:
    """Returns the pictures by their files: the queues, their shares by weight, and the blocks of the first day."""
    own = options.picture or state("reports", f"{options.stack}-simulation.svg")
    drawn = {own: simulation_picture.drawn(result)}
    if shares.sentences(result):
        drawn[own.with_suffix(".shares.svg")] = shares.drawn(result)
    if in_blocks := [blocks.fullest(name, day.nodes, day.replay.runs) for name, day in firsts.items() if day.nodes]:
        file = options.blocks or state("reports", f"{options.stack}-simulation-blocks.svg")
        drawn[file] = blocks.picture(options.stack, in_blocks)
    return drawn


def names_of(files: list[Path]) -> list[str]:
    """Returns a short name for each file: its own name, or its path if another file has the same name."""
    names = [file.name for file in files]
    return [file.name if names.count(file.name) == 1 else str(file) for file in files]


def reservation_ends(name: str, queues: Queues, begin: datetime, runs: Sequence[Run]) -> Iterator[str]:
    """Yields a note for each pool of a configuration whose reservation ends, and what became of runs."""
    ending = [(pool.name, end) for pool in queues.stack.pools if (end := capacity_until(pool.node_labels))]
    for pool, end in ending:
        hour = (end - begin).total_seconds() / HOUR
        yield (
            f"{name}: the reservation of pool {pool} ends at {moment(end)}, hour {hour:.1f} of a day that begins at "
            f"{moment(begin)}. Then it has no nodes."
        )
    if ending and (waiting := sum(run.holds_quota and not run.runs and not run.unplaced for run in runs)):
        yield f"{name}: of {len(runs)} runs, {waiting} have quota at the end, and wait for nodes that do not come."


def notes(
    configurations: Sequence[ConfiguredQueues], begin: datetime, runs: Mapping[str, Sequence[Run]]
) -> Iterator[str]:
    """Yields what a reader has to know about the configurations of a simulation, and about the runs with each."""
    for own in configurations:
        if (version := own.queues.stack.queues.kueue_version or KUEUE_VERSION) != KUEUE_VERSION:
            yield f"{own.name} installs Kueue {version}. Kueue {KUEUE_VERSION} has decided here."
    for own in configurations:
        yield from blocks.notes(own.name, own.queues.stack)
    for own in configurations:
        yield from reservation_ends(own.name, own.queues, begin, runs[own.name])


def check(file: Path, queues: Queues, trace: Trace) -> None:
    """Stops if a trace does not suit the queues of a configuration."""
    try:
        queues.check(trace)
    except Stop as stop:
        raise Stop(f"{file}: {stop}") from None


@dataclass(frozen=True)
class Replayed:
    """A replay that has ended, the capacity that it had, and the nodes in blocks on which Kueue placed its pods."""

    replay: Replay
    capacity: Capacity
    nodes: Sequence[BlockNode]


def replayed(queues: Queues, trace: Trace, seed: int, work: str, begin: datetime | None = None) -> Replayed:
    """Replays a trace on a control plane of its own. Reservations end if the time is known at which the day begins."""
    capacity = Capacity(seed, queues.stack.measured.spot, begin=begin)
    with scratch() as emulator, ExitStack() as control_plane:
        with phase(f"start Kueue with {len(queues.cluster_queues)} cluster queues{work}"):
            kueue = control_plane.enter_context(started(emulator, queues))
        replay = Replay(kueue, queues, trace, capacity)
        replay.run(_progress(len(trace), trace[-1].time, work))
        nodes = block_nodes(kueue.nodes(), ()) if queues.placed else []
    return Replayed(replay, capacity, nodes)


def day_of(queues: Queues, ended: Replayed, end: float, prices: Prices | None) -> Day:
    """Returns the day of a replay until an end."""
    prices = prices and replace(prices, region=queues.stack.cluster.region)
    pools = [pool_day(group, ended.capacity, end, prices) for group in ended.replay.groups(end)]
    return day(queues, ended.replay.runs, ended.replay.late, pools, end, prices)


def priced(sides: Sequence[Side]) -> Iterator[tuple[str, str]]:
    """Yields the regions and keys of the prices of all accelerators that a day had."""
    for side in sides:
        for pool in (pool for of_day in side.days for pool in of_day.pools if pool.accelerator):
            yield side.queues.stack.cluster.region, f"{pool.machine}/{pool.capacity}"


def next_step(options: Options) -> str:
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
        raise no_configuration(file)
    config = read_keys(file)
    values = {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}
    project, region = str(config.get("gcp:project") or "project-id"), str(config.get("gcp:region") or "")
    try:
        # Tokens have no effect on queues.
        queues = Queues(settings.load(values, project, region=region, folder=folder_of(file)))
    except BadConfiguration as bad:
        raise Stop(str(bad)) from None
    if not queues.by_local:
        raise Stop(f"{file} has no local queues, so nobody can submit a run. Add gke-ai:queues with localQueues.")
    return queues


def generated(queues: Queues, options: Options, seed: int) -> Trace:
    """Returns a trace for all local queues. Stops if it has no submission."""
    trace = generate(queues.sources(), options.jobs, seed)
    if not trace:
        raise Stop(f"Seed {seed} gives no submission. Use more jobs, or another seed.")
    return trace


def print_generated(options: Options) -> None:
    """Prints a generated trace as CSV."""
    queues = queues_of(options.file)
    print(written(generated(queues, options, options.seed)), end="")


def print_imported(form: str, file: Path, queues: Iterable[str], start: float, hours: float) -> None:
    """Prints a part of a trace in another format as CSV."""
    named = {group: queue for group, _, queue in (text.rpartition("=") for text in queues)}
    if form == "snapshot":
        trace = imports.import_snapshot(file, read_file(file))
    else:
        trace = imports.import_philly(file, named) if form == "philly" else imports.import_table(file, form, named)
    echo(written(imports.window(trace, start, hours)), end="")


def _progress(total: int, last: float, work: str) -> Callable[[float, int], None]:
    """Returns what prints the time of the clock, at most every two seconds."""
    shown = time.monotonic()

    def show_progress(now: float, ended: int) -> None:
        nonlocal shown
        if time.monotonic() - shown > SHOW_EVERY:
            shown = time.monotonic()
            text = f"… hour {now / HOUR:.1f} of {last / HOUR:.1f}{work}, {ended:,} of {total:,} runs have ended"
            start, end = ("\r", "\033[K") if sys.stdout.isatty() else ("", "\n")
            print(f"{start}{text}", end=end, flush=True)

    return show_progress
