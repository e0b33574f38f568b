"""Kueue with its controllers of runs, and with resource flavors, cluster queues and priority classes."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field

from gke_ai.catalog.fabric.topology import TOPOLOGY, TOPOLOGY_LEVELS
from gke_ai.catalog.kueue.cohort_tree import ancestry
from gke_ai.catalog.kueue.namespaces import JOBSET, KUEUE
from gke_ai.catalog.kueue.operators import KUBERAY, TRAINER
from gke_ai.catalog.nodes.shape import GKE_TPU_TOPOLOGY
from gke_ai.catalog.versions import (
    JOBSET_CHART,
    JOBSET_CRD,
    JOBSET_IMAGE,
    JOBSET_VERSION,
    KUEUE_API,
    KUEUE_CHART,
    KUEUE_VERSION,
)
from gke_ai.components.arguments import Input, Part, takes
from gke_ai.components.base import Component, custom_object, custom_resource
from gke_ai.components.cluster.connection import AnyCluster, InCluster, kubeconfig_in
from gke_ai.components.pools.node_pool import NodePoolComponent
from gke_ai.components.queues.crds import crds_first
from gke_ai.components.queues.operators import helm_release, install_kuberay, install_trainer
from gke_ai.components.support.alone import check_alone, stack_of
from gke_ai.components.support.cluster_client import connection, in_thread
from gke_ai.components.support.polling import Pauses, poll_until
from gke_ai.components.support.retry import kueue_hook
from gke_ai.manifests.cluster_queue import AnyQuota, NodeFlavor, cluster_queue, cohort_spec, flavor_spec
from gke_ai.manifests.kueue_chart import chart_values, manager_configuration, sharing
from gke_ai.settings import model
from gke_ai.settings.model import (
    AdmissionFairSharing,
    Cohort,
    FairSharing,
    Flavor,
    FlavorQuota,
    PriorityClass,
    Queues,
    TpuPool,
)
from gke_ai.settings.model.base import DnsLabel
from gke_ai.settings.resolved import Queue, ResolvedStack

NAMESPACE = KUEUE
RELEASE = "kueue"
MANAGER = f"{RELEASE}-controller-manager"  # the chart's Deployment
JOBSET_NAMESPACE = JOBSET
JOBSET_RELEASE = "jobset"
# Aggregated ClusterRoles of the chart. If Helm deletes them together with the roles that they aggregate, the
# aggregation controller sometimes recreates them: `helm uninstall --wait` then waits forever, and two empty roles stay.
# So Helm does not wait, and these two are resources of their own, which outlive the release.
AGGREGATED_ROLES = ("batch-admin", "batch-user")
# The controller that requests a workload's nodes from the autoscaler, and the provisioning class of the request:
# https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
PROVISIONING = "kueue.x-k8s.io/provisioning-request"
QUEUED_PROVISIONING = "queued-provisioning.gke.io"
PROVISIONED_FOR = "autoscaling.gke.io/provisioning-request"


class ClusterQueueArguments(Part, model.ClusterQueue):
    name: DnsLabel = ""
    """Name of the cluster queue."""
    pools: Sequence[NodePoolComponent]
    """Node pools whose allocatable capacity, at their maximum size, is the quota, in order of preference. TPU pools
    with equal slices are one flavor, so that a Multislice run may have all of them."""
    flavors: list[FlavorQuota] = Field(default=[])
    """Quota for pools in amounts, or with limits of what it borrows and lends, by the name of the pool. Default: all
    that each pool has."""


class ClusterQueue:
    """A cluster queue of a `KueueStack` over node pools."""

    @takes(ClusterQueueArguments)
    def __init__(self, name: str, args: ClusterQueueArguments) -> None:  # noqa: ARG002  the section has it
        self.pools = args.pools
        stated = {quota.flavor: quota for quota in args.flavors}
        derived = [stated.pop(pool.called, whole(pool.called)) for pool in args.pools]
        section = args.section(model.ClusterQueue)
        self.section = section.model_copy(update={"flavors": [*derived, *stated.values()]})


class KueueStackArguments(InCluster):
    queues: Sequence[ClusterQueue] = ()
    """Cluster queues over node pools, each of which becomes a flavor."""
    priorities: Mapping[str, int] = {}
    """Kubernetes PriorityClasses with their values. Pods of a higher one go first."""
    namespaces: Sequence[str] = ()
    """Namespaces whose workloads Kueue manages. Elsewhere it ignores even workloads with a queue's label. Default: all
    namespaces except those of the system."""
    flavors: Sequence[NodeFlavor] = ()
    """Types of nodes with quota of their own, beside those of `queues`."""
    cluster_queues: Sequence[model.ClusterQueue] = ()
    """Cluster queues with quota in amounts, and how they share it."""
    cohorts: Sequence[Cohort] = ()
    """Cohorts with a parent, a weight or quota of their own. One that only cluster queues name needs no entry."""
    fair_sharing: FairSharing | None = None
    """Share lent quota by weight, not by who comes first. Not with `install=False`. Default: off."""
    admission_fair_sharing: AdmissionFairSharing | None = None
    """Order workloads by the past usage of their local queues, where `admission_mode` says so. Default: off."""
    priority_classes: Sequence[PriorityClass] = ()
    """Kubernetes PriorityClasses with further keys."""
    install: bool = True
    """Install Kueue. If false, the cluster has one of somebody else, of which nothing changes."""
    jobset: bool = False
    """Also install JobSet."""
    trainer: str | None = None
    """Kubeflow Trainer, for TrainJobs: `install`, which needs JobSet, or `existing`. Default: none."""
    ray: str | None = None
    """KubeRay, for RayJobs and RayClusters: `install`, `existing`, or `addon` of GKE. Default: none."""
    kueue_version: str | None = None
    """Version of Kueue's chart. Default: the pinned version."""
    jobset_version: str | None = None
    """Version of JobSet's chart. Default: the pinned version."""
    frameworks: Sequence[str] = ()
    """Further kinds that Kueue queues, by the names of its integrations, such as `kubeflow.org/mpijob` or
    `leaderworkerset.x-k8s.io/leaderworkerset`. Their controllers must exist."""
    configuration: Mapping[str, Any] = {}
    """Further keys of the configuration of Kueue's manager. They go before those of the component."""
    values: Mapping[str, Any] = {}
    """Further values of Kueue's chart. They go before those of the component."""
    manager_replicas: int = 1
    """Number of pods of Kueue's manager."""
    pods_ready_timeout_seconds: int = 0
    """Seconds after admission within which all pods of a workload must be ready. 0 means no limit."""
    quota_metrics: bool = False
    """Let Kueue report metrics of quotas and their use."""
    reclaim_ended_pods: bool = True
    """Let Kueue free the quota of pods that succeed before their run ends. Set it to false where teams are limited by
    quotas: a JobSet that restarts creates such pods again, beyond its quota."""
    kubeconfig: Input[str] | None = None
    """Cluster in which an update waits for the rollout of the manager. Default: `cluster`, else no wait."""


