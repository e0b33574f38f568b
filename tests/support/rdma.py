"""Runs of a tenant on nodes with RDMA, and what the cluster says of their devices."""

import json
import subprocess
from typing import Any

import pytest

from gke_ai.catalog.fabric.rdma import NICS_PER_POD, TEMPLATE
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from tests.support.emulator import Emulator
from tests.support.mistakes import base

Object = dict[str, Any]
RUN: Object = {"kind": "job", "name": "first", "namespace": "llm", "image": "example.com/train:1", "queue": "lq"}
RUN |= {"priorityClass": "low", "pool": "b200", "pods": 2, "gpusPerPod": NICS_PER_POD}
RUN |= {"resources": {"cpu": 8, "memory": "32Gi"}, "tokenSecret": None}


def values(runs: list[Object]) -> Object:
    """A pool of two A4 nodes for a tenant."""
    good = base("topology")
    pools = [{**good["gpuPools"][0], "nodesPerZone": 2}]
    platform = {"cluster": {**good["cluster"], "vpc": {}}, "gpuPools": pools, "queues": good["queues"]}
    return {**platform, "tenants": [{"name": "llm", "priorityClasses": ["low"]}], "training": runs}


def create(emulator: Emulator, item: Object, *options: str) -> None:
    file = emulator.state / "item.json"
    file.write_text(json.dumps(item))
    emulator.kubectl("create", "-f", str(file), *options)


def refused(emulator: Emulator, item: Object) -> str:
    """The refusal of an object by someone with all rights to pods and claims in the tenant's namespace."""
    with pytest.raises((AssertionError, subprocess.CalledProcessError)) as refusal:
        create(emulator, item, "--as=developer", "--dry-run=server")
    return f"{refusal.value} {getattr(refusal.value, 'stderr', '')}"


def running(emulator: Emulator, name: str, namespace: str = "llm") -> list[Object]:
    """The pods whose names begin so that run on nodes."""
    pods = emulator.get("pods", "-n", namespace)
    own = [pod for pod in pods if pod["metadata"]["name"].startswith(name) and pod["spec"].get("nodeName")]
    return [pod for pod in own if pod["status"].get("phase") == "Running"]


def allocated(emulator: Emulator) -> list[list[Object]]:
    claims = emulator.get("resourceclaims", "-n", "llm")
    return [claim["status"]["allocation"]["devices"]["results"] for claim in claims]


def pod(
    name: str, namespace: str = "llm", gpus: int = 0, claims: list[Object] | None = None, **metadata: Any
) -> Object:
    """A pod with the NICs of its node."""
    claims = claims or [{"name": "nics", "resourceClaimTemplateName": TEMPLATE}]
    devices = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    resources = {"limits": {"cpu": "1", **devices}, "claims": [{"name": claim["name"]} for claim in claims]}
    spec: Object = {"containers": [{"name": "main", "image": "example.com/train:1", "resources": resources}]}
    spec |= {"resourceClaims": claims, "tolerations": [{"operator": "Exists"}] if namespace != "llm" else []}
    metadata = {"name": name, "namespace": namespace, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def queued(claims: list[Object]) -> Object:
    """A pod of the tenant with GPUs and a queue."""
    return pod("x", gpus=8, claims=claims, labels={QUEUE_LABEL: "lq"})


def of_queue(emulator: Emulator) -> dict[str, str]:
    """NICs that the cluster queue counts, by flavor."""
    (queue,) = emulator.get("clusterqueues")
    used = [resource for flavor in queue["status"]["flavorsUsage"] for resource in flavor["resources"]]
    return {resource["name"]: resource["total"] for resource in used}


def allow(emulator: Emulator, kinds: str) -> None:
    """Give a user the rights that a role of IAM could give."""
    if not any(role["metadata"]["name"] == "dev" for role in emulator.get("roles", "-n", "llm")):
        emulator.kubectl("create", "role", "dev", "-n", "llm", "--verb=*", f"--resource={kinds}")
        emulator.kubectl("create", "rolebinding", "dev", "-n", "llm", "--role=dev", "--user=developer")
