"""Autoscaling of a JetStream server by its backlog, its decoding slots or the memory of its TPUs."""

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from catalog.engines import ENGINES
from catalog.metrics import METRICS, POD_NAMESPACE, PROMETHEUS, STACKDRIVER, TPU_CONTAINERS, in_bytes
from catalog.quantities import format_bytes, format_cpu, parse_quantity
from catalog.versions import POD_MONITORING_API
from components.base import Component
from settings.model import Autoscaler, ScaledMetric

POD_MONITORING = "jetstream-podmonitoring"


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

    Refused: ValueError for an autoscaler without `deployment`, even if it has a `server`.

    Sources: https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/hpa,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed
    """

    autoscaler_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        args: Autoscaler,
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: str,
        tpu_containers: Sequence[str] = tuple(TPU_CONTAINERS),
        monitored: bool = False,
    ) -> None:
        """Create the autoscaler.

        Args:
            cluster: Name of the cluster, which selects the metrics.
            tpu_containers: Containers of which one has the chips. Default: the containers of a JetStream pod.
            monitored: The server already has a PodMonitoring, so the component creates none.
        """
        super().__init__(name, opts)
        spec, target = args, args.deployment
        if target is None:
            raise ValueError(f"autoscaler {spec.name}: a JetStreamAutoscaling needs the deployment to scale")
        namespace, containers = target.namespace, [spec.tpu_container] if spec.tpu_container else list(tpu_containers)
        inside = pulumi.ResourceOptions(parent=self)

        if any(METRICS[scaled.metric].of_server for scaled in spec.metrics) and not monitored:
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
                "metrics": [metric(scaled, spec, cluster, namespace, containers) for scaled in spec.metrics],
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
