"""What a stack publishes to a tenant: the part of its configuration by which a run is checked and placed.

`gke-ai submit` reads it from a ConfigMap of the tenant's namespace. Listed keys only, and of cluster queues only those
that the tenant's local queues name, with the most that they may use in place of their quotas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gke_ai.catalog import documents
from gke_ai.catalog.fabric.fabrics import fabric_of
from gke_ai.catalog.quantities import format_quantities
from gke_ai.catalog.section_files import PREFIX
from gke_ai.catalog.versions import PROJECT_VERSION
from gke_ai.settings.calibration import Calibration
from gke_ai.settings.model import (
    Cluster,
    ComputeClass,
    Flavor,
    FolderGrant,
    Pool,
    PriorityClass,
    Run,
    Section,
    Tenant,
    Unresolved,
)
from gke_ai.settings.problems import Problem
from gke_ai.settings.reading import read, with_project
from gke_ai.settings.resolved import Placed, Queue, ResolvedStack, ResourceFlavor, Space
from gke_ai.settings.resolved.queues import labels_all
from gke_ai.settings.rules import check

# Keys that are published, by kind of section.
KEYS: Mapping[type[Section], frozenset[str]] = {
    Cluster: frozenset({"mode", "existing_mode", "location"}),
    Pool: frozenset(
        {
            *("name", "nodes_per_zone", "autoscaling", "capacity", "disk_size_gb", "machine_type", "accelerator"),
            *("gpus_per_node", "compact_placement", "create_before_delete", "version", "topology"),
        }
    ),
    ComputeClass: frozenset({"name", "priorities", "when_unsatisfiable", "rdma_zone"}),
    Flavor: frozenset({"name", "pools", "tpu", "accelerator"}),
    PriorityClass: frozenset({"name", "value", "global_default"}),
    Tenant: frozenset({"name", "service_account", "deployer", "priority_classes", "quota", "pod_security"}),
}
# Sections that a stack publishes. Without them, rules that need them are left out.
SECTIONS = ("cluster", "buckets", "gpuPools", "tpuPools", "computeClasses", "queues", "tenants")


QUEUES = ("flavors", "clusterQueues", "localQueues", "priorityClasses")


@dataclass(frozen=True)
class Published:
    """What a stack has published to a tenant."""

    sections: Mapping[str, Any]
    measured: Calibration
    project: str
    """Id of the Google Cloud project."""
    version: str
    """Version of the program that published it."""

    @classmethod
    def parse(cls, text: str) -> Published:
        """Parses the text that `publish` returned, or a stranger. Raises InvalidDocument."""
        (content,) = documents.read(text, documents.Reader.PULUMI) or [None]
        try:
            sections = content["sections"]
            settings, unresolved, _ = read(dict(sections))
            (_,), queues = sections["tenants"], settings.queues
            quotas = [quota for queue in queues.cluster_queues for quota in queue.flavors] if queues else []
            lists = [sections["gpuPools"], sections["tpuPools"], *(sections["queues"][key] for key in QUEUES)]
            if unresolved.paths or None in lists or any(isinstance(quota.quota, str) for quota in quotas):
                raise ValueError
            measured = Calibration.model_validate({"nodes": content["nodes"]})
            return cls(sections, measured, str(content["project"]), str(content["version"]))
        except (LookupError, TypeError, ValueError):
            raise documents.InvalidDocument("has another form than this version reads.") from None


def publish(stack: ResolvedStack, space: Space, project: str) -> str:
    """Returns what the stack publishes to a tenant, as JSON, which every version reads as the same texts."""
    tenant, queues = space.section, stack.queues
    local = [queue for queue in queues.local_queues if queue.namespace == tenant.name]
    used = {queue.cluster_queue for queue in local}
    own = [queue for queue in stack.cluster_queues if queue.section.name in used]
    flavors = {quota.section.flavor for queue in own for quota in queue.quotas}
    pools = [_pool(pool, stack.cluster) for pool in stack.pools]
    gpu_pools = len(stack.settings.gpu_pools)
    sections = {
        "cluster": _listed(stack.cluster, Cluster),
        "buckets": [
            {
                "name": bucket.section.name,
                "grants": [
                    {"namespace": grant.namespace, "serviceAccount": grant.service_account, "role": grant.role}
                    for grant in bucket.grants
                    if grant.namespace == tenant.name and not isinstance(grant, FolderGrant)
                ],
            }
            for bucket in stack.granted_buckets
            if bucket.section.name in space.buckets
        ],
        "gpuPools": pools[:gpu_pools],
        "tpuPools": pools[gpu_pools:],
        "computeClasses": [_listed(item, ComputeClass) for item in stack.settings.compute_classes],
        "queues": {
            "kueue": queues.kueue,
            **queues.operators,
            "flavors": [_flavor(flavor) for flavor in stack.flavors if flavor.section.name in flavors],
            "clusterQueues": [_with_limits(queue) for queue in own],
            "localQueues": [
                {"name": queue.name, "namespace": queue.namespace, "clusterQueue": queue.cluster_queue}
                for queue in local
            ],
            "priorityClasses": [_listed(item, PriorityClass) for item in queues.priority_classes],
        },
        "tenants": [_listed(tenant, Tenant)],
    }
    nodes = [figures.model_dump(mode="json", by_alias=True, exclude_unset=True) for figures in stack.measured.nodes]
    content = {"version": PROJECT_VERSION, "project": project, "sections": sections, "nodes": nodes}
    return json.dumps(content, ensure_ascii=False)


def _listed(section: Section, kind: type[Section]) -> dict[str, Any]:
    """The listed keys of a section that are set."""
    return section.model_dump(mode="json", by_alias=True, exclude_unset=True, include=set(KEYS[kind]))


def _pool(pool: Pool, cluster: Cluster) -> dict[str, Any]:
    """A pool with its zones, and whether it has a network between nodes: runs of others decide that too."""
    possible = fabric_of(pool.node_machine_type)
    network = {"rdma": bool(pool.fabric.nics)} if possible.nics else {}
    network |= {"gpuDirect": pool.fabric.technology is not None} if possible.technology else {}
    return {**_listed(pool, Pool), "zones": list(pool.zones_in(cluster)), **network}


def _flavor(flavor: ResourceFlavor) -> dict[str, Any]:
    """A flavor, and whether it has a topology if its nodes allow one: cluster queues of others decide that too."""
    decided = {"topology": flavor.has_topology} if flavor.has_topology or labels_all(flavor.pools) else {}
    return {**_listed(flavor.section, Flavor), **decided}


def _with_limits(queue: Queue) -> dict[str, Any]:
    """A cluster queue with the most that it may use of each flavor: its quota, and what its cohort lends."""
    return {
        "name": queue.section.name,
        "flavors": [
            {"flavor": quota.section.flavor, "quota": format_quantities(limits)} for quota, limits in queue.limits()
        ],
    }


def resolved(published: Published) -> ResolvedStack:
    """Returns the part of the stack that is published to a tenant."""
    settings, unresolved, _ = read(dict(published.sections))
    return ResolvedStack(settings, published.measured, unresolved)


def place(published: Published | None, section: str, item: object) -> tuple[Placed[Run] | None, list[Problem]]:
    """Returns a run with the nodes, the queue and the priority that the program would give it, and every problem of it.

    The run is None if its section can't be parsed. Without what the stack published, only the rules apply that need
    nothing but the run.

    Args:
        published: What the stack published to the tenant, or None.
        section: `training` or `batch`.
        item: The run, as it stands in that section.
    """
    sections = dict(published.sections) if published else {}
    measured = published.measured if published else Calibration()
    run = with_project(item, published.project) if published else item
    # What is wrong without the run is the platform's to correct.
    platform, _, others = read(sections)
    settings, unresolved, found = read({**sections, section: [run]})
    problems = [problem for problem in found if problem not in others]
    unknown = frozenset() if published else frozenset(f"{PREFIX}{name}" for name in SECTIONS)
    stack = ResolvedStack(settings, measured, Unresolved(unresolved.paths | unknown, unresolved.names))
    if not stack.runs:
        return None, problems
    if published is None:
        problems += _named_pools(stack)
    others = check(ResolvedStack(platform, measured)) if published else []
    problems += [problem for problem in check(stack) if problem not in others]
    (placed,) = stack.placed_runs
    return placed, problems


def _named_pools(stack: ResolvedStack) -> list[Problem]:
    """Pools by name, which only the stack knows. Their runs are no longer in the stack."""
    return [
        Problem(
            path,
            f"pool {name} is not known, because the stack publishes nothing to this namespace. The nodes could not be "
            "selected",
            "Set accelerator or tpu instead, and the queue's flavor chooses the nodes",
        )
        for run in stack.runs
        for path, name in run.named_pools.items()
    ]
