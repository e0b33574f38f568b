"""Scales a JetStream server by what it has to do: its backlog, its slots, the memory of its TPUs."""

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
    """A metric to scale by, and the value that each replica should have."""

    metric: str
    """`prefillBacklog`, `slotsUsed` or `tpuMemory`."""
    target: str
    """Requests, a fraction, or bytes (TPU memory through Stackdriver), as a Kubernetes quantity."""


class ScaledDeploymentArgs(TypedDict):
    """The Deployment to scale."""

    name: str
    app: str
    """Value of the label `app` of its pods."""
    namespace: NotRequired[str]
    metrics_port: NotRequired[str]
    """Name of the container port with the server's metrics."""


class JetStreamAutoscalingArgs(TypedDict):
    """Arguments of a `JetStreamAutoscaling`."""

    name: str
    """Name of the HorizontalPodAutoscaler."""
    deployment: ScaledDeploymentArgs
    cluster: str
    """Name of the cluster, by which metrics are selected."""
    adapter: str
    """`stackdriver` or `prometheus`: the one that the cluster has."""
    max_replicas: int
    metrics: list[ScaledMetricArgs]
    """Of several, the one that asks for most decides."""
    server: NotRequired[str]
    """What the configuration says of it; `deployment` is what counts."""
    min_replicas: NotRequired[int]
    scrape_interval_seconds: NotRequired[int]
    """Of the server's metrics."""
    scale_out_window_seconds: NotRequired[int]
    scale_in_window_seconds: NotRequired[int]
    tpu_container: NotRequired[str]
    """Container by which TPU memory is selected; none: any of `tpu_containers`."""
    tpu_containers: NotRequired[list[str]]
    """Containers one of which holds the chips; none: those of a JetStream pod."""
    monitored: NotRequired[bool]
    """The server has a PodMonitoring of its own, so none is made."""


class JetStreamAutoscaling(Component):
    """A HorizontalPodAutoscaler of a JetStream server, and the collection of the server's metrics.

    Needs a `MetricsAdapter` of the same kind, which collects the TPUs' metrics. What a target is compared with:

    - Stackdriver, server metrics: `Pods` with `AverageValue`; replicas = ceil(pods × average over pods ÷ target).
    - Stackdriver, TPU memory: `External` with `AverageValue`; the adapter gives a value for each chip, and
      replicas = ceil(sum ÷ target): the target is in bytes, for all chips of a replica.
    - Prometheus: `External` with `Value`; the query is an average already, and replicas = ceil(ready pods × average ÷
      target). With `AverageValue` the average would be divided by the target alone: a fraction of 1 and a target of
      0.8 ask for ceil(1 ÷ 0.8) = 2 replicas at most, however many are full.

    Each within a tolerance of 10 %, in which nothing changes. A metric that can't be read never scales in; with
    several, the others can still scale out.

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

        if any(METRICS[one.metric].of_server for one in spec.metrics) and not args.get("monitored"):
            k8s.apiextensions.CustomResource(
                f"{target.namespace}/{POD_MONITORING}",
                api_version=POD_MONITORING_API,
                kind="PodMonitoring",
                metadata={"name": POD_MONITORING, "namespace": target.namespace},
                spec={
                    "selector": {"matchLabels": {"app": target.app}},
                    "endpoints": [
                        {
                            "port": target.metrics_port,  # by name: so the metrics carry the container
                            "path": ENGINES["jetstream"].metrics_path,
                            "interval": f"{spec.scrape_interval_seconds}s",
                        }
                    ],
                    "targetLabels": {"metadata": ["pod", "container", "node"]},
                },
                opts=inside,
            )
        made = k8s.autoscaling.v2.HorizontalPodAutoscaler(
            f"{target.namespace}/{spec.name}",
            metadata={"name": spec.name, "namespace": target.namespace},
            spec={
                "scale_target_ref": {"api_version": "apps/v1", "kind": "Deployment", "name": target.name},
                "min_replicas": spec.min_replicas,
                "max_replicas": spec.max_replicas,
                "metrics": [metric(one, spec, args["cluster"], target.namespace, containers) for one in spec.metrics],
                "behavior": {
                    "scale_up": {"stabilization_window_seconds": spec.scale_out_window_seconds},
                    "scale_down": {"stabilization_window_seconds": spec.scale_in_window_seconds},
                },
            },
            opts=inside,
        )
        self.autoscaler_name = made.metadata.name.apply(lambda found: found or spec.name)
        self.register_outputs({"autoscalerName": self.autoscaler_name})


def metric(one: ScaledMetric, spec: Autoscaler, cluster: str, namespace: str, containers: list[str]) -> Any:
    """An entry of the autoscaler's metrics, as its adapter names and selects it; `containers` may hold the TPUs."""
    known = METRICS[one.metric]
    named: dict[str, Any] = {"name": known.name(spec.adapter)}
    amount = parse_quantity(one.target)
    # As the API writes it back.
    written = format_bytes(amount) if in_bytes(one.metric, spec.adapter) else format_cpu(amount)
    if known.of_server and spec.adapter == STACKDRIVER:
        return {"type": "Pods", "pods": {"metric": named, "target": average(written)}}
    if not known.of_server:
        named["selector"] = tpu_selector(spec.adapter, cluster, namespace, containers)
    target = {"type": "Value", "value": written} if spec.adapter == PROMETHEUS else average(written)
    return {"type": "External", "external": {"metric": named, "target": target}}


def tpu_selector(adapter: str, cluster: str, namespace: str, containers: list[str]) -> dict[str, Any]:
    """Selects metrics of TPUs; prometheus-adapter adds cluster and namespace itself, Stackdriver's looks everywhere."""
    prefix = "metric.labels." if adapter == STACKDRIVER else ""
    labels = {}
    if adapter == STACKDRIVER:
        labels = {"resource.labels.cluster": cluster, f"{prefix}{POD_NAMESPACE}": namespace}
    # Stackdriver's adapter makes no good filter of a list of one.
    if len(containers) == 1:
        return {"match_labels": {**labels, f"{prefix}container": containers[0]}}
    several = [{"key": f"{prefix}container", "operator": "In", "values": containers}]
    return {**({"match_labels": labels} if labels else {}), "match_expressions": several}


def average(written: str) -> dict[str, str]:
    """A target for each replica."""
    return {"type": "AverageValue", "average_value": written}
