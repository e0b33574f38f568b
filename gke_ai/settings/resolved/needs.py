"""What a stack needs of its project, its cluster, the Internet and monitoring as a whole."""

from __future__ import annotations

import re

from gke_ai.catalog.engines.dashboards import MonitoredServer
from gke_ai.catalog.engines.model_cache import FILL_IMAGE, HUB
from gke_ai.catalog.fabric.nvlink import DOMAIN
from gke_ai.catalog.fabric.nvlink import IMAGE as NVLINK_IMAGE
from gke_ai.catalog.kueue.configuration import FRAMEWORKS, Demand
from gke_ai.catalog.kueue.existing import Expected, Named, NamedFlavor, NamedPriority, NamedQueue
from gke_ai.catalog.kueue.ledger import NAMESPACE as LEDGER
from gke_ai.catalog.kueue.namespaces import MODEL_CACHE
from gke_ai.catalog.kueue.operators import FRAMEWORKS_OF_OPERATORS, OPERATORS, TRAINER
from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.machines.types import is_bare_metal
from gke_ai.catalog.nodes.shape import NVIDIA_GPU, node_labels
from gke_ai.catalog.project import apis as google
from gke_ai.catalog.project.cluster_features import ClusterFeatures
from gke_ai.catalog.project.registries import is_googles, registry_of
from gke_ai.settings.model import ClusterQueue, Cohort, Server, Workload
from gke_ai.settings.model.sharing import USAGE_BASED
from gke_ai.settings.resolved.queues import ResourceFlavor
from gke_ai.settings.resolved.stack import ResolvedStack
from gke_ai.settings.resolved.tenants import security_group

# Minimum time for pods to be ready, by default: a node needs minutes, a large model longer.
_PODS_READY_SECONDS = 3600


def network_policy(stack: ResolvedStack) -> str | None:
    """How the stack's cluster enforces NetworkPolicies: `dataplaneV2`, `calico`, `existing`, or not at all.

    Dataplane V2 can only be set when a cluster is created, so a cluster with its own VPC gets it. Other clusters
    may get their first tenant later and must not be replaced for it: they use Calico, which can be turned on. Autopilot
    always has Dataplane V2. An existing cluster with tenants must already enforce NetworkPolicies.
    """
    if stack.cluster.is_autopilot:
        return None
    if stack.cluster.mode == "existing":
        return "existing" if stack.settings.tenants else None
    if stack.cluster.vpc is not None:
        return "dataplaneV2"
    return "calico" if stack.settings.tenants else None


def cluster_features(stack: ResolvedStack) -> ClusterFeatures:
    """What the sections of the stack need of its cluster."""
    return ClusterFeatures(
        network_policy=network_policy(stack),
        managed_prometheus=stack.settings.monitoring is not None,
        security_group=security_group(stack.settings.tenants),
        secret_sync=stack.settings.hf_token_secret is not None,
        workload_identity=uses_workload_identity(stack),
        bucket_volumes=bool(stack.bucket_mounts or stack.downloads),
        gateway_api=stack.settings.gateway is not None,
        ray_operator=stack.queues.ray == "addon",
        rdma=has_rdma(stack),
        gpudirect=any(pool.fabric.technology for pool in stack.pools),
        bare_metal=has_bare_metal(stack),
        dns_endpoint=stack.cluster.dns_endpoint,
        scale_to_zero=any(autoscaler.sleeps for autoscaler in stack.settings.autoscaling),
    )


def apis(stack: ResolvedStack) -> list[str]:
    """Google Cloud APIs that the stack enables, in the order of `gke_ai.catalog.project.apis`."""
    gateway = stack.settings.gateway
    needed = {
        google.STORAGE: bool(stack.settings.buckets),
        google.IAM: makes_accounts(stack),
        google.SECRET_MANAGER: stack.settings.hf_token_secret is not None,
        google.NETWORK_SERVICES: gateway is not None,
        google.CERTIFICATE_MANAGER: gateway is not None and gateway.certificate is not None,
        google.CONTAINER_FILE_SYSTEM: any(pool.image_streaming for pool in stack.pools),
    }
    return [api for api in google.REASONS if needed.get(api, True)]


def makes_accounts(stack: ResolvedStack) -> bool:
    """Whether the stack creates Google service accounts, or grants them roles on the project."""
    account = stack.cluster.node_service_account
    granted = bool(stack.settings.autoscaling) or has_rdma(stack)
    return granted or (account is not None and "@" not in account)


def has_rdma(stack: ResolvedStack) -> bool:
    """Whether nodes of the stack have an RDMA network, which GKE's service agent creates."""
    classes = stack.settings.compute_classes
    return any(pool.fabric.nics for pool in stack.pools) or any(own.fabric.nics for own in classes)


def has_bare_metal(stack: ResolvedStack) -> bool:
    """Whether nodes of the stack are bare metal, with the needs of `gke_ai.catalog.machines.metal`."""
    return any(is_bare_metal(pool.node_machine_type) for pool in stack.pools)


