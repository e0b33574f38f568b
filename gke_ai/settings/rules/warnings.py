"""What a configuration should change soon, although it deploys. A preview prints it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import chain, islice

from gke_ai.catalog.engines.engine import CURRENT, ENGINES
from gke_ai.catalog.fabric.topology import COMPACT_SPOT_FAILED
from gke_ai.catalog.machines.capacity import SPOT_SHUTDOWN_SECONDS, capacity_until, moment
from gke_ai.catalog.machines.zones import region_of
from gke_ai.catalog.project.registries import registry_of, streams_to
from gke_ai.settings.model import AnyServer, GpuPool, Pool, Server, Workload
from gke_ai.settings.problems import SHOWN
from gke_ai.settings.resolved import Placed
from gke_ai.settings.rules.common import join_names
from gke_ai.settings.rules.serving import has_pinned_release, refused_arguments

# How long before its end a reservation is warned about: the maximum duration of Google's other timed capacity.
SOON = timedelta(days=7)
_OTHER_IMAGE = "Its image may be of another release, so this is no error."
_GRACE = "termination_grace_period_seconds"


def legacy_engines(serving: Sequence[Server]) -> list[str]:
    """The servers whose engine is no longer developed, each with the engine to use instead."""
    engines = [(server, ENGINES[server.engine]) for server in serving]
    return [
        f"{server.at('engine')}: {engine.title} is {engine.legacy}. It gets no new models and no fixes. "
        f"Set engine: {CURRENT[engine.accelerator]}."
        for server, engine in engines
        if engine.legacy
    ]


def uncertain_arguments(serving: Sequence[Server]) -> list[str]:
    """Arguments that the pinned release refuses, of servers with another image."""
    own = (server for server in serving if not has_pinned_release(server))
    problems = islice(chain.from_iterable(map(refused_arguments, own)), SHOWN)
    return [f"{problem} {_OTHER_IMAGE}" for problem in problems]


def long_grace_periods(placed: Sequence[Placed[Workload]]) -> list[str]:
    """The workloads on Spot nodes whose stated grace period is longer than GKE allows when Google takes a node back."""
    found = []
    for workload in placed:
        seconds: int | None = getattr(workload.section, _GRACE, None)
        if seconds is None or seconds <= SPOT_SHUTDOWN_SECONDS or _GRACE not in workload.section.model_fields_set:
            continue
        if _may_be_on_spot(workload):
            path = workload.section.at("terminationGracePeriodSeconds")
            found.append(
                f"{path}: pods on Spot nodes have only {SPOT_SHUTDOWN_SECONDS} s when Google takes a node back. "
                f"The {seconds} s count for preemption and eviction. "
                f"Save in {SPOT_SHUTDOWN_SECONDS} s, or use another capacity mode."
            )
    return found


def ending_capacity(pools: Sequence[Pool], placed: Sequence[Placed[Workload]], now: datetime) -> list[str]:
    """The pools whose reservation has ended or ends soon, each with the workloads that can be on it.

    Not refused: otherwise time alone would end every update of the stack.
    """
    found = []
    for pool in pools:
        end = capacity_until(pool.node_labels)
        if end is None or end > now + SOON:
            continue
        names = [workload.section.name for workload in placed if pool in [item.section for item in workload.pools]]
        used = f" Pods of {join_names(names)} can be on them." if names else ""
        path, when = pool.at("capacity.until"), moment(end)
        if end <= now:
            found.append(
                f"{path}: Google deleted the reservation and its machines at {when}.{used} "
                "Pods that need them wait for nodes that do not come back. "
                "Name another reservation, or remove the pool."
            )
        else:
            found.append(
                f"{path}: Google deletes the reservation and its machines at {when}.{used} "
                "Have runs save checkpoints before, or move them to another pool."
            )
    return found


def compact_spot_pools(pools: Sequence[Pool]) -> list[str]:
    """The compact pools on Spot whose machines were reported to fail so. Not refused: only two reports say so."""
    return [
        f"{pool.at('compactPlacement')}: two reports saw compact pools of {pool.machine_type} on Spot fail. "
        "The pool could get no nodes. Remove compactPlacement, or use another capacity mode."
        for pool in pools
        if isinstance(pool, GpuPool) and pool.compact_placement and pool.capacity.mode == "spot"
        if pool.machine_type in COMPACT_SPOT_FAILED
    ]


def images_without_streaming(servers: Sequence[Placed[AnyServer]]) -> list[str]:
    """The servers whose image GKE pulls whole although their pool streams images."""
    found = []
    for server in servers:
        pool = server.pools[0] if server.pools else None
        if pool is None or not pool.section.image_streaming or pool.section.preloads_images:
            continue
        image, region = server.section.images[0].partition("@")[0], region_of(pool.shape.zone)
        if not streams_to(image, region):
            name = image.removeprefix(f"{registry_of(image)}/")
            found.append(
                f"{server.section.at('image')}: {image} is not in Artifact Registry in {region}, so "
                f"{pool.section.at('imageStreaming')} does not apply to it. "
                f"Set {region}-docker.pkg.dev/PROJECT/REPOSITORY/{name}, of a remote repository of its registry."
            )
    return found


def _may_be_on_spot(workload: Placed[Workload]) -> bool:
    modes: set[str] = {pool.capacity.mode for pool in workload.nodes.pools}
    if workload.nodes.compute_class is not None:
        modes |= {priority.capacity.mode for priority in workload.nodes.compute_class.priorities}
    if (capacity := workload.section.provisioned_capacity) is not None:
        modes.add(capacity[1])
    return "spot" in modes
