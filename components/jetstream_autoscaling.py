"""Autoscaling of a JetStream server by its backlog, its decoding slots or the memory of its TPUs."""

from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s

from catalog.engines import ENGINES
from catalog.metrics import METRICS, POD_NAMESPACE, PROMETHEUS, STACKDRIVER, TPU_CONTAINERS, in_bytes
from catalog.quantities import format_bytes, format_cpu, parse_quantity
from catalog.versions import POD_MONITORING_API
from components.base import Component, read
from settings.model import Autoscaler, ExistingDeployment, ScaledMetric

POD_MONITORING = "jetstream-podmonitoring"


class ScaledMetricArgs(TypedDict):
    """A metric to scale by, and its target value per replica."""

    metric: str
    """`prefillBacklog`, `slotsUsed` or `tpuMemory`."""
    target: str
    """Number of requests, fraction, or bytes (TPU memory through Stackdriver), as a Kubernetes quantity."""


class ScaledDeploymentArgs(TypedDict):
    """The Deployment to scale."""

    name: str
    app: str
    """Value of the pods' label `app`."""
    namespace: NotRequired[str]
    metrics_port: NotRequired[str]
    """Name of the container port with the server's metrics."""


class JetStreamAutoscalingArgs(TypedDict):
    """Arguments of a `JetStreamAutoscaling`."""

    name: str
    """Name of the HorizontalPodAutoscaler."""
    deployment: ScaledDeploymentArgs
    cluster: str
    """Name of the cluster, which selects the metrics."""
    adapter: str
    """Metrics adapter of the cluster: `stackdriver` or `prometheus`."""
    max_replicas: int
    metrics: list[ScaledMetricArgs]
    """Metrics to scale by. The one that needs the most replicas decides."""
    server: NotRequired[str]
    """Not used by the component, which reads `deployment`."""
    min_replicas: NotRequired[int]
    scrape_interval_seconds: NotRequired[int]
    """Seconds between scrapes of the server's metrics."""
    scale_out_window_seconds: NotRequired[int]
    scale_in_window_seconds: NotRequired[int]
    tpu_container: NotRequired[str]
    """Container whose TPU memory counts. Default: any of `tpu_containers`."""
    tpu_containers: NotRequired[list[str]]
    """Containers of which one has the chips. Default: the containers of a JetStream pod."""
    monitored: NotRequired[bool]
    """The server already has a PodMonitoring, so the component creates none."""


class JetStreamAutoscaling(Component):
    """A HorizontalPodAutoscaler for a JetStream server, and a PodMonitoring that collects the server's metrics.

    Needs a `MetricsAdapter` with the same `adapter`, which collects the TPUs' metrics. How a target is compared:

    - Stackdriver, server metrics: `Pods` with `AverageValue`; replicas = ceil(pods × average over pods ÷ target).
    - Stackdriver, TPU memory: `External` with `AverageValue`; the adapter returns one value per chip,
      and replicas = ceil(sum ÷ target): the target is in bytes, for all chips of a replica.
    - Prometheus: `External` with `Value`; the query already averages, and replicas = ceil(ready pods × average ÷
      target). `AverageValue` would divide the average by the target alone: a fraction of 1 and a target of 0.8 would
      give at most ceil(1 ÷ 0.8) = 2 replicas, however many are full.

    Nothing changes within a tolerance of 10 %. If a metric can't be read, the server does not scale in; other metrics
    can still scale it out.

    Refused: arguments that `settings.model.Autoscaler` refuses.

    Sources: https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/hpa,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed
    """

    autoscaler_name: pulumi.Output[str]

    def __init__(self, name: str, args: JetStreamAutoscalingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spec = read(Autoscaler, name, args)
        target = read(ExistingDeployment, name, args["deployment"])
        containers = [spec.tpu_container] if spec.tpu_container else args.get("tpu_containers", [*TPU_CONTAINERS])
        inside = pulumi.ResourceOptions(parent=self)

        if any(METRICS[scaled.metric].of_server for scaled in spec.metrics) and not args.get("monitored"):
            k8s.apiextensions.CustomResource(
                f"{target.namespace}/{POD_MONITORING}",
                api_version=POD_MONITORING_API,
                kind="PodMonitoring",
                metadata={"name": POD_MONITORING, "namespace": target.namespace},
                spec={
                    "selector": {"matchLabels": {"app": target.app}},
                    "endpoints": [
                        {
                            "port": target.metrics_port,  # by name, so the metrics carry the container's name
                            "path": ENGINES["jetstream"].metrics_path,
                            "interval": f"{spec.scrape_interval_seconds}s",
                        }
                    ],
                    "targetLabels": {"metadata": ["pod", "container", "node"]},
                },
                opts=inside,
            )
        resource = k8s.autoscaling.v2.HorizontalPodAutoscaler(
            f"{target.namespace}/{spec.name}",
            metadata={"name": spec.name, "namespace": target.namespace},
            spec={
                "scale_target_ref": {"api_version": "apps/v1", "kind": "Deployment", "name": target.name},
                "min_replicas": spec.min_replicas,
                "max_replicas": spec.max_replicas,
                "metrics": [
                    metric(scaled, spec, args["cluster"], target.namespace, containers) for scaled in spec.metrics
                ],
                "behavior": {
                    "scale_up": {"stabilization_window_seconds": spec.scale_out_window_seconds},
                    "scale_down": {"stabilization_window_seconds": spec.scale_in_window_seconds},
                },
            },
            opts=inside,
        )
        self.autoscaler_name = resource.metadata.name.apply(lambda name: name or spec.name)
        self.register_outputs({"autoscalerName": self.autoscaler_name})


def metric(scaled: ScaledMetric, spec: Autoscaler, cluster: str, namespace: str, containers: list[str]) -> Any:
    """One metric of the autoscaler, as its adapter names and selects it. `containers` may have the TPUs."""
    known = METRICS[scaled.metric]
    identifier: dict[str, Any] = {"name": known.name(spec.adapter)}
    amount = parse_quantity(scaled.target)
    # As the API returns it.
    written = format_bytes(amount) if in_bytes(scaled.metric, spec.adapter) else format_cpu(amount)
    if known.of_server and spec.adapter == STACKDRIVER:
        return {"type": "Pods", "pods": {"metric": identifier, "target": average(written)}}
    if not known.of_server:
        identifier["selector"] = tpu_selector(spec.adapter, cluster, namespace, containers)
    target = {"type": "Value", "value": written} if spec.adapter == PROMETHEUS else average(written)
    return {"type": "External", "external": {"metric": identifier, "target": target}}


def tpu_selector(adapter: str, cluster: str, namespace: str, containers: list[str]) -> dict[str, Any]:
    """Selector of TPU metrics. Prometheus-adapter adds cluster and namespace itself; Stackdriver's does not."""
    prefix = "metric.labels." if adapter == STACKDRIVER else ""
    labels = {}
    if adapter == STACKDRIVER:
        labels = {"resource.labels.cluster": cluster, f"{prefix}{POD_NAMESPACE}": namespace}
    # Stackdriver's adapter builds a wrong filter from a list with one entry.
    if len(containers) == 1:
        return {"match_labels": {**labels, f"{prefix}container": containers[0]}}
    several = [{"key": f"{prefix}container", "operator": "In", "values": containers}]
    return {**({"match_labels": labels} if labels else {}), "match_expressions": several}


def average(written: str) -> dict[str, str]:
    """A target per replica."""
    return {"type": "AverageValue", "average_value": written}
