"""Turns a preview of a stack into one Markdown page.

    python -m report --stack prod                       # to standard output
    python -m report --stack prod --output report.md    # and report.svg beside it
    python -m report --stack prod --output report.md --graph mermaid   # for a comment on a pull request
    python -m report --stack prod --prices prices.yaml  # with the cost of an hour, by your own prices

It runs `pulumi preview`, with the policy pack in policy/ if there is one, and changes nothing. It ends with 1 where the
preview fails or a mandatory policy is broken; the page is written then too, and says why.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ops.stack import ROOT, Stack, Stop, run
from report import graph, prices
from report.changes import Plan, plan
from report.page import COMMENT_LIMIT, Options, page, summary
from report.policies import Verdict, verdict
from report.preview import Preview, recorded, take

PRICES_HELP = prices.__doc__ or ""


def main() -> None:
    """Reads the options and writes the page."""
    raise SystemExit(report(parser().parse_args()))


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = argparse.ArgumentParser(
        prog="python -m report",
        description=__doc__,
        epilog=PRICES_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--stack", default=os.environ.get("STACK", "dev"), help="name of the stack (dev)")
    made.add_argument("--config-file", type=Path, help="its configuration (Pulumi.<stack>.yaml)")
    made.add_argument("--output", type=Path, help="file for the page; a picture is written beside it (standard output)")
    made.add_argument("--prices", type=Path, help="price table, see below")
    made.add_argument(
        "--policy-pack", type=Path, action="append", help="folder of a policy pack; may be given again (policy)"
    )
    made.add_argument("--no-policies", action="store_true", help="run no policy pack")
    made.add_argument(
        "--graph",
        choices=("svg", "mermaid", "none"),
        help="the graph: beside the page, as text for GitHub to draw, or not at all (svg with --output, else mermaid)",
    )
    made.add_argument(
        "--limit", type=int, default=COMMENT_LIMIT, help="most characters of the page; 0: any (%(default)s)"
    )
    made.add_argument("--save", type=Path, help="also write the preview that the page is made of, as JSON")
    made.add_argument("--from", dest="source", type=Path, help="make the page of such a preview, and ask nobody")
    return made


def report(options: argparse.Namespace) -> int:
    """Writes the page; 1 where the stack can't be deployed so."""
    table = read_prices(options.prices)  # before a preview that may take minutes
    preview = recorded(options.source.read_text()) if options.source else run_preview(options)
    if options.save:
        options.save.write_text(preview.written())
    planned, said = plan(preview), verdict(preview)
    graph_format = options.graph or ("svg" if options.output else "mermaid")
    if graph_format == "svg" and not options.output:
        raise Stop("A picture is written beside the page. Add --output report.md, or take --graph mermaid.")
    address = {"svg": f"{options.output.stem}.svg" if options.output else "", "mermaid": "mermaid", "none": ""}[
        graph_format
    ]
    text = page(planned, said, Options(table, address, options.limit))
    if not options.output:
        sys.stdout.write(text)
        return stopped(planned, said)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text)
    print(f"{summary(planned, said).replace('**', '')}\nThe page is {options.output}.")
    if graph_format == "svg" and not planned.errors:
        title = f"The components of {planned.stack}, what changes marked"
        options.output.with_suffix(".svg").write_text(graph.svg(graph.of_plan(planned), title))
    return stopped(planned, said)


def run_preview(options: argparse.Namespace) -> Preview:
    """A preview of the stack now."""
    packs = options.policy_pack or [path for path in [ROOT / "policy"] if (path / "PulumiPolicy.yaml").exists()]
    return take(Stack(options.stack, options.config_file), [] if options.no_policies else packs)


def read_prices(path: Path | None) -> prices.Prices | None:
    """The price table, if one is given; stops at a bad one."""
    try:
        return prices.read(path) if path else None
    except prices.BadPrices as bad:
        raise Stop(str(bad)) from None


def stopped(planned: Plan, said: Verdict) -> int:
    """The command's end: 1 where there is no plan, or a policy stops it."""
    return int(bool(planned.errors) or said.count(mandatory=True) > 0)


if __name__ == "__main__":
    run(main)
