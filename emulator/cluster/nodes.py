"""The Node objects of simulated machines: as GKE's look, from the same catalogue that the program plans with."""

from __future__ import annotations

import hashlib
import json
import secrets
import string
from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import Any

from catalog.nodes import (
    GKE_ACCELERATOR_COUNT,
    GKE_NODEPOOL,
    GKE_TPU_TOPOLOGY,
    ZONE,
    NodeShape,
    allocatable,
    capacity_of,
    node_labels,
    node_taints,
)
from emulator.cluster.records import ClusterRecord, PoolRecord

Object = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
# KWOK plays the kubelet of nodes that carry this.
_FAKE = {"kwok.x-k8s.io/node": "fake"}
_SUFFIX = string.ascii_lowercase + string.digits
# An object's name may have 253 characters, but it is also the value of the hostname label: 63.
_LONGEST_PREFIX = 63 - len("-01234567-abcd")


def node_object(cluster: ClusterRecord, shape: NodeShape, name: str, taints: Iterable[dict[str, str]] = ()) -> Object:
    """A node of this shape. `taints` are those that its pool declares beside GKE's own."""
    own = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node_taints(shape)]
    declared = [taint for taint in taints if taint not in own]
    kubelet = f"v{cluster.version.removeprefix('v')}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": node_labels(shape) | {HOSTNAME: name},
            "annotations": _FAKE,
        },
        "spec": {"providerID": f"gce://{cluster.project}/{shape.zone}/{name}", "taints": own + declared},
        "status": {
            "addresses": [{"type": "InternalIP", "address": _address(name)}],
            "capacity": capacity_of(shape),
            "allocatable": allocatable(shape),
            "nodeInfo": {
                "architecture": node_labels(shape)["kubernetes.io/arch"],
                "operatingSystem": "linux",
                "osImage": "Container-Optimized OS from Google (simulated by KWOK)",
                "kernelVersion": "simulated",
                "containerRuntimeVersion": "simulated://kwok",
                "kubeletVersion": kubelet,
                "kubeProxyVersion": kubelet,
                "bootID": "",
                "machineID": "",
                "systemUUID": "",
            },
        },
    }


def _address(name: str) -> str:
    """An address in GKE's default subnets, of the node itself and of its pods with host network."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:2], "big")
    return f"10.128.{number // 256}.{number % 256}"


def fingerprint(pool: PoolRecord) -> str:
    """Eight characters of a node's name that differ when the pool's nodes must be made anew: not for labels or taints,
    which change on living nodes."""
    decisive = [pool.machine_type, pool.gpu, pool.gpus, pool.driver, pool.capacity, pool.disk_gb, pool.topology]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:8]


def new_name(cluster: str, pool: PoolRecord) -> str:
    """A name in the form of GKE's, `gke-CLUSTER-POOL-0123abcd-w8x2`."""
    prefix = f"gke-{cluster}-{pool.name}"[:_LONGEST_PREFIX].rstrip("-")
    return f"{prefix}-{fingerprint(pool)}-{''.join(secrets.choice(_SUFFIX) for _ in range(4))}"


def is_current(node: Object, pool: PoolRecord) -> bool:
    """Whether a node is still what its pool makes."""
    return f"-{fingerprint(pool)}-" in node["metadata"]["name"] and label(node, ZONE) in pool.zones


def new_nodes(cluster: ClusterRecord, pool: PoolRecord, present: Iterable[Object], count: int) -> list[Object]:
    """`count` further nodes of a pool, each in the zone that then has the fewest."""
    spread = Counter(dict.fromkeys(pool.zones, 0))
    spread.update(zone for zone in (label(node, ZONE) for node in present) if zone in spread)
    made = []
    for _ in range(count):
        zone = min(pool.zones, key=lambda candidate: (spread[candidate], candidate))
        spread[zone] += 1
        made.append(node_object(cluster, pool.shape(zone), new_name(cluster.name, pool), pool.taints))
    return made


def label(node: Object, key: str) -> str:
    """A label of an object, or the empty string."""
    return str(node["metadata"].get("labels", {}).get(key, ""))


def pool_of(node: Object) -> str:
    """The name of the pool that a node belongs to."""
    return label(node, GKE_NODEPOOL)


def slice_size(node: Object) -> int:
    """How many nodes come and go together with this one: those of its multi-host TPU slice, else it alone."""
    topology, chips = label(node, GKE_TPU_TOPOLOGY), label(node, GKE_ACCELERATOR_COUNT)
    return prod(int(side) for side in topology.split("x")) // int(chips) if topology else 1


def is_ready(node: Object) -> bool:
    """Whether pods can be scheduled: Ready, and the taint of a node that isn't taken off again."""
    conditions = node.get("status", {}).get("conditions", [])
    waiting = any(taint["key"].startswith("node.kubernetes.io/") for taint in node["spec"].get("taints", []))
    return not waiting and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
