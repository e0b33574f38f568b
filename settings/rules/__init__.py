"""What must fit together in a stack. Each rule is a function from settings to problems, and reads on its own.

Rules run on what could be read. First those that decide whether the cluster and the pools can be described at all; what
can't is set aside as unread, so that the others neither stumble over it nor blame what refers to it.
"""

from __future__ import annotations

from settings.model import Cluster, Settings, Unread
from settings.problems import Problem
from settings.rules import buckets, cluster, fit, pools, queues, workloads

RULES = (*cluster.RULES, *buckets.RULES, *pools.RULES, *queues.RULES, *workloads.RULES, *fit.RULES)


def check(settings: Settings) -> list[Problem]:
    """Every problem of the settings, in the order of the rules."""
    nowhere = list(cluster.location_exists(settings))
    if nowhere:
        somewhere = settings.cluster.model_copy(update={"location": Cluster().location})
        settings = _set_aside(settings, {"gke-ai:cluster.location"}, set(), cluster=somewhere)
    problems = list(nowhere)
    for pool in settings.gpu_pools:
        impossible = [*pools.machine_has_the_gpus(pool), *pools.zones_are_of_the_region(pool, settings)]
        if impossible:
            problems += impossible
            left = [one for one in settings.gpu_pools if one is not pool]
            settings = _set_aside(settings, {pool.at("machineType")}, {pool.name}, gpu_pools=left)
    for rule in RULES:
        problems += rule(settings)
    return problems


def _set_aside(settings: Settings, paths: set[str], names: set[str], **left: object) -> Settings:
    reduced = settings.model_copy(update=left)
    reduced._unread = Unread(settings.unread.paths | paths, settings.unread.names | names)
    return reduced