class KueueStack(Component):
    """Kueue from its pinned Helm chart, resource flavors, cluster queues and priority classes, and controllers of runs.

    A flavor whose nodes are created by queued provisioning also gets an admission check: Kueue requests all nodes of a
    workload at once, and starts it when they exist. For a flavor with `topology`, Kueue chooses each pod's node by the
    levels of the network, which are created first. Kueue then accepts no change of the flavor's labels. If a queue has
    quota for NICs of an RDMA network, Kueue counts the claims for them.

    Use `depends_on` for the pool that Kueue's manager runs on, not for GPU pools. Let namespaces depend on this
    component, so Pulumi deletes them while Kueue still runs. Uninstalling the chart deletes Kueue's CRDs, and with them
    every queue and workload of the cluster. JobSet's CRD stays, as Helm keeps it. After this component is deleted,
    `kubectl delete crd jobsets.jobset.x-k8s.io` deletes the CRD and every JobSet of the cluster.

    A new version upgrades in place: queued workloads stay queued, and running ones continue. JobSet's CRD, which Helm
    does not upgrade, is applied first, with `kubeconfig` or a cluster; a preview says so. A changed list of namespaces
    restarts the manager. With `kubeconfig`, dependents of this component wait for the new manager, for up to ten
    minutes: the old one does not know a new namespace, and would let pods with accelerators bypass their queue there.

    JobSet, Kubeflow Trainer and KubeRay are installed before Kueue, which looks for a kind that it does not find less
    and less often, and deleted after it. Their CRDs stay, as JobSet's does.

    With `install=False`, flavors, cluster queues and priority classes are created beside what the cluster has, and
    nothing of Kueue is installed, upgraded or deleted. A cluster queue may have quota for flavors that the cluster has.

    Refused: ValueError for a quota that is `derive`; by Helm, a second Kueue or JobSet of this name in the cluster; by
    Kueue's webhook, an invalid cluster queue.

    Sources: https://kueue.sigs.k8s.io/docs/installation/,
    https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/,
    https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/ (cohorts: #borrowinglimit, #lendinglimit),
    https://kueue.sigs.k8s.io/docs/concepts/admission_check/provisioning_request/,
    https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/,
    https://jobset.sigs.k8s.io/docs/installation/,
    https://www.kubeflow.org/docs/components/trainer/operator-guides/installation/,
    https://docs.ray.io/en/latest/cluster/kubernetes/getting-started/kuberay-operator-installation.html,
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/setup.go (WaitForAPI)

    Example:
        KueueStack("queue", cluster=cluster, queues=[ClusterQueue("all", pools=[l4])], priorities={"low": 1, "high": 2})
    """

    version: pulumi.Output[str]

    @takes(KueueStackArguments)
    def __init__(self, name: str, args: KueueStackArguments) -> None:
        super().__init__(name, args)
        self.cluster = args.place()
        # Of a Kueue of somebody else, nobody here knows.
        self.has_jobset = args.jobset or not args.install
        kubeconfig = kubeconfig_in(args.kubeconfig, self.cluster)
        # Of cluster queues in amounts, nothing is checked, so neither are the cohorts that they may be in.
        shared = Queues()
        if not args.cluster_queues:
            shared = Queues(
                cohorts=[*args.cohorts],
                fair_sharing=args.fair_sharing,
                admission_fair_sharing=args.admission_fair_sharing,
                kueue="install" if args.install else "existing",
            )
        self.resolved = resolved = over_pools(args.queues, shared, self.cluster, f"KueueStack {name}")
        flavors = [*args.flavors, *node_flavors(resolved)]
        cluster_queues = [*args.cluster_queues, *queues_with_quotas(resolved)]
        # Of a Kueue of somebody else, nobody here knows all queues.
        self.queue_names = [queue.name for queue in cluster_queues] if args.install else None
        priority_classes = [
            *args.priority_classes,
            *(PriorityClass(name=priority, value=value) for priority, value in args.priorities.items()),
        ]
        for priority in priority_classes:
            k8s.scheduling.v1.PriorityClass(
                # Kubernetes refuses to change them: ValidatePriorityClassUpdate in pkg/apis/scheduling/validation.
                *self.child(
                    priority.name, replace_on_changes=["value", "preemptionPolicy"], delete_before_replace=True
                ),
                metadata={"name": priority.name},
                value=priority.value,
                preemption_policy=priority.preemption,
                global_default=priority.global_default,
                description=priority.description,
            )

        jobset_release = self._jobset(args.jobset_version or JOBSET_VERSION, kubeconfig) if args.jobset else []
        controllers = [*jobset_release]
        if args.trainer == "install":
            controllers.append(install_trainer(name, self, jobset_release))
        if args.ray == "install":
            controllers.append(install_kuberay(self))
        if args.install:
            version = args.kueue_version or KUEUE_VERSION
            kinds = [*(TRAINER.kinds if args.trainer else ()), *(KUBERAY.kinds if args.ray else ())]
            counted = {name for queue in cluster_queues for quota in queue.flavors for name in quota.quota}
            manager = manager_configuration(
                args.namespaces,
                args.quota_metrics,
                args.pods_ready_timeout_seconds,
                version,
                kinds,
                devices=counted,
                reclaim_ended_pods=args.reclaim_ended_pods,
                sharing=sharing(args.fair_sharing, args.admission_fair_sharing, counted),
            )
            manager["integrations"]["frameworks"] += args.frameworks
            manager = merged(manager, args.configuration)
            values = merged(chart_values(version, args.manager_replicas, manager), args.values)
            # Controllers of runs must exist before Kueue starts, and until Kueue has released the last run.
            before = [*self._aggregated_roles(), *controllers]
            hooks = wait_for_rollout(name, NAMESPACE, MANAGER, kubeconfig) if kubeconfig is not None else None
            chart = KUEUE_CHART, version, values
            release = helm_release(self, RELEASE, NAMESPACE, *chart, before, hooks=hooks, main_child=True)
            ready: list[pulumi.Resource] = [release]
            self.version = release.version.apply(lambda installed: installed or version)
        else:
            ready, self.version = controllers, pulumi.Output.from_input("")
        hook = kueue_hook(f"queues of {name}")
        checks = [
            self._queued_provisioning(flavor, flavor.queued_resource, ready, hook)
            for flavor in flavors
            if flavor.queued_resource
        ]
        topology = [self._topology(ready, hook)] if any(flavor.topology for flavor in flavors) else []
        always = pulumi.ResourceHookOptions(on_dry_run=True)
        fixed = pulumi.ResourceHook(f"flavors of {name}: same nodes", refuse_other_nodes, always)
        flavor_hook = pulumi.ResourceHookBinding.merge(hook, pulumi.ResourceHookBinding(before_update=[fixed]))
        resource_flavors = {
            flavor.name: custom_resource(
                # Kueue keeps a topology while a flavor names it.
                self.child(flavor.name, depends_on=[*ready, *(topology if flavor.topology else [])], hooks=flavor_hook),
                api_version=KUEUE_API,
                kind="ResourceFlavor",
                metadata={"name": flavor.name},
                **({"spec": spec} if (spec := flavor_spec(flavor)) else {}),
            )
            for flavor in flavors
        }
        queued = {flavor.name for flavor in flavors if flavor.queued_resource}

        def used(by: Cohort | model.ClusterQueue) -> list[pulumi.Resource]:
            quotas: Sequence[AnyQuota] = by.flavors
            return [resource_flavors[quota.flavor] for quota in quotas if quota.flavor in resource_flavors]

        # Kueue takes a cohort that does not exist yet for one without limits, so each follows its parent.
        cohorts: dict[str, pulumi.Resource] = {}
        for section in from_the_root(args.cohorts):
            above = [cohorts[section.parent]] if section.parent in cohorts else []
            opts = pulumi.ResourceOptions(parent=self, depends_on=[*ready, *used(section), *above], hooks=hook)
            cohorts[section.name] = custom_object(KUEUE_API, "Cohort", section.name, cohort_spec(section), opts)
        for queue in cluster_queues:
            cohort = [cohorts[queue.cohort]] if queue.cohort in cohorts else []
            # Kueue keeps a flavor while a queue uses it.
            after = pulumi.ResourceOptions(parent=self, depends_on=[*ready, *checks, *used(queue), *cohort], hooks=hook)
            spec = cluster_queue(queue, [amounts(quota) for quota in queue.flavors], queued)
            custom_object(KUEUE_API, "ClusterQueue", queue.name, spec, after)

        self.register_outputs({"version": self.version})

    @classmethod
    def existing(cls, name: str, /, **further: Any) -> Self:
        """The Kueue that the cluster has from somebody else: only queues, flavors and priority classes are created."""
        construct: Any = cls
        found: Self = construct(name, install=False, **further)
        return found

    def _aggregated_roles(self) -> "list[k8s.rbac.v1.ClusterRole]":
        """The chart's aggregated roles, marked as owned by the Helm release."""
        return [
            k8s.rbac.v1.ClusterRole(
                *self.child(f"{RELEASE}-{role}-role"),
                metadata={
                    "name": f"{RELEASE}-{role}-role",
                    "labels": {"app.kubernetes.io/managed-by": "Helm"},
                    "annotations": {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": NAMESPACE},
                },
                aggregation_rule={
                    "cluster_role_selectors": [{"match_labels": {f"rbac.kueue.x-k8s.io/{role}": "true"}}]
                },
            )
            for role in AGGREGATED_ROLES
        ]

    def _jobset(self, version: str, kubeconfig: pulumi.Input[str] | None) -> list[pulumi.Resource]:
        """JobSet's chart, in its own namespace."""
        hooks = crds_first(self, "JobSet", JOBSET_CRD, kubeconfig)
        # The chart in JobSet's repository defaults to a staging image.
        values = {"image": {"repository": JOBSET_IMAGE, "tag": f"v{version}", "pullPolicy": "IfNotPresent"}}
        return [helm_release(self, JOBSET_RELEASE, JOBSET_NAMESPACE, JOBSET_CHART, version, values, hooks=hooks)]

    def _topology(self, after: list[pulumi.Resource], hook: pulumi.ResourceHookBinding) -> pulumi.Resource:
        """The levels of the network between nodes."""
        opts = pulumi.ResourceOptions(parent=self, depends_on=after, hooks=hook)
        return custom_object(KUEUE_API, "Topology", TOPOLOGY, {"levels": list(TOPOLOGY_LEVELS)}, opts)

    def _queued_provisioning(
        self, queued: NodeFlavor, resource: str, after: list[pulumi.Resource], hook: pulumi.ResourceHookBinding
    ) -> pulumi.Resource:
        """The admission check of a flavor, with the same name, and its provisioning request settings."""
        flavor = queued.name
        topology = (queued.node_labels or {}).get(GKE_TPU_TOPOLOGY)
        settings = {
            "provisioningClassName": QUEUED_PROVISIONING,
            "managedResources": [resource],
            # Google's template for queued TPUs: cluster-toolkit, examples/dws-sample-workloads/tpu-dws-queues.
            **({"parameters": {"tpu-topology": topology}} if topology else {}),
            # The pods run on the nodes that were provisioned for them.
            "podSetUpdates": {
                "nodeSelector": [{"key": PROVISIONED_FOR, "valueFromProvisioningClassDetail": "ResizeRequestName"}]
            },
        }
        kind, opts = "ProvisioningRequestConfig", pulumi.ResourceOptions(parent=self, depends_on=after, hooks=hook)
        configuration = custom_object(KUEUE_API, kind, flavor, settings, opts, suffix="-provisioning")
        parameters = {"apiGroup": KUEUE_API.partition("/")[0], "kind": kind, "name": flavor}
        check = {"controllerName": PROVISIONING, "parameters": parameters}
        last = pulumi.ResourceOptions(parent=self, depends_on=[configuration], hooks=hook)
        return custom_object(KUEUE_API, "AdmissionCheck", flavor, check, last, suffix="-check")


def merged(own: Mapping[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings as one, at any depth. Of two values, the further one counts."""
    both = {key: merged(own[key], further[key]) for key in own.keys() & further.keys() if isinstance(own[key], dict)}
    return {**own, **further, **both}


def over_pools(
    queues: Sequence[ClusterQueue], shared: Queues, cluster: AnyCluster | None, component: str
) -> ResolvedStack:
    """The flavors and cluster queues of node pools, decided as for a stack with these pools, cohorts and shares."""
    pools = {pool.called: pool.section for queue in queues for pool in queue.pools}
    flavors, first = flavors_over(queues), dict[str, str]()
    for flavor, names in flavors.items():
        first |= dict.fromkeys(names, flavor)

    def over_flavors(queue: ClusterQueue) -> model.ClusterQueue:
        kept = [quota for quota in queue.section.flavors if first.get(quota.flavor, quota.flavor) == quota.flavor]
        return queue.section.model_copy(update={"flavors": kept})

    section = shared.model_copy(
        update={
            "flavors": [Flavor(name=name, pools=names) for name, names in flavors.items()],
            "cluster_queues": [over_flavors(queue) for queue in queues],
        }
    )
    known = cluster.section if cluster else None
    if queues:
        check_alone(component, section, known, list(pools.values()))
    return stack_of(section, *pools.values(), cluster=known)


def flavors_over(queues: Sequence[ClusterQueue]) -> dict[str, list[str]]:
    """The pools of each flavor, which is called as its first one.

    Kueue gives all slices of a Multislice run one flavor, so TPU pools with equal slices are one: of those that the
    same queues have, without a quota of their own.
    """
    quotas = [(queue.section.name, quota) for queue in queues for quota in queue.section.flavors]
    stated = {quota.flavor for _, quota in quotas if quota != whole(quota.flavor)}
    flavors: dict[tuple[str, ...], list[str]] = {}
    for pool in dict.fromkeys(pool for queue in queues for pool in queue.pools):
        name, section = pool.called, pool.section
        key: tuple[str, ...] = (name,)
        if isinstance(section, TpuPool) and name not in stated:
            key = (section.version, section.topology, section.capacity.mode)
            key += tuple(queue for queue, quota in quotas if quota.flavor == name)
        flavors.setdefault(key, []).append(name)
    return {names[0]: names for names in flavors.values()}


def whole(flavor: str) -> FlavorQuota:
    """The quota of all that the pools of a flavor have."""
    return FlavorQuota(flavor=flavor, quota="derive")


def node_flavors(stack: ResolvedStack) -> list[NodeFlavor]:
    """The flavors that a stack creates."""
    return [
        NodeFlavor(flavor.section.name, flavor.labels, flavor.queued_resource, flavor.has_topology)
        for flavor in stack.flavors
        if flavor.section.mode == "create"
    ]


def queues_with_quotas(stack: ResolvedStack) -> list[model.ClusterQueue]:
    """The cluster queues of a stack, with the amounts of derived quotas."""

    def with_quotas(queue: Queue) -> model.ClusterQueue:
        flavors = [quota.section.model_copy(update={"quota": quota.texts}) for quota in queue.quotas]
        return queue.section.model_copy(update={"flavors": flavors})

    return [with_quotas(queue) for queue in stack.cluster_queues]


def from_the_root(cohorts: Sequence[Cohort]) -> list[Cohort]:
    """The cohorts, each after its parent."""
    parents = {cohort.name: cohort.parent for cohort in cohorts if cohort.parent}
    return sorted(cohorts, key=lambda cohort: len(ancestry(cohort.name, parents)))


def amounts(quota: FlavorQuota) -> dict[str, str]:
    """The amounts of a quota. Raises ValueError for one that is still to be derived."""
    if isinstance(quota.quota, str):
        raise ValueError(f"flavor {quota.flavor}: a KueueStack needs the amounts of a quota, not {quota.quota!r}")
    return quota.quota


def refuse_other_nodes(args: pulumi.ResourceHookArgs) -> None:
    """Raise RunError if a flavor with topology changes, in a preview too: Kueue would refuse the update midway.

    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/kueue/v1beta2/resourceflavor_types.go
    """
    new = args.new_inputs or {}
    before, after = ((inputs or {}).get("spec") or {} for inputs in (args.old_inputs, new))
    if "topologyName" not in before:
        return
    if changed := [key for key in ("nodeLabels", "tolerations", "topologyName") if before.get(key) != after.get(key)]:
        raise pulumi.RunError(
            f"Flavor {new['metadata']['name']}: {' and '.join(changed)} would change. Kueue would refuse the update, "
            "because it has a topology. Give the flavor a new name, also in the cluster queues."
        )


# An Autopilot cluster may have to create a node for the new pods first.
PATIENCE_SECONDS = 600.0
PAUSE_SECONDS = 1.0


def wait_for_rollout(
    name: str, namespace: str, deployment: str, kubeconfig: pulumi.Input[str]
) -> pulumi.ResourceHookBinding:
    """The hook with which an update waits until the Deployment has rolled out.

    Helm returns earlier, and the old pods still answer webhooks with their old configuration. An update that is killed
    while it waits does not wait again at the next one. `name` is unique in the program.
    """

    async def wait(_: pulumi.ResourceHookArgs) -> None:
        known = await pulumi.Output.from_input(kubeconfig).future()
        if not known:
            return

        async def check() -> str | None:
            return None if await in_thread(rolled_out, known, namespace, deployment) else "not rolled out"

        if await poll_until(check, PATIENCE_SECONDS, Pauses(PAUSE_SECONDS)):
            raise pulumi.RunError(
                f"{deployment} has not rolled out after {PATIENCE_SECONDS / 60:.0f} minutes. Resources that depend on "
                f"it were not created. Look at `kubectl -n {namespace} get pods` and their logs, then run up again."
            )

    return pulumi.ResourceHookBinding(after_update=[pulumi.ResourceHook(f"{name}: taken over", wait)])


def rolled_out(kubeconfig: str, namespace: str, deployment: str) -> bool:
    """Whether only new pods run. False while the cluster doesn't answer."""

    def read(api: Any) -> Any:
        from kubernetes import client

        return client.AppsV1Api(api).read_namespaced_deployment(deployment, namespace)

    try:
        live = connection(kubeconfig).call(read)
    except Exception:  # noqa: BLE001  whatever the API or the plugin says, it may be over at the next try
        return False
    status, wanted = live.status, live.spec.replicas
    seen = (status.observed_generation or 0) >= live.metadata.generation
    return bool(seen and status.updated_replicas == status.replicas == status.available_replicas == wanted)
