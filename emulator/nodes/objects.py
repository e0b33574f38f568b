"""Node objects of simulated machines in GKE's form, from the catalog that the program plans with."""

from __future__ import annotations

import hashlib
import json
import secrets
import string
from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import Any

from emulator.cloud.records import ClusterRecord, PoolRecord
from emulator.nodes import blocks, devices
from gke_ai.catalog.fabric.topology import HOSTNAME, LEVELS
from gke_ai.catalog.nodes.shape import (
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
from gke_ai.kube.objects import holds
from gke_ai.workspace.emulation import CAPACITY

Object = dict[str, Any]

# KWOK simulates the kubelet of nodes with this annotation.
FAKE = {"kwok.x-k8s.io/node": "fake"}
# The fingerprint of the machine of a node whose name does not have it, because the emulator did not create the node.
MACHINE = "emulator.gke-ai/machine"
# A node of a pool that the emulated cloud does not have. The provisioner does not delete it.
FOREIGN = "emulator.gke-ai/foreign-pool"
SUFFIX = string.ascii_lowercase + string.digits
# An object's name may have 253 characters, but the name is also the value of the hostname label: at most 63.
_LONGEST_PREFIX = 63 - len("-01234567-abcd")


def node_object(cluster: ClusterRecord, shape: NodeShape, name: str, taints: Iterable[dict[str, str]] = ()) -> Object:
    """Returns a node of this shape.

    `taints` are declared by its pool, in addition to GKE's own.
    """
    own = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node_taints(shape)]
    declared = [taint for taint in taints if taint not in own]
    kubelet = f"v{cluster.version.removeprefix('v')}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": node_labels(shape) | {HOSTNAME: name},
            "annotations": FAKE | {CAPACITY: shape.capacity},
        },
        "spec": {"providerID": f"gce://{cluster.project}/{shape.zone}/{name}", "taints": own + declared},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address(name)}],
            # As a kubelet registers its node. Kubernetes keeps pods from it until KWOK sets it to True.
            "conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "it starts"}],
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


def address(name: str) -> str:
    """An address in GKE's default subnets, for the node and its pods with host network."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:2], "big")
    return f"10.128.{number // 256}.{number % 256}"


def fingerprint(pool: PoolRecord) -> str:
    """Eight characters of a node's name that change when the pool's nodes must be recreated.

    Labels and taints don't count: they change on existing nodes.
    """
    fields = [pool.machine_type, pool.gpu, pool.gpus, pool.driver, pool.capacity, pool.disk_gb, pool.topology]
    fields += ["compact"] if pool.compact and pool.topology is None else []
    fields += [pool.network_profile] if pool.network_profile else []
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:8]


def new_name(cluster: str, pool: PoolRecord) -> str:
    """Returns a node name in GKE's form, `gke-CLUSTER-POOL-0123abcd-w8x2`."""
    prefix = f"gke-{cluster}-{pool.name}"[:_LONGEST_PREFIX].rstrip("-")
    return f"{prefix}-{fingerprint(pool)}-{''.join(secrets.choice(SUFFIX) for _ in range(4))}"


def is_current(node: Object, pool: PoolRecord) -> bool:
    """Whether a node has the machine and a zone of its pool's current settings."""
    metadata, wanted = node["metadata"], fingerprint(pool)
    named = f"-{wanted}-" in metadata["name"] or metadata.get("annotations", {}).get(MACHINE) == wanted
    return named and label(node, ZONE) in pool.zones


def new_nodes(cluster: ClusterRecord, pool: PoolRecord, present: Iterable[Object], count: int) -> list[Object]:
    """Returns `count` more nodes of a pool, each in the zone with the fewest nodes."""
    spread = Counter(dict.fromkeys(pool.zones, 0))
    spread.update(zone for zone in (label(node, ZONE) for node in present) if zone in spread)
    hosts = {label(node, blocks.HOST) for node in present}
    result = []
    for _ in range(count):
        zone = min(pool.zones, key=lambda candidate: (spread[candidate], candidate))
        spread[zone] += 1
        node = node_object(cluster, pool.shape(zone), new_name(cluster.name, pool), pool.taints)
        node["metadata"]["labels"] |= blocks.first_free(pool, zone, hosts) | devices.labels(pool)
        hosts.add(label(node, blocks.HOST))
        result.append(node)
    return result


def place_of(node: Object) -> dict[str, str]:
    """The labels of a node that say where it is in the network."""
    return {key: label(node, key) for key in LEVELS.values() if label(node, key)}


def label(node: Object, key: str) -> str:
    """The value of an object's label, or the empty string."""
    return str(node["metadata"].get("labels", {}).get(key, ""))


def pool_of(node: Object) -> str:
    """The name of the pool that a node belongs to."""
    return label(node, GKE_NODEPOOL)


def slice_size(node: Object) -> int:
    """The number of nodes that are created and deleted with this one: those of its multi-host TPU slice, else 1."""
    topology, chips = label(node, GKE_TPU_TOPOLOGY), label(node, GKE_ACCELERATOR_COUNT)
    return prod(int(side) for side in topology.split("x")) // int(chips) if topology else 1


def is_ready(node: Object) -> bool:
    """Whether pods can be scheduled on a node: it is Ready and Kubernetes has removed its own taints."""
    tainted = any(taint["key"].startswith("node.kubernetes.io/") for taint in node["spec"].get("taints", []))
    return not tainted and holds(node, "Ready")
