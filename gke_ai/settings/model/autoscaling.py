"""Autoscalers of servers."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gke_ai.settings.model.base import DnsLabel, Request, Section
from gke_ai.settings.model.budgets import Hours


class ScaledMetric(Section):
    """A metric to scale by, and its target per replica."""

    noun: ClassVar[str] = "a metric of an autoscaler"

    metric: Literal["queuedRequests", "runningRequests", "kvCacheUsage", "prefillBacklog", "slotsUsed", "tpuMemory"]
    """Metric to scale by. vLLM has queuedRequests, runningRequests and kvCacheUsage; TGI has queuedRequests and
    runningRequests; JetStream has prefillBacklog, slotsUsed and tpuMemory."""
    target: Request
    """Target per replica: requests (queuedRequests, runningRequests, prefillBacklog), a fraction (kvCacheUsage,
    slotsUsed, tpuMemory) or bytes (tpuMemory with stackdriver)."""


class ExistingDeployment(Section):
    """A Deployment of a model server that already exists in the cluster."""

    noun: ClassVar[str] = "an existing Deployment"

    name: DnsLabel = Field(examples=["maxengine-server"])
    """Name of the Deployment."""
    namespace: DnsLabel = "default"
    """Namespace of the Deployment."""
    app: str = Field(examples=["maxengine-server"])
    """Value of the label `app` of its pods."""
    engine: str = Field(default="jetstream", examples=["vllm"])
    """Engine of the Deployment."""
    metrics_port: str | int = "metrics"
    """Name or number of the container port with the server's metrics."""


class Autoscaler(Section):
    """A HorizontalPodAutoscaler of a model server, on its own metrics, TPU metrics or both."""

    noun: ClassVar[str] = "an autoscaler"

    name: DnsLabel
    """Name of the HorizontalPodAutoscaler."""
    server: str | None = None
    """Server of this stack that is scaled."""
    deployment: ExistingDeployment | None = None
    """Existing Deployment that is scaled, instead of `server`."""
    adapter: Literal["stackdriver", "prometheus"]
    """Metrics adapter that the HorizontalPodAutoscaler reads from."""
    min_replicas: int = Field(default=1, ge=0)
    """Minimum number of replicas. 0: the server has none while it gets no request, and the gateway holds the
    requests that wake it, by the server's `held`."""
    max_replicas: int = Field(ge=1)
    """Maximum number of replicas."""
    metrics: list[ScaledMetric] = Field(min_length=1)
    """Metrics to scale by. The metric that requests the most replicas decides."""
    scrape_interval_seconds: int = Field(default=15, ge=5, le=60)
    """Time between two scrapes of the server's metrics, in seconds."""
    scale_out_window_seconds: int = Field(default=0, ge=0, le=3600)
    """Stabilization window for scaling out, in seconds. The lowest number of replicas requested within it counts."""
    warm_hours: list[Hours] = Field(default=[], examples=[[{"days": ["mon"], "start": "07:00", "end": "19:00"}]])
    """Hours of the week, in UTC, in which a server with minReplicas: 0 keeps one replica."""
    scale_in_window_seconds: int = Field(default=300, ge=0, le=3600)
    """Stabilization window for scaling in, in seconds. The highest number of replicas requested within it counts."""
    scale_in_pods: int = Field(default=1, ge=1)
    """Maximum number of pods that a scale-in deletes per minute."""
    tpu_container: DnsLabel | None = Field(default=None, examples=["maxengine-server"])
    """Container whose TPU memory counts. Default: each container of a JetStream pod that can hold the TPU."""

    @property
    def sleeps(self) -> bool:
        """Whether the server has no replica while it gets no request."""
        return self.min_replicas == 0
