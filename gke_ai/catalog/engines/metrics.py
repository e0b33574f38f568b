"""Metrics that scale a server: their names in each adapter, their ranges, and the arithmetic of the HPA.

For every metric but one, the HorizontalPodAutoscaler compares the average over the replicas with the target:
replicas = ceil(ready replicas × average ÷ target). Nothing changes while average ÷ target is within 10 % of 1. The
exception is TPU memory through Stackdriver: a sum of time series, one per chip, compared with a target per replica. For
it, the same formula holds with the sum over a replica's chips.

Sources: https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details,
https://cloud.google.com/kubernetes-engine/docs/best-practices/machine-learning/inference/autoscaling-tpu (metrics),
https://cloud.google.com/kubernetes-engine/docs/tutorials/serve-vllm-tpu (names of vLLM through Stackdriver's adapter),
https://cloud.google.com/stackdriver/docs/managed-prometheus/hpa (names through each adapter)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from gke_ai.catalog.engines.engine import ENGINES

STACKDRIVER, PROMETHEUS = "stackdriver", "prometheus"
TPU_MEMORY = "tpuMemory"
# What wakes a server without replicas: requests at its endpoint picker, held and running. And whether it is one of its
# warm hours, in minutes of the week (UTC) from Sunday, as the labels `begin` and `end` of an autoscaler say.
DEMAND, WARM = "gke_ai_requests", "gke_ai_warm_hours"
# End of the name of an engine's metric that is 0 without series. An autoscaler with an unknown metric never scales in,
# so a server whose start fails would never sleep again.
OR_ZERO = "_or_zero"
# A series that a picker always has; those of requests begin with the first one.
PICKER_SERIES = "inference_pool_ready_pods"
# Metrics that count requests, with the state of those requests.
WHOLE_REQUESTS = {"prefillBacklog": "waiting", "queuedRequests": "waiting", "runningRequests": "running"}
# Label of the device plugin's metrics for the namespace of the pod with the chips; `namespace` is that of the plugin.
POD_NAMESPACE = "exported_namespace"

# Containers of a JetStream pod. The first requests the chips; the source document selects their memory by the second.
TPU_CONTAINERS = ("maxengine-server", "jetstream-http")

# The HPA ignores ratios this close to 1. The default of Kubernetes, also on GKE.
TOLERANCE = Fraction(1, 10)
# Minimum interval at which managed collection scrapes system metrics: https://cloud.google.com/stackdriver/docs/managed-prometheus
SYSTEM_SCRAPE_SECONDS = 15
# Minimum share of TPU memory that a loaded model uses: an assumption, and a low one.
MIN_MEMORY = Fraction(1, 100)


@dataclass(frozen=True)
class Metric:
    """A metric of an engine: its name in an autoscaler of this program, and its series in Prometheus."""

    key: str
    series: str

    @property
    def of_server(self) -> bool:
        """Whether the server itself has the metric. The TPU device plugin has that of the TPU memory."""
        return self.key != TPU_MEMORY

    @property
    def average(self) -> str:
        """Name of its average in prometheus-adapter."""
        if self.key == TPU_MEMORY:
            return "memory_used_percentage"
        # A name without colons, as vLLM's own rules for the adapter have it:
        # https://github.com/vllm-project/production-stack/blob/main/observability/prom-adapter.yaml
        return self.series.replace(":", "_")

    def name(self, adapter: str) -> str:
        """Returns the name of the metric in an autoscaler."""
        return self.average if adapter == PROMETHEUS else f"prometheus.googleapis.com|{self.series}|gauge"


def metrics_of(engine: str) -> Mapping[str, Metric]:
    """Returns the metrics by which an engine's servers can be scaled, by name."""
    return {key: Metric(key, series) for key, series in ENGINES[engine].series.items()}


def query(metric: str, cluster: str) -> str:
    """Returns the query of prometheus-adapter. The adapter replaces LabelMatchers by the namespace and selector of the
    autoscaler, and Series by the series."""

    def average(series: str) -> str:
        return f'avg({series}{{<<.LabelMatchers>>,cluster="{cluster}"}})'

    if metric == TPU_MEMORY:
        return f"{average('memory_used')} / {average('memory_total')}"
    return average("<<.Series>>")


def or_zero(metric: Metric, cluster: str) -> str:
    """Returns the query of an engine's metric that is 0 without series."""
    return query(metric.key, cluster).replace("<<.Series>>", metric.series) + " or vector(0)"


def demand_query(cluster: str) -> str:
    """Returns the query of `DEMAND`, which is 0 where no request ever was."""

    def total(series: str) -> str:
        return f'(sum({series}{{<<.LabelMatchers>>,cluster="{cluster}"}}) or vector(0))'

    return f"{total('inference_extension_flow_control_queue_size')} + {total('inference_objective_running_requests')}"


def warm_query() -> str:
    """Returns the query of `WARM`: 1 within the hours, else 0."""
    now = "(1440 * day_of_week() + 60 * hour() + minute())"
    begin, end = (f'<<index .LabelValuesByName "{label}">>' for label in ("begin", "end"))
    return f"({now} >= bool {begin}) * ({now} < bool {end})"


def in_bytes(metric: str, adapter: str) -> bool:
    """Whether a target is in bytes. TPU memory through Prometheus is a fraction of the total."""
    return metric == TPU_MEMORY and adapter == STACKDRIVER


@dataclass(frozen=True)
class Range:
    """Minimum value of a busy replica, and maximum value of a replica; None if unknown."""

    min: Fraction | None
    max: Fraction | None


def range_of(metric: str, adapter: str, slots: int | None, memory: int | None, waiting: int | None = None) -> Range:
    """Returns the range of a metric on one replica.

    Args:
        slots: Requests that the replica runs at once, if known: the decoding slots of JetStream.
        memory: Bytes of TPU memory, if known.
        waiting: Requests that can wait at once, if limited.
    """
    if metric in WHOLE_REQUESTS:
        limit = slots if metric == "runningRequests" else waiting
        return Range(Fraction(1), Fraction(limit) if limit else None)
    if metric == "slotsUsed":
        return Range(Fraction(1, slots) if slots else None, Fraction(1))
    if metric == "kvCacheUsage":
        return Range(None, Fraction(1))  # the share of one request depends on its length
    if not in_bytes(metric, adapter):
        return Range(MIN_MEMORY, Fraction(1))
    return Range(MIN_MEMORY * memory, Fraction(memory)) if memory else Range(None, None)


def replicas(now: int, value: Fraction, target: Fraction) -> int:
    """Returns the replicas that the HPA sets when each of `now` replicas has `value`."""
    ratio = value / target
    return now if abs(ratio - 1) <= TOLERANCE else ceil(now * ratio)
