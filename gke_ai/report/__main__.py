"""Writes a preview of a stack as one Markdown page.

    python -m gke_ai.report --stack prod                       # to standard output
    python -m gke_ai.report --stack prod --output report.md    # and report.svg beside it
    python -m gke_ai.report --stack prod --output report.md --graph mermaid   # for a comment on a pull request
    python -m gke_ai.report --stack prod --prices prices.yaml  # with the cost per hour, at your own prices
    python -m gke_ai.report --stack prod --rehearsal out.json  # with what make rehearse says of the queue
    python -m gke_ai.report --stack prod --simulation day.json # with the days that make simulate replayed

It runs `pulumi preview` with the policy pack in policy/, if it exists, and changes nothing. The exit code is 1 if the
preview fails or violates a mandatory policy. The page then shows why.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gke_ai.forecast import model as forecasts
from gke_ai.forecast import simulation as simulations
from gke_ai.forecast.model import Forecast
from gke_ai.forecast.simulation import Simulation
from gke_ai.ops.configuration_file import read_calibration, read_prices
from gke_ai.ops.stack import ROOT, Stack, Stop, add_stack, run
from gke_ai.registered import prices
from gke_ai.report import drawing, graph
from gke_ai.report.changes import PlannedUpdate, plan
from gke_ai.report.page import COMMENT_LIMIT, Options, page, summary
from gke_ai.report.policies import Verdict, verdict
from gke_ai.report.preview import Preview, recorded, take
from gke_ai.settings.calibration import Calibration

PRICES_HELP = prices.__doc__ or ""


def main() -> None:
    """Parses the options and writes the page."""
    raise SystemExit(report(parser().parse_args()))


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command's options."""
    options = argparse.ArgumentParser(
        prog="python -m gke_ai.report",
        description=__doc__,
        epilog=PRICES_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_stack(options)
    options.add_argument("--config-file", type=Path, help="configuration file. Default: Pulumi.<stack>.yaml")
    options.add_argument(
        "--output", type=Path, help="file for the page; the graph is written beside it. Default: stdout"
    )
    options.add_argument("--prices", type=Path, help="price table in YAML, see below")
    options.add_argument("--rehearsal", type=Path, help="result of make rehearse for the same change, as JSON")
    options.add_argument("--simulation", type=Path, help="result of make simulate, as JSON")
    options.add_argument(
        "--policy-pack", type=Path, action="append", help="folder of a policy pack; repeatable. Default: policy"
    )
    options.add_argument("--no-policies", action="store_true", help="run without policy packs")
    options.add_argument(
        "--graph",
        choices=("svg", "mermaid", "none"),
        help="format of the graph: svg (file beside the page) or mermaid. Default: svg with --output, else mermaid",
    )
    options.add_argument(
        "--limit",
        type=int,
        default=COMMENT_LIMIT,
        help="maximum length of the page in characters; 0: no limit. Default: %(default)s",
    )
    options.add_argument("--save", type=Path, help="also save the preview as JSON to this file")
    options.add_argument("--from", dest="source", type=Path, help="read a saved preview instead of running Pulumi")
    return options


def report(options: argparse.Namespace) -> int:
    """Writes the page. Returns the exit code: 1 if the preview fails or violates a mandatory policy."""
    measured = read_measured(options)  # before a preview that may take minutes
    table = prices.with_google(read_prices(options.prices), measured)
    forecast = read_rehearsal(options.rehearsal)
    days = read_simulation(options.simulation)
    preview = recorded(options.source.read_text()) if options.source else run_preview(options)
    if options.save:
        options.save.write_text(preview.written())
    planned, results = plan(preview), verdict(preview)
    graph_format = options.graph or ("svg" if options.output else "mermaid")
    if graph_format == "svg" and not options.output:
        raise Stop("--graph svg writes a file beside the page. Add --output report.md, or use --graph mermaid.")
    address = {"svg": f"{options.output.stem}.svg" if options.output else "", "mermaid": "mermaid", "none": ""}[
        graph_format
    ]
    text = page(planned, results, Options(table, address, options.limit, forecast, days, measured))
    if not options.output:
        sys.stdout.write(text)
        return exit_code(planned, results)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text)
    print(f"{summary(planned, results, forecast).replace('**', '')}\nThe page is {options.output}.")
    if graph_format == "svg" and not planned.errors:
        title = f"The components of {planned.stack}, with changes marked"
        options.output.with_suffix(".svg").write_text(drawing.svg(graph.of_plan(planned), title))
    return exit_code(planned, results)


def run_preview(options: argparse.Namespace) -> Preview:
    """Runs a preview of the stack."""
    packs = options.policy_pack or [path for path in [ROOT / "policy"] if (path / "PulumiPolicy.yaml").exists()]
    return take(Stack(options.stack, options.config_file), [] if options.no_policies else packs)


def read_measured(options: argparse.Namespace) -> Calibration:
    """Reads the calibration file that the stack's configuration names. A saved preview has none without that file."""
    file = options.config_file or (None if options.source else ROOT / f"Pulumi.{options.stack}.yaml")
    return read_calibration(file) if file and file.exists() else Calibration()


def read_rehearsal(path: Path | None) -> Forecast | None:
    """Reads the result of a rehearsal, if any. Stops if it is invalid."""
    try:
        return forecasts.read(path) if path else None
    except forecasts.BadForecast as bad:
        raise Stop(str(bad)) from None


def read_simulation(path: Path | None) -> Simulation | None:
    """Reads the result of a simulation, if any. Stops if it is invalid."""
    try:
        return simulations.read(path) if path else None
    except simulations.BadSimulation as bad:
        raise Stop(str(bad)) from None


def exit_code(planned: PlannedUpdate, results: Verdict) -> int:
    """Returns 1 if the preview failed or violates a mandatory policy, else 0."""
    return int(bool(planned.errors) or results.count(mandatory=True) > 0)


if __name__ == "__main__":
    run(main)
