"""Autoscaling of a model server by the metrics of its engine."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.catalog.engines import metrics
from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.quantities import format_bytes, format_cpu, parse_quantity
from gke_ai.catalog.versions import POD_MONITORING_API
from gke_ai.components.arguments import Refused, takes
from gke_ai.components.base import Component, custom_object
from gke_ai.components.cluster.connection import OfCluster
from gke_ai.components.serving.metrics_adapter import MetricsAdapter
from gke_ai.components.serving.server import ModelServer
from gke_ai.components.support.alone import check_alone
from gke_ai.settings.model import Autoscaler, ExistingDeployment, ScaledMetric
from gke_ai.settings.model.base import DnsLabel
from gke_ai.settings.problems import Problem, nearest
from gke_ai.settings.resolved.autoscaling import ScaledServer
from gke_ai.settings.resolved.gateway import picker_name

# Name of the PodMonitoring in JetStream's source document.
JETSTREAM, JETSTREAM_MONITORING = "jetstream", "jetstream-podmonitoring"


class ServerAutoscalingArguments(OfCluster, Autoscaler):
    name: DnsLabel = ""
    """Name of the HorizontalPodAutoscaler. Default: the component's name."""
    server: ModelServer[Any] | str | None = None  # type: ignore[assignment]
    """Server to scale, created with `autoscaled`."""
    deployment: ExistingDeployment | str | None = None  # type: ignore[assignment]
    """Deployment to scale that exists already, instead of `server`. A name means one of JetStream in the namespace
    `default`, whose pods have the name as their label `app`."""
    adapter: MetricsAdapter | Literal["stackdriver", "prometheus"] | None = None  # type: ignore[assignment]
    """Metrics adapter that the HorizontalPodAutoscaler reads from, or the kind of one that the cluster has. Default: a
    `MetricsAdapter` of kind `stackdriver` for the whole cluster, which the first autoscaler in it creates."""
    tpu_containers: Sequence[str] | None = None
    """Containers of which one has the chips. Default: that of `server`, else those of a JetStream pod."""
    monitored: bool = False
    """The server already has a PodMonitoring with its name, so the component creates none."""

    def scaled(self, component: str) -> ScaledServer:
        """What is scaled. Raises Refused if the arguments do not say it."""
        spec = self.section(Autoscaler)
        if isinstance(spec.deployment, str):
            existing = ExistingDeployment(name=spec.deployment, app=spec.deployment)
            spec = spec.model_copy(update={"deployment": existing})
        server = self.server if isinstance(self.server, ModelServer) else None
        if server is not None and not server.autoscaled:
            cause = f"{server.called} is not created for an autoscaler. Each update would reset its replicas"
            raise Refused(component, Problem("server", cause, "Pass autoscaled=True to it"))
        found = ScaledServer(spec, server.placed if server else None)
        if found.target is None:
            cause = "is missing, and nothing else says what to scale"
            raise Refused(component, Problem("server", cause, "Pass a server of this program, or deployment=…"))
        return found


