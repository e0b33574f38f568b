"""Bare-metal nodes of A4X Max: what they need besides what nodes of A4X have, and the agent that sets up their NICs.

A node has eight NICs with IPv6 alone. DRANET shows them once `asapd-lite` on the node has set them up. Sources:
- label, huge pages, shielded nodes, image and files of the agent, plug-in: examples/gke-a4x-max-bm and
  examples/machine-learning/a4x-maxgpu-4g-metal of https://github.com/GoogleCloudPlatform/cluster-toolkit at 10470803.
  https://github.com/GoogleCloudPlatform/container-engine-accelerators (asapd-lite-installer) at 992db812 has the same
  agent, and one of Google's own network tests
- network profile, eight NICs in a claim, `doca-ofed-userspace` in images: docs/integrator/gke-a4x-max-networking.md of
  https://github.com/NVIDIA/aicr at 9b6263c1. Cluster Toolkit's pool names nine networks instead of the profile
- names of NICs: the sources of `gke_ai.catalog.fabric.rdma`

Never run on Google Cloud.
"""

from __future__ import annotations

from collections.abc import Mapping

LABELS: Mapping[str, str] = {"cloud.google.com/gke-dpv2-unified-cni": "cni-migration"}
# Pages of 2 MiB that a node sets aside at its start. The agent uses all of them.
HUGE_PAGES = 4096
HUGE_PAGES_RESOURCE, HUGE_PAGES_BYTES = "hugepages-2Mi", HUGE_PAGES * 2 * 2**20

AGENT, AGENT_IMAGE = "asapd-lite", "us-docker.pkg.dev/gce-ai-infra/asapd-lite/asapd-lite:v0.0.8"
AGENT_MEMORY = "1Gi"
AGENT_LIBRARIES, AGENT_PORT = "/asapd-lite/controller", 19540
# Folders of the node.
AGENT_FOLDERS = (
    *("/sys", "/proc", "/etc/udev/rules.d", "/run/udev", "/etc/systemd/system", "/run/systemd"),
    *("/run/asapd-lite", "/var/log/google/asapd-lite", "/var/lib/google/asapd-lite"),
)
# A NIC whose address another one seemed to have gets another chance, with a restart of the container.
AGENT_COMMAND = """/usr/local/bin/run_asapd_lite.sh
sleep 15
failed=$(ip -6 -o address show dadfailed | awk '$2 ~ /gpu/ {print $2}' | sort -u)
for nic in $failed; do ip link set dev "$nic" down; ip link set dev "$nic" up; done
test -z "$failed" && wait
"""

PLUGIN_IMAGE = "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-gib-a4x-max-arm64:v1.1.1"
