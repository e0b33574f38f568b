"""Puts a forecast beside what happened after the merge, so that a team learns how far to trust it.

    python -m gke_ai.forecast.compare out.json --stack prod
    python -m gke_ai.forecast.compare out.json --snapshot later.json --since 2026-11-22T10:00:00Z

The cluster, or a later snapshot of it, shows its present state: which workloads run and wait, and the last eviction of
each. It doesn't show workloads that ended and were deleted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table

from gke_ai.catalog.versions import KUEUE_API
from gke_ai.forecast.afterwards import beside, happened
from gke_ai.forecast.comparison import AS_FORECAST, Line
from gke_ai.forecast.model import BadForecast, Forecast
from gke_ai.forecast.model import read as read_forecast
from gke_ai.forecast.names import workload_name
from gke_ai.forecast.snapshot.command import read_file
from gke_ai.kube.objects import Object
from gke_ai.ops.stack import Stack, Stop, add_stack, list_objects, run
from gke_ai.ops.terminal import new_console

Objects = Mapping[str, Iterable[Object]]
PATHS = {"Workload": f"/apis/{KUEUE_API}/workloads", "Pod": "/api/v1/pods", "Node": "/api/v1/nodes"}


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the comparison, workload by workload."""
    options = parser().parse_args(argv)
    try:
        forecast = read_forecast(options.forecast)
    except BadForecast as bad:
        raise Stop(str(bad)) from None
    stack = Stack(options.stack)
    objects = read_file(options.snapshot).objects if options.snapshot else of_cluster(stack)
    since = options.since or last_update(stack)
    lines = compare(forecast, objects, since)
    console = new_console()
    console.print(shown(lines))
    count = sum(line.verdict == AS_FORECAST for line in lines)
    console.print(f"\n{count} of {len(lines)} as forecast, since {since:%Y-%m-%d %H:%M} UTC.")


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command's options."""
    options = argparse.ArgumentParser(
        prog="python -m gke_ai.forecast.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("forecast", type=Path, help="result of make rehearse, as JSON")
    add_stack(options)
    options.add_argument("--snapshot", type=Path, help="later snapshot of the cluster. Default: the cluster now")
    options.add_argument("--since", type=moment, help="when the change began. Default: the stack's last update")
    return options


def compare(forecast: Forecast, objects: Objects, since: datetime) -> list[Line]:
    """Returns the comparison of a forecast with the later state of a cluster."""
    pods = {pod["metadata"]["uid"]: pod for pod in objects.get("Pod", ())}
    names = {workload_name(workload, pods) for workload in objects.get("Workload", ())}
    return beside(forecast, happened(objects, since, forecast.stack), names)


def of_cluster(stack: Stack) -> Objects:
    """Reads the cluster of a stack."""
    api = stack.cluster()
    return {kind: list_objects(api, path) for kind, path in PATHS.items()}


def last_update(stack: Stack) -> datetime:
    """Returns when the last update of a stack began."""
    updates = stack.read("stack", "history", "--json")
    for update in updates:
        if update.get("kind") == "update":
            return moment(update["startTime"])
    raise Stop(f"{stack.name} was never updated. State when the change began: --since 2026-11-22T10:00:00Z")


def moment(text: str) -> datetime:
    """Parses a time in UTC."""
    stated = datetime.fromisoformat(text)
    return stated if stated.tzinfo else stated.replace(tzinfo=UTC)


def shown(lines: Iterable[Line]) -> Table:
    """Returns the table of a comparison."""
    table = Table(box=None, pad_edge=False)
    for column in ("workload or pool", "verdict", "forecast", "happened"):
        table.add_column(column, no_wrap=column in ("workload or pool", "verdict"))
    for line in lines:
        table.add_row(line.name, line.verdict, "\n".join(line.forecast) or "–", "\n".join(line.happened) or "–")
    return table


if __name__ == "__main__":
    run(main)
