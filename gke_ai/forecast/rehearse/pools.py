"""The node pools of a snapshot, as the emulator records them."""

from __future__ import annotations

from typing import Any

from gke_ai.catalog.machines.capacity import mode_of
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.nodes.shape import GKE_NODEPOOL
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.forecast.snapshot.pools import NodePool
from gke_ai.formats.sentences import join_names

_DRIVER = "latest"  # of no effect on what is scheduled
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}


def records(snapshot: Snapshot) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the records of the pools that the autoscaler may size, and notes about the others.

    A pool that is not recorded keeps its nodes: it gets no more, and loses none.
    """
    if snapshot.pools is None:
        return [], [
            "The snapshot lacks the node pools, so the rehearsal adds and removes no nodes. "
            "Add them to the snapshot with --pools."
        ]
    unknown = sorted({pool.config.machine_type for pool in snapshot.pools} - MACHINES.keys())
    notes = []
    if unknown:
        fixed = sorted(pool.name for pool in snapshot.pools if pool.config.machine_type in unknown)
        notes.append(
            f"The catalog lacks {join_names(unknown)}, so the rehearsal adds and removes no nodes in "
            f"{join_names(fixed)}."
        )
    listed = {pool.name for pool in snapshot.pools}
    labels = (node["metadata"].get("labels", {}).get(GKE_NODEPOOL, "") for node in snapshot.of("Node"))
    if others := sorted({*labels} - listed - {""}):
        notes.append(f"The snapshot has nodes of other pools, which keep their nodes: {join_names(others)}.")
    return [_record(pool) for pool in snapshot.pools if _is_scaled(pool)], notes


def _is_scaled(pool: NodePool) -> bool:
    return pool.autoscaling.enabled and pool.config.machine_type in MACHINES and bool(pool.locations)


def _record(pool: NodePool) -> dict[str, Any]:
    config, scaling, machine = pool.config, pool.autoscaling, MACHINES[pool.config.machine_type]
    gpu = next(iter(config.accelerators), None)
    # GKE has limits of each zone or of the whole pool.
    zones, whole = len(pool.locations), scaling.total_max_node_count
    return {
        "name": pool.name,
        "machine_type": config.machine_type,
        "zones": pool.locations,
        "gpu": gpu.accelerator_type if gpu else machine.gpu,
        "gpus": gpu.accelerator_count if gpu else machine.gpus,
        "driver": _DRIVER,
        "capacity": mode_of(
            queued=pool.queued_provisioning.enabled,
            flex_start=config.flex_start,
            spot=config.spot,
            reservation=config.reservation_affinity.consume_reservation_type == "SPECIFIC_RESERVATION",
        ),
        "labels": config.labels,
        "taints": [
            {"key": taint.key, "value": taint.value, "effect": _EFFECTS.get(taint.effect, taint.effect)}
            for taint in config.taints
        ],
        "disk_gb": config.disk_size_gb,
        "min_nodes": scaling.total_min_node_count if whole else scaling.min_node_count * zones,
        "max_nodes": whole or scaling.max_node_count * zones,
        "topology": pool.placement_policy.tpu_topology or None,
        "compact": pool.placement_policy.type == "COMPACT",
        "network_profile": pool.network_config.accelerator_network_profile,
    }
