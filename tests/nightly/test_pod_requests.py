"""Only here: what a pod requests is what the quotas of a real API server count."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gke_ai.catalog.quantities import parse_quantity
from gke_ai.kube.pods import requests
from tests.support.emulator import Emulator, eventually, fresh
from tests.support.rehearsal import cluster

PODS = 40
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
RUNTIME = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandbox"}, "handler": "runsc"}
OVERHEAD = {"overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}}}
Object = dict[str, Any]


def container(name: str, chance: random.Random, sidecar: bool = False) -> Object:
    amounts = {"cpu": f"{chance.randrange(1, 40) * 50}m", "memory": f"{chance.randrange(1, 64)}Mi"}
    lower = {"cpu": "10m", "memory": "1Mi"}
    resources = chance.choice([{"requests": amounts}, {"limits": amounts}, {"limits": amounts, "requests": lower}])
    if chance.random() < 0.4:
        gpus = {"nvidia.com/gpu": str(chance.randrange(1, 4))}
        resources = {**resources, "limits": {**resources.get("limits", {}), **gpus}}
    always = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": name, "image": "registry.example.com/a:1", "resources": resources, **always}


def spec(chance: random.Random) -> Object:
    """A pod's spec with containers, init containers and sidecars in any order, and perhaps an overhead."""
    kinds = [chance.random() < 0.5 for _ in range(chance.randrange(4))]
    result: Object = {
        "containers": [container(f"main-{number}", chance) for number in range(chance.randrange(1, 4))],
        "initContainers": [container(f"init-{number}", chance, sidecar) for number, sidecar in enumerate(kinds)],
        "nodeSelector": {"no": "node"},
    }
    if chance.random() < 0.3:
        result["runtimeClassName"] = "sandbox"
    if chance.random() < 0.3:
        result["resources"] = {"requests": {"cpu": "9", "memory": "9Gi"}}
    return result


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with fresh() as emulator:
        emulator.run("python", "-c", cluster.MAKE)
        yield emulator


def test_requests_are_what_quotas_count(emulator: Emulator, tmp_path: Path) -> None:
    kubectl = ("kubectl", "--kubeconfig", str(cluster.kubeconfig(emulator)))
    chance = random.Random(18)
    specs = {f"n{number}": spec(chance) for number in range(PODS)}
    hard = {f"requests.{resource}": "1T" for resource in RESOURCES}

    def create(name: str, *objects: Object) -> bool:
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        return bool(emulator.run(*kubectl, "apply", "-f", str(file)))

    def read(kind: str) -> list[Object]:
        items: list[Object] = json.loads(emulator.run(*kubectl, "get", kind, "-A", "-o", "json"))["items"]
        return items

    def named(kind: str, name: str, **content: Any) -> Object:
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "it", "namespace": name}, **content}

    spaces = [{**named("Namespace", ""), "metadata": {"name": name}} for name in specs]
    create("namespaces", {**RUNTIME, **OVERHEAD}, *spaces)
    eventually(lambda: len(read("serviceaccounts")) > PODS, "the namespaces have their account", 120)
    create("pods", *(named("Pod", name, spec=of) for name, of in specs.items()))
    pods = {pod["metadata"]["namespace"]: pod["spec"] for pod in read("pods") if pod["metadata"]["name"] == "it"}
    # A quota of before its pod is written by admission and by a controller, which may not see the pod yet.
    create("quotas", *(named("ResourceQuota", name, spec={"hard": hard}) for name in specs))
    eventually(lambda: all("used" in quota.get("status", {}) for quota in read("resourcequotas")), "they count", 120)
    used = {quota["metadata"]["namespace"]: quota["status"]["used"] for quota in read("resourcequotas")}
    assert pods.keys() == specs.keys()
    for name, of in pods.items():
        own = requests(of)
        for resource in RESOURCES:
            assert own.get(resource, 0) == parse_quantity(used[name][f"requests.{resource}"]), (name, resource, of)
