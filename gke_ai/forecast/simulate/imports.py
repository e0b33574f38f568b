"""Reads traces in public formats, and the Workloads of a snapshot, as submissions. Pure.

The files are not part of this project. docs/simulation.md says where they are, and under which licenses.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gke_ai.catalog.nodes.shape import ACCELERATORS
from gke_ai.forecast.simulate import trace as traces
from gke_ai.forecast.simulate.blocks import requested
from gke_ai.forecast.simulate.trace import Mistake, Submission, Trace
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.kube.objects import condition, holds
from gke_ai.kube.pods import requests
from gke_ai.terminal import Stop

GIB = 2**30
# Where a format does not say how much memory a run needs.
MEMORY_PER_CPU = 4.0
Row = Mapping[str, str]
Item = TypeVar("Item")


class Skipped(Exception):
    """A row that is no run: it never started, or it used no time."""


class Cells:
    """The values of a row, by column. A bad value names its column."""

    def __init__(self, row: Row, queues: Mapping[str, str]) -> None:
        self._row = row
        self._queues = queues

    def text(self, column: str) -> str:
        return self._row[column]

    def read(self, column: str, reader: Callable[[str], Any]) -> Any:
        try:
            return reader(self._row[column])
        except Mistake as mistake:
            raise Mistake(f"column {column}: {traces.shown(self._row[column])}: {mistake}") from None

    def number(self, column: str) -> float:
        return float(self.read(column, traces.number(0, 1e12)))

    def count(self, column: str) -> int:
        return int(self.read(column, traces.integer(0, 999_999)))

    def time(self, column: str) -> float:
        return float(self.read(column, _time))

    def queue(self, column: str) -> str:
        """The local queue for a group of the format: the one named for it, else the one for all."""
        group = self._row.get(column, "")
        queue = self._queues.get(group) or self._queues.get("")
        if queue is None:
            raise Mistake(
                f"column {column}: no local queue is named for {traces.shown(group)}: use --queue GROUP=NAMESPACE/NAME"
            )
        return queue


def _time(text: str) -> float:
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise Mistake("use a date and time") from None


def run(
    cells: Cells, group: str, time: float, pods: int, total: tuple[float, float, float], seconds: float
) -> Submission:
    """Returns a submission from the totals of a run: accelerators, CPU cores, and GiB of memory."""
    if seconds < 1:
        raise Skipped
    accelerators, cpu, memory = (amount / pods for amount in total)
    whole = -(-accelerators // 1)
    return Submission(time, cells.queue(group), "", pods, int(whole), cpu, memory, min(seconds, traces.MAX_SECONDS))


def alibaba(cells: Cells) -> Submission:
    """A task of `openb_pod_list_*.csv`. A task with a part of a GPU counts as a whole one.

    https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023
    """
    if not cells.text("scheduled_time") or not cells.text("deletion_time"):
        raise Skipped
    seconds = cells.number("deletion_time") - cells.number("scheduled_time")
    total = (cells.count("num_gpu"), cells.number("cpu_milli") / 1000, cells.number("memory_mib") / 1024)
    return run(cells, "qos", cells.number("creation_time"), 1, total, seconds)


def acme(cells: Cells) -> Submission:
    """A job of `trace_seren.csv` or `trace_kalos.csv`, with a pod on each node.

    https://github.com/InternLM/AcmeTrace
    """
    return _slurm(cells, "type")


def helios(cells: Cells) -> Submission:
    """A job of `cluster_log.csv`, with a pod on each node.

    https://github.com/S-Lab-System-Group/HeliosData
    """
    return _slurm(cells, "vc")


def _slurm(cells: Cells, group: str) -> Submission:
    if not cells.text("start_time") or not cells.text("duration"):
        raise Skipped
    pods, cpu = max(1, round(cells.number("node_num"))), cells.number("cpu_num")
    if pods > traces.MAX_PODS:
        raise Mistake(f"column node_num: {pods}: use at most {traces.MAX_PODS}")
    total = (cells.number("gpu_num"), cpu, cpu * MEMORY_PER_CPU)
    return run(cells, group, cells.time("submit_time"), pods, total, cells.number("duration"))


# Readers of CSV formats, each with the columns that it needs.
_SLURM = ("gpu_num", "cpu_num", "node_num", "submit_time", "start_time", "duration")
TABLES: Mapping[str, tuple[Callable[[Cells], Submission], tuple[str, ...]]] = {
    "alibaba": (
        alibaba,
        ("cpu_milli", "memory_mib", "num_gpu", "qos", "creation_time", "deletion_time", "scheduled_time"),
    ),
    "acme": (acme, (*_SLURM, "type")),
    "helios": (helios, (*_SLURM, "vc")),
}
FORMATS = (*TABLES, "philly", "snapshot")


def import_table(path: Path, form: str, queues: Mapping[str, str]) -> Trace:
    """Returns the runs of a file in a CSV format, from time 0. Stops at the first bad row, with its column."""
    reader, columns = TABLES[form]
    rows = ((f"line {line}", Cells(row, queues)) for line, row in traces.rows_of(path, columns))
    return collected(path, rows, reader)


def collected(path: Path, items: Iterable[tuple[str, Item]], reader: Callable[[Item], Submission]) -> Trace:
    """Returns what a reader makes of the items of a file, from time 0. Stops at the first bad one, with its place."""
    runs = []
    for place, item in items:
        try:
            runs.append(reader(item))
        except Skipped:
            continue
        except Mistake as mistake:
            raise Stop(f"{path}, {place}, {mistake}.") from None
    return from_zero(path, runs)


def import_philly(path: Path, queues: Mapping[str, str]) -> Trace:
    """Returns the jobs of `cluster_job_log`, from time 0: servers of the last attempt, and the time of all attempts.

    https://github.com/msr-fiddle/philly-traces. The format has no CPU and memory: those of a job are assumed from
    its GPUs, with 4 cores for each.
    """
    jobs = json_of(path)
    if not isinstance(jobs, list) or len(jobs) > traces.MAX_ROWS:
        raise Stop(f"{path} is not a list of at most {traces.MAX_ROWS:,} jobs. Replay a part of it.")
    return collected(path, ((f"job {place}", job) for place, job in enumerate(jobs, 1)), partial(philly, queues))


def philly(queues: Mapping[str, str], job: Mapping[str, Any]) -> Submission:
    """A job of `cluster_job_log`."""
    try:
        attempts = [entry for entry in job["attempts"] if _is_time(entry["start_time"]) and _is_time(entry["end_time"])]
        if not attempts or not attempts[-1]["detail"]:
            raise Skipped
        cells = Cells({"vc": str(job["vc"]), "submitted_time": str(job["submitted_time"])}, queues)
        seconds = sum(_time(entry["end_time"]) - _time(entry["start_time"]) for entry in attempts)
        servers = attempts[-1]["detail"]
        gpus = sum(len(server["gpus"]) for server in servers)
    except (KeyError, TypeError, AttributeError):
        raise Mistake("it does not have the fields of cluster_job_log") from None
    total = (gpus, gpus * 4.0, gpus * 4.0 * MEMORY_PER_CPU)
    return run(cells, "vc", cells.time("submitted_time"), len(servers), total, seconds)


def _is_time(text: object) -> bool:
    return isinstance(text, str) and text not in ("", "None")


def json_of(path: Path) -> Any:
    """Returns the content of a JSON file. Stops if it is none."""
    try:
        return json.loads(traces.text_of(path, 256 * 2**20))
    except (ValueError, RecursionError):
        raise Stop(f"{path} is not JSON.") from None


def import_snapshot(path: Path, snapshot: Snapshot) -> Trace:
    """Returns the finished Workloads of a snapshot, and those that run for as long as they have run, from time 0."""
    items = (("Workload", workload) for workload in snapshot.of("Workload"))
    return collected(path, items, partial(_workload, snapshot.taken_at))


def _workload(now: datetime, workload: Mapping[str, Any]) -> Submission:
    metadata, spec = workload["metadata"], workload["spec"]
    admitted = condition(workload, "Admitted")
    if not admitted or not (holds(workload, "Admitted") or holds(workload, "Finished")) or "queueName" not in spec:
        raise Skipped
    end = condition(workload, "Finished") if holds(workload, "Finished") else None
    until = _time(end["lastTransitionTime"]) if end else now.timestamp()
    pods = 0
    total: defaultdict[str, Fraction] = defaultdict(Fraction)
    for pod_set in spec["podSets"]:
        pods += int(pod_set["count"])
        for resource, amount in requests(pod_set["template"]["spec"]).items():
            total["accelerators" if resource in ACCELERATORS else resource] += amount * int(pod_set["count"])
    queue = f"{metadata['namespace']}/{spec['queueName']}"
    cells = Cells({}, {"": queue})
    asked = (float(total["accelerators"]), float(total["cpu"]), float(total["memory"] / GIB))
    seconds = until - _time(admitted["lastTransitionTime"])
    found = run(cells, "", _time(metadata["creationTimestamp"]), max(1, pods), asked, seconds)
    priority = str((spec.get("priorityClassRef") or {}).get("name", ""))
    return replace(found, priority=priority, topology=requested(spec["podSets"][0]))


def from_zero(path: Path, runs: Iterable[Submission]) -> Trace:
    """Returns the runs in order of time, with the first at 0. Stops if there are none, or if they span too long."""
    ordered = sorted(runs, key=lambda each: each.time)
    if not ordered:
        raise Stop(f"{path} has no run that started and ended.")
    first, last = ordered[0].time, ordered[-1].time
    if last - first > traces.MAX_SECONDS:
        raise Stop(f"{path} spans more than {traces.MAX_SECONDS / 86_400:.0f} days. Replay a part of it.")
    return tuple(replace(each, time=each.time - first) for each in ordered)


def window(trace: Iterable[Submission], start: float, hours: float) -> Iterator[Submission]:
    """Yields the submissions of a part of a trace, which begins `start` hours after the first one."""
    for each in trace:
        if start * 3600 <= each.time < (start + hours) * 3600:
            yield replace(each, time=each.time - start * 3600)
