"""The whole program: reads the settings of the stack, composes its components, exports the outputs.

The same for every environment; what differs is the stack's configuration, and which cloud its plugins stand before.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pulumi
from pulumi import ResourceOptions

import settings
from catalog.apis import OF_CLUSTERS, SECRET_MANAGER, STORAGE
from catalog.capacity import MODES
from catalog.zones import region_of
from components import (
    ComputeClass,
    FinetuneJob,
    FlexStartTpuPool,
    GkeCluster,
    GpuNodePool,
    JetStreamAutoscaling,
    JetStreamServer,
    KueueStack,
    MetricsAdapter,
    ModelBucket,
    MultisliceJob,
    ProjectApis,
    SystemMonitoring,
    Tenant,
    TgiServer,
    TpuBatchJob,
    TpuNodePool,
    VllmServer,
    WorkloadNamespace,
    from_settings,
)
from components.base import arguments
from components.identity import project_number
from outputs.export import ComponentOutputs, outputs
from settings import BadConfiguration, Problem, Settings, model_memory, plan, tenancy
from settings.model import (
    FineTune,
    GpuPool,
    GpuWorkload,
    Multislice,
    TpuBatch,
    TpuPool,
)

# The component of each engine.
SERVERS: dict[str, Any] = {"tgi": TgiServer, "vllm": VllmServer, "jetstream": JetStreamServer}


def main() -> None:
    """Builds the stack, or says everything that is wrong with its configuration and builds nothing."""
    google = pulumi.Config("gcp")
    project = google.get("project") or ""
    token = hugging_face_token()
    try:
        stack = settings.load(
            configuration(),
            project,
            token_given=token is not None,
            region=google.get("region") or "",
            token_problems=token_problems(),
        )
    except BadConfiguration as bad:
        raise pulumi.RunError(str(bad)) from None
    for warning in model_memory.unchecked(stack):
        pulumi.log.warn(str(warning))
    build(stack, project, token)


def configuration() -> dict[str, object]:
    """Every key of this program in the stack's configuration, without its prefix, so that a misspelled key is noticed."""
    prefix = f"{pulumi.get_project()}:"
    found = pulumi.runtime.get_config_env()
    return {key.removeprefix(prefix): parsed(text) for key, text in found.items() if key.startswith(prefix)}


