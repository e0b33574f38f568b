"""The verb that tries a system within a budget."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from gke_ai.cli import options
from gke_ai.cli.group import gke_ai
from gke_ai.workspace.emulation import on_emulator

verb = gke_ai.section("Deploy")


def _system(name: str) -> Path:
    from gke_ai.workspace.stack import ROOT

    files = {file.stem: file for file in sorted((ROOT / "examples").glob("*.yaml"))}
    if name not in files:
        raise ValueError(f"there is no system {name}. Use one of {', '.join(files) or 'a checkout: it has them'}")
    return files[name]


def _amount(text: str) -> Decimal:
    from gke_ai.workspace.prices import is_price

    if not is_price(text):
        raise ValueError(f"{text} is not an amount. Use a number of 0 or more, without a currency")
    return Decimal(text)


@verb("""
gke-ai trial multislice-training --budget 20 --prices prices.yaml --project my-project
gke-ai trial multislice-training --budget 20 --prices prices.yaml --emulator
gke-ai trial multislice-training --clean    # after it was killed
""")
@click.argument("config", metavar="NAME", type=options.Checked("NAME", _system))
@options.option(
    "--budget", type=options.Checked("AMOUNT", _amount), help="maximum cost, in the currency of the price table"
)
@options.prices_option
@options.option("--minutes", type=click.IntRange(1, 1440), default=120, show_default=True, help="maximum time")
@options.option("--project", default="", help="project of Google Cloud in which to deploy")
@click.option("--show-project", is_flag=True, help="write the project's name to the file, too")
@options.file_option("--output", help="file for the result. Default: trial-NAME.md")
@click.option("--clean", is_flag=True, help="delete what a killed trial has left")
@options.yes_option
@options.emulator_option
def trial(config: Path, emulator: bool, clean: bool, yes: bool, output: Path | None, **named: Any) -> None:
    """Deploys a system, verifies and measures it, and deletes it within a budget of money and time.

    NAME is a configuration in `examples/`. The trial is refused before it deploys if one `up`, `verify` and `down` do
    not fit into the budget. The deletion begins in time, after a failure and at Ctrl-C too. The result is one file to
    send back, without secrets and without the name of the project.
    """
    if emulator:
        options.enter_emulator(f"trial-{options.name_of('', config)}")
    from gke_ai.trial import command

    if clean:
        command.clean(config.stem)
        return
    if named["budget"] is None or named["prices"] is None:
        raise click.UsageError("A trial needs --budget and --prices. docs/costs.md describes the price table.")

    def confirm(question: str) -> None:
        if not yes and not on_emulator():
            click.confirm(question, abort=True)

    output = output or Path.cwd() / f"trial-{config.stem}.md"
    command.trial(command.Options(config, output=output, confirm=confirm, **named))
