"""`gke-ai doctor --context`: what a cluster alone lacks for the other verbs, and for runs and servers under Kueue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gke_ai.catalog.engines import advisories
from gke_ai.catalog.nodes import shape as labels
from gke_ai.catalog.nodes.quota import TENANT_QUOTA
from gke_ai.catalog.nodes.shape import ACCELERATORS
from gke_ai.catalog.versions import JOBSET_API, KUEUE_API
from gke_ai.kube.client import ApiClient, list_objects, request
from gke_ai.kube.kueue import installed
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import Object, holds, label
from gke_ai.kube.uncounted import QUOTAS, uncounted
from gke_ai.kube.values import items, mapping
from gke_ai.kube.workloads import uncounted_by_topology
from gke_ai.ops.doctor.command import report_findings
from gke_ai.ops.doctor.requests import own_access
from gke_ai.ops.doctor.visit import ADVICE, GOOD, MISSING, UNCHECKED, Finding
from gke_ai.workspace.stack import Context

# What `status`, `runs` and `snapshot` list, as API group and resource.
LISTED = (
    *(("", "pods"), ("", "nodes"), ("", "resourcequotas"), ("apps", "deployments"), ("batch", "jobs")),
    *(("kueue.x-k8s.io", "clusterqueues"), ("kueue.x-k8s.io", "workloads")),
    *(("resource.k8s.io", "resourceclaims"), ("resource.k8s.io", "resourceslices")),
)


def show_cluster(context: Context) -> int:
    """Prints what the cluster of a context lacks. Returns the exit code: 1 if something is missing."""
    findings = [*ClusterAlone(context.api(), context.kubectl).examine()]
    return report_findings(findings, context.next("status"))


@dataclass(frozen=True)
class ClusterAlone:
    """The checks of a cluster of which no stack is known."""

    api: ApiClient
    kubectl: str

    def examine(self) -> Iterator[Finding]:
        """Yields all findings. Stops if the cluster does not answer."""
        version = request(self.api, "GET", "/version").body.get("gitVersion", "")
        yield Finding(GOOD, f"Kubernetes {version}")
        yield from self.rights()
        yield from self.served("Kueue", KUEUE_API, "runs and servers get no quota, and nothing waits in a queue")
        if found := installed(self.api):
            yield Finding(GOOD, f"Kueue {found.version} in {found.namespace} queues {', '.join(found.frameworks)}")
            yield from self.placed_by_topology()
            yield from self.counted_by_kueue()
        yield from self.served("JobSet", JOBSET_API, "Multislice training is not possible")
        yield from self.nodes(str(version).removeprefix("v"))

    def rights(self) -> Iterator[Finding]:
        """The user may list what the other verbs read, in all namespaces."""
        for group, resource in LISTED:
            answer = own_access(self.api, {"verb": "list", "group": group, "resource": resource})
            if answer.code >= 400:
                yield Finding(UNCHECKED, "rights", answer.reason)
                return
            allowed = mapping(answer.body, "status").get("allowed")
            text = f"you may not list {resource} of all namespaces, which status, runs and snapshot read"
            # An administrator runs it, and then binds the role to the user.
            grant = f"gke-ai snapshot --role | {self.kubectl} apply -f -"
            yield Finding(GOOD, resource) if allowed else Finding(MISSING, "rights", text, grant)

    def served(self, name: str, api: str, effect: str) -> Iterator[Finding]:
        """A controller is installed, and serves the version of its API that `gke-ai` reads."""
        group, _, wanted = api.partition("/")
        answer = request(self.api, "GET", f"/apis/{group}")
        versions = [str(item.get("version")) for item in items(answer.body, "versions")]
        if answer.code == 404:
            yield Finding(ADVICE, name, f"it is not installed: {effect}")
        elif wanted in versions:
            yield Finding(GOOD, f"{name} serves {api}")
        else:
            text = f"it serves {', '.join(versions) or 'no version'}, and not {wanted}, which gke-ai reads. Upgrade it"
            yield Finding(MISSING, name, text)

    def placed_by_topology(self) -> Iterator[Finding]:
        """Workloads that Kueue places by topology request what they are limited to."""
        for workload, container in uncounted_by_topology(list_objects(self.api, f"/apis/{KUEUE_API}/workloads")):
            yield Finding(
                ADVICE,
                str(WorkloadName.of_workload(workload, {})),
                f"container {container} has limits and no requests, and Kueue placed it by topology. After a restart, "
                "Kueue counts it as nothing, and places others on its node. State requests in its template",
            )

    def counted_by_kueue(self) -> Iterator[Finding]:
        """Accelerators of tenants are those that their queues admitted."""
        quotas = list_objects(self.api, QUOTAS, fieldSelector=f"metadata.name={TENANT_QUOTA}")
        if not quotas:
            return
        pods, workloads = (list_objects(self.api, path) for path in ("/api/v1/pods", f"/apis/{KUEUE_API}/workloads"))
        for found in uncounted(quotas, pods, workloads):
            text = f"{found.on_nodes} {found.resource} are in use, and Kueue counts {found.counted}: {found.cause}"
            command = f"{self.kubectl} get pods,workloads -n {found.namespace}"
            yield Finding(ADVICE, f"tenant {found.namespace}", text, command)

    def nodes(self, control_plane: str) -> Iterator[Finding]:
        """Nodes are ready, those with accelerators offer them, and each can mount buckets."""
        nodes: list[Object] = list_objects(self.api, "/api/v1/nodes")
        for node in nodes:
            name, status = node["metadata"]["name"], node["status"]
            if not holds(node, "Ready"):
                yield Finding(ADVICE, name, "the node is not ready", f"{self.kubectl} describe node {name}")
            elif is_accelerated(node) and not any(int(status["allocatable"].get(kind, 0)) for kind in ACCELERATORS):
                text = "the node has accelerators and offers none: its driver or device plugin does not run"
                command = f"{self.kubectl} get pods -n kube-system --field-selector spec.nodeName={name}"
                yield Finding(ADVICE, name, text, command)
            info: dict[str, Any] = status.get("nodeInfo") or {}
            kubelet, image = str(info.get("kubeletVersion", "")).removeprefix("v"), str(info.get("osImage", ""))
            if "-gke." in control_plane and advisories.mounts_no_bucket(control_plane, kubelet, image):
                yield Finding(ADVICE, name, "pods there wait for their buckets forever. Upgrade the node's pool")
        yield Finding(GOOD, f"{len(nodes)} nodes")


def is_accelerated(node: Object) -> bool:
    """Whether GKE labels a node with an accelerator."""
    return bool(label(node, labels.GKE_ACCELERATOR) or label(node, labels.GKE_TPU_ACCELERATOR))
