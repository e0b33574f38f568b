"""Runs a Prometheus for a test, which writes samples of any time into it and queries them."""

import math
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from emulator.machine import processes
from emulator.machine.polling import poll_until


@dataclass(frozen=True)
class Series:
    """A series with one sample per minute; the last sample is the current one. None is a minute without a sample."""

    name: str
    labels: Mapping[str, str]
    values: Sequence[float | None]


def number(value: float) -> float | str:
    """A number as JSON of Protobuf has it: a text if it is none of JSON's own."""
    return value if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus at `url`. `now` is the evaluation time of queries."""

    url: str
    now: int

    def take(self, series: Iterable[Series]) -> None:
        """Writes series with OTLP, which accepts samples of the past."""
        metrics = [self._metric(single) for single in series]
        body = {"resourceMetrics": [{"resource": {}, "scopeMetrics": [{"metrics": metrics}]}]}
        answer = httpx.post(f"{self.url}/api/v1/otlp/v1/metrics", json=body)
        assert answer.status_code == 200, answer.text

    def _metric(self, series: Series) -> dict[str, Any]:
        attributes = [{"key": name, "value": {"stringValue": value}} for name, value in series.labels.items()]
        points = [
            {"timeUnixNano": str((self.now - 60 * age) * 10**9), "asDouble": number(value), "attributes": attributes}
            for age, value in zip(range(len(series.values) - 1, -1, -1), series.values, strict=True)
            if value is not None
        ]
        if series.name.endswith("_total"):
            total = {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": points}
            return {"name": series.name, "sum": total}
        return {"name": series.name, "gauge": {"dataPoints": points}}

    def query(self, query: str) -> list[dict[str, Any]]:
        """The result of a query at `now`. Fails if the query is invalid."""
        return self._get("query", query=query, time=self.now)

    def latest(self, query: str) -> list[dict[str, Any]]:
        return self._get("query", query=query)

    def fires(self, condition: Mapping[str, Any]) -> bool:
        """Whether a series met an alert's condition in every minute of its duration, as Google evaluates it."""
        minutes = int(condition["duration"].removesuffix("s")) // 60
        start = self.now - 60 * minutes
        result = self._get("query_range", query=condition["query"], start=start, end=self.now, step=60)
        return any(len(series["values"]) == minutes + 1 for series in result)

    def _get(self, endpoint: str, **parameters: str | int) -> list[dict[str, Any]]:
        answer = httpx.get(f"{self.url}/api/v1/{endpoint}", params=parameters).json()
        assert answer["status"] == "success", f"{parameters['query']}: {answer['error']}"
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result


@contextmanager
def running(folder: Path, configuration: Path | None = None) -> Iterator[Prometheus]:
    """Runs a Prometheus with its data in a folder. Default configuration: no targets."""
    empty = folder / "empty.yaml"
    empty.write_text("{}")
    (port,) = processes.free_ports(1)
    options = [f"--config.file={configuration or empty}", f"--storage.tsdb.path={folder / 'data'}"]
    options += [f"--web.listen-address=127.0.0.1:{port}", "--web.enable-otlp-receiver", "--log.level=error"]
    process = subprocess.Popen([processes.tool("prometheus"), *options])
    prometheus = Prometheus(f"http://127.0.0.1:{port}", int(time.time()))

    def ready() -> bool:
        assert process.poll() is None, "Prometheus has ended"
        try:
            return httpx.get(f"{prometheus.url}/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    try:
        assert poll_until(ready, timeout=20), "Prometheus isn't ready after 20 s"
        yield prometheus
    finally:
        process.terminate()
        process.wait()
