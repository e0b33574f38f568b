"""RDMA between nodes of A3 Ultra, A4, A4X and A4X Max, by GKE's managed DRANET: NICs, classes, labels, plug-in.

A NIC is a device of Dynamic Resource Allocation, and belongs to one pod at a time. Sources:
- pools, versions, class, label of a pod: https://cloud.google.com/kubernetes-engine/docs/how-to/allocate-network-resources-dra
- NICs and their attributes: pkg/cloudprovider/gke/machinetypes/dranet.go and dynamicresources/network.go of
  https://github.com/GoogleCloudPlatform/cluster-autoscaler at d92d8954
- plug-in of NCCL: https://github.com/GoogleCloudPlatform/container-engine-accelerators/tree/master/gpudirect-rdma
- A4X: examples/gke-a4x/gke-a4x.yaml of https://github.com/GoogleCloudPlatform/cluster-toolkit at 10470803
- A4X Max: gke_ai/catalog/machines/metal.py
- count by Kueue: pkg/dra/claims.go of https://github.com/kubernetes-sigs/kueue/tree/v0.19.2 (refuses `allocationMode:
  All`, Google's own example)

Never run on Google Cloud.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gke_ai.catalog.machines.features import MINIMUM, NETWORK_PROFILE, NETWORK_PROFILE_AUTOPILOT
from gke_ai.catalog.machines.types import MACHINES

FABRIC = "GPUDirect-RDMA"
# Besides the NICs of the node's own network.
NICS: Mapping[str, int] = {
    machine.name: machine.nics or machine.gpus for machine in MACHINES.values() if machine.fabric.startswith(FABRIC)
}
NICS_PER_POD = 8
MTU = 8896
PROFILE = "auto"
# https://github.com/GoogleCloudPlatform/cluster-toolkit/blob/develop/modules/compute/gke-node-pool/main.tf
PROFILE_FAMILIES = ("a3", "a4", "a4x", "ct6e", "tpu7x")
# The pool sets the first label, and GKE the second one. A pod selects the second.
DRIVER_LABEL = "cloud.google.com/gke-networking-dra-driver"
PROFILE_LABEL = "gke.networks.io/accelerator-network-profile"
DRIVER = "dra.net"
SINCE, SINCE_AUTOPILOT = MINIMUM[NETWORK_PROFILE], MINIMUM[NETWORK_PROFILE_AUTOPILOT]
DATAPATH = "ADVANCED_DATAPATH"

# GKE brings these classes.
DEVICE_CLASS, PLAIN_CLASS = "mrdma.google.com", "netdev.google.com"
DEVICE_API = "resource.k8s.io/v1"
# The template of claims in a namespace, and the claim in a pod. Other templates end in their number of NICs.
TEMPLATE = "rdma"
# The resource by which Kueue counts NICs, and those by which the API server does:
# https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-on-object-count
RESOURCE = f"{DEVICE_CLASS}/nics"
OF_CLASS = f"{DEVICE_CLASS}.deviceclass.resource.k8s.io/devices"
CLAIMS = "count/resourceclaims.resource.k8s.io"

# GKE's service agent creates the networks of the profile.
AGENT_ROLE = "roles/compute.networkAdmin"

# An init container installs the plug-in in each pod, as in Google's recipes. A DaemonSet would install it on the node,
# of which a team's pods may mount nothing: https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline
# https://github.com/AI-Hypercomputer/gpu-recipes/blob/main/src/helm-charts/a3ultra/jobset/templates/workload-job.yaml
PLUGIN_IMAGE = "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib:v1.1.0"
PLUGIN_IMAGE_ARM = "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib-arm64:v1.1.0"
PLUGIN_PATH = "/usr/local/gib"
# What suits the machine, as a script to source.
SETTINGS = f"{PLUGIN_PATH}/scripts/set_nccl_env.sh"
INSTALL = f"set -e; /scripts/container_entry.sh install --install-nccl; cp -R /var/lib/gib/. /target{PLUGIN_PATH}"
# The device plug-in of GKE mounts the driver's libraries at /usr/local/nvidia.
VARIABLES: Mapping[str, str] = {"NCCL_NET": "gIB", "LD_LIBRARY_PATH": f"{PLUGIN_PATH}/lib64:/usr/local/nvidia/lib64"}


# Both are copies of the files of an image: no figures are published.
PLUGIN_REQUESTS: Mapping[str, str] = {"cpu": "150m", "memory": "1Gi"}


def agent(project_number: str) -> str:
    """Returns the IAM member of GKE's service agent in a project.

    https://cloud.google.com/iam/docs/service-agents
    """
    return f"serviceAccount:service-{project_number}@container-engine-robot.iam.gserviceaccount.com"


def since(autopilot: bool) -> str:
    """Returns the first version of GKE that has the driver in clusters of a mode."""
    return SINCE_AUTOPILOT if autopilot else SINCE


def template_name(nics: int) -> str:
    """Returns the name of the template by which a pod claims so many NICs."""
    return TEMPLATE if nics == NICS_PER_POD else f"{TEMPLATE}-{nics}"


def claim_template(namespace: str, nics: int = NICS_PER_POD) -> dict[str, Any]:
    """Returns the template of claims in a namespace: all NICs of a machine, by their number."""
    exactly = {"deviceClassName": DEVICE_CLASS, "allocationMode": "ExactCount", "count": nics}
    return {
        "apiVersion": DEVICE_API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": template_name(nics), "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": [{"name": "nics", "exactly": exactly}]}}},
    }
