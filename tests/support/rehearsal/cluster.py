"""A small cluster with the real Kueue, to which queues and workloads are applied without the Pulumi engine."""

import json
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import yaml

from emulator.tests.harness import Emulator, eventually
from gke_ai.catalog.kueue.configuration import tool
from gke_ai.catalog.nodes.shape import GKE_NODEPOOL
from gke_ai.catalog.versions import KUEUE_API, KUEUE_CHART, KUEUE_VERSION
from gke_ai.components.queues.kueue import NAMESPACE, RELEASE
from gke_ai.forecast.outcome.timeline import Timeline
from gke_ai.forecast.rehearse.watching import Recorder
from gke_ai.kube.objects import label
from gke_ai.manifests.kueue_chart import chart_values, manager_configuration
from tests.support.rehearsal.scenario import ACCELERATOR, Object, Scenario, path_of

NAME = "queues"
MAKE = f"""
import emulator.cluster as cluster
zones = ["us-central1-a"]
record = cluster.ClusterRecord({NAME!r}, "p", "us-central1", "standard", zones, "1.36.1-gke.1")
cluster.create({NAME!r}, record)
cluster.set_pool({NAME!r}, cluster.PoolRecord("system", "e2-standard-8", zones, nodes_per_zone=1))
"""
SET_POOLS = f"""
import json, sys, emulator.cluster as cluster
for pool in json.loads(sys.argv[1]):
    cluster.set_pool({NAME!r}, cluster.PoolRecord(**pool))
"""
REMOVE_POOLS = f"""
import json, sys, emulator.cluster as cluster
for pool in json.loads(sys.argv[1]):
    cluster.remove_pool({NAME!r}, pool)
"""
GPUS_PER_NODE = {"g2-standard-12": 1, "g2-standard-24": 2, "g2-standard-96": 8}
WORKLOADS = f"/apis/{KUEUE_API}/workloads"
APPLY = {"content-type": "application/apply-patch+yaml"}
WEBHOOK_TRIES = 30
SETTLED_SECONDS = 8.0  # Kueue decides within a second, but can pause for seconds on a busy machine


class Refused(Exception):
    """The API server refused an object."""


@dataclass
class QueueCluster:
    api: httpx.Client
    recorder: Recorder

    def send(self, method: str, path: str, **options: Any) -> Object:
        """Send a request. An object that does not exist is an empty answer."""
        response = self.api.request(method, path, **options)
        while response.status_code == 429 and "Retry-After" in response.headers:
            time.sleep(float(response.headers["Retry-After"]))
            response = self.api.request(method, path, **options)
        # A manager that has just started, or is on a busy machine, leaves a webhook unanswered.
        for _ in range(WEBHOOK_TRIES):
            if response.status_code != 500 or "failed calling webhook" not in response.text:
                break
            time.sleep(1)
            response = self.api.request(method, path, **options)
        if response.is_error and response.status_code != 404:
            raise Refused(f"{method} {path}: {response.status_code} {response.text[:500]}")
        content: Object = response.json() if response.is_success else {}
        return content

    def apply(self, objects: Iterable[Object]) -> None:
        """Create or change objects. As `KueueStack` does, replace a priority class whose value changes."""
        for obj in objects:
            path = path_of(obj)
            if obj["kind"] == "PriorityClass":
                current = self.send("GET", path)
                if current and current["value"] != obj["value"]:
                    self.send("DELETE", path)
            self.send("PATCH", path, params={"fieldManager": "test", "force": "true"}, json=obj, headers=APPLY)

    def delete(self, objects: Iterable[Object]) -> None:
        for obj in objects:
            self.send("DELETE", path_of(obj), params={"propagationPolicy": "Background"})

    def workloads(self, namespace: str | None = None) -> list[Object]:
        items: list[Object] = self.send("GET", WORKLOADS)["items"]
        return [item for item in items if namespace in (None, item["metadata"]["namespace"])]

    def settle(self, seconds: float = SETTLED_SECONDS, limit: float = 120) -> None:
        """Wait until no Workload, pod, node, server or Job has changed for some seconds."""
        assert self.recorder.settle(seconds, limit), f"the cluster still changes after {limit:.0f} s"

    def clear(self, namespaces: Sequence[str]) -> None:
        """Delete the workloads and queues of namespaces, and what has their prefix."""
        for namespace in namespaces:
            for path in ("/apis/batch/v1/namespaces/{}/jobs", "/apis/apps/v1/namespaces/{}/deployments"):
                self.send("DELETE", path.format(namespace), params={"propagationPolicy": "Background"})
        eventually(
            lambda: not [item for item in self.workloads() if item["metadata"]["namespace"] in namespaces],
            "the Workloads are deleted",
            180,
        )
        prefixes = tuple(f"{namespace}-" for namespace in namespaces)
        for namespace in namespaces:
            self.send("DELETE", f"/apis/{KUEUE_API}/namespaces/{namespace}/localqueues")
        for path in (
            f"/apis/{KUEUE_API}/clusterqueues",
            f"/apis/{KUEUE_API}/cohorts",
            f"/apis/{KUEUE_API}/resourceflavors",
            "/apis/scheduling.k8s.io/v1/priorityclasses",
        ):
            for item in self.send("GET", path)["items"]:
                if item["metadata"]["name"].startswith(prefixes):
                    self.send("DELETE", f"{path}/{item['metadata']['name']}")

    def timeline(self, namespace: str) -> Timeline:
        """What happened in a namespace and to its pools since the change began, and what was there before."""
        whole = self.recorder.timeline(settled=True)
        return replace(whole, observations=tuple(item for item in whole.observations if _is_of(item.object, namespace)))


