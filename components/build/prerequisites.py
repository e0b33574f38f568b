"""The components that must exist before a workload, and that are deleted after it."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components import ComputeClass, ModelDownload, Tenant, WorkloadNamespace
from components.base import Component
from settings import Settings, model, plan


@dataclass(frozen=True)
class Prerequisites:
    """The components that workloads wait for, by name."""

    stack: Settings
    pools: dict[str, Component]
    classes: dict[str, ComputeClass]
    namespaces: dict[str, WorkloadNamespace]
    tenants: dict[str, Tenant]
    downloads: dict[plan.Download, ModelDownload]

    def of(self, workload: model.Workload) -> list[pulumi.Input[pulumi.Resource]]:
        """What a workload waits for: its namespace, its tenant, its nodes and its model."""
        # A deleted pool drains its pods for up to an hour, so Pulumi deletes it after its workloads.
        nodes: list[pulumi.Input[pulumi.Resource]] = [
            self.pools[pool.name] for pool in plan.pools_of(workload, self.stack)
        ]
        if workload.named_class is not None:
            nodes.append(self.classes[workload.named_class])
        tenants = [self.tenants[workload.namespace]] if workload.namespace in self.tenants else []
        download = plan.download_of(workload, self.stack) if isinstance(workload, model.Server) else None
        models = [self.downloads[download].complete] if download else []
        return [self.namespaces[workload.namespace], *tenants, *nodes, *models]
