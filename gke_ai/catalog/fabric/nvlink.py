"""NVLink domains of A4X and A4X Max: racks whose GPUs reach each other over NVLink, and NVIDIA's driver for them.

NVIDIA's driver gives a pod a channel to the pods of the same ComputeDomain: a device of Dynamic Resource Allocation.
Its controller writes the template of the claims. Sources:
- policy, size, place, driver: examples/gke-a4x, examples/gke-a4x-max-bm, modules/compute/resource-policy,
  modules/management/kubectl-apply and
  NVLINK_VM_COUNT in community/modules/scheduler/schedmd-slurm-gcp-v6-controller/modules/slurm_files/scripts/conf.py of
  https://github.com/GoogleCloudPlatform/cluster-toolkit at 10470803
- API: https://cloud.google.com/compute/docs/reference/rest/v1/resourcePolicies
- ComputeDomain, its controller, classes and chart: https://github.com/NVIDIA/k8s-dra-driver-gpu/tree/v25.12.0
- devices of a node: pkg/cloudprovider/gke/dynamicresources/computedomain.go of
  https://github.com/GoogleCloudPlatform/cluster-autoscaler at 9676c4b6. It counts on them if the cluster has both
  classes

Never run on Google Cloud.
"""

from __future__ import annotations

from typing import Any

from gke_ai.catalog.fabric import rdma
from gke_ai.catalog.kueue.namespaces import NVIDIA_DRIVER
from gke_ai.catalog.machines.types import MACHINES, ONLY_IN_POOLS

# 72 GPUs, four in each node.
TOPOLOGY, NODES = "1x72", 18
POLICY_TYPE = "HIGH_THROUGHPUT"

# The chart has the name of its release and namespace. Releases before 25.8 wait for `numNodes` pods.
CHART, REPOSITORY, VERSION = "nvidia-dra-driver-gpu", "https://helm.ngc.nvidia.com/nvidia", "25.12.0"
IMAGE = "nvcr.io/nvidia/k8s-dra-driver-gpu"
CONTROLLER = f"system:serviceaccount:{NVIDIA_DRIVER}:{CHART}-service-account-controller"
# Where GKE installs the driver of the GPUs.
DRIVER_ROOT = "/home/kubernetes/bin/nvidia"
DRIVER = "compute-domain.nvidia.com"
CHANNEL_CLASS, DAEMON_CLASS = "compute-domain-default-channel.nvidia.com", "compute-domain-daemon.nvidia.com"
DOMAIN_API, DOMAIN_KIND, DOMAIN_KINDS = "resource.nvidia.com/v1beta1", "ComputeDomain", "computedomains"
# The ComputeDomain of a namespace, the template of its claims, and the claim in a pod.
DOMAIN = "nvlink"
# The resource by which Kueue counts channels, and the one by which the API server does.
CHANNELS = f"{DRIVER}/channels"
OF_CLASS = f"{CHANNEL_CLASS}.deviceclass.resource.k8s.io/devices"


def has_domain(machine_type: str) -> bool:
    """Whether nodes of a machine type belong to an NVLink domain, in which a workload policy places them."""
    return machine_type in ONLY_IN_POOLS


NODE_NICS = min(rdma.NICS.values())
GPUS: frozenset[str] = frozenset(str(MACHINES[name].gpu) for name in ONLY_IN_POOLS)


def written_objects(namespace: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Returns the objects by which pods of a namespace have these templates."""
    templates = [rdma.claim_template(namespace, nics) for nics in sorted({*rdma.NICS.values()}, reverse=True)]
    return [item for item in [*templates, compute_domain(namespace)] if item["metadata"]["name"] in names]


def compute_domain(namespace: str) -> dict[str, Any]:
    """Returns the ComputeDomain of a namespace.

    Pods join and leave it with their nodes, so it states no number of them: NVIDIA deprecates `numNodes`, and 0 is its
    recommendation.
    """
    return {
        "apiVersion": DOMAIN_API,
        "kind": DOMAIN_KIND,
        "metadata": {"name": DOMAIN, "namespace": namespace},
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": DOMAIN}}},
    }