def _is_of(obj: Mapping[str, Any], namespace: str) -> bool:
    return obj["metadata"].get("namespace") == namespace or label(obj, GKE_NODEPOOL).startswith(f"{namespace}-")


def set_pools(emulator: Emulator, pools: Iterable[Object]) -> None:
    """Create or change GPU pools, each by the fields of an emulator's pool that differ from those of all."""
    common = {"zones": ["us-central1-a"], "gpu": ACCELERATOR, "driver": "latest"}
    complete = [{**common, "gpus": GPUS_PER_NODE[pool["machine_type"]], **pool} for pool in pools]
    emulator.run("python", "-c", SET_POOLS, json.dumps(complete))


def remove_pools(emulator: Emulator, pools: Iterable[Object]) -> None:
    emulator.run("python", "-c", REMOVE_POOLS, json.dumps([pool["name"] for pool in pools]))


def pools_of(scenario: Scenario, namespace: str) -> Iterator[Object]:
    """The pools of a scenario, with the namespace as a prefix."""
    for pool in scenario.pools:
        limits = {"min_nodes": 0, "max_nodes": pool.max_nodes, "capacity": pool.capacity}
        yield {"name": f"{namespace}-{pool.name}", "machine_type": "g2-standard-24", **limits}


def create(emulator: Emulator, release: str = KUEUE_VERSION, **configuration: Any) -> None:
    """Create the cluster and install a release of Kueue as the program does, with more of its configuration."""
    emulator.run("python", "-c", MAKE)
    values = emulator.state / "kueue.yaml"
    values.write_text(
        yaml.safe_dump(chart_values(release, 1, manager_configuration((), False, 0, release) | configuration))
    )
    chart = emulator.run("--tools", tool(release), "chart", KUEUE_CHART, release).strip()
    place = ["--namespace", NAMESPACE, "--create-namespace", "--kubeconfig", str(kubeconfig(emulator))]
    emulator.run("helm", "install", RELEASE, chart, "--values", str(values), *place)


def kubeconfig(emulator: Emulator) -> Path:
    """The cluster's kubeconfig, with the administrator's certificate."""
    return emulator.state / "clusters" / NAME / "kubeconfig"


@contextmanager
def connect(emulator: Emulator) -> Iterator[QueueCluster]:
    """A client of the cluster, which records what happens. Returns once Kueue answers."""
    text = kubeconfig(emulator).read_text()
    pki = next(kubeconfig(emulator).parent.glob("kwok/clusters/*/pki"))
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    server = yaml.safe_load(text)["clusters"][0]["cluster"]["server"]
    with httpx.Client(base_url=server, verify=context, timeout=30, trust_env=False) as api, Recorder(text) as recorder:
        cluster = QueueCluster(api, recorder)
        eventually(lambda: _answers(cluster), "Kueue answers", 180)
        yield cluster


def _answers(cluster: QueueCluster) -> bool:
    flavor = {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": "first"}, "spec": {}}
    try:
        cluster.apply([flavor])
    except Refused:
        return False
    return True
