"""The metrics adapter, which serves metrics of Cloud Monitoring to the HorizontalPodAutoscaler."""

from collections.abc import Sequence
from typing import Literal

import pulumi

from gke_ai.catalog.engines.metrics import STACKDRIVER, SYSTEM_SCRAPE_SECONDS
from gke_ai.catalog.versions import POD_MONITORING_API
from gke_ai.components.arguments import Input, takes
from gke_ai.components.base import Component, custom_resource
from gke_ai.components.cluster.cluster import GkeCluster
from gke_ai.components.cluster.connection import OfCluster, project_in
from gke_ai.components.serving.adapter_parts import AdapterParts
from gke_ai.components.serving.prometheus_adapter import prometheus_adapter
from gke_ai.components.serving.stackdriver_adapter import stackdriver_adapter

EXTERNAL_METRICS = "v1beta1.external.metrics.k8s.io"


class MetricsAdapterArguments(OfCluster):
    adapter: Literal["stackdriver", "prometheus"]
    """`stackdriver` or `prometheus`."""
    project: Input[str] | None = None
    """Id of the Google Cloud project. Default: that of the cluster."""
    workload_pool: Input[str] | None = None
    """The project's workload identity pool, an output of the cluster. Grants wait for it. Default: that of a
    `GkeCluster`."""
    tpu_metrics: bool = False
    """Also collect the metrics of the TPU device plugin."""
    wakes: bool = False
    """Also serve what wakes a server without replicas. Only with `prometheus`."""
    engines: Sequence[str] = ("jetstream",)
    """Engines of the servers to scale. Only `prometheus` has rules for each metric. Default: JetStream."""


class MetricsAdapter(Component):
    """A metrics adapter that reads Cloud Monitoring, with its permissions and those of the HPA controller.

    `stackdriver` installs the Custom Metrics Stackdriver Adapter, which reads with its workload identity. `prometheus`
    installs a frontend that answers Prometheus queries from Cloud Monitoring, and prometheus-adapter with a rule for
    each metric of `engines`. The frontend reads as its own Google service account, which the component
    creates and binds. Every query selects the cluster and the namespace of the autoscaler.

    A cluster has only one adapter, because each registers the same APIs.

    Refused: RunError in a project that can't be read; by the API, a second adapter,
    which the component explains in an error.

    Sources: https://github.com/GoogleCloudPlatform/k8s-stackdriver/tree/master/custom-metrics-stackdriver-adapter,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/hpa,
    https://github.com/kubernetes-sigs/prometheus-adapter/blob/v0.12.0/docs/externalmetrics.md

    Example:
        MetricsAdapter("adapter", cluster=cluster, adapter="stackdriver")
    """

    external_api: pulumi.Output[str]
    """Name of the APIService of external metrics, known once it exists."""

    @takes(MetricsAdapterArguments)
    def __init__(self, name: str, args: MetricsAdapterArguments) -> None:
        super().__init__(name, args)
        title = f"MetricsAdapter {name}"
        self.cluster, self.kind, self.wakes = args.place(), args.adapter, args.wakes
        project, adapter = project_in(args.project, self.cluster, title), args.adapter
        pool = args.workload_pool or (self.cluster.workload_pool if isinstance(self.cluster, GkeCluster) else "")
        hooks = pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(f"{name}: explain", explain)])
        parts = AdapterParts(self, hooks, project, args.cluster_name(title), pool)

        api = (
            stackdriver_adapter(parts)
            if adapter == STACKDRIVER
            else prometheus_adapter(parts, args.engines, args.wakes)
        )
        if args.tpu_metrics:
            collect_tpu_metrics(parts)
        self.external_api = api.metadata.name.apply(lambda registered: registered or EXTERNAL_METRICS)
        self.register_outputs({"externalApi": self.external_api})


def collect_tpu_metrics(parts: AdapterParts) -> None:
    """Collect the metrics of the TPU device plugin."""
    plugin = {"k8s-app": "tpu-device-plugin"}
    custom_resource(
        parts.inside("tpu-metrics-exporter"),
        api_version=POD_MONITORING_API,
        kind="PodMonitoring",
        metadata={"name": "tpu-metrics-exporter", "namespace": "kube-system", "labels": plugin},
        spec={
            "selector": {"matchLabels": plugin},
            "endpoints": [{"port": 2112, "interval": f"{SYSTEM_SCRAPE_SECONDS}s"}],
        },
    )


def explain(args: pulumi.ErrorHookArgs) -> bool:
    """Explain an object that already exists. Never retry: it would not help."""
    latest, name = args.errors[0], args.name.rpartition("/")[2]
    if args.type.startswith("gcp:") and "lready exists" in latest:
        pulumi.log.error(
            f"The project already has a Google service account {name} that this stack did not "
            "create. Another stack of the project may scale through prometheus. Destroy that stack first, or give this "
            "stack a project of its own."
        )
    elif "already exists" in latest:
        pulumi.log.error(
            f"The cluster already has a {args.type.rpartition(':')[2]} {name} that this stack did not "
            "create. Another metrics adapter is installed, and a cluster can have only one. Find it with kubectl get "
            f"apiservice {EXTERNAL_METRICS} -o jsonpath={{.spec.service}}. Remove it, or remove `autoscaling` from "
            "this stack."
        )
    return False
