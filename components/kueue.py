"""Kueue and JobSet, and what Kueue gives out: flavors, cluster queues and the priorities that decide who goes first."""

from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
import yaml

from catalog.namespaces import JOBSET, KUEUE
from catalog.nodes import GKE_TPU_TOPOLOGY
from catalog.versions import (
    JOBSET_CHART,
    JOBSET_IMAGE,
    JOBSET_VERSION,
    KUEUE_API,
    KUEUE_CHART,
    KUEUE_CONFIG_API,
    KUEUE_IMAGE,
    KUEUE_VERSION,
)
from components.base import Component
from components.retry import kueue_hook
from components.rollout import wait_for_rollout

NAMESPACE = KUEUE
RELEASE = "kueue"
MANAGER = f"{RELEASE}-controller-manager"  # the chart's Deployment
JOBSET_NAMESPACE = JOBSET
JOBSET_RELEASE = "jobset"
# ClusterRoles of the chart whose rules Kubernetes gathers from its other roles. Deleted together with those, they are
# at times written once more by the controller that gathers: then `helm uninstall --wait` waits for ever, and two empty
# roles stay. So Helm is not asked to wait, and these two are resources of their own, which outlive the release.
GATHERED_ROLES = ("batch-admin", "batch-user")
# Who asks the autoscaler for a workload's nodes, and in which way they then come:
# https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
PROVISIONING = "kueue.x-k8s.io/provisioning-request"
QUEUED_PROVISIONING = "queued-provisioning.gke.io"
PROVISIONED_FOR = "autoscaling.gke.io/provisioning-request"
# What Kueue may queue; a kind whose CRD isn't installed is left alone until it is.
FRAMEWORKS = ["batch/job", "jobset.x-k8s.io/jobset", "pod", "deployment", "statefulset"]

# One of several managers acts, and all answer webhooks: so at no time should all of them be gone.
# https://github.com/kubernetes-sigs/kueue/blob/v0.18.4/charts/kueue/templates/_helpers.tpl has the labels.
SPREAD = {
    "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {
                "matchLabels": {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
            },
        }
        for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    ],
}


class FlavorArgs(TypedDict):
    """A kind of node that quota is given for."""

    name: str
    node_labels: NotRequired[dict[str, str]]
    """Labels of such nodes; none: any node."""
    queued_resource: NotRequired[str]
    """The resource that such nodes bring, where they come by queued provisioning; none: they come without a request."""


class FlavorQuotaArgs(TypedDict):
    """What a cluster queue may use of one flavor."""

    flavor: str
    quota: dict[str, str]
    """Resource: nominal quota, a Kubernetes quantity."""
    borrowing_limit: NotRequired[dict[str, str]]
    """Resource: the most to borrow of the cohort; unnamed: all that others lend."""
    lending_limit: NotRequired[dict[str, str]]
    """Resource: the most to lend to the cohort; unnamed: the whole quota."""


class PreemptionArgs(TypedDict, total=False):
    """Whom a workload of the queue may evict to start."""

    within_cluster_queue: str
    """`Never`, `LowerPriority` or `LowerOrNewerEqualPriority`."""
    reclaim_within_cohort: str
    """`Never`, `LowerPriority` or `Any`."""


class ClusterQueueArgs(TypedDict):
    """Quota by flavor and resource."""

    name: str
    flavors: list[FlavorQuotaArgs]
    cohort: NotRequired[str]
    preemption: NotRequired[PreemptionArgs]
    queueing_strategy: NotRequired[str]
    """`BestEffortFIFO` or `StrictFIFO`; none: Kueue's own, the former."""


class PriorityClassArgs(TypedDict):
    """A Kubernetes PriorityClass; Kueue orders and preempts by it."""

    name: str
    value: int
    preemption: NotRequired[str]
    """`Never` or `PreemptLowerPriority`."""
    global_default: NotRequired[bool]
    description: NotRequired[str]


class KueueStackArgs(TypedDict):
    """Arguments of a `KueueStack`."""

    namespaces: list[str]
    """Namespaces whose workloads Kueue manages; in all others it leaves even what carries a queue's label alone.
    None: every namespace but the system's."""
    flavors: NotRequired[list[FlavorArgs]]
    cluster_queues: NotRequired[list[ClusterQueueArgs]]
    priority_classes: NotRequired[list[PriorityClassArgs]]
    jobset: NotRequired[bool]
    """Install JobSet too."""
    kueue_version: NotRequired[str]
    """Version of Kueue's chart; none: the pinned one."""
    jobset_version: NotRequired[str]
    """Version of JobSet's chart; none: the pinned one."""
    manager_replicas: NotRequired[int]
    """Pods of Kueue's manager; none: 1."""
    pods_ready_timeout_seconds: NotRequired[int]
    """Seconds after its admission in which all pods of a workload must be ready; none, or 0: no limit."""
    quota_metrics: NotRequired[bool]
    """Among Kueue's metrics are those of quotas and of what is used of them."""
    kubeconfig: NotRequired[pulumi.Input[str]]
    """By which an update waits until the manager's new pod has rolled out; none: it doesn't."""


