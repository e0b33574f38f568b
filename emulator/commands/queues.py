"""Runs a bare control plane with the real Kueue, for a simulation: no Jobs, and no pods of its own but Kueue's.

    emulator/run queues VERSION VALUES.yaml POOLS.json

Creates the node pools on which Kueue places by topology, a list of their records: mostly empty, as a simulation has its
own nodes. Installs Kueue's chart with these values and prints one line of JSON, {"kubeconfig": PATH}. Then it answers
each line of standard input with a line, until standard input ends:

    {"put": [OBJECT, …], "delete": [OBJECT, …]}    writes objects exactly as they are: uid, status and times
                                                   → {"changed": [NAME, …]}: their resource version is an old one
    {"counts": true}    → {"pending": {QUEUE: [active, inadmissible]}, "reserving": {QUEUE: NUMBER},
                           "attempts": NUMBER}: Kueue's own, from its metrics
    {"log": true}       → {"moved": {"queue/QUEUE" or "cohort/COHORT": NUMBER}, "idle": BOOLEAN}: from Kueue's log, how
                          often it moved waiting workloads back into the queues that it tries, and whether it tries none
    {"usage": SECOND, "interval": SECONDS}    sets the clock of past usage to a second from the start, and waits until
                          Kueue has sampled the local queues that it last sampled an interval ago → {}

`emulator/run discard` ends the control plane.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, TextIO, TypeVar

import httpx
import yaml

from emulator.cloud import etcd
from emulator.cloud.api import APPLY_PATCH, MERGE_PATCH, Object, answer, client
from emulator.cloud.folder import Folder
from emulator.cluster import ClusterRecord, PoolRecord, create, set_pool
from emulator.machine import processes
from emulator.machine.polling import poll_until
from emulator.pulumi.kubernetes.helm import chart
from gke_ai.catalog.kueue.namespaces import KUEUE
from gke_ai.catalog.versions import KUEUE_CHART

NAME, ZONE = "queues", "us-central1-a"
STARTS, ANSWERS = 300.0, 60.0
Answer = TypeVar("Answer")
_WORKER = '"logger":"inadmissible_workload_requeue_worker"'
_WAITS, _TRIES = '"msg":"Scheduling cycle starts"', '"msg":"Obtained heads"'
_USAGE, _LOOKS = '"msg":"Updated AFS consumed', '"msg":"Reconcile LocalQueue"'
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def main() -> None:
    """Creates the control plane, then answers requests."""
    parser = argparse.ArgumentParser(
        prog="emulator/run queues", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", help="version of Kueue's chart")
    parser.add_argument("values", type=Path, help="values of the chart")
    parser.add_argument("pools", type=Path, help="records of node pools as JSON")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever reads from this process ends it
    folder = _create(options.version, options.values, json.loads(options.pools.read_text()))
    _reply({"kubeconfig": str(folder.kubeconfig)})
    with ExitStack() as stack:
        api = stack.enter_context(client(folder))
        settings = _settings(folder)
        metrics = _metrics(settings, api)
        stack.callback(metrics.close)
        requests = (json.loads(line) for line in sys.stdin)
        first = next(requests, None)
        if first is None:
            return
        # The kinds of Kueue exist by now.
        writer = stack.enter_context(etcd.Writer(folder, etcd.Keys(api)))
        log = stack.enter_context(next(folder.log.glob(f"{KUEUE}_*_manager.log")).open())
        read = ManagerLog(log)
        _serve(first, requests, writer, metrics, read, Usage(api, read, settings))


def _serve(
    first: Object, requests: Iterator[Object], writer: etcd.Writer, metrics: Metrics, read: ManagerLog, usage: Usage
) -> None:
    request: Object | None = first
    while request is not None:
        if "log" in request:
            read.update()
            _reply({"moved": read.moved, "idle": read.idle})
        elif "usage" in request:
            usage.sample(request["usage"], request["interval"])
            _reply({})
        elif "counts" in request:
            _reply(_counts(_retried(metrics.read)))
        else:
            write = partial(writer.write, request.get("put", []), request.get("delete", []))
            _reply({"changed": _retried(write)})
        request = next(requests, None)


def _retried(send: Callable[[], Answer]) -> Answer:
    """Sends a request again for a minute: on a busy machine, an answer or the review of a token can come too late."""
    deadline = time.monotonic() + ANSWERS
    while True:
        try:
            return send()
        except (httpx.HTTPError, HTTPException, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _reply(content: Any) -> None:
    print(json.dumps(content), flush=True)


def _create(version: str, values: Path, pools: list[Object]) -> Folder:
    create(NAME, ClusterRecord(NAME, "emulator-project", "us-central1", "standard", [ZONE], "1.36.1-gke.1"))
    set_pool(NAME, PoolRecord("system", "e2-standard-8", [ZONE], nodes_per_zone=1))
    for pool in pools:
        set_pool(NAME, PoolRecord(**pool))
    folder = Folder(NAME)
    place = ["--namespace", KUEUE, "--create-namespace", "--kubeconfig", str(folder.kubeconfig)]
    source = str(chart(KUEUE_CHART, version).folder)
    command = [processes.tool("helm"), "install", "kueue", source, "--values", str(values), *place]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


class Metrics:
    """Kueue's metrics, read as Kueue itself. They are read up to a hundred times a second, so without compression."""

    def __init__(self, address: str, token: Path) -> None:
        unverified = ssl.create_default_context()  # Kueue's certificate is its own, and its port is on this machine
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        self._connection = HTTPSConnection(address, timeout=30, context=unverified)
        self._token = token
        self.close = self._connection.close

    def read(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        try:
            headers = {"Authorization": f"Bearer {self._token.read_text()}"}  # it is renewed
            self._connection.request("GET", "/metrics", headers=headers)
            response = self._connection.getresponse()
            text = response.read()
            if response.status != HTTPStatus.OK:
                raise HTTPException(f"Kueue answers {response.status} to a request for its metrics")
        except (HTTPException, OSError):
            self.close()  # the next request connects again
            raise
        return text


def _settings(folder: Folder) -> Path:
    """The configuration file of Kueue's manager, once it starts."""
    files: list[Path] = []

    def started() -> bool:
        files[:] = folder.sandboxes.glob("*/*/manager.yaml")
        return bool(files)

    if not poll_until(started, timeout=STARTS, pause=0.2):
        sys.exit(f"Kueue does not start within {STARTS:.0f} s. Its logs are in {folder.log}.")
    return files[0]


def _metrics(settings: Path, api: httpx.Client) -> Metrics:
    account = {"kind": "ServiceAccount", "name": "kueue-controller-manager", "namespace": KUEUE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kueue-metrics-reader"}
    name = "simulation-metrics"
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [account]}
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}"
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
    answer(api.patch(path, params={"fieldManager": NAME}, json={**head, **binding}, headers=APPLY_PATCH))
    return Metrics(yaml.safe_load(settings.read_text())["metrics"]["bindAddress"], settings.with_name("token"))


