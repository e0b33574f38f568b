"""The network between nodes by machine type, with what it changes in pools and in the pods of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gke_ai.catalog.fabric import nvlink, rdma
from gke_ai.catalog.fabric.gpudirect import GPUDIRECT, GPUDIRECT_LABEL, GpuDirect
from gke_ai.catalog.machines import metal
from gke_ai.catalog.machines.types import MACHINES, Machine


@dataclass(frozen=True)
class Fabric:
    """The network over which GPUs of several nodes communicate. Without arguments, the default network.

    - `nics` is the number of NICs of a node, which a pod claims.
    - `channels` is whether a pod also claims a channel of the NVLink domain of its node.
    - `plugin_image` has the plug-in of NCCL for pods that claim NICs.
    - `technology` is that of further VPC networks. Their nodes have it, and a daemon in each pod.
    """

    nics: int = 0
    channels: bool = False
    plugin_image: str = ""
    technology: GpuDirect | None = None

    @property
    def claims(self) -> tuple[str, ...]:
        """The templates by which a pod with a whole node claims its devices."""
        nics = (rdma.template_name(self.nics),) if self.nics else ()
        return (*nics, *((nvlink.DOMAIN,) if self.channels else ()))

    @property
    def devices(self) -> dict[str, int]:
        """The devices that such a pod claims, by the resource by which Kueue counts them."""
        return ({rdma.RESOURCE: self.nics} if self.nics else {}) | ({nvlink.CHANNELS: 1} if self.channels else {})

    @property
    def node_labels(self) -> dict[str, str]:
        """Labels that a pool sets on its nodes."""
        return {rdma.DRIVER_LABEL: "true"} if self.nics else self._of_technology

    @property
    def selector(self) -> dict[str, str]:
        """Labels of the nodes that pods select."""
        return {rdma.PROFILE_LABEL: rdma.PROFILE} if self.nics else self._of_technology

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables by which NCCL finds the network."""
        return rdma.VARIABLES if self.nics else self.technology.variables if self.technology else {}

    @property
    def _of_technology(self) -> dict[str, str]:
        return {GPUDIRECT_LABEL: self.technology.name} if self.technology else {}


DEFAULT_NETWORK = Fabric()
# Of nodes with eight GPUs and eight NICs: A3 Ultra and A4.
EIGHT_NICS = Fabric(rdma.NICS_PER_POD, plugin_image=rdma.PLUGIN_IMAGE)


def _fabric(machine: Machine) -> Fabric:
    if machine.name not in rdma.NICS:
        return Fabric(technology=GPUDIRECT.get(machine.name))
    image = metal.PLUGIN_IMAGE if machine.bare_metal else rdma.PLUGIN_IMAGE_ARM
    channels = nvlink.has_domain(machine.name)
    return Fabric(rdma.NICS[machine.name], channels, image if channels else rdma.PLUGIN_IMAGE)


_FABRICS: Mapping[str, Fabric] = {machine.name: _fabric(machine) for machine in MACHINES.values()}
_WITH_NICS: Mapping[str, Fabric] = {str(MACHINES[name].gpu): fabric for name, fabric in _FABRICS.items() if fabric.nics}


def fabric_of(machine_type: str) -> Fabric:
    """Returns the network between nodes of a machine type."""
    return _FABRICS.get(machine_type, DEFAULT_NETWORK)


def fabric_of_gpu(gpu: str | None) -> Fabric:
    """Returns the network between nodes with a GPU type, if pods claim NICs for it; else the default network."""
    return _WITH_NICS.get(gpu or "", DEFAULT_NETWORK)
