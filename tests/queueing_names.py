"""Names of labels and annotations of the pinned Kueue and JobSet, read from their sources, and why teams set few."""

from __future__ import annotations

import re

from emulator.go_build import sources
from emulator.toolchain import KUBERNETES
from gke_ai.components.queues.tenant_policy import ANNOTATIONS, LABELS

# Folders of the sources with names that the managers read or write, by Go module.
FOLDERS = {"sigs.k8s.io/kueue": ("apis", "pkg"), "sigs.k8s.io/jobset": ("api", "pkg")}
# A name of either, in Go's quotes.
_NAME = re.compile(r'["`]([\w.-]*(?:kueue|jobset)[\w.-]*/[\w.-]*)["`]')
# The prefix of parameters of a ProvisioningRequest, which Kueue completes.
PARAMETER = "provreq.kueue.x-k8s.io/"

# Names that no team may set, by reason.
REFUSED = {
    "makes Kueue count several pods as one workload, or pods as other pods": [
        "kueue.x-k8s.io/is-group-workload",
        *(f"kueue.x-k8s.io/pod-group-{part}" for part in ("fast-admission", "name", "serving", "total-count")),
        *("kueue.x-k8s.io/pod-group-pod-index", "kueue.x-k8s.io/pod-group-pod-index-label"),
        "kueue.x-k8s.io/prebuilt-workload-name",
        "kueue.x-k8s.io/retriable-in-group",
    ],
    "lets a workload grow while it runs": [
        "kueue.x-k8s.io/elastic-job",
        *("kueue.x-k8s.io/workload-slice-name", "kueue.x-k8s.io/workload-slice-replacement-for"),
    ],
    "frees quota before pods are gone, or keeps workloads from being admitted or counted": [
        *("kueue.x-k8s.io/admission-gated-by", "kueue.x-k8s.io/safe-to-forcefully-delete"),
        "kueue.x-k8s.io/stopping",
    ],
    "raises the priority, or chooses flavors": [
        *("kueue.x-k8s.io/priority-boost", "kueue.x-k8s.io/workload-allowed-resource-flavors"),
        "kueue.x-k8s.io/concurrent-admission-parent",
    ],
    "needs a Topology, which no flavor of this program has": [
        *(f"kueue.x-k8s.io/podset-{kind}-topology" for kind in ("preferred", "required", "unconstrained")),
        *(f"kueue.x-k8s.io/podset-slice-{part}" for part in ("required-topology", "size")),
        "kueue.x-k8s.io/podset-slice-required-topology-constraints",
        *("kueue.x-k8s.io/podset-group-name", "kueue.x-k8s.io/pod-index-offset", "kueue.x-k8s.io/topology"),
    ],
    "is of kinds or clusters that this program does not have": [
        *(f"kueue.x-k8s.io/multikueue{part}" for part in ("", "-origin", "-origin-uid", "-worker-workload-pod")),
        *(f"kueue.x-k8s.io/multikueue-dispatcher-{kind}" for kind in ("all-at-once", "incremental")),
        *("kueue.x-k8s.io/raycluster-generation", "kueue.x-k8s.io/raycluster-podset-replica-sizes"),
        *("kueue.x-k8s.io/component-workload-index", "kueue.x-k8s.io/manager"),
    ],
    "is what Kueue writes": [
        *(f"kueue.x-k8s.io/{part}" for part in ("cluster-queue-name", "local-queue-name", "podset", "workload")),
        *(f"kueue.x-k8s.io/job-{part}" for part in ("owner-gvk", "owner-name", "uid")),
    ],
    "is a gate, a finalizer, a controller or a kind": [
        *("kueue.x-k8s.io/admission", "kueue.x-k8s.io/resource-in-use", "kueue.x-k8s.io/provisioning-request"),
        *("kueue.x-k8s.io/workloadpriorityclass", "jobset.x-k8s.io/jobset", "jobset.sigs.k8s.io/jobset-controller"),
        "alpha.jobset.sigs.k8s.io/no-schedule",
    ],
    "is a parameter of a ProvisioningRequest that nobody needs to set": [PARAMETER],
    "is what JobSet writes, and what it finds its pods by": [
        *(f"jobset.sigs.k8s.io/{part}" for part in ("coordinator", "group-name", "group-replicas", "global-replicas")),
        *(f"jobset.sigs.k8s.io/job-{part}" for part in ("global-index", "group-index", "index", "key")),
        *(f"jobset.sigs.k8s.io/{part}" for part in ("job-restart-attempt", "restart-attempt", "priority")),
        *(f"jobset.sigs.k8s.io/jobset-{part}" for part in ("name", "uid")),
        *(f"jobset.sigs.k8s.io/replicatedjob-{part}" for part in ("name", "replicas")),
        *("jobset.sigs.k8s.io/in-place-restart-attempt", "jobset.sigs.k8s.io/disable-in-place-restart"),
    ],
    "needs labels on nodes, which an administrator sets for each Job": [
        *("alpha.jobset.sigs.k8s.io/node-selector", "alpha.jobset.sigs.k8s.io/namespaced-job"),
    ],
}


def allowed() -> set[str]:
    """Names that a team may set on some kind, or that Kueue's webhooks set on what it creates."""
    return {name for kinds in (LABELS, ANNOTATIONS) for names in kinds.values() for name in names}


def names() -> set[str]:
    """All names in the sources. The prefix of parameters stands for every parameter."""
    return {
        name
        for module, folders in FOLDERS.items()
        for folder in folders
        for path in (sources(KUBERNETES, module) / folder).rglob("*.go")
        if not path.name.endswith("_test.go") and not {"test", "testing", "testingjobs"} & set(path.parts)
        for line in path.read_text().splitlines()
        for name in _NAME.findall(line.partition("//")[0])
    }
