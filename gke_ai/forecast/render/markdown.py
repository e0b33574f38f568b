"""A rehearsal and simulated days as Markdown: a part that is always shown, and a folded one with the tables."""

from __future__ import annotations

from collections.abc import Iterable

from gke_ai.forecast.render import rehearsal, rehearsal_headline, simulation
from gke_ai.forecast.result.forecast import Forecast
from gke_ai.forecast.result.simulation import Simulation
from gke_ai.formats.markdown import folded, table, text
from gke_ai.formats.sentences import plural
from gke_ai.workspace.prices import Prices

SHORTENED = "_Omitted: the tables, because they are too long for a comment. `gke-ai rehearse` prints them._"


def rehearsed(forecast: Forecast, prices: Prices | None) -> tuple[str, str]:
    """Returns what the change does in the queue, and the tables."""
    parts = titled([*rehearsal.tables(forecast, prices), rehearsal.sources(forecast)])
    remarks = "\n".join(f"- {text(remark)}" for remark in rehearsal.remarks(forecast, prices))
    opening = f"{text(rehearsal_headline.sentence(forecast))}\n\n{remarks}"
    return opening, folded("Workloads, servers and nodes", parts)


def simulated(result: Simulation) -> tuple[str, str]:
    """Returns what simulated days say, and the tables."""
    origin = f"Stack {result.stack}, trace {result.trace}, {plural(len(result.seeds), 'seed')}."
    remarks = "\n".join(f"- {text(remark)}" for remark in [origin, *simulation.remarks(result)])
    opening = f"{text(simulation.sentence(result))}\n\n{remarks}"
    return opening, folded("Queues, nodes and the unhappiest runs", titled(simulation.tables(result)))


def titled(parts: Iterable[rehearsal.TableParts]) -> str:
    """Returns tables with their titles. A table without rows is omitted."""
    written = [
        (title, [text(column) for column in columns], [[text(cell) for cell in row] for row in rows])
        for title, columns, rows in parts
        if rows
    ]
    return "\n\n".join(f"**{text(title)}**\n\n{table(columns, rows)}" for title, columns, rows in written)


def rehearsal_page(forecast: Forecast, prices: Prices | None, limit: int = 6_000) -> str:
    """Returns a rehearsal as a page of its own, for a comment beside a report. Without its tables if it is too long."""
    opening, tables = rehearsed(forecast, prices)
    sentence, *details = opening.split("\n\n")
    head = [f"# Rehearsal of `{forecast.stack}`", f"**{sentence}**", *details]
    full = "\n\n".join([*head, tables]) + "\n"
    return full if len(full) <= limit else "\n\n".join([*head, SHORTENED]) + "\n"