class KueueStack(Component):
    """Kueue by its Helm chart at the pinned version, resource flavors, cluster queues and priority classes; and JobSet.

    For a flavor whose nodes come by queued provisioning, also the admission check by which Kueue asks for all nodes of
    a workload at once, and starts it when they are there.

    Wait with `depends_on` for the pool that its manager runs on, not for GPU pools; and let namespaces wait for this,
    so that they are deleted while Kueue still runs. Uninstalling the chart deletes Kueue's CRDs with every queue and
    workload of the cluster. JobSet's chart has its CRD in `crds/`, which Helm neither upgrades nor deletes: after this
    component has gone, `kubectl delete crd jobsets.jobset.x-k8s.io` deletes it, and every JobSet of the cluster.

    Another version is an upgrade in place: what is queued stays queued, what runs goes on. JobSet's CRD must be
    upgraded first, by `python -m ops.crds`; an update that changes JobSet's version says so. Another list of namespaces
    restarts the manager: with `kubeconfig` what waits for this component waits for the new one, for up to ten minutes.
    The earlier manager doesn't know a namespace that is new, and would let pods with accelerators run there past their
    queue, for as long as they live.

    Refused: by Helm, a second Kueue or JobSet of this name in the cluster; by Kueue's webhook, a cluster queue that is
    not valid.

    Sources: https://kueue.sigs.k8s.io/docs/installation/,
    https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/,
    https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/ (cohorts: #borrowinglimit, #lendinglimit),
    https://kueue.sigs.k8s.io/docs/concepts/admission_check/provisioning_request/,
    https://jobset.sigs.k8s.io/docs/installation/
    """

    version: pulumi.Output[str]

    def __init__(self, name: str, args: KueueStackArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        for priority in args.get("priority_classes", []):
            k8s.scheduling.v1.PriorityClass(
                priority["name"],
                metadata={"name": priority["name"]},
                value=priority["value"],
                preemption_policy=priority.get("preemption", "PreemptLowerPriority"),
                global_default=priority.get("global_default", False),
                description=priority.get("description", ""),
                opts=pulumi.ResourceOptions(parent=self),
            )

        # A resource of its own, not Helm's `createNamespace`: Helm leaves such a namespace behind.
        namespace = k8s.core.v1.Namespace(
            NAMESPACE, metadata={"name": NAMESPACE}, opts=pulumi.ResourceOptions(parent=self)
        )
        jobset = self._jobset(args.get("jobset_version", JOBSET_VERSION)) if args.get("jobset") else []
        version = args.get("kueue_version", KUEUE_VERSION)
        kubeconfig = args.get("kubeconfig")
        release = k8s.helm.v3.Release(
            RELEASE,
            name=RELEASE,
            namespace=NAMESPACE,
            chart=KUEUE_CHART,
            version=version,
            skip_await=True,  # the hook below waits for what matters: that Kueue answers
            values=chart_values(args, version),
            opts=pulumi.ResourceOptions(
                parent=self,
                # JobSet is there before Kueue looks for it, and until Kueue has let go of the last JobSet.
                depends_on=[namespace, *self._gathered_roles(), *jobset],
                hooks=wait_for_rollout(name, NAMESPACE, MANAGER, kubeconfig) if kubeconfig is not None else None,
            ),
        )
        hook = kueue_hook(f"queues of {name}")
        checks = [
            self._queued_provisioning(flavor, release, hook)
            for flavor in args.get("flavors", [])
            if flavor.get("queued_resource")
        ]
        flavors = {
            flavor["name"]: k8s.apiextensions.CustomResource(
                flavor["name"],
                api_version=KUEUE_API,
                kind="ResourceFlavor",
                metadata={"name": flavor["name"]},
                **({"spec": spec} if (spec := flavor_spec(flavor)) else {}),
                opts=pulumi.ResourceOptions(parent=self, depends_on=[release], hooks=hook),
            )
            for flavor in args.get("flavors", [])
        }
        queued = {flavor["name"] for flavor in args.get("flavors", []) if flavor.get("queued_resource")}
        for queue in args.get("cluster_queues", []):
            k8s.apiextensions.CustomResource(
                queue["name"],
                api_version=KUEUE_API,
                kind="ClusterQueue",
                metadata={"name": queue["name"]},
                spec=cluster_queue(queue, queued),
                opts=pulumi.ResourceOptions(
                    parent=self,
                    # Kueue keeps a flavor for as long as a queue uses it.
                    depends_on=[release, *checks, *(flavors[one["flavor"]] for one in queue["flavors"])],
                    hooks=hook,
                ),
            )

        self.version = release.version.apply(lambda found: found or version)
        self.register_outputs({"version": self.version})

    def _gathered_roles(self) -> "list[k8s.rbac.v1.ClusterRole]":
        """The chart's aggregated roles, marked so that Helm takes them for its own."""
        return [
            k8s.rbac.v1.ClusterRole(
                f"{RELEASE}-{role}-role",
                metadata={
                    "name": f"{RELEASE}-{role}-role",
                    "labels": {"app.kubernetes.io/managed-by": "Helm"},
                    "annotations": {
                        "meta.helm.sh/release-name": RELEASE,
                        "meta.helm.sh/release-namespace": NAMESPACE,
                    },
                },
                aggregation_rule={
                    "cluster_role_selectors": [{"match_labels": {f"rbac.kueue.x-k8s.io/{role}": "true"}}]
                },
                opts=pulumi.ResourceOptions(parent=self),
            )
            for role in GATHERED_ROLES
        ]

    def _jobset(self, version: str) -> list[pulumi.Resource]:
        """JobSet's chart, in a namespace of its own."""
        namespace = k8s.core.v1.Namespace(
            JOBSET_NAMESPACE, metadata={"name": JOBSET_NAMESPACE}, opts=pulumi.ResourceOptions(parent=self)
        )
        always = pulumi.ResourceHookOptions(on_dry_run=True)
        crd_first = pulumi.ResourceHook(f"JobSet of {self._name}: CRD first", tell_of_crd, always)
        hook = pulumi.ResourceHookBinding(before_update=[crd_first])
        release = k8s.helm.v3.Release(
            JOBSET_RELEASE,
            name=JOBSET_RELEASE,
            namespace=JOBSET_NAMESPACE,
            chart=JOBSET_CHART,
            version=version,
            skip_await=True,  # each JobSet waits for it to answer
            # Stated because the chart in JobSet's repository names a staging image.
            values={"image": {"repository": JOBSET_IMAGE, "tag": f"v{version}", "pullPolicy": "IfNotPresent"}},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[namespace], hooks=hook),
        )
        return [release]

    def _queued_provisioning(
        self, queued: FlavorArgs, release: pulumi.Resource, hook: pulumi.ResourceHookBinding
    ) -> pulumi.Resource:
        """The admission check of a flavor, of the flavor's name, and how the nodes are asked for."""
        flavor = queued["name"]
        topology = queued.get("node_labels", {}).get(GKE_TPU_TOPOLOGY)
        configuration = k8s.apiextensions.CustomResource(
            f"{flavor}-provisioning",
            api_version=KUEUE_API,
            kind="ProvisioningRequestConfig",
            metadata={"name": flavor},
            spec={
                "provisioningClassName": QUEUED_PROVISIONING,
                "managedResources": [queued["queued_resource"]],
                # Google's template for queued TPUs: cluster-toolkit, examples/dws-sample-workloads/tpu-dws-queues.
                **({"parameters": {"tpu-topology": topology}} if topology else {}),
                # The pods go to the very nodes that came for them.
                "podSetUpdates": {
                    "nodeSelector": [
                        {"key": PROVISIONED_FOR, "valueFromProvisioningClassDetail": "ResizeRequestName"},
                    ]
                },
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=[release], hooks=hook),
        )
        return k8s.apiextensions.CustomResource(
            f"{flavor}-check",
            api_version=KUEUE_API,
            kind="AdmissionCheck",
            metadata={"name": flavor},
            spec={
                "controllerName": PROVISIONING,
                "parameters": {
                    "apiGroup": KUEUE_API.partition("/")[0],
                    "kind": "ProvisioningRequestConfig",
                    "name": flavor,
                },
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=[configuration], hooks=hook),
        )