class ManagerLog:
    """Kueue's growing log: how often it moved waiting workloads back to be tried, and whether it has tried them.

    Moves are counted by queue and cohort. One of a cohort counts too if there was nothing to move.
    The messages are those of pkg/cache/queue/inadmissible_workloads.go, pkg/scheduler/scheduler.go and
    pkg/controller/core.
    """

    def __init__(self, log: TextIO) -> None:
        self._log = log
        self._rest = ""
        self.moved: Counter[str] = Counter()
        self.idle = False
        self.now = 0.0  # of the clock of past usage
        self.sampled: dict[str, float] = {}  # when Kueue last counted the usage of a local queue
        self.rests: dict[str, bool] = {}  # whether it has ended that, as it looks at the local queue again
        self._attempted: set[str] = set()

    def update(self) -> None:
        """Reads what was written since the last call."""
        earlier = set(self._attempted)
        *lines, self._rest = (self._rest + self._log.read()).split("\n")
        for line in lines:
            if _WAITS in line:
                self.idle = True
            elif _TRIES in line:
                self.idle = False
            elif _USAGE in line:
                entry = json.loads(line)
                queue = entry.get("localQueue") or entry
                name = f"{queue['namespace']}/{queue['name']}"
                self.sampled[name], self.rests[name] = self.now, False
            elif _LOOKS in line:
                entry = json.loads(line)
                self.rests[f"{entry['namespace']}/{entry['name']}"] = True
            elif _WORKER in line:
                entry = json.loads(line)
                if entry["msg"] == "Attempting to move workloads":
                    self._attempted.add(entry["rootCohort"])
                elif entry["msg"] == "Moved workloads":
                    self.moved[f"queue/{entry['clusterqueue']}"] += 1
                    self.idle = False
                elif entry["msg"] == "Moved inadmissible workloads in tree":
                    self._attempted.discard(entry["rootCohort"])
                    self.moved[f"cohort/{entry['rootCohort']}"] += 1
                    self.idle = False
        # The second message follows the first at once.
        for cohort in earlier & self._attempted:
            self._attempted.remove(cohort)
            self.moved[f"cohort/{cohort}"] += 1


