"""An autoscaler with its target, and the values that its metrics can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.engines.metrics import TPU_CONTAINERS, TPU_MEMORY, Metric, Range, metrics_of, range_of
from gke_ai.catalog.machines.tpus import VERSIONS
from gke_ai.catalog.quantities import GI
from gke_ai.settings.model import AnyServer, Autoscaler, ExistingDeployment, ScaledMetric, TpuWorkload
from gke_ai.settings.model.budgets import DAY_MINUTES, WEEK_MINUTES
from gke_ai.settings.resolved.workloads import Placed


@dataclass(frozen=True)
class ScaledServer:
    """An autoscaler, and the server of this stack that it scales; None for an existing or an unknown Deployment."""

    section: Autoscaler
    server: Placed[AnyServer] | None

    @cached_property
    def target(self) -> ExistingDeployment | None:
        """The Deployment that is scaled, of this stack or an existing one; None if the server does not exist."""
        if self.section.deployment is not None or self.server is None:
            return self.section.deployment
        server = self.server.section
        return ExistingDeployment(
            name=server.name,
            namespace=server.namespace,
            app=server.app or server.name,
            engine=server.engine,
            metrics_port=ENGINES[server.engine].metrics_port_name,
        )

    @property
    def known_metrics(self) -> Mapping[str, Metric]:
        """Metrics by which the target can be scaled, by name. Empty for an unknown server or engine."""
        return metrics_of(self.target.engine) if self.target is not None and self.target.engine in ENGINES else {}

    @property
    def reads_tpu_memory(self) -> bool:
        """Whether the autoscaler needs the metrics of the TPU device plugin."""
        return any(metric.metric == TPU_MEMORY for metric in self.section.metrics)

    @property
    def reads_server(self) -> bool:
        """Whether the autoscaler needs metrics of the server itself."""
        return any(metric.metric != TPU_MEMORY for metric in self.section.metrics)

    @property
    def tpu_containers(self) -> list[str]:
        """Containers whose TPU memory counts; a pod has one of them."""
        if self.section.tpu_container is not None:
            return [self.section.tpu_container]
        return list(dict.fromkeys([*([self.server.section.container] if self.server else []), *TPU_CONTAINERS]))

    @property
    def warm_windows(self) -> list[tuple[int, int]]:
        """The warm hours as minutes of the week from Sunday 00:00 UTC: begin, and end."""
        from_monday = {minute for hours in self.section.warm_hours for minute in hours.minutes()}
        minutes = {(minute + DAY_MINUTES) % WEEK_MINUTES for minute in from_monday}
        begins = sorted(minute for minute in minutes if minute - 1 not in minutes)
        ends = sorted(minute + 1 for minute in minutes if minute + 1 not in minutes)
        return list(zip(begins, ends, strict=True))

    def values(self, metric: ScaledMetric) -> Range:
        """Range of the metric's values on one replica."""
        slots = memory = waiting = None
        if self.server is not None:
            server = self.server.section
            waiting = server.command_line.accepted_limit
            slots = self.server.running_limit
            try:
                if isinstance(server, TpuWorkload):
                    tpu_slice = self.server.slice
                    memory = tpu_slice.chips * VERSIONS[tpu_slice.version].memory_gib * GI
            except LookupError:  # other rules report the missing slice
                pass
        return range_of(metric.metric, self.section.adapter, slots, memory, waiting)
