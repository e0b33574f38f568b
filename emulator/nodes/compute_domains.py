"""Simulates NVIDIA's driver for NVLink: the template of each ComputeDomain, and the channel of each node of GB200.

The scheduler allocates the channels, and nothing connects the nodes. The template and the devices are those of
templates/compute-domain-workload-claim-template.tmpl.yaml and cmd/compute-domain-kubelet-plugin of
https://github.com/NVIDIA/k8s-dra-driver-gpu/tree/v25.12.0.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx

from emulator.cloud.api import Refused, View
from emulator.nodes.devices import create, has_slice, path_of, slice_of
from gke_ai.catalog.fabric.nvlink import CHANNEL_CLASS, DOMAIN_API, DOMAIN_KINDS, DRIVER, GPUS
from gke_ai.catalog.fabric.rdma import DEVICE_API
from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR

Object = dict[str, Any]
log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
_LABEL = "resource.nvidia.com/computeDomain"


class ComputeDomains:
    """Writes templates and devices once the driver's chart is installed."""

    def __init__(self, api: httpx.AsyncClient, nodes: View) -> None:
        self._api = api
        self._nodes = nodes
        self._changed = asyncio.Event()
        only = f"metadata.name={DOMAIN_KINDS}.{DOMAIN_API.partition('/')[0]}"
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        self._crd = View(api, crds, self._changed.set, fieldSelector=only)
        self._domains = View(api, f"/apis/{DOMAIN_API}/{DOMAIN_KINDS}", self._changed.set)
        self._done: set[str] = set()
        # By ComputeDomain. No owner: in a restored cluster, the ComputeDomain has another uid.
        self._templates: dict[str, Object] = {}
        self.views = (self._crd,)

    async def run(self) -> None:
        """Waits for the chart, then reconciles at every change of a ComputeDomain, and for new nodes."""
        while not self._crd.objects:
            await self._changed.wait()
            self._changed.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._domains.follow())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            try:
                await self.reconcile(list(self._domains.objects.values()), list(self._nodes.objects.values()))
            except (httpx.HTTPError, Refused) as error:
                log.warning("compute domains: %s, trying again", error)
            except Exception:
                # As in the provisioner: an unexpected error must not end the other tasks of the daemon.
                log.exception("compute domains failed, trying again")
            try:
                await asyncio.wait_for(self._changed.wait(), PAUSE_SECONDS)
                self._changed.clear()
            except TimeoutError:
                pass

    async def reconcile(self, domains: list[Object], nodes: list[Object]) -> None:
        """Writes what is missing, and deletes templates of deleted ComputeDomains. An object with the name stays."""
        for domain in domains:
            if self._is_new(domain):
                template = self._templates[domain["metadata"]["uid"]] = template_of(domain)
                await create(self._api, template)
                self._done.add(domain["metadata"]["uid"])
        for uid in self._templates.keys() - {domain["metadata"]["uid"] for domain in domains}:
            await self._api.delete(path_of(self._templates.pop(uid)))
        for node in filter(has_channels, nodes):
            if self._is_new(node) and await self._publish(node):
                self._done.add(node["metadata"]["uid"])

    async def _publish(self, node: Object) -> bool:
        return await has_slice(self._api, DRIVER, node) or await create(self._api, channels_of(node))

    def _is_new(self, item: Object) -> bool:
        return item["metadata"]["uid"] not in self._done and "deletionTimestamp" not in item["metadata"]


def has_channels(node: Object) -> bool:
    """Whether the driver's pods run on a node."""
    return node["metadata"].get("labels", {}).get(GKE_ACCELERATOR) in GPUS


def template_of(domain: Object) -> Object:
    """The template by which pods claim a channel of a ComputeDomain."""
    metadata, channel = domain["metadata"], domain["spec"]["channel"]
    parameters = {
        "apiVersion": DOMAIN_API,
        "kind": "ComputeDomainChannelConfig",
        "domainID": metadata["uid"],
        "allocationMode": channel.get("allocationMode", "Single"),
    }
    devices = {
        "requests": [{"name": "channel", "exactly": {"deviceClassName": CHANNEL_CLASS}}],
        "config": [{"requests": ["channel"], "opaque": {"driver": DRIVER, "parameters": parameters}}],
    }
    return {
        "apiVersion": DEVICE_API,
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": channel["resourceClaimTemplate"]["name"],
            "namespace": metadata["namespace"],
            "labels": {_LABEL: metadata["uid"]},
        },
        "spec": {"spec": {"devices": devices}},
    }


def channels_of(node: Object) -> Object:
    """The devices of a node: one channel for a pod, and one for the driver's own pod."""
    devices = [
        {"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}}
        for kind in ("channel", "daemon")
    ]
    return slice_of(node, DRIVER, devices)
