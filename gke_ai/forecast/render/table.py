"""Prints a forecast or a simulation to the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from gke_ai.forecast.render import rehearsal, rehearsal_headline, simulation
from gke_ai.forecast.result.forecast import Forecast
from gke_ai.forecast.result.simulation import Simulation
from gke_ai.formats.console import new_table
from gke_ai.workspace.prices import Prices


def shown(forecast: Forecast, prices: Prices | None = None) -> Iterator[Table | Text]:
    """Yields the parts of the result: a sentence, the tables that have rows, and how time was compressed."""
    yield Text(rehearsal_headline.sentence(forecast), style="bold")
    for title, columns, rows in rehearsal.tables(forecast, prices):
        yield new_table(columns, rows, title)
    yield Text("\n".join(rehearsal.remarks(forecast, prices)))


def simulated(result: Simulation) -> Iterator[Table | Text]:
    """Yields the parts of the result: a verdict, the tables that have rows, and remarks."""
    yield Text(simulation.sentence(result), style="bold")
    for title, columns, rows in simulation.tables(result):
        yield new_table(columns, rows, title)
    yield Text("\n".join(simulation.remarks(result)))
