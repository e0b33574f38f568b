"""Autoscaling of a model server by the metrics of its engine."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.catalog.engines import metrics
from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.quantities import format_bytes, format_cpu, parse_quantity
from gke_ai.catalog.versions import POD_MONITORING_API
from gke_ai.components.base import Component, custom_object
from gke_ai.settings.model import Autoscaler, ExistingDeployment, ScaledMetric

# Name of the PodMonitoring in JetStream's source document.
JETSTREAM, JETSTREAM_MONITORING = "jetstream", "jetstream-podmonitoring"


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

    Nothing changes within a tolerance of 10 %. If a metric can't be read, the server does not scale in; other metrics
    can still scale it out. Replicas that wait for quota in a queue, or for a node, are no failure: they have no metrics
    yet, do not count in the average, and start once they get what they wait for.

    Refused: ValueError for an autoscaler without `deployment`, even if it has a `server`, for an unknown engine and for
    a metric that the engine does not have.

    Sources: https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/hpa,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed,
    https://cloud.google.com/kubernetes-engine/docs/tutorials/serve-vllm-tpu
    """

    autoscaler_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        args: Autoscaler,
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: str,
        tpu_containers: Sequence[str] = tuple(metrics.TPU_CONTAINERS),
        monitored: bool = False,
    ) -> None:
        """Create the autoscaler.

        Args:
            cluster: Name of the cluster, which selects the metrics.
            tpu_containers: Containers of which one has the chips. Default: the containers of a JetStream pod.
            monitored: The server already has a PodMonitoring with its name, so the component creates none.
        """
        # Stacks until 0.4 have every autoscaler under the former name.
        former = pulumi.ResourceOptions(aliases=[pulumi.Alias(type_="gke-ai:index:JetStreamAutoscaling")])
        super().__init__(
            name, opts if isinstance(self, JetStreamAutoscaling) else pulumi.ResourceOptions.merge(opts, former)
        )
        spec, target = args, args.deployment
        if target is None:
            raise ValueError(f"autoscaler {spec.name}: a {type(self).__name__} needs the deployment to scale")
        known = engine_metrics(spec, target)
        containers = [spec.tpu_container] if spec.tpu_container else list(tpu_containers)
        # The source document selects JetStream's metrics by namespace alone.
        job = None if target.engine == JETSTREAM else target.name if monitored else monitoring_name(target)
        place = (spec.adapter, cluster, target.namespace, containers, job)

        if any(known[scaled.metric].of_server for scaled in spec.metrics) and not monitored:
            collect_metrics(spec, target, pulumi.ResourceOptions(parent=self))
        resource = k8s.autoscaling.v2.HorizontalPodAutoscaler(
            *self.main_child(f"{target.namespace}/{spec.name}"),
            metadata={"name": spec.name, "namespace": target.namespace},
            spec={
                "scale_target_ref": {"api_version": "apps/v1", "kind": "Deployment", "name": target.name},
                "min_replicas": spec.min_replicas,
                "max_replicas": spec.max_replicas,
                "metrics": [metric(known[scaled.metric], scaled, *place) for scaled in spec.metrics],
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


class JetStreamAutoscaling(ServerAutoscaling):
    """A `ServerAutoscaling` under its former name. Use `ServerAutoscaling` in new programs."""


def engine_metrics(spec: Autoscaler, target: ExistingDeployment) -> Mapping[str, metrics.Metric]:
    """Metrics of the target's engine, by name. Raises ValueError if it lacks one of the autoscaler."""
    if target.engine not in ENGINES:
        raise ValueError(f"autoscaler {spec.name}: unknown engine {target.engine}")
    known = metrics.metrics_of(target.engine)
    for scaled in spec.metrics:
        if scaled.metric not in known:
            raise ValueError(f"autoscaler {spec.name}: {target.engine} has no metric {scaled.metric}")
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
) -> Any:
    """One metric of the autoscaler, as its adapter names and selects it.

    `containers` may have the TPUs. `job` is the PodMonitoring that selects the server's metrics. Default: all metrics
    of the namespace.
    """
    identifier: dict[str, Any] = {"name": described.name(adapter)}
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