def tell_of_crd(args: pulumi.ResourceHookArgs) -> None:
    """Says what Helm leaves to be done where JobSet's version changes."""
    before, after = ((inputs or {}).get("version") for inputs in (args.old_inputs, args.new_inputs))
    if before != after:
        pulumi.log.warn(
            f"JobSet goes from {before} to {after}, and Helm leaves its CRD as it is. Unless you have done so, bring "
            "it to the same version before the update: python -m ops.crds --stack STACK (make crds on the emulator). "
            "See docs/upgrading.md."
        )


def flavor_spec(flavor: FlavorArgs) -> dict[str, Any]:
    """Spec of a ResourceFlavor; empty for one that is any node."""
    spec: dict[str, Any] = {"nodeLabels": flavor["node_labels"]} if flavor.get("node_labels") else {}
    if resource := flavor.get("queued_resource"):
        # Kubernetes gives pods this toleration, but the pod template of Kueue's request for nodes goes past that.
        spec["tolerations"] = [{"key": resource, "operator": "Exists", "effect": "NoSchedule"}]
    return spec


def chart_values(args: KueueStackArgs, version: str) -> dict[str, Any]:
    """Values of Kueue's chart; the image is stated because the chart in Kueue's repository names another."""
    replicas = args.get("manager_replicas", 1)
    memory = "512Mi" if replicas == 1 else "1Gi"
    return {
        "controllerManager": {
            "replicas": replicas,
            **(SPREAD if replicas > 1 else {}),
            "manager": {
                "image": {"repository": KUEUE_IMAGE, "tag": f"v{version}", "pullPolicy": "IfNotPresent"},
                "resources": {
                    "requests": {"cpu": "500m", "memory": memory},
                    "limits": {"cpu": "2", "memory": memory},
                },
            },
        },
        "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(manager_configuration(args), sort_keys=False)},
    }


