"""What a JetStream server can be scaled by: its metrics as each adapter names them, their ranges, and HPA's arithmetic.

For every metric but one the HorizontalPodAutoscaler compares the average over the replicas with the target:
replicas = ceil(ready replicas × average ÷ target), and nothing changes while average ÷ target is within 10 % of 1. The
exception, TPU memory through Stackdriver, is a sum of time series, one a chip, divided by a target for each replica;
there the same holds for the sum over a replica's chips.

Sources: https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details,
https://cloud.google.com/kubernetes-engine/docs/best-practices/machine-learning/inference/autoscaling-tpu (metrics),
https://cloud.google.com/stackdriver/docs/managed-prometheus/hpa (names through each adapter)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from types import MappingProxyType

STACKDRIVER, PROMETHEUS = "stackdriver", "prometheus"
TPU_MEMORY = "tpuMemory"
# What the device plugin's metrics call the namespace of the pod that holds the chips; `namespace` is the plugin's own.
POD_NAMESPACE = "exported_namespace"

# A JetStream pod's containers. Its chips are held by the first; the source document selects their memory by the second.
TPU_CONTAINERS = ("maxengine-server", "jetstream-http")

# A ratio within this of 1 changes nothing; Kubernetes' default, and GKE's.
TOLERANCE = Fraction(1, 10)
# Managed collection scrapes system metrics no more often: https://cloud.google.com/stackdriver/docs/managed-prometheus
SYSTEM_SCRAPE_SECONDS = 15
# A model that is loaded takes more of its TPUs' memory than this: an assumption, and a low one.
MIN_MEMORY = Fraction(1, 100)


@dataclass(frozen=True)
class Metric:
    """A metric: its series in Prometheus, and the name under which prometheus-adapter gives an average of it."""

    series: str
    average: str
    of_server: bool

    def name(self, adapter: str) -> str:
        """What an autoscaler calls it."""
        return self.average if adapter == PROMETHEUS else f"prometheus.googleapis.com|{self.series}|gauge"


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "prefillBacklog": Metric("jetstream_prefill_backlog_size", "jetstream_prefill_backlog_size", True),
        "slotsUsed": Metric("jetstream_slots_used_percentage", "jetstream_slots_used_percentage", True),
        TPU_MEMORY: Metric("memory_used", "memory_used_percentage", False),
    }
)


def query(metric: str, cluster: str) -> str:
    """What prometheus-adapter asks Prometheus; it puts the autoscaler's namespace and selector for LabelMatchers."""

    def average(series: str) -> str:
        return f'avg({series}{{<<.LabelMatchers>>,cluster="{cluster}"}})'

    if metric == TPU_MEMORY:
        return f"{average('memory_used')} / {average('memory_total')}"
    return average("<<.Series>>")


def in_bytes(metric: str, adapter: str) -> bool:
    """Whether a target is in bytes; TPU memory through Prometheus is a fraction of all there is."""
    return metric == TPU_MEMORY and adapter == STACKDRIVER


@dataclass(frozen=True)
class Range:
    """Values that one replica can have: the minimum while it is busy, and the maximum; None where unknown."""

    min: Fraction | None
    max: Fraction | None


def range_of(metric: str, adapter: str, slots: int | None, memory: int | None) -> Range:
    """The range of a metric on a server with that many decoding slots and bytes of TPU memory, so far as known."""
    if metric == "prefillBacklog":
        return Range(Fraction(1), None)  # whole requests
    if metric == "slotsUsed":
        return Range(Fraction(1, slots) if slots else None, Fraction(1))
    if not in_bytes(metric, adapter):
        return Range(MIN_MEMORY, Fraction(1))
    return Range(MIN_MEMORY * memory, Fraction(memory)) if memory else Range(None, None)


def replicas(now: int, value: Fraction, target: Fraction) -> int:
    """The replicas that HPA asks for when each of `now` has `value`."""
    ratio = value / target
    return now if abs(ratio - 1) <= TOLERANCE else ceil(now * ratio)
