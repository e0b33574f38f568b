"""GPUDirect-TCPX of A3 High and GPUDirect-TCPXO of A3 Mega: networks, installers, daemons and variables.

A node has one more NIC for each further VPC network, and a daemon in each pod moves data between NICs and GPUs.
Sources:
- networks, objects, pods: https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-bandwidth-gpudirect-tcpx and
  examples/gke-a3-highgpu, examples/gke-a3-megagpu, modules/network/multivpc and modules/compute/gke-node-pool of
  https://github.com/GoogleCloudPlatform/cluster-toolkit at 10470803
- installers, injector of devices, variables: gpudirect-tcpx, gpudirect-tcpxo and nri_device_injector of
  https://github.com/GoogleCloudPlatform/container-engine-accelerators at 992db812
- ranges of the NICs of a machine may not overlap: https://cloud.google.com/vpc/docs/create-use-multiple-interfaces

Never run on Google Cloud.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network

from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.tables import table

# Label of the pool's nodes. The installers and the pods select it.
GPUDIRECT_LABEL = "gke-ai/gpudirect"
NETWORK_API = "networking.gke.io/v1"
MTU = 8244
# The first twenty bits of a range: room for 4,000 nodes.
_RANGES = tuple(IPv4Network("192.168.0.0/16").subnets(new_prefix=20))
LIBRARIES = "/usr/local/nvidia/lib64"
LIBRARIES_OF_NODE = "/home/kubernetes/bin/nvidia/lib64"
INJECTOR_IMAGE = (
    "gcr.io/gke-release/nri-device-injector@sha256:6e79483d52abdc28454bf186320b10a56b0f117a10e8d65d5c74dbb821a76970"
)
PAUSE_IMAGE = "gke.gcr.io/pause:3.8@sha256:880e63f94b145e46f1b1082bb71b85e21f16b99b180b9996407d61240ceb9830"
# Of the installer and of the injector, each.
AGENT_REQUESTS: Mapping[str, str] = {"cpu": "150m"}
# No figures are published for the daemon.
DAEMON_REQUESTS: Mapping[str, str] = {"cpu": "1", "memory": "2Gi"}


@dataclass(frozen=True, eq=False)
class GpuDirect:
    """A technology: its name, what installs it on a node, and what a pod needs of it.

    - `networks` is the number of VPC networks besides the node's own one.
    - `daemon` is the command of the daemon, and `devices` the files of the node that it needs besides those of GPUs.
    - `socket` is where the container of the run finds the daemon's socket, if it needs one.
    - `mounts` are further folders of the node in that container, by their path there.
    """

    name: str
    fabric: str
    networks: int
    plugin_image: str
    daemon_image: str
    daemon: Sequence[str]
    capabilities: Sequence[str]
    variables: Mapping[str, str]
    devices: Sequence[str] = ()
    socket: str = ""
    mounts: Mapping[str, str] = field(default_factory=dict)


NAMED: Mapping[str, GpuDirect] = {name: GpuDirect(name, **row) for name, row in table("fabric/gpudirect.yaml").items()}
TCPXO = NAMED["tcpxo"]
# By machine type.
GPUDIRECT: Mapping[str, GpuDirect] = {
    machine.name: technology
    for technology in NAMED.values()
    for machine in MACHINES.values()
    if machine.fabric == technology.fabric
}
# Both machines have eight GPUs, and the daemon of a pod needs all NICs and GPUs of its node.
GPUS_PER_POD = 8


def network_name(number: int) -> str:
    """Returns the name of the `Network` of an interface, from 1, as in Google's examples."""
    return f"vpc{number}"


def cidr(number: int) -> str:
    """Returns the IPv4 range of the subnetwork of an interface, from 1."""
    return str(_RANGES[number - 1])


def gpu_devices() -> list[str]:
    """Returns the files of all GPUs of a node, and of their driver."""
    return [*(f"/dev/nvidia{number}" for number in range(GPUS_PER_POD)), "/dev/nvidiactl", "/dev/nvidia-uvm"]