def wait_for_pods_ready(seconds: int) -> dict[str, Any]:
    """What evicts workloads whose pods don't become ready, and queues them again, however often; none without a limit.

    https://kueue.sigs.k8s.io/docs/tasks/manage/setup_wait_for_pods_ready/
    """
    if not seconds:
        return {}
    again = {"timestamp": "Eviction", "backoffBaseSeconds": 60, "backoffMaxSeconds": 3600}
    return {"waitForPodsReady": {"timeout": f"{seconds}s", "blockAdmission": False, "requeuingStrategy": again}}


def manager_configuration(args: KueueStackArgs) -> dict[str, Any]:
    """Configuration of Kueue's manager. The chart reads namespaces and frameworks from it for its webhooks too."""
    namespaces = args["namespaces"]
    managed = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(namespaces)}
    if not namespaces:  # queues for others to use: any namespace but the system's
        managed = {**managed, "operator": "NotIn", "values": ["kube-system", NAMESPACE]}
    return {
        "apiVersion": KUEUE_CONFIG_API,
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {
            "bindAddress": ":8443",
            **({"enableClusterQueueResources": True} if args.get("quota_metrics") else {}),
        },
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "controller": {
            "groupKindConcurrency": {
                "Job.batch": 5,
                "Pod": 5,
                "Workload.kueue.x-k8s.io": 5,
                "LocalQueue.kueue.x-k8s.io": 1,
                "ClusterQueue.kueue.x-k8s.io": 1,
                "ResourceFlavor.kueue.x-k8s.io": 1,
            }
        },
        "clientConnection": {"qps": 50, "burst": 100},
        "managedJobsNamespaceSelector": {"matchExpressions": [managed]},
        "integrations": {"frameworks": FRAMEWORKS},
        **wait_for_pods_ready(args.get("pods_ready_timeout_seconds", 0)),
    }


def cluster_queue(queue: ClusterQueueArgs, queued: set[str]) -> dict[str, Any]:
    """Spec of a ClusterQueue. Flavors that cover the same resources form one group, tried in the order of the list.

    Flavors that are `queued` are given out once their admission check, which has their name, has passed.
    """
    groups: dict[frozenset[str], list[FlavorQuotaArgs]] = {}
    for flavor in queue["flavors"]:
        groups.setdefault(frozenset(flavor["quota"]), []).append(flavor)
    preemption = queue.get("preemption", {})
    checks = [
        {"name": one["flavor"], "onFlavors": [one["flavor"]]} for one in queue["flavors"] if one["flavor"] in queued
    ]
    return {
        "namespaceSelector": {},
        **({"cohortName": queue["cohort"]} if queue.get("cohort") else {}),
        **({"queueingStrategy": queue["queueing_strategy"]} if queue.get("queueing_strategy") else {}),
        **({"admissionChecksStrategy": {"admissionChecks": checks}} if checks else {}),
        "preemption": {
            "withinClusterQueue": preemption.get("within_cluster_queue", "LowerPriority"),
            "reclaimWithinCohort": preemption.get("reclaim_within_cohort", "LowerPriority"),
        },
        "resourceGroups": [
            {
                "coveredResources": list(flavors[0]["quota"]),
                "flavors": [
                    {
                        "name": flavor["flavor"],
                        # Kueue wants the resources of every flavor in the order of the group.
                        "resources": [resource_quota(flavor, resource) for resource in flavors[0]["quota"]],
                    }
                    for flavor in flavors
                ],
            }
            for flavors in groups.values()
        ],
    }


def resource_quota(flavor: FlavorQuotaArgs, resource: str) -> dict[str, str]:
    """Quota of one resource of a flavor; a limit that is not stated is left to Kueue, which then has none."""
    limits = {
        "borrowingLimit": flavor.get("borrowing_limit", {}).get(resource),
        "lendingLimit": flavor.get("lending_limit", {}).get(resource),
    }
    stated = {name: limit for name, limit in limits.items() if limit is not None}
    return {"name": resource, "nominalQuota": flavor["quota"][resource], **stated}
