"""The components that must exist before a workload, and that are deleted after it."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from gke_ai.components import ComputeClass, ModelDownload, Tenant, WorkloadNamespace
from gke_ai.components.base import Component
from gke_ai.settings import model
from gke_ai.settings.resolved import Download, Placed


@dataclass(frozen=True)
class Prerequisites:
    """The components that workloads wait for, by name."""

    pools: dict[str, Component]
    classes: dict[str, ComputeClass]
    namespaces: dict[str, WorkloadNamespace]
    tenants: dict[str, Tenant]
    downloads: dict[Download, ModelDownload]

    def of(self, placed: Placed[model.Workload]) -> list[pulumi.Input[pulumi.Resource]]:
        """What a workload waits for: its namespace, its tenant, its nodes and its model."""
        # A deleted pool drains its pods for up to an hour, so Pulumi deletes it after its workloads.
        workload = placed.section
        nodes: list[pulumi.Input[pulumi.Resource]] = [self.pools[pool.name] for pool in placed.nodes.pools]
        if workload.named_class is not None:
            nodes.append(self.classes[workload.named_class])
        tenants = [self.tenants[workload.namespace]] if workload.namespace in self.tenants else []
        server = workload if isinstance(workload, model.Server) else None
        models = [filled.complete for download, filled in self.downloads.items() if server and download.serves(server)]
        return [self.namespaces[workload.namespace], *tenants, *nodes, *models]