class Usage:
    """Past usage by local queue, which Kueue counts with the clock of the simulation.

    In a cluster, Kueue samples it in each interval. Here it does so before each event, so it counts what was in use
    until then. Its clock is the time of its configuration file.
    """

    def __init__(self, api: httpx.Client, log: ManagerLog, clock: Path) -> None:
        self._api = api
        self._log = log
        self._clock = clock
        self._start = clock.stat().st_mtime
        self._queues: list[tuple[str, str]] = []

    def sample(self, second: float, interval: float) -> None:
        """Sets the clock, and makes Kueue sample by a change of each local queue that is due."""
        path = "/apis/kueue.x-k8s.io/v1beta2"
        if not self._queues:
            found = answer(self._api.get(f"{path}/localqueues"))["items"]
            self._queues = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in found]
        self._log.update()
        os.utime(self._clock, (self._start + second,) * 2)
        self._log.now = second
        due = [pair for pair in self._queues if second - self._log.sampled.get("/".join(pair), 0.0) >= interval]
        for namespace, name in due:
            change = {"metadata": {"annotations": {"second": str(second)}}}
            place = f"{path}/namespaces/{namespace}/localqueues/{name}"
            answer(self._api.patch(place, json=change, headers=MERGE_PATCH))

        def sampled() -> bool:
            self._log.update()
            names = ["/".join(pair) for pair in due]
            return all(self._log.sampled.get(name) == second and self._log.rests[name] for name in names)

        if not poll_until(sampled, timeout=ANSWERS, pause=0.005):
            sys.exit(f"Kueue does not sample the usage of local queues within {ANSWERS:.0f} s.")


def _counts(metrics: bytes) -> Object:
    pending: dict[str, list[int]] = {}
    for labels, count in _values(metrics, b"kueue_pending_workloads"):
        pending.setdefault(labels["cluster_queue"], [0, 0])[labels["status"] == "inadmissible"] = count
    reserving = {
        labels["cluster_queue"]: count for labels, count in _values(metrics, b"kueue_reserving_active_workloads")
    }
    attempts = sum(count for _, count in _values(metrics, b"kueue_admission_attempts_total"))
    return {"pending": pending, "reserving": reserving, "attempts": attempts}


def _values(metrics: bytes, name: bytes) -> Iterator[tuple[dict[str, str], int]]:
    """Yields the labels and the value of each line of a metric. The lines of a metric follow one another."""
    start = b"\n" + name + b"{"
    at = metrics.find(start)
    while at >= 0:
        end = metrics.find(b"\n", at + 1)
        labels, _, value = metrics[at:end].decode().rpartition(" ")
        yield dict(_LABEL.findall(labels)), int(float(value))
        at = end if metrics.startswith(start, end) else -1


if __name__ == "__main__":
    main()
