"""Verbs that say what a change does, before it is made."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from gke_ai.cli import options
from gke_ai.cli.group import gke_ai
from gke_ai.forecast.result.spread import MAX_SEEDS
from gke_ai.workspace.emulation import on_emulator
from gke_ai.workspace.stack import Stack

verb = gke_ai.section("Before a change")


@verb("""
gke-ai doctor --stack prod
gke-ai doctor --context gke_my-project_us-central1_ml    # of the cluster alone
""")
@options.stack_options
@options.context_option
def doctor(stack: str, config: Path | None, context: str) -> None:
    """Lists what is missing for Google Cloud, with the commands that fix it."""
    if context:
        from gke_ai.ops.doctor.context import show_cluster

        sys.exit(show_cluster(options.alone(context)))
    from gke_ai.ops.doctor.command import show

    sys.exit(show(Stack(options.name_of(stack, config), config)))


@verb("""
gke-ai report --stack prod                                            # to standard output
gke-ai report --stack prod --output report.md                         # to a file
gke-ai report --stack prod --prices prices.yaml --rehearsal out.json  # with costs, and what happens in the queue
""")
@options.file_option("--output", help="file for the page. Default: stdout")
@options.prices_option
@options.file_option("--rehearsal", help="result of `gke-ai rehearse --json` for the same change")
@options.file_option("--simulation", help="result of `gke-ai simulate --json`")
@click.option(
    "--policy-pack", "packs", type=options.FILE, multiple=True, help="folder of a policy pack. Default: policy"
)
@click.option("--no-policies", is_flag=True, help="run without policy packs")
@click.option(
    "--graph",
    type=click.Choice(("mermaid", "none")),
    default="mermaid",
    help="format of the graph in the page. Default: mermaid",
)
@click.option("--limit", type=int, help="maximum length in characters; 0: no limit. Default: what GitHub allows")
@click.option("--save", type=options.FILE, help="also save the preview as JSON to this file")
@click.option("--from", "preview", type=options.FILE, help="read a saved preview instead of running Pulumi")
@options.stack_options
@options.emulator_option
def report(
    stack: str,
    config: Path | None,
    emulator: bool,
    output: Path | None,
    packs: tuple[Path, ...],
    no_policies: bool,
    graph: str,
    **named: Any,
) -> None:
    """Writes a preview of a stack as one page for reviewers. Changes nothing."""
    from gke_ai.ops.lifecycle import deploy
    from gke_ai.review.report.command import Request, write
    from gke_ai.workspace import emulated

    if named["preview"]:
        previewed = Stack(options.name_of(stack, config), config)
    else:
        previewed = options.target(stack, config, emulator, deploying=True)
        if on_emulator():
            deploy.ensure(previewed)
            output = output or emulated.state("reports", f"{previewed.name}.md")
    chosen = () if no_policies else packs or None
    stated = {name: value for name, value in named.items() if value is not None}
    sys.exit(write(Request(previewed, output, packs=chosen, graph=graph == "mermaid", **stated)))


def _modes(text: str) -> tuple[str, ...]:
    from gke_ai.catalog.machines.capacity import MODES

    modes = tuple(filter(None, text.replace(" ", "").split(",")))
    if wrong := [mode for mode in modes if mode not in MODES]:
        raise ValueError(f"{wrong[0]} is not a capacity mode. Use {', '.join(MODES)}")
    return modes


def _upgrade(text: str) -> Any:
    from gke_ai.forecast.rehearse import upgrades

    return upgrades.parse(text)


@verb("""
gke-ai rehearse --stack prod --snapshot snapshot.json
gke-ai rehearse --manifests folder --snapshot snapshot.json --markdown comment.md
gke-ai rehearse --stack prod --upgrade kueue
""")
@options.stack_options
@options.file_option("--base", help="configuration or folder before the change. Default: see docs/rehearsal.md")
@options.file_option("--manifests", help="folder of manifests with the change, in place of a configuration")
@options.snapshot_option
@options.option("--minutes", type=int, default=30, show_default=True, help="horizon in minutes of Google Cloud")
@options.option(
    "--unavailable",
    type=options.Checked("MODE,…", _modes),
    default="",
    help="capacity modes in which Google has no more nodes when the change begins: onDemand, spot, flexStart, …",
)
@options.option(
    "--upgrade",
    type=options.Checked("WHAT", _upgrade),
    help="rehearse an upgrade: kueue, jobset, kueue,jobset or pool/NAME",
)
@click.option("--compression", type=float, hidden=True)
@options.json_option
@options.picture_option
@options.blocks_option
@options.file_option("--markdown", help="file for the result as Markdown, for a comment")
@options.prices_option
@options.always_on_emulator
def rehearse(stack: str, config: Path | None, manifests: Path | None, **named: Any) -> None:
    """Says what a change does in the queue before it is merged.

    A temporary emulator gets the base configuration, or the state of a snapshot. Then it gets the change, and what
    follows is recorded until the cluster settles. Your own stacks are not touched. A change that is refused half-way
    has a result: that of its applied part.
    """
    name = manifests.name if manifests else options.name_of(stack, config)
    options.enter_emulator(name)
    from gke_ai.forecast.rehearse.command import Options, show

    if not named["compression"]:
        del named["compression"]
    show(Options(name, config, manifests=manifests, **named))


def _moment(text: str) -> datetime:
    from gke_ai.forecast.compare.command import moment

    return moment(text)


@verb("""
gke-ai simulate --stack prod --trace trace.csv
gke-ai simulate --stack prod --compare changed.yaml --seeds 5 --json day.json
""")
@options.stack_options
@options.file_option("--trace", help="trace as CSV. Default: a generated one")
@options.option("--jobs", type=click.IntRange(1, 100_000), default=200, show_default=True, help="about how many runs")
@options.option("--seed", type=int, default=1, show_default=True, help="seed of the generated trace")
@options.option("--seeds", type=click.IntRange(1, MAX_SEEDS), default=1, show_default=True, help="number of seeds")
@options.file_option("--compare", multiple=True, help="configuration to compare; repeatable")
@options.option(
    "--begin",
    type=options.Checked("TIME", _moment),
    help="when the day begins, for reservations with an end. Default: now",
)
@options.prices_option
@options.json_option
@options.picture_option
@options.blocks_option
@options.always_on_emulator
def simulate(stack: str, config: Path | None, **named: Any) -> None:
    """Replays a day of submissions against the real Kueue.

    A temporary control plane gets the queues of a configuration. Kueue decides on each submission of the trace; starts
    and ends are simulated. With several configurations, the same traces are replayed with the queues of each. With
    several seeds, the result says how much days vary. Your own stacks are not touched.
    """
    name = options.name_of(stack, config)
    options.enter_emulator(name)
    from gke_ai.forecast.simulate.command import Options, simulate

    if named["begin"] is None:
        del named["begin"]
    simulate(Options(name, config, **named))


@verb("""
gke-ai when run.yaml --stack prod --snapshot snapshot.json --interval
gke-ai when --server gemma --stack prod
""")
@click.argument("file", type=options.FILE, envvar=options.variable("run-file"), required=False)
@options.stack_options
@options.option("--server", default="", help="ask about one more replica of this server of the stack, in place of FILE")
@options.snapshot_option
@options.option("--interval", is_flag=True, help="also say within which time it starts, if it waits")
@options.option("--seed", type=int, default=1, show_default=True, help="seed of the drawn durations")
@options.json_option
@options.always_on_emulator
def when(
    file: Path | None,
    stack: str,
    config: Path | None,
    server: str,
    snapshot: Path | None,
    interval: bool,
    seed: int,
    json: Path | None,
) -> None:
    """Asks Kueue whether a run would start now, which runs it would preempt, and what it waits for.

    FILE has one run as it stands in `training` or `batch` of the configuration, or the manifest of a Job, a JobSet or a
    Workload with a local queue. A temporary cluster gets the state of the snapshot, or of the stack's cluster, and then
    the run: the real Kueue decides. Nothing is submitted to your cluster. Capacity of Google Cloud and the start of
    nodes are not part of the answer. Of a server that sleeps, it adds how long it takes to wake.
    """
    if bool(file) == bool(server):
        raise click.UsageError("Name either the file of a run, or a server with --server.")
    name = options.name_of(stack, config)
    options.enter_emulator(name)
    from gke_ai.forecast.when.command import show

    show(Stack(name, config), file, server, snapshot, seed if interval else None, json)


@verb("""
gke-ai compare out.json --stack prod
gke-ai compare out.json --snapshot later.json --since 2026-11-22T10:00:00Z
""")
@click.argument("forecast", type=options.FILE)
@options.snapshot_option
@click.option(
    "--since", type=options.Checked("TIME", _moment), help="when the change began. Default: the stack's last update"
)
@options.stack_options
def compare(forecast: Path, snapshot: Path | None, since: datetime | None, stack: str, config: Path | None) -> None:
    """Puts the JSON of a rehearsal beside what happened after the merge.

    The cluster, or a later snapshot of it, shows its present state: which workloads run and wait, and the last eviction
    of each. It doesn't show workloads that ended and were deleted.
    """
    from gke_ai.forecast.compare.command import show

    show(Stack(options.name_of(stack, config), config), forecast, snapshot, since)
