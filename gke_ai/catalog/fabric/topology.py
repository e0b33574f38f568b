"""Levels of the network between nodes, by the labels that GKE sets, and Kueue's names for them.

Nodes of one block reach each other over fewer switches than nodes of two, and so on down to the host. Sources:
- labels: https://cloud.google.com/ai-hypercomputer/docs/workloads/schedule-gke-workloads-tas
- machines with labels: the blueprints `gke-a3-megagpu`, `gke-a3-ultragpu` and `gke-a4` of Cluster Toolkit name these
  levels, that of A3 High names none (`kueue-configuration.yaml.tftpl` of each):
  https://github.com/GoogleCloudPlatform/cluster-toolkit/tree/develop/examples
- capacity with labels: reservations. Other machines need compact placement:
  https://docs.cloud.google.com/ai-hypercomputer/docs/placement-policy-and-workload-policy
- Kueue: https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/

Never run on Google Cloud: which values the labels have, and which nodes lack them.
"""

from __future__ import annotations

from collections.abc import Mapping

from gke_ai.catalog.kueue.configuration import minor
from gke_ai.catalog.machines.types import MACHINES

# From the widest level to the narrowest: the names of this program, each with the label.
LEVELS: Mapping[str, str] = {
    "block": "cloud.google.com/gce-topology-block",
    "subblock": "cloud.google.com/gce-topology-subblock",
    "host": "cloud.google.com/gce-topology-host",
}
HOSTNAME = "kubernetes.io/hostname"
# What a run can ask of a level: all pods in one domain of it, or as many as fit.
TOPOLOGY_KINDS = ("required", "preferred")
# Kueue's object with these levels. The hostname is its lowest one, so that Kueue assigns nodes and replaces them.
TOPOLOGY = f"gce-{'-'.join(LEVELS)}"
TOPOLOGY_LEVELS = tuple({"nodeLabel": label} for label in (*LEVELS.values(), HOSTNAME))
# Annotations of a pod template: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/kueue/v1beta2/topology_types.go
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
GROUPS, GROUP_SIZE = "kueue.x-k8s.io/podset-slice-required-topology", "kueue.x-k8s.io/podset-slice-size"
ANNOTATIONS = (REQUIRED, PREFERRED, GROUPS, GROUP_SIZE)
# Kueue before this version ends if a container has limits and no requests, and does not try a waiting workload again
# when a plain pod ends: `pkg/workload/workload.go` of v0.18.4, and `kueue_releases.yaml`.
SINCE = (0, 19)
# Families that GKE can place compactly, and machines that it also can with flex-start: the second page above, and
# https://github.com/GoogleCloudPlatform/cluster-toolkit/blob/develop/modules/compute/gke-node-pool/main.tf
COMPACT_FAMILIES = ("a4", "a3", "a2", "g4", "g2")
COMPACT_FLEX_START = ("a4-highgpu-8g", "a3-ultragpu-8g")
# Machines whose compact pools on Spot ended in an error in two reports, in most zones. xpk has created none since. It
# was never tried here:
# https://github.com/AI-Hypercomputer/xpk/issues/434, https://github.com/AI-Hypercomputer/xpk/pull/478,
# https://github.com/GoogleCloudPlatform/cluster-toolkit/issues/4058
COMPACT_SPOT_FAILED = ("a3-megagpu-8g",)


def is_supported(kueue: str) -> bool:
    """Whether a version of Kueue places workloads by topology without the faults of earlier ones."""
    return minor(kueue) >= SINCE


def can_be_compact(machine_type: str, mode: str) -> bool:
    """Whether GKE can place nodes of a machine type close together in a capacity mode.

    The machines of a reservation are where the reservation has them. Queued provisioning excludes the policy.
    """
    base = machine_type.removesuffix("-nolssd")
    if mode in ("reservation", "queuedFlexStart") or machine_type not in MACHINES:
        return False
    return base in COMPACT_FLEX_START if mode == "flexStart" else MACHINES[machine_type].family in COMPACT_FAMILIES


def has_labels(machine_type: str, mode: str, is_compact: bool) -> bool:
    """Whether GKE labels nodes of a machine type and a capacity mode with the levels."""
    known = MACHINES.get(machine_type)
    return known is not None and known.has_topology and (mode == "reservation" or is_compact)
