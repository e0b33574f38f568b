"""Runs a bare control plane with the real Kueue, for a simulation: no Jobs, no pods but Kueue's own, no node pools.

    emulator/run queues VERSION VALUES.yaml

Installs Kueue's chart with these values and prints one line of JSON, {"kubeconfig": PATH}. Then it answers each line of
standard input with a line, until standard input ends:

    {"put": [OBJECT, …], "delete": [OBJECT, …]}    writes objects exactly as they are: uid, status and times
                                                   → {"changed": [NAME, …]}: their resource version is an old one
    {"counts": true}    → {"pending": {QUEUE: [active, inadmissible]}, "reserving": {QUEUE: NUMBER},
                           "attempts": NUMBER, "moved": {"queue/QUEUE" or "cohort/COHORT": NUMBER}}

The counts are Kueue's own: from its metrics, and from its log how often it moved waiting workloads back into the queues
that it tries. `emulator/run discard` ends the control plane.
"""

from __future__ import annotations

import argparse
import json
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
from pathlib import Path
from typing import Any, TextIO, TypeVar

import httpx
import yaml

from catalog.namespaces import KUEUE
from catalog.versions import KUEUE_CHART
from emulator.cluster import ClusterRecord, PoolRecord, create, etcd, processes, set_pool
from emulator.cluster.api import APPLY_PATCH, Object, answer, client
from emulator.cluster.folder import Folder
from emulator.kubernetes_plugin.helm import chart
from emulator.polling import poll_until

NAME, ZONE = "queues", "us-central1-a"
STARTS, ANSWERS = 300.0, 60.0
Answer = TypeVar("Answer")
_WORKER = '"logger":"inadmissible_workload_requeue_worker"'
_PENDING, _RESERVING = "kueue_pending_workloads{", "kueue_reserving_active_workloads{"
_ATTEMPTS = "kueue_admission_attempts_total{"
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def main() -> None:
    """Creates the control plane, then answers requests."""
    parser = argparse.ArgumentParser(
        prog="emulator/run queues", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", help="version of Kueue's chart")
    parser.add_argument("values", type=Path, help="values of the chart")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever reads from this process ends it
    folder = _create(options.version, options.values)
    _reply({"kubeconfig": str(folder.kubeconfig)})
    with ExitStack() as stack:
        api = stack.enter_context(client(folder))
        metrics = stack.enter_context(_metrics(folder, api))
        requests = (json.loads(line) for line in sys.stdin)
        first = next(requests, None)
        if first is None:
            return
        # The kinds of Kueue exist by now.
        writer = stack.enter_context(etcd.Writer(folder, etcd.Keys(api)))
        log = stack.enter_context(next(folder.log.glob(f"{KUEUE}_*_manager.log")).open())
        _serve(first, requests, writer, metrics, log)


def _serve(first: Object, requests: Iterator[Object], writer: etcd.Writer, metrics: httpx.Client, log: TextIO) -> None:
    request: Object | None = first
    moved = Moved(log)
    while request is not None:
        if "counts" in request:
            before = moved.read()  # before the metrics, which then show at least as much
            text = _retried(lambda: metrics.get("/metrics").raise_for_status().text)
            _reply({**_counts(text), "moved": before})
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
        except httpx.HTTPError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _reply(content: Any) -> None:
    print(json.dumps(content), flush=True)


def _create(version: str, values: Path) -> Folder:
    create(NAME, ClusterRecord(NAME, "emulator-project", "us-central1", "standard", [ZONE], "1.36.1-gke.1"))
    set_pool(NAME, PoolRecord("system", "e2-standard-8", [ZONE], nodes_per_zone=1))
    folder = Folder(NAME)
    place = ["--namespace", KUEUE, "--create-namespace", "--kubeconfig", str(folder.kubeconfig)]
    source = str(chart(KUEUE_CHART, version).folder)
    command = [processes.tool("helm"), "install", "kueue", source, "--values", str(values), *place]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def _metrics(folder: Folder, api: httpx.Client) -> httpx.Client:
    """A client of Kueue's metrics, signed in as Kueue itself."""
    account = {"kind": "ServiceAccount", "name": "kueue-controller-manager", "namespace": KUEUE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kueue-metrics-reader"}
    name = "simulation-metrics"
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [account]}
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}"
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
    answer(api.patch(path, params={"fieldManager": NAME}, json={**head, **binding}, headers=APPLY_PATCH))
    files: list[Path] = []

    def started() -> bool:
        files[:] = folder.sandboxes.glob("*/*/manager.yaml")
        return bool(files)

    if not poll_until(started, timeout=STARTS, pause=0.2):
        sys.exit(f"Kueue does not start within {STARTS:.0f} s. Its logs are in {folder.log}.")
    address = yaml.safe_load(files[0].read_text())["metrics"]["bindAddress"]
    unverified = ssl.create_default_context()  # Kueue's certificate is its own, and its port is on this machine
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE

    def sign_in(request: httpx.Request) -> httpx.Request:
        request.headers["authorization"] = f"Bearer {files[0].with_name('token').read_text()}"  # it is renewed
        return request

    base = f"https://{address}"
    return httpx.Client(base_url=base, verify=unverified, auth=sign_in, timeout=30, trust_env=False)


class Moved:
    """How often Kueue moved waiting workloads back into the queues that it tries, read from its growing log.

    The messages are those of pkg/cache/queue/inadmissible_workloads.go.
    """

    def __init__(self, log: TextIO) -> None:
        self._log = log
        self._rest = ""
        self._counts: Counter[str] = Counter()

    def read(self) -> Counter[str]:
        """Returns the counts so far, by queue and by cohort."""
        *lines, self._rest = (self._rest + self._log.read()).split("\n")
        for line in lines:
            if _WORKER in line:
                entry = json.loads(line)
                if entry["msg"] == "Moved workloads":
                    self._counts[f"queue/{entry['clusterqueue']}"] += 1
                elif entry["msg"] == "Moved inadmissible workloads in tree":
                    self._counts[f"cohort/{entry['rootCohort']}"] += 1
        return self._counts


def _counts(text: str) -> Object:
    pending: dict[str, list[int]] = {}
    reserving: dict[str, int] = {}
    attempts = 0
    for line in text.split("\n"):
        if line.startswith((_PENDING, _RESERVING, _ATTEMPTS)):
            labels, _, value = line.rpartition(" ")
            named, count = dict(_LABEL.findall(labels)), int(float(value))
            if line.startswith(_PENDING):
                pending.setdefault(named["cluster_queue"], [0, 0])[named["status"] == "inadmissible"] = count
            elif line.startswith(_RESERVING):
                reserving[named["cluster_queue"]] = count
            else:
                attempts += count
    return {"pending": pending, "reserving": reserving, "attempts": attempts}


if __name__ == "__main__":
    main()
