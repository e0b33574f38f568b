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

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from types import MappingProxyType

from gke_ai.catalog.machines import MACHINES

# Label of the pool's nodes. The installers and the pods select it.
GPUDIRECT_LABEL = "gke-ai/gpudirect"
NETWORK_API = "networking.gke.io/v1"
MTU = 8244
# The first twenty bits of a range: room for 4,000 nodes.
_RANGES = tuple(IPv4Network("192.168.0.0/16").subnets(new_prefix=20))
LIBRARIES = "/usr/local/nvidia/lib64"
LIBRARIES_OF_NODE = "/home/kubernetes/bin/nvidia/lib64"
_REGISTRY = "us-docker.pkg.dev/gce-ai-infra"
INJECTOR_IMAGE = (
    "gcr.io/gke-release/nri-device-injector@sha256:6e79483d52abdc28454bf186320b10a56b0f117a10e8d65d5c74dbb821a76970"
)
PAUSE_IMAGE = "gke.gcr.io/pause:3.8@sha256:880e63f94b145e46f1b1082bb71b85e21f16b99b180b9996407d61240ceb9830"
# Of the installer and of the injector, each.
AGENT_REQUESTS: Mapping[str, str] = MappingProxyType({"cpu": "150m"})
# No figures are published for the daemon.
DAEMON_REQUESTS: Mapping[str, str] = MappingProxyType({"cpu": "1", "memory": "2Gi"})
_COMMON = {
    "LD_LIBRARY_PATH": LIBRARIES,
    "NCCL_SOCKET_IFNAME": "eth0",
    "NCCL_CROSS_NIC": "0",
    "NCCL_P2P_NET_CHUNKSIZE": "524288",
    "NCCL_P2P_PCI_CHUNKSIZE": "524288",
    "NCCL_P2P_NVL_CHUNKSIZE": "1048576",
    "NCCL_NET_GDR_LEVEL": "PIX",
}


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
    daemon: tuple[str, ...]
    capabilities: tuple[str, ...]
    variables: Mapping[str, str]
    devices: tuple[str, ...] = ()
    socket: str = ""
    mounts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


TCPX = GpuDirect(
    name="tcpx",
    fabric="GPUDirect-TCPX",
    networks=4,
    plugin_image=f"{_REGISTRY}/gpudirect-tcpx/nccl-plugin-gpudirecttcpx-dev:v3.1.9",
    daemon_image=f"{_REGISTRY}/gpudirect-tcpx/tcpgpudmarxd-dev:v2.0.12",
    daemon=(
        *("/tcpgpudmarxd/build/app/tcpgpudmarxd", "--gpu_nic_preset", "a3vm", "--gpu_shmem_type", "fd"),
        *("--uds_path", "/run/tcpx", "--setup_param", '\\"--verbose 128 2 0 \\"'),
    ),
    capabilities=("NET_ADMIN",),
    variables=MappingProxyType(
        {
            **_COMMON,
            "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth1,eth2,eth3,eth4",
            "NCCL_GPUDIRECTTCPX_CTRL_DEV": "eth0",
            "NCCL_GPUDIRECTTCPX_TX_BINDINGS": (
                "eth1:8-21,112-125;eth2:8-21,112-125;eth3:60-73,164-177;eth4:60-73,164-177"
            ),
            "NCCL_GPUDIRECTTCPX_RX_BINDINGS": (
                "eth1:22-35,126-139;eth2:22-35,126-139;eth3:74-87,178-191;eth4:74-87,178-191"
            ),
            "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS": "500000",
            "NCCL_GPUDIRECTTCPX_FORCE_ACK": "0",
            "NCCL_GPUDIRECTTCPX_TX_COMPLETION_NANOSLEEP": "1000",
            "NCCL_DYNAMIC_CHUNK_SIZE": "524288",
            "NCCL_NSOCKS_PERTHREAD": "4",
            "NCCL_SOCKET_NTHREADS": "1",
            "NCCL_MAX_NCHANNELS": "8",
            "NCCL_MIN_NCHANNELS": "8",
            "NCCL_BUFFSIZE": "4194304",
            "NCCL_ALGO": "Ring",
            "NCCL_PROTO": "Simple",
            "NCCL_P2P_PXN_LEVEL": "0",
        }
    ),
    socket="/tmp",
)
TCPXO = GpuDirect(
    name="tcpxo",
    fabric="GPUDirect-TCPXO",
    networks=8,
    plugin_image=f"{_REGISTRY}/gpudirect-tcpxo/nccl-plugin-gpudirecttcpx-dev:v1.0.15",
    daemon_image=f"{_REGISTRY}/gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.21",
    daemon=(
        *("/bin/sh", "-c"),
        "set -ex; chmod 755 /fts/entrypoint_rxdm_container.sh; "
        "exec /fts/entrypoint_rxdm_container.sh --num_hops=2 --num_nics=8 --uid= --alsologtostderr",
    ),
    capabilities=("NET_ADMIN", "NET_BIND_SERVICE"),
    variables=MappingProxyType(
        {
            **_COMMON,
            "NCCL_FASTRAK_CTRL_DEV": "eth0",
            "NCCL_FASTRAK_IFNAME": "eth1,eth2,eth3,eth4,eth5,eth6,eth7,eth8",
            "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY": "/dev/aperture_devices",
            "NCCL_FASTRAK_NUM_FLOWS": "2",
            "NCCL_FASTRAK_USE_SNAP": "1",
            "NCCL_FASTRAK_USE_LLCM": "1",
            "NCCL_FASTRAK_PLUGIN_ACCEPT_TIMEOUT_MS": "600000",
            "NCCL_FASTRAK_ENABLE_CONTROL_CHANNEL": "0",
            "NCCL_FASTRAK_ENABLE_HOTPATH_LOGGING": "0",
            "NCCL_LIB_DIR": LIBRARIES,
            "NCCL_TUNER_PLUGIN": "libnccl-tuner.so",
            "NCCL_TUNER_CONFIG_PATH": f"{LIBRARIES}/a3plus_tuner_config.textproto",
            "NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE": f"{LIBRARIES}/a3plus_guest_config.textproto",
            "NCCL_PROTO": "Simple,LL128",
            "NCCL_MIN_NCHANNELS": "4",
            "NCCL_NVLSTREE_MAX_CHUNKSIZE": "131072",
            "NCCL_NVLS_ENABLE": "1",
            "NCCL_BUFFSIZE": "8388608",
        }
    ),
    devices=("/dev/dmabuf_import_helper",),
    mounts=MappingProxyType({"/dev/aperture_devices": "/dev/aperture_devices"}),
)
NAMED: Mapping[str, GpuDirect] = MappingProxyType({TCPX.name: TCPX, TCPXO.name: TCPXO})
# By machine type.
GPUDIRECT: Mapping[str, GpuDirect] = MappingProxyType(
    {
        machine.name: technology
        for technology in NAMED.values()
        for machine in MACHINES.values()
        if machine.fabric == technology.fabric
    }
)
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
