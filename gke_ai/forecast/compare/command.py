"""Puts a forecast beside what happened after the merge, so that a team learns how far to trust it.

    gke-ai compare out.json --stack prod
    gke-ai compare out.json --snapshot later.json --since 2026-11-22T10:00:00Z

The cluster, or a later snapshot of it, shows its present state: which workloads run and wait, and the last eviction of
each. It doesn't show workloads that ended and were deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table

from gke_ai.forecast.compare.comparison import AS_FORECAST, Line, beside, happened
from gke_ai.forecast.result.forecast import Forecast
from gke_ai.forecast.result.forecast import read as read_forecast
from gke_ai.forecast.snapshot.command import read_file
from gke_ai.forecast.snapshot.fields import kinds
from gke_ai.formats.console import new_console, new_table
from gke_ai.kube.client import list_objects
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import Object
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack

Objects = Mapping[str, Iterable[Object]]


def show(stack: Stack, file: Path, snapshot: Path | None, since: datetime | None) -> None:
    """Prints the comparison, workload by workload."""
    forecast = read_forecast(file)
    objects = read_file(snapshot).objects if snapshot else of_cluster(stack)
    begun = since or last_update(stack)
    lines = compare(forecast, objects, begun)
    console = new_console()
    console.print(shown(lines))
    count = sum(line.verdict == AS_FORECAST for line in lines)
    console.print(f"\n{count} of {len(lines)} as forecast, since {begun:%Y-%m-%d %H:%M} UTC.")


def compare(forecast: Forecast, objects: Objects, since: datetime) -> list[Line]:
    """Returns the comparison of a forecast with the later state of a cluster."""
    pods = {pod["metadata"]["uid"]: pod for pod in objects.get("Pod", ())}
    names = {WorkloadName.of_workload(workload, pods) for workload in objects.get("Workload", ())}
    return beside(forecast, happened(objects, since, forecast.stack), names)


def of_cluster(stack: Stack) -> Objects:
    """Reads the cluster of a stack."""
    api = stack.cluster()
    return {kind: list_objects(api, kinds()[kind].path()) for kind in ("Workload", "Pod", "Node")}


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
    texts = ("forecast", "happened")
    rows = (
        (line.name, line.verdict, *("\n".join(side) or "–" for side in (line.forecast, line.happened)))
        for line in lines
    )
    return new_table(("workload or pool", "verdict", *texts), rows, wrapped=texts)
