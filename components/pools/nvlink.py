"""What connects pods on several nodes of A4X and A4X Max: NVIDIA's driver for NVLink, and an agent for NICs."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.catalog.fabric.nvlink import CHART, DRIVER_ROOT, GPUS, IMAGE, REPOSITORY, VERSION
from gke_ai.catalog.kueue.namespaces import NVIDIA_DRIVER
from gke_ai.catalog.machines import metal
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.nodes.shape import ARM_TAINT, GKE_ACCELERATOR, GPU_TAINT, INSTANCE_TYPE
from gke_ai.components.arguments import takes
from gke_ai.components.base import Component
from gke_ai.components.cluster.connection import InCluster
from gke_ai.components.support.critical import critical_daemon_set, critical_namespace, on_nodes

# GKE's own driver gives pods their GPUs, so this one gives them only channels. By default, its controller runs on nodes
# of the control plane, of which GKE shows none.
VALUES: dict[str, Any] = {
    "image": {"repository": IMAGE, "tag": f"v{VERSION}"},
    "nvidiaDriverRoot": DRIVER_ROOT,
    "resources": {"gpus": {"enabled": False}, "computeDomains": {"enabled": True}},
    "controller": {"affinity": on_nodes({"key": GKE_ACCELERATOR, "operator": "DoesNotExist"})},
    "kubeletPlugin": {
        "affinity": on_nodes({"key": GKE_ACCELERATOR, "operator": "In", "values": sorted(GPUS)}),
        "tolerations": [
            {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
            for taint in (GPU_TAINT, ARM_TAINT)
        ],
    },
}


class NvlinkDriverArguments(InCluster):
    bare_metal: bool = False
    """Also install the agent that sets up the NICs of bare-metal nodes."""


class NvlinkDriver(Component):
    """NVIDIA's driver for channels of NVLink between nodes of A4X or A4X Max, from its Helm chart.

    For each ComputeDomain, its controller writes the template by which pods claim a channel. On each node, a privileged
    pod gives the channels to pods. On each bare-metal node, another one sets up the NICs that pods claim.

    Helm neither upgrades nor deletes the CRDs of the chart.

    Refused: by Helm, a cluster in which somebody else installed the release.

    Sources: those of `gke_ai.catalog.fabric.nvlink` and `gke_ai.catalog.machines.metal`.

    Example:
        NvlinkDriver("nvlink", cluster=cluster)
    """

    namespace: pulumi.Output[str]
    """Namespace of the driver."""

    @takes(NvlinkDriverArguments)
    def __init__(self, name: str, args: NvlinkDriverArguments) -> None:
        super().__init__(name, args)
        space, quota = critical_namespace(NVIDIA_DRIVER, self)
        k8s.helm.v3.Release(
            *self.main_child(CHART, depends_on=[quota]),
            name=CHART,
            namespace=NVIDIA_DRIVER,
            chart=CHART,
            repository_opts={"repo": REPOSITORY},
            version=VERSION,
            skip_await=True,  # nodes of A4X may come much later
            values=VALUES,
        )
        if args.bare_metal:
            agent(pulumi.ResourceOptions(parent=self, depends_on=[quota]))
        self.namespace = space.metadata.name
        self.register_outputs({"namespace": self.namespace})


def of_node(folder: str) -> dict[str, str]:
    """A folder of the node. Those of the agent may not exist yet."""
    return {"path": folder, **({"type": "DirectoryOrCreate"} if metal.AGENT in folder else {})}


def agent(opts: pulumi.ResourceOptions) -> None:
    """The DaemonSet that sets up the NICs of bare-metal nodes. DRANET shows no NIC before."""
    machines = sorted(name for name, machine in MACHINES.items() if machine.bare_metal)
    probe = {"httpGet": {"path": "/healthz", "port": metal.AGENT_PORT}}
    amounts = {"memory": metal.AGENT_MEMORY, metal.HUGE_PAGES_RESOURCE: f"{metal.HUGE_PAGES_BYTES // 2**20}Mi"}
    folders = {folder.strip("/").replace("/", "-").replace(".", "-"): folder for folder in metal.AGENT_FOLDERS}
    container = {
        "name": metal.AGENT,
        "image": metal.AGENT_IMAGE,
        "command": ["/bin/bash", "-c", metal.AGENT_COMMAND],
        "env": [{"name": "LD_LIBRARY_PATH", "value": metal.AGENT_LIBRARIES}],
        "livenessProbe": {**probe, "initialDelaySeconds": 60},
        "readinessProbe": probe,
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {"privileged": True},
        "volumeMounts": [
            *({"name": name, "mountPath": folder} for name, folder in folders.items()),
            {"name": "huge-pages", "mountPath": "/hugepages-2Mi"},
        ],
    }
    pod = {
        "containers": [container],
        "volumes": [
            *({"name": name, "hostPath": of_node(folder)} for name, folder in folders.items()),
            {"name": "huge-pages", "emptyDir": {"medium": "HugePages-2Mi"}},
        ],
    }
    nodes = on_nodes({"key": INSTANCE_TYPE, "operator": "In", "values": machines})
    critical_daemon_set(NVIDIA_DRIVER, metal.AGENT, nodes, pod, opts)
