"""`gke-ai verify --stack STACK`: compares the claims of a stack with its live cluster, and measures it.

It changes nothing in the cluster: creates are dry runs. It writes its measurements to a calibration file. The program
plans with that file if `gke-ai:calibration` names it. The exit code is 1 if a claim fails.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from gke_ai.formats.console import new_console, new_table
from gke_ai.ops.verify.checks import FAIL, PASS, UNCHECKED, UNSEEN, Check
from gke_ai.ops.verify.claims import Verification
from gke_ai.ops.verify.durations import measure
from gke_ai.ops.verify.live import Call, caller, recorded, take
from gke_ai.settings.calibration import Calibration
from gke_ai.workspace.configuration_file import CALIBRATION, calibration_file, read_figures
from gke_ai.workspace.stack import ROOT, Stack

LOG_WIDTH = 220  # columns, without a terminal; the table of claims is wide
STYLES = {PASS: "green", FAIL: "bold red", UNSEEN: "yellow", UNCHECKED: "yellow"}


def verify(stack: Stack, output: Path | None = None) -> int:
    """Verifies `stack` against its cluster. Returns the exit code."""
    api = stack.cluster()
    return compare(stack.name, stack.resources, caller(api), named_file(stack), output)


def named_file(stack: Stack) -> Path | None:
    """Returns the calibration file that the configuration of the stack names."""
    return calibration_file(stack.file) if stack.file.exists() else None


def compare(
    name: str, resources: Sequence[Any], call: Call, named: Path | None, output: Path | None, today: Any = None
) -> int:
    """Compares recorded resources with the cluster behind `call`, prints the result, and writes the calibration
    file."""
    relied_on = read_figures(named) if named else Calibration()
    checks, measured, _ = checked(resources, call, relied_on, today)
    console = new_console(LOG_WIDTH)
    for part in shown(checks, measured):
        console.print()
        console.print(part, soft_wrap=isinstance(part, Text))  # a wrapped command can't be copied
    file = output or named or ROOT / "calibration" / f"{name}.yaml"
    console.print(Text(f"\n{write(file, measured)}"), soft_wrap=True)
    if named is None and output is None:
        command = f"pulumi config set --stack {name} {CALIBRATION} {file.relative_to(ROOT)}"
        console.print(Text(f"→ commit it, and plan with it:  {command}"), soft_wrap=True)
    return 1 if any(check.state == FAIL for check in checks) else 0


def checked(
    resources: Sequence[Any], call: Call, relied_on: Calibration, today: Any = None
) -> tuple[list[Check], Calibration, str]:
    """Compares recorded resources with the cluster behind `call`. Returns results, measurements and its version."""
    stack = recorded(resources)
    live = take(stack, call)
    measured = measure(stack, live, resources, today or datetime.date.today())
    return Verification(stack, live, relied_on).checks(), measured, live.version


def write(file: Path, measured: Calibration) -> str:
    """Adds the measurements to the file. Returns a summary of the file."""
    before = read_figures(file) if file.exists() else Calibration()
    merged = before.merged(measured)
    if merged == Calibration():
        return "There is no figure yet: no calibration file was written."
    if merged != before:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(merged.written())
    from_google = len([*merged.spot, *merged.spot_prices, *merged.windows])
    more = f", {from_google} figures of Google" if from_google else ""
    return f"{file}: {len(merged.nodes)} node types, {len(merged.durations)} durations{more}."


def shown(checks: list[Check], measured: Calibration) -> list[Table | Text]:
    """Returns the claims, the durations, and the next steps for claims that did not pass."""
    parts: list[Table | Text] = [claims_table(checks)]
    if measured.durations:
        parts.append(durations_table(measured))
    steps = [check for check in checks if check.step and check.state != PASS]
    if steps:
        # Each step once, with all of its subjects.
        subjects: dict[tuple[str, str], list[str]] = {}
        for check in steps:
            subjects.setdefault((check.state, check.step), []).append(check.subject)
        lines = [f"\n→ {state}: {', '.join(dict.fromkeys(of))}:  {step}" for (state, step), of in subjects.items()]
        parts.append(Text.assemble(("Next", "bold"), *lines))
    counts = [f"{sum(check.state == state for check in checks)} {state}" for state in STYLES]
    parts.append(Text(", ".join(counts) + "."))
    return parts


def claims_table(checks: list[Check]) -> Table:
    """Returns a table with a row per claim; failed claims come first."""
    texts = ("of", "the stack relies on", "the cluster has")
    order = [FAIL, *STYLES]
    rows = (
        (Text(check.state, style=STYLES[check.state]), check.claim, check.subject, check.relied_on, check.found)
        for check in sorted(checks, key=lambda check: order.index(check.state))
    )
    return new_table(("result", "claim", *texts), rows, "Claims", texts)


def durations_table(measured: Calibration) -> Table:
    """Returns a table with a row per observed step."""
    columns = ("step", "of", "median", "longest", "observed")
    rows = (
        (duration.step, duration.of, f"{duration.seconds} s", f"{duration.max_seconds} s", str(duration.count))
        for duration in measured.durations
    )
    return new_table(columns, rows, "Durations", columns)
