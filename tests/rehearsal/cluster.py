"""A small cluster with the real Kueue, to which queues and workloads are applied without the Pulumi engine."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import yaml

from catalog.versions import KUEUE_API, KUEUE_CHART, KUEUE_VERSION
from components.kueue import NAMESPACE, RELEASE, chart_values, manager_configuration
from emulator.tests.harness import Emulator, eventually
from tests.rehearsal.fates import conditions, flavor_of, name_of
from tests.rehearsal.world import Object, path_of

NAME = "queues"
# Nodes for all worlds of a test, so that quota decides, not capacity.
MAKE = f"""
import emulator.cluster as cluster
zones = ["us-central1-a"]
record = cluster.ClusterRecord({NAME!r}, "p", "us-central1", "standard", zones, "1.36.1-gke.1")
cluster.create({NAME!r}, record)
cluster.set_pool({NAME!r}, cluster.PoolRecord("system", "e2-standard-8", zones, nodes_per_zone=1))
gpus = {{"gpu": "nvidia-l4", "gpus": 8, "driver": "latest"}}
cluster.set_pool({NAME!r}, cluster.PoolRecord("l4", "g2-standard-96", zones, nodes_per_zone=NODES, **gpus))
"""
WORKLOADS = f"/apis/{KUEUE_API}/workloads"
APPLY = {"content-type": "application/apply-patch+yaml"}
SETTLED_SECONDS = 3.0  # Kueue decides within a second, also on a busy machine


class Refused(Exception):
    """The API server refused an object."""


@dataclass
class QueueCluster:
    """A running cluster."""

    api: httpx.Client
    versions: list[Object] = field(default_factory=list)
    """Every version of a Workload that the watch has reported, in order."""

    def send(self, method: str, path: str, **options: Any) -> Object:
        """Send a request. An object that does not exist is an empty answer."""
        response = self.api.request(method, path, **options)
        if response.is_error and response.status_code != 404:
            raise Refused(f"{method} {path}: {response.status_code} {response.text[:500]}")
        content: Object = response.json() if response.is_success else {}
        return content

    def apply(self, objects: Iterable[Object]) -> None:
        """Create or change objects. As Pulumi does, replace a priority class whose value changes."""
        for obj in objects:
            path = path_of(obj)
            if obj["kind"] == "PriorityClass":
                current = self.send("GET", path)
                if current and current["value"] != obj["value"]:
                    self.send("DELETE", path)
            self.send("PATCH", path, params={"fieldManager": "test", "force": "true"}, json=obj, headers=APPLY)

    def delete(self, objects: Iterable[Object]) -> None:
        """Delete objects with what they own."""
        for obj in objects:
            self.send("DELETE", path_of(obj), params={"propagationPolicy": "Background"})

    def workloads(self, namespace: str | None = None) -> list[Object]:
        """The Workloads of a namespace, or of all."""
        items: list[Object] = self.send("GET", WORKLOADS)["items"]
        return [item for item in items if namespace in (None, item["metadata"]["namespace"])]

    def settle(self, seconds: float = SETTLED_SECONDS, limit: float = 90) -> None:
        """Wait until no Workload has changed for some seconds."""
        last, since, begun = self._signature(), time.monotonic(), time.monotonic()
        while time.monotonic() - since < seconds:
            time.sleep(0.3)
            now = self._signature()
            if now != last:
                last, since = now, time.monotonic()
            assert time.monotonic() - begun < limit, f"Workloads still change after {limit:.0f} s: {now}"

    def _signature(self) -> list[tuple[str, ...]]:
        return sorted(
            (name_of(item), item["metadata"]["uid"], str(flavor_of(item)), _statuses(item)) for item in self.workloads()
        )

    def clear(self, namespaces: Sequence[str]) -> None:
        """Delete the workloads and queues of namespaces, and what has their prefix."""
        for namespace in namespaces:
            for path in ("/apis/batch/v1/namespaces/{}/jobs", "/apis/apps/v1/namespaces/{}/deployments"):
                self.send("DELETE", path.format(namespace), params={"propagationPolicy": "Background"})
        eventually(
            lambda: not [item for item in self.workloads() if item["metadata"]["namespace"] in namespaces],
            "the Workloads are deleted",
        )
        prefixes = tuple(f"{namespace}-" for namespace in namespaces)
        for namespace in namespaces:
            self.send("DELETE", f"/apis/{KUEUE_API}/namespaces/{namespace}/localqueues")
        for path in (
            f"/apis/{KUEUE_API}/clusterqueues",
            f"/apis/{KUEUE_API}/resourceflavors",
            "/apis/scheduling.k8s.io/v1/priorityclasses",
        ):
            for item in self.send("GET", path)["items"]:
                if item["metadata"]["name"].startswith(prefixes):
                    self.send("DELETE", f"{path}/{item['metadata']['name']}")

    def watch(self, until: threading.Event) -> None:
        """Record every version of every Workload."""
        version = ""
        while not until.is_set():
            parameters = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "5"}
            with self.api.stream("GET", WORKLOADS, params=parameters) as response:
                for line in response.iter_lines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    self.versions.append(event["object"])


def _statuses(workload: Object) -> str:
    return " ".join(f"{name}={condition['status']}" for name, condition in sorted(conditions(workload).items()))


def create(emulator: Emulator, nodes: int) -> None:
    """Create the cluster and install Kueue as the program does."""
    emulator.run("python", "-c", MAKE.replace("NODES", str(nodes)))
    values = emulator.state / "kueue.yaml"
    values.write_text(yaml.safe_dump(chart_values(KUEUE_VERSION, 1, manager_configuration((), False, 0))))
    chart = emulator.run("chart", KUEUE_CHART, KUEUE_VERSION).strip()
    place = ["--namespace", NAMESPACE, "--create-namespace", "--kubeconfig", str(kubeconfig(emulator))]
    emulator.run("helm", "install", RELEASE, chart, "--values", str(values), *place)


def kubeconfig(emulator: Emulator) -> str:
    """The path of the cluster's kubeconfig, with the administrator's certificate."""
    return str(emulator.state / "clusters" / NAME / "kubeconfig")


@contextmanager
def connect(emulator: Emulator) -> Iterator[QueueCluster]:
    """A client of the cluster, which watches its Workloads. Returns once Kueue answers."""
    pki = next((emulator.state / "clusters" / NAME).glob("**/pki"))
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    content = yaml.safe_load((emulator.state / "clusters" / NAME / "kubeconfig").read_text())
    server = content["clusters"][0]["cluster"]["server"]
    with httpx.Client(base_url=server, verify=context, timeout=30, trust_env=False) as api:
        cluster = QueueCluster(api)
        eventually(lambda: _answers(cluster), "Kueue answers", 180)
        until = threading.Event()
        watch = threading.Thread(target=cluster.watch, args=(until,), daemon=True)
        watch.start()
        try:
            yield cluster
        finally:
            until.set()
            watch.join(timeout=15)


def _answers(cluster: QueueCluster) -> bool:
    flavor = {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": "first"}, "spec": {}}
    try:
        cluster.apply([flavor])
    except Refused:
        return False
    return True
