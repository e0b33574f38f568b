"""NVLink domains of A4X: machines of one rack, whose GPUs reach each other over NVLink.

Sources:
- policy, size, place: examples/gke-a4x/gke-a4x.yaml, modules/compute/resource-policy and NVLINK_VM_COUNT in
  community/modules/scheduler/schedmd-slurm-gcp-v6-controller/modules/slurm_files/scripts/conf.py of
  https://github.com/GoogleCloudPlatform/cluster-toolkit at 10470803
- API: https://cloud.google.com/compute/docs/reference/rest/v1/resourcePolicies

Never run on Google Cloud.
"""

from __future__ import annotations

from gke_ai.catalog.machines import ONLY_IN_POOLS

# 72 GPUs, four in each node.
TOPOLOGY, NODES = "1x72", 18
POLICY_TYPE = "HIGH_THROUGHPUT"


def has_domain(machine_type: str) -> bool:
    """Whether nodes of a machine type belong to an NVLink domain, in which a workload policy places them."""
    return machine_type in ONLY_IN_POOLS
