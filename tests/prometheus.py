"""A Prometheus of a test's own: it is given samples of any time, and asked what its users would ask."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from emulator.cluster import processes


@dataclass(frozen=True)
class Series:
    """A series: one sample a minute, the last of them now; a None is a minute without one."""

    name: str
    labels: Mapping[str, str]
    values: Sequence[float | None]


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that answers at `url`; `now` is the time that its questions are of."""

    url: str
    now: int

    def take(self, series: Iterable[Series]) -> None:
        """Remembers series. Sent by OTLP, which takes samples of the past."""
        metrics = [self._metric(one) for one in series]
        body = {"resourceMetrics": [{"resource": {}, "scopeMetrics": [{"metrics": metrics}]}]}
        answer = httpx.post(f"{self.url}/api/v1/otlp/v1/metrics", json=body)
        assert answer.status_code == 200, answer.text

    def _metric(self, one: Series) -> dict[str, Any]:
        attributes = [{"key": name, "value": {"stringValue": value}} for name, value in one.labels.items()]
        points = [
            {"timeUnixNano": str((self.now - 60 * age) * 10**9), "asDouble": value, "attributes": attributes}
            for age, value in zip(range(len(one.values) - 1, -1, -1), one.values, strict=True)
            if value is not None
        ]
        if one.name.endswith("_total"):
            return {
                "name": one.name,
                "sum": {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": points},
            }
        return {"name": one.name, "gauge": {"dataPoints": points}}

    def query(self, query: str) -> list[dict[str, Any]]:
        """What a query answers now; a query that Prometheus doesn't understand is a failure."""
        return self._get("query", query=query, time=self.now)

    def latest(self, query: str) -> list[dict[str, Any]]:
        """What a query answers at this moment."""
        return self._get("query", query=query)

    def fires(self, condition: Mapping[str, Any]) -> bool:
        """Whether some series has met an alert's condition at each minute of its duration, as Google evaluates it."""
        minutes = int(condition["duration"].removesuffix("s")) // 60
        start = self.now - 60 * minutes
        found = self._get("query_range", query=condition["query"], start=start, end=self.now, step=60)
        return any(len(one["values"]) == minutes + 1 for one in found)

    def _get(self, endpoint: str, **parameters: str | int) -> list[dict[str, Any]]:
        answer = httpx.get(f"{self.url}/api/v1/{endpoint}", params=parameters).json()
        assert answer["status"] == "success", f"{parameters['query']}: {answer['error']}"
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found


@contextmanager
def running(folder: Path, configuration: Path | None = None) -> Iterator[Prometheus]:
    """A Prometheus that keeps its data in a folder, and scrapes as a configuration says: by default nothing."""
    empty = folder / "empty.yaml"
    empty.write_text("{}")
    (port,) = processes.free_ports(1)
    command = [
        processes.tool("prometheus"),
        f"--config.file={configuration or empty}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-otlp-receiver",
        "--log.level=error",
    ]
    process = subprocess.Popen(command)
    made = Prometheus(f"http://127.0.0.1:{port}", int(time.time()))
    try:
        for _ in range(400):
            try:
                if httpx.get(f"{made.url}/-/ready").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            assert process.poll() is None, "Prometheus has ended"
            time.sleep(0.05)
        yield made
    finally:
        process.terminate()
        process.wait()
