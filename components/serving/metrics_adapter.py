"""The metrics adapter, which serves metrics of Cloud Monitoring to the HorizontalPodAutoscaler."""

from collections.abc import Sequence

import pulumi

from gke_ai.catalog.engines.metrics import PROMETHEUS, STACKDRIVER, SYSTEM_SCRAPE_SECONDS
from gke_ai.catalog.versions import POD_MONITORING_API
from gke_ai.components.base import Component, custom_resource
from gke_ai.components.serving.adapter_parts import AdapterParts
from gke_ai.components.serving.prometheus_adapter import prometheus_adapter
from gke_ai.components.serving.stackdriver_adapter import stackdriver_adapter

EXTERNAL_METRICS = "v1beta1.external.metrics.k8s.io"


class MetricsAdapter(Component):
    """A metrics adapter that reads Cloud Monitoring, with its permissions and those of the HPA controller.

    `stackdriver` installs the Custom Metrics Stackdriver Adapter, which reads with its workload identity. `prometheus`
    installs a frontend that answers Prometheus queries from Cloud Monitoring, and prometheus-adapter with a rule for
    each metric of `engines`. The frontend reads as its own Google service account, which the component
    creates and binds. Every query selects the cluster and the namespace of the autoscaler.

    A cluster has only one adapter, because each registers the same APIs.

    Refused: ValueError for an unknown adapter; RunError in a project that can't be read; by the API, a second adapter,
    which the component explains in an error.

    Sources: https://github.com/GoogleCloudPlatform/k8s-stackdriver/tree/master/custom-metrics-stackdriver-adapter,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/hpa,
    https://github.com/kubernetes-sigs/prometheus-adapter/blob/v0.12.0/docs/externalmetrics.md
    """

    external_api: pulumi.Output[str]
    """Name of the APIService of external metrics, known once it exists."""

    def __init__(
        self,
        name: str,
        opts: pulumi.ResourceOptions | None = None,
        *,
        adapter: str,
        project: str,
        cluster: str,
        workload_pool: pulumi.Input[str],
        tpu_metrics: bool = False,
        engines: Sequence[str] = ("jetstream",),
    ) -> None:
        """Install the adapter.

        Args:
            adapter: `stackdriver` or `prometheus`.
            project: Id of the Google Cloud project.
            cluster: Name of the cluster, which selects the metrics.
            workload_pool: The project's workload identity pool, an output of the cluster. Grants wait for it.
            tpu_metrics: Also collect the metrics of the TPU device plugin.
            engines: Engines of the servers to scale. Only `prometheus` has rules for each metric. Default: JetStream.
        """
        super().__init__(name, opts)
        if adapter not in (STACKDRIVER, PROMETHEUS):
            raise ValueError(f"{name}: unknown adapter {adapter}. Use {STACKDRIVER} or {PROMETHEUS}")
        hooks = pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(f"{name}: explain", explain)])
        parts = AdapterParts(self, hooks, project, cluster, workload_pool)

        api = stackdriver_adapter(parts) if adapter == STACKDRIVER else prometheus_adapter(parts, engines)
        if tpu_metrics:
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
