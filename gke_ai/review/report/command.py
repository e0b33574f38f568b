"""Writes a preview of a stack as one Markdown page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gke_ai.forecast.result import forecast as forecasts
from gke_ai.forecast.result import simulation as simulations
from gke_ai.review.report.changes import PlannedUpdate, plan
from gke_ai.review.report.page import COMMENT_LIMIT, Options, page, summary
from gke_ai.review.report.policies import Verdict, verdict
from gke_ai.review.report.preview import Preview, recorded, take
from gke_ai.settings.calibration import Calibration
from gke_ai.terminal import echo
from gke_ai.workspace.configuration_file import read_calibration, read_prices, read_region
from gke_ai.workspace.prices import with_google
from gke_ai.workspace.stack import ROOT, Stack


@dataclass(frozen=True)
class Request:
    """What to write a page about, and how.

    Attributes:
        stack: The stack that is previewed.
        output: File of the page. Default: standard output.
        prices: A team's own price table in YAML. Default: Google's list prices.
        rehearsal: Result of a rehearsal of the same change, as JSON.
        simulation: Result of a simulation, as JSON.
        packs: Folders of the policy packs. Default: `policy`, if it exists.
        graph: Whether the page has the graph, as Mermaid.
        limit: Maximum length of the page in characters; 0: no limit.
        save: File to which the preview is written as JSON too.
        preview: File of a saved preview, which is read instead of running Pulumi.
    """

    stack: Stack
    output: Path | None = None
    prices: Path | None = None
    rehearsal: Path | None = None
    simulation: Path | None = None
    packs: Sequence[Path] | None = None
    graph: bool = True
    limit: int = COMMENT_LIMIT
    save: Path | None = None
    preview: Path | None = None

    def taken(self) -> Preview:
        """Runs a preview of the stack, or reads the saved one."""
        if self.preview:
            return recorded(self.preview.read_text())
        default = [path for path in [ROOT / "policy"] if (path / "PulumiPolicy.yaml").exists()]
        return take(self.stack, default if self.packs is None else self.packs)

    @property
    def configuration(self) -> Path | None:
        """The file of the configuration, if it exists. A saved preview has only one that is named."""
        file = self.stack.config_file if self.preview else self.stack.file
        return file if file and file.exists() else None


def write(request: Request) -> int:
    """Writes the page. Returns the exit code: 1 if the preview fails or violates a mandatory policy."""
    file = request.configuration
    measured = read_calibration(file) if file else Calibration()  # before a preview that may take minutes
    table = with_google(read_prices(request.prices, file), measured, read_region(file) if file else "")
    forecast = forecasts.read(request.rehearsal) if request.rehearsal else None
    days = simulations.read(request.simulation) if request.simulation else None
    preview = request.taken()
    if request.save:
        request.save.write_text(preview.written())
    planned, results = plan(preview), verdict(preview)
    text = page(planned, results, Options(table, request.graph, request.limit, forecast, days, measured))
    if output := request.output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text)
        echo(f"{summary(planned, results, forecast).replace('**', '')}\nThe page is {output}.")
    else:
        sys.stdout.write(text)
    return exit_code(planned, results)


def exit_code(planned: PlannedUpdate, results: Verdict) -> int:
    """Returns 1 if the preview failed or violates a mandatory policy, else 0."""
    return int(bool(planned.errors) or results.count(mandatory=True) > 0)