class ServerAutoscaling(Component):
    """A HorizontalPodAutoscaler for a model server, and a PodMonitoring that collects the server's metrics.

    Needs a `MetricsAdapter` with the same `adapter`, which has the server's engine in `engines` and collects the TPUs'
    metrics. How a target is compared:

    - Stackdriver, server metrics: `Pods` with `AverageValue`; replicas = ceil(pods × average over pods ÷ target).
    - Stackdriver, TPU memory: `External` with `AverageValue`; the adapter returns one value per chip,
      and replicas = ceil(sum ÷ target): the target is in bytes, for all chips of a replica.
    - Prometheus: `External` with `Value`; the query already averages, and replicas = ceil(ready pods × average ÷
      target). `AverageValue` would divide the average by the target alone: a fraction of 1 and a target of 0.8 would
      give at most ceil(1 ÷ 0.8) = 2 replicas, however many are full.

    With `min_replicas=0` the server has no replica while its endpoint picker has no request, held or running, and it is
    none of the warm hours. It needs a server with `held` behind an `InferenceGateway`, the adapter `prometheus` with
    `wakes`, and GKE 1.37. The window for scaling in covers the start, so a replica that loads is not deleted.

    Nothing changes within a tolerance of 10 %. If a metric can't be read, the server does not scale in; other metrics
    can still scale it out. Replicas that wait for quota in a queue, or for a node, are no failure: they have no metrics
    yet, do not count in the average, and start once they get what they wait for.

    Refused: an autoscaler without a `server` or `deployment`, an unknown engine, a metric that the engine does not
    have, and `min_replicas=0` where nothing would hold a request or wake the server.

    Sources: https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/hpa,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed,
    https://cloud.google.com/kubernetes-engine/docs/tutorials/serve-vllm-tpu

    Example:
        ServerAutoscaling(
            "gemma-scaler", server=scaled, max_replicas=4, metrics=[ScaledMetric(metric="queuedRequests", target="5")]
        )
    """

    autoscaler_name: pulumi.Output[str]

    @takes(ServerAutoscalingArguments)
    def __init__(self, name: str, args: ServerAutoscalingArguments) -> None:
        # Stacks until 0.4 have every autoscaler under the former name.
        former = [] if isinstance(self, JetStreamAutoscaling) else ["gke-ai:index:JetStreamAutoscaling"]
        aliases = [pulumi.Alias(type_=other) for other in former]
        super().__init__(name, args, pulumi.ResourceOptions(aliases=aliases))
        title = f"{type(self).__name__} {name}"
        self.cluster, scaled = args.place(), args.scaled(title)
        spec, target, cluster = scaled.section, scaled.target, args.cluster_name(title)
        if not args.is_checked:
            section = self.cluster.section if self.cluster else None
            check_alone(title, spec, section, [scaled.server.section] if scaled.server else [])
        assert target is not None
        server = args.server.server if isinstance(args.server, ModelServer) else None
        monitored = args.monitored or (server is not None and server.pod_monitoring)
        kind, before = self._adapter(args.adapter)
        if spec.sleeps:
            check_waking(args, kind, title)
        known = engine_metrics(spec, target, title)
        containers = [spec.tpu_container] if spec.tpu_container else list(args.tpu_containers or scaled.tpu_containers)
        # The source document selects JetStream's metrics by namespace alone.
        job = None if target.engine == JETSTREAM else target.name if monitored else monitoring_name(target)
        place = (kind, cluster, target.namespace, containers, job)

        if any(known[scaled.metric].of_server for scaled in spec.metrics) and not monitored:
            collect_metrics(spec, target, pulumi.ResourceOptions(parent=self))
        own_metrics = [metric(known[item.metric], item, *place, or_zero=spec.sleeps) for item in spec.metrics]
        waking = waking_metrics(scaled) if spec.sleeps else []
        resource = k8s.autoscaling.v2.HorizontalPodAutoscaler(
            *self.main_child(f"{target.namespace}/{spec.name}", depends_on=before),
            metadata={"name": spec.name, "namespace": target.namespace},
            spec={
                "scale_target_ref": {"api_version": "apps/v1", "kind": "Deployment", "name": target.name},
                "min_replicas": spec.min_replicas,
                "max_replicas": spec.max_replicas,
                "metrics": [*own_metrics, *waking],
                "behavior": {
                    "scale_up": {"stabilization_window_seconds": spec.scale_out_window_seconds},
                    "scale_down": {
                        "stabilization_window_seconds": spec.scale_in_window_seconds,
                        # Without a policy, Kubernetes may delete all pods at once.
                        "policies": [{"type": "Pods", "value": spec.scale_in_pods, "period_seconds": 60}],
                    },
                },
            },
        )
        self.autoscaler_name = resource.metadata.name.apply(lambda name: name or spec.name)
        self.register_outputs({"autoscalerName": self.autoscaler_name})

    def _adapter(self, given: MetricsAdapter | str | None) -> tuple[str, list[pulumi.Resource]]:
        """The kind of the metrics adapter, and the adapter if the component creates it or shares it with another."""
        if isinstance(given, MetricsAdapter):
            return given.kind, [given]
        if given is not None or self.cluster is None:
            return given or metrics.STACKDRIVER, []
        if self.cluster.metrics_adapter is None:
            name, inside = self.child("metrics-adapter")
            self.cluster.metrics_adapter = MetricsAdapter(
                name, opts=inside, cluster=self.cluster, adapter="stackdriver", tpu_metrics=True
            )
        return metrics.STACKDRIVER, [self.cluster.metrics_adapter]


class JetStreamAutoscaling(ServerAutoscaling):
    """Scales a JetStream server by the requests that wait, the slots in use, and the memory of its TPUs.

    A `ServerAutoscaling`, for a `JetStreamServer` or for a Deployment that somebody else made. The metrics adapter
    comes with the first one in a cluster.

    Example:
        JetStreamAutoscaling(
            "maxengine",
            cluster=cluster,
            deployment="maxengine-server",
            max_replicas=4,
            metrics=[ScaledMetric(metric="prefillBacklog", target="10")],
        )
    """


def engine_metrics(spec: Autoscaler, target: ExistingDeployment, title: str) -> Mapping[str, metrics.Metric]:
    """Metrics of the target's engine, by name. Raises Refused if it lacks one of the autoscaler."""
    if target.engine not in ENGINES:
        cause = f"{target.engine} is not a known engine"
        raise Refused(title, Problem("deployment.engine", cause, nearest(target.engine, ENGINES)))
    known = metrics.metrics_of(target.engine)
    for index, scaled in enumerate(spec.metrics):
        if scaled.metric not in known:
            cause = f"{target.engine} has no metric {scaled.metric}"
            raise Refused(title, Problem(f"metrics[{index}].metric", cause, nearest(scaled.metric, known)))
    return known


