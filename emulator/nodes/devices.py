"""Devices of nodes with an accelerator network profile: what GKE's managed DRANET publishes, and the classes it brings.

The attributes are those that GKE's autoscaler predicts for a new node:
pkg/cloudprovider/gke/dynamicresources/network.go of https://github.com/GoogleCloudPlatform/cluster-autoscaler. No
network is simulated: the scheduler allocates the devices, and nothing configures them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

import httpx

from emulator.cloud.api import answer
from emulator.cloud.records import PoolRecord
from gke_ai.catalog.fabric.rdma import (
    DEVICE_API,
    DEVICE_CLASS,
    DRIVER,
    DRIVER_LABEL,
    MTU,
    NICS,
    PLAIN_CLASS,
    PROFILE_LABEL,
)
from gke_ai.catalog.fabric.topology import LEVELS
from gke_ai.catalog.machines.types import machine
from gke_ai.catalog.nodes.shape import INSTANCE_TYPE

Object = dict[str, Any]
_PLURALS = {kind: f"{kind.lower()}s" for kind in ("ResourceClaimTemplate", "ResourceSlice")} | {
    "DeviceClass": "deviceclasses"
}
_GOOGLE, _INTEL, _MELLANOX = "Google, Inc.", "Intel Corporation", "Mellanox Technologies"


def labels(pool: PoolRecord) -> dict[str, str]:
    """The label that GKE sets on nodes of a pool with a profile."""
    return {PROFILE_LABEL: pool.network_profile} if pool.network_profile else {}


class Devices:
    """Publishes the devices of nodes. The slices of a deleted node are garbage, which Kubernetes collects."""

    def __init__(self, api: httpx.AsyncClient) -> None:
        self._api = api
        self._published: set[str] = set()

    async def publish(self, pools: Iterable[PoolRecord], nodes: Iterable[Object]) -> None:
        """Publishes what is missing: classes for the first pool or node with a profile, and a slice for each such node.

        The pools that GKE creates for a compute class are not among `pools`.
        """
        nodes = [node for node in nodes if has_driver(node)]
        if "classes" not in self._published and (nodes or any(pool.network_profile for pool in pools)):
            for device_class in device_classes():
                await create(self._api, device_class)
            self._published.add("classes")
        for node in nodes:
            uid = node["metadata"]["uid"]
            if uid in self._published:
                continue
            if await has_slice(self._api, DRIVER, node) or await create(self._api, resource_slice(node)):
                self._published.add(uid)


def path_of(item: Object) -> str:
    """The path of an object."""
    namespace, name = item["metadata"].get("namespace"), item["metadata"]["name"]
    inside = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{DEVICE_API}/{inside}{_PLURALS[item['kind']]}/{name}"


async def has_slice(api: httpx.AsyncClient, driver: str, node: Object) -> bool:
    """Whether a node has a slice, as a restored one has. A second one would make its pool of devices invalid."""
    selector = f"spec.driver={driver},spec.nodeName={node['metadata']['name']}"
    found = answer(await api.get(f"/apis/{DEVICE_API}/resourceslices", params={"fieldSelector": selector}))["items"]
    owners = (owner["uid"] for item in found for owner in item["metadata"].get("ownerReferences", []))
    return node["metadata"]["uid"] in owners


async def create(api: httpx.AsyncClient, item: Object) -> bool:
    """Creates an object. False if one has its name, such as the slice of a deleted node."""
    response = await api.post(path_of(item).rpartition("/")[0], json=item)
    if response.status_code == HTTPStatus.CONFLICT:
        return False
    answer(response)
    return True


def has_driver(node: Object) -> bool:
    """Whether the driver of GKE runs on a node, and the node has NICs for it."""
    known = node["metadata"].get("labels", {})
    return known.get(DRIVER_LABEL) == "true" and PROFILE_LABEL in known and known.get(INSTANCE_TYPE) in NICS


def device_classes() -> list[Object]:
    """The classes of GKE: NICs with RDMA, and others."""
    expressions = {
        name: f'device.driver == "{DRIVER}" && {of_rdma}device.attributes["{DRIVER}"].rdma'
        for name, of_rdma in ((DEVICE_CLASS, ""), (PLAIN_CLASS, "!"))
    }
    return [
        {
            "apiVersion": DEVICE_API,
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        }
        for name, expression in expressions.items()
    ]


def resource_slice(node: Object) -> Object:
    """The NICs of a node."""
    return slice_of(node, DRIVER, list(_devices(node["metadata"]["labels"])))


def slice_of(node: Object, driver: str, devices: list[Object]) -> Object:
    """The devices of a node, which owns their slice."""
    metadata = node["metadata"]
    name = f"{metadata['name']}-{driver}"
    owner = {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    return {
        "apiVersion": DEVICE_API,
        "kind": "ResourceSlice",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {
            "driver": driver,
            "nodeName": metadata["name"],
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def _devices(of_node: dict[str, str]) -> Iterator[Object]:
    """A NIC without RDMA, and the others with it."""
    block, sub_block, host = ({"string": of_node.get(label, "")} for label in LEVELS.values())
    metal = machine(of_node[INSTANCE_TYPE]).bare_metal
    networks = [
        "additional-network-default-0",
        *(f"additional-network-rdma-{n}" for n in range(NICS[of_node[INSTANCE_TYPE]])),
    ]
    for number, network in enumerate(networks):
        rdma, nic = number > 0, number - 1
        name, vendor = "eth1", _INTEL if metal else _GOOGLE
        if rdma:
            name, vendor = (f"gpu{nic // 2}ipvlan{nic % 2}", "") if metal else (f"gpu{nic}rdma0", _MELLANOX)
        yield {
            "name": f"dra-net-device-{number}",
            "attributes": {
                f"{DRIVER}/ifName": {"string": name},
                **({f"{DRIVER}/pciVendor": {"string": vendor}} if vendor else {}),
                f"{DRIVER}/mtu": {"int": MTU},
                f"{DRIVER}/rdma": {"bool": rdma},
                f"{DRIVER}/ebpf": {"bool": rdma == metal},
                f"gce.{DRIVER}/block": block,
                f"gce.{DRIVER}/subBlock": sub_block,
                f"gce.{DRIVER}/host": host,
                f"gce.{DRIVER}/networkName": {"string": network},
                "resource.kubernetes.io/pcieRoot": {"string": ""},
            },
        }
