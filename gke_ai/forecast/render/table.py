"""Prints a forecast or a simulation to the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.table import Table
from rich.text import Text

from gke_ai.forecast.forecast import Forecast
from gke_ai.forecast.render import rehearsal, rehearsal_headline, simulation
from gke_ai.forecast.simulation import Simulation
from gke_ai.registered.prices import Prices

Row = tuple[str, ...]


def shown(forecast: Forecast, prices: Prices | None = None) -> Iterator[Table | Text]:
    """Yields the parts of the result: a sentence, the tables that have rows, and how time was compressed."""
    yield Text(rehearsal_headline.sentence(forecast), style="bold")
    for title, columns, rows in rehearsal.tables(forecast, prices):
        yield _table(title, columns, rows)
    yield Text("\n".join(rehearsal.remarks(forecast)))


def simulated(result: Simulation) -> Iterator[Table | Text]:
    """Yields the parts of the result: a verdict, the tables that have rows, and remarks."""
    yield Text(simulation.sentence(result), style="bold")
    for title, columns, rows in simulation.tables(result):
        yield _table(title, columns, rows)
    yield Text("\n".join(simulation.remarks(result)))


def _table(title: str, columns: Row, rows: Iterable[Row]) -> Table:
    result = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        result.add_column(Text(column), no_wrap=column not in ("why", "waits for", "source"))
    for row in rows:
        result.add_row(*map(Text, row))  # no markup: names are those of other people's files
    return result