def parsed(text: str) -> object:
    """A value of the configuration: Pulumi hands objects and lists over as JSON, and text as it stands."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def hugging_face_token() -> pulumi.Output[str] | None:
    """The token as a secret: `gke-ai:hfToken` of the stack, else the variable HF_TOKEN."""
    if stated := pulumi.Config().get_secret("hfToken"):
        return stated
    given = os.environ.get("HF_TOKEN", "").strip()
    return pulumi.Output.secret(given) if given else None


def token_problems() -> list[Problem]:
    """What is wrong with the token, or with where it stands."""
    key = f"{pulumi.get_project()}:hfToken"
    encrypted = pulumi.runtime.is_config_secret(key)
    return list(settings.token_problems(pulumi.Config().get("hfToken"), encrypted, os.environ.get("HF_TOKEN")))


def build(stack: Settings, project: str, token: pulumi.Output[str] | None) -> None:
    """Every component of the stack, and the edges between them that no value carries."""
    location = stack.cluster.location
    apis = ProjectApis("apis", {"project": project, "apis": plan.apis(stack)}).services if stack.enable_apis else {}

    def enabled(*names: str) -> list[pulumi.Resource]:
        return [service for name, service in apis.items() if name in names]

    in_project = from_settings.cluster_arguments(stack, project)
    cluster = GkeCluster(stack.cluster.name, in_project, ResourceOptions(depends_on=enabled(*OF_CLUSTERS)))

    buckets = {
        bucket.name: ModelBucket(
            bucket.name,
            arguments(
                bucket,
                project=project,
                location=bucket.location or region_of(location),
                workload_pool=cluster.workload_pool,
                grants=[grant.model_dump() for grant in tenancy.grants(bucket, stack)],
            ),
            ResourceOptions(depends_on=enabled(STORAGE)),
        )
        for bucket in stack.buckets
    }
    pools = {
        pool.name: pool_component(pool)(
            pool.name,
            from_settings.pool_arguments(
                pool,
                stack,
                project,
                cluster.cluster_name,
                cluster.node_service_account,
                cluster.kubeconfig,
                cluster.node_zones,
            ),
            # Of an existing cluster nothing else says that the account has its roles.
            ResourceOptions(depends_on=[cluster.node_account] if cluster.node_account else []),
        )
        for pool in plan.pools(stack)
    }

    def in_cluster(*after: pulumi.Resource) -> ResourceOptions:
        return ResourceOptions(providers={"kubernetes": cluster.provider}, depends_on=list(after))

    classes = {
        one.name: ComputeClass(
            one.name, from_settings.class_arguments(one, stack, cluster.node_service_account), in_cluster()
        )
        for one in stack.compute_classes
    }

    # The managers of Kueue and JobSet run on the system pool, which comes with the cluster.
    needed = stack.queues or plan.multislices(stack)
    queues = from_settings.queue_arguments(stack, cluster.kubeconfig)
    kueue = [KueueStack("kueue", queues, in_cluster(cluster))] if needed else []

    hf_token = from_settings.token_arguments(stack, project, token, cluster.workload_pool)
    # A namespace is deleted before Kueue, which lets go of what runs in it, and before the buckets that it writes to.
    namespaces = {
        name: WorkloadNamespace(
            name,
            from_settings.namespace_arguments(name, stack, hf_token),
            in_cluster(
                *kueue,
                *enabled(SECRET_MANAGER),
                *(
                    buckets[one.name]
                    for one in stack.buckets
                    if any(grant.namespace == name for grant in tenancy.grants(one, stack))
                ),
            ),
        )
        for name in plan.namespaces(stack)
    }
    tenants = {
        one.name: Tenant(one.name, from_settings.tenant_arguments(one, stack), in_cluster(namespaces[one.name]))
        for one in stack.tenants
    }

    def after(workload: settings.model.Workload) -> list[pulumi.Resource]:
        # A pool drains what still runs on it, for up to an hour; so it is deleted after its workloads.
        nodes: list[pulumi.Resource] = [pools[pool.name] for pool in plan.pools_of(workload, stack)]
        if isinstance(workload, GpuWorkload) and workload.compute_class is not None:
            nodes.append(classes[workload.compute_class])
        bounds = [tenants[workload.namespace]] if workload.namespace in tenants else []
        return [namespaces[workload.namespace], *bounds, *nodes]

    servers = [
        SERVERS[server.engine](
            f"{server.namespace}/{server.name}",
            from_settings.server_arguments(server, stack, cluster.kubeconfig),
            in_cluster(*after(server)),
        )
        for server in stack.serving
    ]
    if stack.autoscaling:
        # Deleted before any namespace: while an API of the adapter is not answered, no namespace goes.
        adapter = MetricsAdapter(
            "metrics-adapter",
            from_settings.adapter_arguments(stack, project, cluster.workload_pool),
            in_cluster(cluster, *namespaces.values()),
        )
        for autoscaler in stack.autoscaling:
            own = [
                made for server, made in zip(stack.serving, servers, strict=True) if server.name == autoscaler.server
            ]
            JetStreamAutoscaling(
                autoscaler.name, from_settings.autoscaler_arguments(autoscaler, stack), in_cluster(adapter, *own)
            )

    monitoring = None
    if stack.monitoring is not None:
        # Made after what it watches, and deleted before it: neither a beginning nor an end is an alarm.
        monitoring = SystemMonitoring(
            "monitoring", from_settings.monitoring_arguments(stack, project), in_cluster(cluster, *kueue, *servers)
        )

    runs = [*stack.training, *stack.batch]
    jobs: list[Any] = []
    latest: dict[object, pulumi.Resource] = {}
    for run in runs:
        # After the one before it in its queue, or of its kind: the list's order is the order of creation.
        queue = plan.cluster_queue_of(run, stack)
        line = queue.name if queue else type(run)
        before = [*after(run), *([latest[line]] if line in latest else [])]
        made = run_component(run)
        latest[line] = made(
            f"{run.namespace}/{run.name}",
            from_settings.run_arguments(run, stack, cluster.kubeconfig),
            in_cluster(*before),
        )
        jobs.append(latest[line])

    granted = any(tenancy.grants(bucket, stack) for bucket in stack.buckets)
    component_outputs = ComponentOutputs(
        cluster_name=cluster.cluster_name,
        cluster_location=cluster.location,
        cluster_endpoint=cluster.endpoint,
        kubeconfig=cluster.kubeconfig,
        workload_pool=cluster.workload_pool,
        node_service_account=cluster.node_service_account,
        project_number=project_number(project, "The identities among the outputs need", cluster) if granted else None,
        namespaces=[namespace.namespace_name for namespace in namespaces.values()],
        server_urls=[server.url for server in servers],
        job_names=[job.job_name for job in jobs],
        buckets=[(bucket.bucket_name, bucket.url) for bucket in buckets.values()],
        dashboards=monitoring.dashboard_ids if monitoring else [],
    )
    for name, value in outputs(stack, project, component_outputs).items():
        pulumi.export(name, value)


def pool_component(pool: GpuPool | TpuPool) -> Any:
    """The component of a pool: by its accelerator and, of TPUs, by how capacity is had."""
    if isinstance(pool, GpuPool):
        return GpuNodePool
    return FlexStartTpuPool if MODES[pool.capacity.mode].elastic else TpuNodePool


def run_component(run: FineTune | Multislice | TpuBatch) -> Any:
    """The component that makes the run."""
    return {FineTune: FinetuneJob, Multislice: MultisliceJob, TpuBatch: TpuBatchJob}[type(run)]


main()
