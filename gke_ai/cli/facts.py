"""Verbs that find or make what a configuration and a simulation need."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gke_ai.cli.group import gke_ai
from gke_ai.cli.options import FILE, file_option, name_of, option, stack_options
from gke_ai.workspace.stack import Stack

verb = gke_ai.section("Facts for a configuration")


@verb("gke-ai model Qwen/Qwen3-32B")
@click.argument("name")
@click.option("--revision", default="main", show_default=True, help="commit, tag or branch")
@click.option("--hub", default="", help="address of the hub. Default: https://huggingface.co")
def model(name: str, revision: str, hub: str) -> None:
    """Prints the key modelShape of a server for a model.

    NAME is a model on Hugging Face, or a folder with its files. Reads the configuration, the index of the weights and
    the sizes of the files, and no weights. A gated model needs the variable HF_TOKEN.
    """
    from gke_ai.ops.facts.model_shape import HUB, show

    show(name, revision, hub or HUB)


@verb("gke-ai capacity --stack prod")
@file_option("--output", help="calibration file. Default: that of the configuration, or calibration/STACK.yaml")
@click.option("--compute", default="", help="address of Compute Engine's API. Default: Google's")
@stack_options
def capacity(stack: str, config: Path | None, output: Path | None, compute: str) -> None:
    """Asks Google how often it preempts the Spot nodes of a stack, what they cost, and when it can reserve nodes."""
    from gke_ai.ops.facts.capacity import COMPUTE, show

    sys.exit(show(Stack(name_of(stack, config), config), output, compute or COMPUTE))


@verb("gke-ai prices --stack prod")
@file_option("--output", help="file of the price table. Default: prices/STACK.yaml")
@click.option("--billing", default="", help="address of the Cloud Billing Catalog API. Default: Google's")
@stack_options
def prices(stack: str, config: Path | None, output: Path | None, billing: str) -> None:
    """Reads Google's list prices of the machines of a stack, and writes them as a price table of today."""
    from gke_ai.ops.facts.prices import BILLING, show

    sys.exit(show(Stack(name_of(stack, config), config), output, billing or BILLING))


@verb("gke-ai trace-generate --stack prod --jobs 500 > trace.csv")
@option("--jobs", type=click.IntRange(1, 100_000), default=200, show_default=True, help="about how many runs")
@option("--seed", type=int, default=1, show_default=True, help="seed of the draws")
@stack_options
def trace_generate(stack: str, config: Path | None, jobs: int, seed: int) -> None:
    """Prints a generated day of submissions as CSV, for `simulate`. docs/simulation.md has its distributions."""
    from gke_ai.forecast.simulate.command import Options, print_generated

    print_generated(Options(name_of(stack, config), config, jobs=jobs, seed=seed))


@verb("gke-ai trace-import helios cluster_log.csv --queue vcX=team/gpus > trace.csv")
@click.argument("form", metavar="FORMAT")
@click.argument("file", type=FILE)
@click.option(
    *("--queue", "queues"),
    multiple=True,
    metavar="[GROUP=]NAMESPACE/NAME",
    help="local queue for a group of the format (qos, type or vc), or for all groups; repeatable",
)
@click.option("--start", type=float, default=0.0, show_default=True, help="first hour of the part to print")
@click.option("--hours", type=float, default=24.0, show_default=True, help="length of the part to print")
def trace_import(form: str, file: Path, queues: tuple[str, ...], start: float, hours: float) -> None:
    """Prints a trace in another format as CSV, for `simulate`."""
    from gke_ai.forecast.simulate import imports
    from gke_ai.forecast.simulate.command import print_imported

    if form not in imports.FORMATS:
        raise click.UsageError(f"{form} is not a format. Use {', '.join(imports.FORMATS)}")
    print_imported(form, file, queues, start, hours)