def monitoring_name(target: ExistingDeployment) -> str:
    """Name of the PodMonitoring for the target's metrics."""
    return JETSTREAM_MONITORING if target.engine == JETSTREAM else f"{target.name}-autoscaling"


def collect_metrics(spec: Autoscaler, target: ExistingDeployment, opts: pulumi.ResourceOptions) -> None:
    """Collect the metrics of the server. Stackdriver's adapter finds those of a pod by their label `pod`."""
    endpoint = {
        "port": target.metrics_port,  # by name, so the metrics carry the container's name
        "path": ENGINES[target.engine].metrics_path,
        "interval": f"{spec.scrape_interval_seconds}s",
    }
    scrape = {
        "selector": {"matchLabels": {"app": target.app}},
        "endpoints": [endpoint],
        "targetLabels": {"metadata": ["pod", "container", "node"]},
    }
    name, namespace = monitoring_name(target), target.namespace
    custom_object(POD_MONITORING_API, "PodMonitoring", name, scrape, opts, namespace=namespace)


def metric(
    described: metrics.Metric,
    scaled: ScaledMetric,
    adapter: str,
    cluster: str,
    namespace: str,
    containers: list[str],
    job: str | None = None,
    or_zero: bool = False,
) -> Any:
    """One metric of the autoscaler, as its adapter names and selects it.

    `containers` may have the TPUs. `job` is the PodMonitoring that selects the server's metrics. Default: all metrics
    of the namespace. With `or_zero`, the metric is 0 while no replica has it.
    """
    identifier: dict[str, Any] = {"name": described.name(adapter) + (metrics.OR_ZERO if or_zero else "")}
    amount = parse_quantity(scaled.target)
    # As the API returns it.
    written = format_bytes(amount) if metrics.in_bytes(scaled.metric, adapter) else format_cpu(amount)
    if described.of_server and adapter == metrics.STACKDRIVER:
        return {"type": "Pods", "pods": {"metric": identifier, "target": average(written)}}
    if not described.of_server:
        identifier["selector"] = tpu_selector(adapter, cluster, namespace, containers)
    elif job is not None:
        identifier["selector"] = {"match_labels": {"job": job}}
    target = {"type": "Value", "value": written} if adapter == metrics.PROMETHEUS else average(written)
    return {"type": "External", "external": {"metric": identifier, "target": target}}


def check_waking(args: ServerAutoscalingArguments, adapter: str, title: str) -> None:
    """Raise Refused if nothing holds requests for a server without replicas, or lets the autoscaler see them."""
    if not isinstance(args.server, ModelServer) or args.server.server.held is None:
        cause = "nothing holds the request that wakes the server. Each would fail"
        raise Refused(title, Problem("minReplicas", cause, "Pass a server with held=HeldRequests()"))
    if adapter != metrics.PROMETHEUS:
        cause = f"{adapter} has no value of a metric without series. The server would never wake"
        raise Refused(title, Problem("adapter", cause, 'Pass a MetricsAdapter with adapter="prometheus", wakes=True'))
    if isinstance(args.adapter, MetricsAdapter) and not args.adapter.wakes:
        cause = "the adapter does not serve what wakes a server"
        raise Refused(title, Problem("adapter", cause, "Pass wakes=True to it"))


def waking_metrics(scaled: ScaledServer) -> list[Any]:
    """What a server without replicas wakes for: requests at its endpoint picker, and each of its warm hours."""
    assert scaled.target is not None
    assert scaled.server is not None

    def external(name: str, labels: dict[str, str], target: int) -> dict[str, Any]:
        identifier = {"name": name, "selector": {"match_labels": labels}}
        return {"type": "External", "external": {"metric": identifier, "target": average(str(target))}}

    windows = [external(metrics.WARM, {"begin": str(b), "end": str(e)}, 1) for b, e in scaled.warm_windows]
    at_once = scaled.server.requests_per_replica
    return [external(metrics.DEMAND, {"job": picker_name(scaled.target.name)}, at_once), *windows]


def tpu_selector(adapter: str, cluster: str, namespace: str, containers: list[str]) -> dict[str, Any]:
    """Selector of TPU metrics. Prometheus-adapter adds cluster and namespace itself; Stackdriver's does not."""
    prefix = "metric.labels." if adapter == metrics.STACKDRIVER else ""
    labels = {}
    if adapter == metrics.STACKDRIVER:
        labels = {"resource.labels.cluster": cluster, f"{prefix}{metrics.POD_NAMESPACE}": namespace}
    # Stackdriver's adapter builds a wrong filter from a list with one entry.
    if len(containers) == 1:
        return {"match_labels": {**labels, f"{prefix}container": containers[0]}}
    several = [{"key": f"{prefix}container", "operator": "In", "values": containers}]
    return {**({"match_labels": labels} if labels else {}), "match_expressions": several}


def average(written: str) -> dict[str, str]:
    """A target per replica."""
    return {"type": "AverageValue", "average_value": written}
