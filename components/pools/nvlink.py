"""NVIDIA's driver for Dynamic Resource Allocation, which connects pods of several nodes over NVLink."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.catalog.namespaces import NVIDIA_DRIVER
from gke_ai.catalog.nodes import ARM_TAINT, GKE_ACCELERATOR, GPU_TAINT
from gke_ai.catalog.nvlink import CHART, DRIVER_ROOT, GPUS, IMAGE, REPOSITORY, VERSION
from gke_ai.components.base import Component
from gke_ai.components.pools.critical import critical_namespace


def on_nodes(*expressions: dict[str, Any]) -> dict[str, Any]:
    """The affinity for nodes whose labels match all expressions."""
    terms = {"nodeSelectorTerms": [{"matchExpressions": [*expressions]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


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


class NvlinkDriver(Component):
    """NVIDIA's driver for channels of NVLink between the nodes of A4X, from its Helm chart.

    For each ComputeDomain, its controller writes the template by which pods claim a channel. On each node of A4X, a
    privileged pod gives the channels to pods.

    Helm neither upgrades nor deletes the CRDs of the chart.

    Refused: by Helm, a cluster in which somebody else installed the release.

    Sources: those of `gke_ai.catalog.nvlink`.
    """

    namespace: pulumi.Output[str]
    """Namespace of the driver."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        """Install the driver."""
        super().__init__(name, opts)
        space, quota = critical_namespace(NVIDIA_DRIVER, self)
        k8s.helm.v3.Release(
            CHART,
            name=CHART,
            namespace=NVIDIA_DRIVER,
            chart=CHART,
            repository_opts={"repo": REPOSITORY},
            version=VERSION,
            skip_await=True,  # nodes of A4X may come much later
            values=VALUES,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[quota]),
        )
        self.namespace = space.metadata.name
        self.register_outputs({"namespace": self.namespace})