def uses_workload_identity(stack: ResolvedStack) -> bool:
    """Whether the stack's pods or pools use Workload Identity Federation."""
    granted = any(bucket.grants for bucket in stack.settings.buckets) or bool(stack.downloads)
    stackdriver = any(autoscaler.adapter == "stackdriver" for autoscaler in stack.settings.autoscaling)
    return granted or stackdriver or bool(stack.pools) or stack.settings.hf_token_secret is not None


def reads_registry(stack: ResolvedStack, project: str) -> bool:
    """Whether an image of the stack is in the project's own Artifact Registry, which may not be public."""
    # https://cloud.google.com/artifact-registry/docs/docker/names
    own = re.compile(rf"([a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io)/{re.escape(project)}/.+")
    return any(own.fullmatch(image) for workload in stack.workloads for image in workload.images)


def jobset(stack: ResolvedStack) -> bool:
    """Whether the stack installs JobSet: for a run, for Trainer, or for a tenant, who may submit JobSets."""
    return stack.queues.jobset == "install" and bool(stack.jobsets or stack.settings.tenants or stack.queues.trainer)


def of_cluster(stack: ResolvedStack) -> Expected:
    """What the stack expects of its cluster to exist already."""
    queues = stack.queues
    in_jobsets = [run.name for run in stack.jobsets] + [tenant.name for tenant in stack.settings.tenants]
    in_jobsets += [TRAINER.name] if queues.trainer else []
    return Expected(
        kueue=of_kueue(stack) if queues.kueue == "existing" and stack.settings.queues else None,
        jobset=next(iter(in_jobsets), "") if queues.jobset == "existing" else "",
        operators={queues.at(key): OPERATORS[key] for key, origin in queues.operators.items() if origin == "existing"},
        tenants=bool(stack.spaces),
        namespaces=[Named(stack.cluster.at, name) for name in stack.cluster.existing_namespaces],
        flavors=[_named_flavor(stack, flavor) for flavor in stack.flavors if flavor.section.mode == "existing"],
        local_queues=[
            NamedQueue(queue.at, queue.name, queue.namespace, queue.cluster_queue)
            for queue in queues.local_queues
            if queue.mode == "existing"
        ],
        priority_classes=[
            NamedPriority(other.at, other.name, other.value, other.preemption, other.global_default)
            for other in queues.priority_classes
            if other.mode == "existing"
        ],
    )


def _named_flavor(stack: ResolvedStack, flavor: ResourceFlavor) -> NamedFlavor:
    """A flavor of the cluster, with the nodes of this stack that it must select."""
    nodes = {pool.section.name: [node_labels(pool.section.shape(zone)) for zone in pool.zones] for pool in flavor.pools}
    # GKE adds tolerations of accelerators to pods, but not to the templates of Jobs, which Kueue reads.
    has_jobs = any(run.queue is not None for run in stack.runs)
    tolerated = () if has_jobs else (NVIDIA_GPU, GOOGLE_TPU)
    section = flavor.section
    return NamedFlavor(section.at, section.name, nodes, {} if flavor.pools else flavor.labels, tolerated)


def of_kueue(stack: ResolvedStack) -> Demand:
    """What the stack needs of a Kueue that it does not install."""
    own_queues = stack.queues.cluster_queues
    sharing: list[ClusterQueue | Cohort] = [*own_queues, *stack.queues.cohorts]
    own = {queue.name for queue in own_queues}
    queued = [workload for workload in stack.workloads if workload.queue is not None]
    by_framework = {FRAMEWORKS[workload.object_kind]: workload.name for workload in reversed(queued)}
    if server := by_framework.get(FRAMEWORKS["Deployment"]):
        by_framework[FRAMEWORKS["Pod"]] = server  # Kueue gives the queue's label to the pods, and queues each of them
    by_framework |= {FRAMEWORKS_OF_OPERATORS[kind]: kind for kind in stack.queues.further_kinds}
    slowest = max((server.ready_timeout_seconds for server in stack.settings.serving if server.queue), default=0)
    # The endpoint pickers of a gateway have no queue either.
    unqueued = [server.namespace for server in stack.settings.serving if server.queue is None]
    namespaces = [workload.namespace for workload in queued]
    namespaces += [queue.namespace for queue in stack.queues.local_queues]
    others = [queue for queue in stack.queues.local_queues if queue.cluster_queue not in own]
    return Demand(
        frameworks=by_framework,
        namespaces=tuple(dict.fromkeys(namespaces)),
        unqueued=tuple(dict.fromkeys(run.namespace for run in stack.runs if run.queue is None))
        + ((MODEL_CACHE,) if stack.downloads else ())
        + ((LEDGER,) if stack.held_queues else ()),
        unqueued_servers=tuple(dict.fromkeys([*unqueued, *(server.namespace for server in stack.gateway_servers)])),
        start_seconds=None if waits_for_flex_start(stack) else slowest,
        has_tenants=bool(stack.settings.tenants),
        topology=next((flavor.section.name for flavor in stack.flavors if flavor.has_topology), ""),
        cluster_queues=tuple(dict.fromkeys((queue.namespace, queue.cluster_queue) for queue in others)),
        parents={cohort.name: cohort.parent or "" for cohort in stack.queues.cohorts},
        weights=next((item.name for item in sharing if item.fair_sharing), ""),
        by_usage=next((queue.name for queue in own_queues if queue.admission_mode == USAGE_BASED), ""),
    )


