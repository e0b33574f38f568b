"""The ledger in a cluster of a test: its runs as processes that can be killed, and a record of what Kueue admitted."""

import base64
import json
import os
import ssl
import subprocess
import sys
import threading
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import yaml

from gke_ai.catalog.kueue.ledger import KEY, LEDGER, NAMESPACE
from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.catalog.versions import KUEUE_API
from tests.support.emulator import Emulator
from tests.support.repository import ROOT

Object = dict[str, Any]
PROGRAM = ROOT / "gke_ai" / "pods" / "programs" / "ledger.py"


def stored(emulator: Emulator) -> Object:
    """What the ledger has written; empty before."""
    maps = emulator.get("configmaps", "-n", NAMESPACE)
    return next((json.loads(item["data"][KEY]) for item in maps if item["metadata"]["name"] == LEDGER), {})


def local_queue(emulator: Emulator, name: str, namespace: str) -> Object:
    (queue,) = (item for item in emulator.get("localqueues", "-n", namespace) if item["metadata"]["name"] == name)
    return queue


class Runs:
    """Runs of the ledger as processes with the token of its service account, in place of those of its CronJob."""

    def __init__(self, emulator: Emulator) -> None:
        emulator.kubectl("patch", "cronjob", LEDGER, "-n", NAMESPACE, "-p", '{"spec":{"suspend":true}}')
        emulator.kubectl("delete", "jobs", "--all", "-n", NAMESPACE, "--wait=true")
        (cluster,) = yaml.safe_load(Path(emulator.kubeconfig()).read_text())["clusters"]
        folder = emulator.state / "ledger"
        folder.mkdir(exist_ok=True)
        token = emulator.kubectl("create", "token", LEDGER, "-n", NAMESPACE, "--duration", "2h").strip()
        (folder / "token").write_text(token)
        (folder / "ca.crt").write_bytes(base64.b64decode(cluster["cluster"]["certificate-authority-data"]))
        maps = emulator.get("configmaps", "-n", NAMESPACE)
        (config,) = (item["data"]["budgets.json"] for item in maps if "budgets.json" in item.get("data", {}))
        (folder / "budgets.json").write_text(config)
        host, port = cluster["cluster"]["server"].removeprefix("https://").split(":")
        self._environment = {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "PATH": os.environ["PATH"],
            "NAMESPACE": NAMESPACE,
            "CONFIG": str(folder / "budgets.json"),
            "SERVICE_ACCOUNT_FOLDER": str(folder),
        }

    def start(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-I", str(PROGRAM)]
        return subprocess.Popen(
            command, env=self._environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )


class Record:
    """Each interval that Kueue admitted, by a watch of its own: the times of the conditions, and no sums."""

    def __init__(self, emulator: Emulator) -> None:
        (cluster,) = yaml.safe_load(emulator.certified())["clusters"]
        (user,) = yaml.safe_load(emulator.certified())["users"]
        files = {}
        for name, value in {**cluster["cluster"], **user["user"]}.items():
            if name.endswith("-data"):
                files[name] = emulator.state / f"record-{name}"
                files[name].write_bytes(base64.b64decode(value))
        trusted = ssl.create_default_context(cafile=str(files["certificate-authority-data"]))
        trusted.load_cert_chain(files["client-certificate-data"], files["client-key-data"])
        self._api = httpx.Client(base_url=cluster["cluster"]["server"], verify=trusted, timeout=None, trust_env=False)
        self.intervals: dict[str, list[tuple[str, int, int, int]]] = defaultdict(list)
        self.open: dict[str, tuple[str, int, int]] = {}
        self.names: dict[str, str] = {}
        self.reasons: set[str] = set()
        self.version = 0
        listed = self._api.get(f"/apis/{KUEUE_API}/workloads").json()
        for workload in listed["items"]:
            self._read("ADDED", workload)
        self._from = listed["metadata"]["resourceVersion"]
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        query = {"watch": "true", "resourceVersion": self._from}
        with self._api.stream("GET", f"/apis/{KUEUE_API}/workloads", params=query) as response:
            for line in response.iter_lines():
                event = json.loads(line)
                self._read(event["type"], event["object"])

    def _read(self, kind: str, workload: Object) -> None:
        metadata, status = workload["metadata"], workload.get("status", {})
        uid = metadata["uid"]
        self.names[uid] = metadata["name"]
        conditions = {item["type"]: item for item in status.get("conditions", [])}

        def since(name: str, wanted: str = "True") -> int | None:
            item = conditions.get(name)
            return _seconds(item["lastTransitionTime"]) if item and item["status"] == wanted else None

        if reason := conditions.get("Evicted", {}).get("reason"):
            self.reasons.add(reason)
        begin, finished = since("Admitted"), since("Finished")
        ended = finished if finished is not None else since("Admitted", "False")
        if kind == "DELETED" and ended is None:
            ended = _seconds(metadata["deletionTimestamp"])
        if uid in self.open and (ended is not None or begin != self.open[uid][2]):
            namespace, gpus, start = self.open.pop(uid)
            assert ended is not None, "an interval ends by a condition or a deletion"
            self.intervals[uid].append((namespace, gpus, start, ended))
        if begin is not None and finished is None and kind != "DELETED":
            parts = status["admission"]["podSetAssignments"]
            gpus = sum(int(part.get("resourceUsage", {}).get(NVIDIA_GPU, 0)) for part in parts)
            self.open[uid] = (metadata["namespace"], gpus, begin)
        self.version = int(metadata["resourceVersion"])

    def activate(self, namespace: str, name: str, active: bool) -> None:
        """Sets a Workload active or not, as an administrator. It may be gone."""
        path = f"/apis/{KUEUE_API}/namespaces/{namespace}/workloads/{name}"
        kind = {"content-type": "application/merge-patch+json"}
        self._api.patch(path, json={"spec": {"active": active}}, headers=kind, timeout=30)

    def total(self, namespace: str) -> int:
        """Accelerator-seconds of all intervals that have ended."""
        found = [interval for own in self.intervals.values() for interval in own if interval[0] == namespace]
        return sum(gpus * (end - start) for _, gpus, start, end in found)


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def counted(ledger: Object, namespace: str) -> int:
    """Accelerator-seconds that the ledger has booked, of all months and flavors."""
    return sum(seconds for month in ledger["months"].values() for seconds in month.get(namespace, {}).values())
