"""`python -m ops.verify --stack STACK`: compares the claims of a stack with its live cluster, and measures it.

It changes nothing in the cluster: creates are dry runs. It writes its measurements to a calibration file. The program
plans with that file if `gke-ai:calibration` names it. The exit code is 1 if a claim fails.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ops.stack import ROOT, Stack, Stop
from ops.verify.checks import FAIL, PASS, UNCHECKED, UNSEEN, Check
from ops.verify.claims import Verification
from ops.verify.durations import measure
from ops.verify.live import Call, caller, recorded, take
from settings import calibration
from settings.calibration import Calibration

KEY = "gke-ai:calibration"
LOG_WIDTH = 220  # columns, where there is no terminal to ask
STYLES = {PASS: "green", FAIL: "bold red", UNSEEN: "yellow", UNCHECKED: "yellow"}


def main(argv: Sequence[str] | None = None) -> None:
    """Compares, prints, and writes the calibration file."""
    parser = argparse.ArgumentParser(prog="ops.verify", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--stack", default=os.environ.get("STACK", "dev"), help="name of the stack (dev)")
    parser.add_argument("--config-file", type=Path, help="its configuration (Pulumi.<stack>.yaml)")
    parser.add_argument("--output", type=Path, help=f"calibration file (the one of {KEY}, or calibration/<stack>.yaml)")
    options = parser.parse_args(argv)
    sys.exit(verify(Stack(options.stack, options.config_file), options.output))


def verify(stack: Stack, output: Path | None = None) -> int:
    """Verifies `stack` against its cluster; the exit code."""
    api = stack.api()
    if api is None:
        raise Stop(f"{stack.name} has no cluster yet. Next: {stack.next('up')}")
    return compare(stack.name, stack.resources, caller(api), named_file(stack), output)


def named_file(stack: Stack) -> Path | None:
    """The calibration file that the stack's configuration names."""
    file = stack.config_file or ROOT / f"Pulumi.{stack.name}.yaml"
    content = yaml.safe_load(file.read_text()) if file.exists() else {}
    name = ((content or {}).get("config") or {}).get(KEY)
    return ROOT / str(name) if name else None


def compare(
    name: str, resources: Sequence[Any], call: Call, named: Path | None, output: Path | None, today: Any = None
) -> int:
    """Compares recorded resources with what `call` answers, prints the result and writes the calibration file."""
    relied_on = read(named) if named else Calibration()
    stack = recorded(resources)
    live = take(stack, call)
    checks = Verification(stack, live, relied_on).checks()
    measured = measure(stack, live, resources, today or datetime.date.today())
    console = Console(highlight=False, width=None if sys.stdout.isatty() else LOG_WIDTH)
    for part in shown(checks, measured):
        console.print()
        console.print(part, soft_wrap=isinstance(part, Text))  # a command that is broken in two can't be copied
    file = output or named or ROOT / "calibration" / f"{name}.yaml"
    console.print(Text(f"\n{write(file, measured)}"), soft_wrap=True)
    if named is None and output is None:
        command = f"pulumi config set --stack {name} {KEY} {file.relative_to(ROOT)}"
        console.print(Text(f"→ commit it, and plan with it:  {command}"), soft_wrap=True)
    return 1 if any(check.state == FAIL for check in checks) else 0


def read(file: Path) -> Calibration:
    """The calibration in a file; Stop where it can't be used."""
    try:
        return calibration.read(file)
    except calibration.BadCalibration as bad:
        lines = [f"{KEY}: {where}{': ' if where else ''}{cause}. {remedy}." for where, cause, remedy in bad.mistakes]
        raise Stop("\n".join(lines)) from None


def write(file: Path, measured: Calibration) -> str:
    """Adds what was measured to the file; says what it holds."""
    before = read(file) if file.exists() else Calibration()
    merged = before.merged(measured)
    if not merged.nodes and not merged.durations:
        return "Nothing could be measured yet: no calibration file was written."
    if merged != before:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(merged.written())
    return f"{file}: {len(merged.nodes)} kinds of nodes, {len(merged.durations)} durations."


def shown(checks: list[Check], measured: Calibration) -> list[Table | Text]:
    """The comparison, the durations, and what to do about what did not pass."""
    parts: list[Table | Text] = [claims_table(checks)]
    if measured.durations:
        parts.append(durations_table(measured))
    steps = [check for check in checks if check.step and check.state != PASS]
    if steps:
        # Each step once, with all that it is about.
        subjects: dict[tuple[str, str], list[str]] = {}
        for check in steps:
            subjects.setdefault((check.state, check.step), []).append(check.subject)
        lines = [f"\n→ {state}: {', '.join(dict.fromkeys(of))}:  {step}" for (state, step), of in subjects.items()]
        parts.append(Text.assemble(("Next", "bold"), *lines))
    counts = [f"{sum(check.state == state for check in checks)} {state}" for state in STYLES]
    parts.append(Text(", ".join(counts) + "."))
    return parts


def claims_table(checks: list[Check]) -> Table:
    """One row a claim, what failed first."""
    table = Table(title="Claims", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in ("result", "claim", "of", "the stack relies on", "the cluster has"):
        table.add_column(column, no_wrap=column in ("result", "claim"), overflow="fold")
    order = list(STYLES)
    order.remove(FAIL)
    for check in sorted(checks, key=lambda check: [FAIL, *order].index(check.state)):
        cells = (check.claim, check.subject, check.relied_on, check.found)
        table.add_row(Text(check.state, style=STYLES[check.state]), *(Text(cell) for cell in cells))
    return table


def durations_table(measured: Calibration) -> Table:
    """One row a step that was observed."""
    table = Table(title="Durations", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in ("step", "of", "median", "longest", "observed"):
        table.add_column(column, overflow="fold")
    for one in measured.durations:
        table.add_row(one.step, Text(one.of), f"{one.seconds} s", f"{one.max_seconds} s", str(one.count))
    return table