def pods_ready_timeout(stack: ResolvedStack) -> int:
    """Seconds in which the pods of any admitted workload must be ready; 0 for no limit."""
    stated = stack.settings.queues.pods_ready_timeout_seconds if stack.settings.queues else 0
    if stated is not None:
        return stated
    if waits_for_flex_start(stack):
        return 0
    queued = (server.ready_timeout_seconds for server in stack.settings.serving if server.queue)
    return max([_PODS_READY_SECONDS, *queued])


def waits_for_flex_start(stack: ResolvedStack) -> list[str]:
    """Flavors, pools and compute classes whose flex-start nodes may start days after Kueue admits their pods.

    With queued provisioning the nodes exist before Kueue admits the workload.
    """
    found = []
    for flavor in stack.flavors:
        if flavor.section.tpu is not None and flavor.section.tpu.capacity == "flexStart":
            found.append(f"flavor {flavor.section.name}")
        found += [f"pool {pool.section.name}" for pool in flavor.pools if pool.section.capacity.mode == "flexStart"]
    for workload in stack.placed:
        if workload.section.queue is None:
            continue
        found += [f"pool {pool.name}" for pool in workload.nodes.pools if pool.capacity.mode == "flexStart"]
        own_class = workload.nodes.compute_class
        if own_class and any(priority.capacity.mode == "flexStart" for priority in own_class.priorities):
            found.append(f"compute class {own_class.name}")
    return found


def token_workloads(stack: ResolvedStack) -> list[Workload]:
    """Workloads whose pods, or whose Job that fills a bucket, read the Hugging Face token."""
    return [
        workload
        for workload in stack.workloads
        if workload.token is not None or (isinstance(workload, Server) and workload.hub_token is not None)
    ]


def has_tpus(stack: ResolvedStack) -> bool:
    """Whether the stack has TPUs."""
    flavors = any(flavor.tpu is not None for flavor in stack.queues.flavors)
    return flavors or bool(stack.settings.tpu_pools or stack.tpu_workloads)


def uses_nvlink(stack: ResolvedStack) -> bool:
    """Whether pods claim channels, so that the cluster needs NVIDIA's driver for them."""
    return any(DOMAIN in names for names in stack.claims.values())


def external_hosts(stack: ResolvedStack) -> dict[str, str]:
    """Each host with the first controller, workload or download that needs it.

    Google's registries are not among them: nodes without external IP addresses reach them by Private Google Access.
    """
    controllers = ["Kueue"] if stack.settings.queues else ["JobSet"] if stack.jobsets else []
    if any(autoscaler.adapter == "prometheus" for autoscaler in stack.settings.autoscaling):
        controllers.append("metrics adapter")
    if stack.settings.gateway:
        controllers.append("endpoint picker")
    hosts = [("registry.k8s.io", controller) for controller in controllers]
    if uses_nvlink(stack):
        hosts.append((registry_of(NVLINK_IMAGE), "NVIDIA's DRA driver"))
    for workload in stack.workloads:
        hosts += [(host, workload.name) for host in map(registry_of, workload.images) if not is_googles(host)]
        if workload.token is not None:
            hosts.append((HUB, workload.name))
    if stack.held_queues:
        hosts.append((registry_of(FILL_IMAGE), "ledger"))
    for download in stack.downloads:
        hosts += [(registry_of(FILL_IMAGE), download.name), (HUB, download.name)]
    first_users: dict[str, str] = {}
    for host, user in hosts:
        first_users.setdefault(host, user)
    return first_users


def monitored_servers(stack: ResolvedStack) -> list[MonitoredServer]:
    """Deployments of servers that need a ready replica, including existing ones that the stack autoscales."""
    read = {scaled.server.section.name for scaled in stack.scaled if scaled.server and scaled.reads_server}
    asleep = {scaled.server.section.name for scaled in stack.scaled if scaled.server and scaled.section.sleeps}
    own = [
        MonitoredServer(
            server.namespace,
            server.name,
            server.engine if server.pod_monitoring or server.name in read else None,
            server.name in asleep,
        )
        for server in stack.settings.serving
        if server.replicas
    ]
    targets = [scaled.target for scaled in stack.scaled if scaled.section.deployment and scaled.target]
    return [*own, *(MonitoredServer(target.namespace, target.name, target.engine) for target in targets)]


def job_namespaces(stack: ResolvedStack) -> list[str]:
    """Namespaces with Jobs: those of the stack's runs, and those to which others submit."""
    submitted = {local_queue.namespace for local_queue in stack.queues.local_queues}
    own = {run.namespace for run in stack.runs} | {tenant.name for tenant in stack.settings.tenants}
    return [namespace for namespace in stack.namespaces if namespace in own | submitted]


def has_accelerators(stack: ResolvedStack) -> bool:
    """Whether the stack has GPUs or TPUs."""
    return bool(stack.pools or stack.settings.compute_classes or stack.workloads)
