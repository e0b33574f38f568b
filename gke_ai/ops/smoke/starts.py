"""What the start of each server's newest replica took, for `gke-ai smoke`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from gke_ai.formats.console import new_table
from gke_ai.kube.client import ApiClient, request
from gke_ai.kube.objects import Object
from gke_ai.kube.starts import LOGGED, PARTS, logged, newest_start
from gke_ai.kube.values import items
from gke_ai.ops.runs.logs import read

# vLLM has started after far less of its log.
_HEAD_BYTES = 1 << 20


def starts(api: ApiClient, servers: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yields the parts of the newest start of each server: by its pod and its log, as far as the user may read them."""
    for namespace in dict.fromkeys(server["namespace"] for server in servers):
        deployments = _listed(api, f"/apis/apps/v1/namespaces/{namespace}/deployments")
        by_name = {deployment["metadata"]["name"]: deployment for deployment in deployments}
        pods = _listed(api, f"/api/v1/namespaces/{namespace}/pods") if by_name else []
        for name in (server["name"] for server in servers if server["namespace"] == namespace):
            pod, parts = newest_start(by_name[name], pods) if name in by_name else (None, {})
            if pod is not None and parts:
                answer = read(api, pod, pod["spec"]["containers"][0]["name"], limitBytes=str(_HEAD_BYTES))
                of_engine = dict(logged(str(answer.body))) if answer.code == 200 else {}
                yield f"{namespace}/{name}", {**parts, **of_engine}


def _listed(api: ApiClient, path: str) -> list[Object]:
    """The objects of a path. None if the user may not list them: the check itself needs fewer rights."""
    answer = request(api, "GET", path)
    return items(answer.body, "items") if answer.code == 200 else []


def table(found: Sequence[tuple[str, Mapping[str, float]]]) -> Table:
    """Returns a table with a row per server. What an engine logs is a part of the last of `PARTS`."""
    columns = (*PARTS, *(part for part in LOGGED if any(part in parts for _, parts in found)))
    rows = [
        (name, *(f"{parts[part]:.0f} s" if part in parts else "–" for part in columns), f"{_whole(parts):.0f} s")
        for name, parts in found
    ]
    logged_too = f"; of the {PARTS[-1]}: {', '.join(columns[len(PARTS) :])}" if columns[len(PARTS) :] else ""
    return new_table(("server", *columns, "total"), rows, f"Start of the newest replica{logged_too}")


def _whole(parts: Mapping[str, float]) -> float:
    return sum(parts[part] for part in PARTS)
