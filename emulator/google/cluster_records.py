"""Turns clusters and node pools of Google Cloud into the records that `emulator.cluster` works with."""

from __future__ import annotations

from typing import Literal

from emulator.cloud.records import ClusterRecord, PoolRecord
from emulator.cloud.store import Record
from emulator.google import rest, rules
from emulator.google.resource import Properties
from gke_ai.catalog.machines.capacity import reserved_part
from gke_ai.catalog.nodes.upgrades import flat
from gke_ai.catalog.project.identities import pool_name


def cluster_record(record: Record, inputs: Properties) -> ClusterRecord:
    """Returns the record of a cluster."""
    mode: Literal["standard", "autopilot"] = "autopilot" if is_autopilot(inputs) else "standard"
    return ClusterRecord(
        name=inputs["name"],
        project=record.project,
        location=record.facts["location"],
        mode=mode,
        zones=record.facts["zones"],
        version=record.facts["version"],
        labels=inputs.get("resourceLabels") or {},
        secret_sync=bool((inputs.get("secretSyncConfig") or {}).get("enabled")),
        gateway_api=_has_gateway_api(inputs),
    )


def _has_gateway_api(inputs: Properties) -> bool:
    """Whether GKE runs its Gateway controller, which Autopilot does by default.

    https://cloud.google.com/kubernetes-engine/docs/how-to/deploying-gateways#enable-gateway
    """
    channel = (inputs.get("gatewayApiConfig") or {}).get("channel")
    return channel == "CHANNEL_STANDARD" or (is_autopilot(inputs) and channel is None)


def is_autopilot(inputs: Properties) -> bool:
    """Whether these inputs are of an Autopilot cluster."""
    return bool(inputs.get("enableAutopilot"))


def workload_pool(record: Record) -> str | None:
    """The identity pool of a cluster, or None. An Autopilot cluster always has one."""
    if is_autopilot(record.inputs):
        return pool_name(record.project)
    pool: str | None = (record.inputs.get("workloadIdentityConfig") or {}).get("workloadPool")
    return pool


def pool_record(cluster: Record, inputs: Properties) -> PoolRecord:
    """Returns the record of a node pool, from the REST body that Google would get."""
    body = rest.node_pool(inputs).content
    config, scaling = body.get("config", {}), body.get("autoscaling")
    pool_zones = body.get("locations") or cluster.facts["zones"]
    accelerator = (config.get("accelerators") or [{}])[0]
    # Since 1.30.1-gke.1156000 GKE installs the default driver if the pool sets none:
    # https://cloud.google.com/kubernetes-engine/docs/how-to/gpus#create
    driver = accelerator.get("gpuDriverInstallationConfig", {}).get("gpuDriverVersion", "DEFAULT")
    drivers: dict[str, Literal["default", "latest", "disabled"]] = {
        "DEFAULT": "default",
        "LATEST": "latest",
        "INSTALLATION_DISABLED": "disabled",
    }
    effects = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
    fixed = scaling is None
    low = high = 0
    if scaling is not None:
        total = scaling["totalMaxNodeCount"]
        low = scaling["totalMinNodeCount"] if total else scaling["minNodeCount"] * len(pool_zones)
        high = total or scaling["maxNodeCount"] * len(pool_zones)
    metadata = config.get("workloadMetadataConfig", {}).get("mode", "GKE_METADATA")
    return PoolRecord(
        name=inputs["name"],
        machine_type=config.get("machineType", rules.DEFAULT_MACHINE),
        zones=list(pool_zones),
        gpu=accelerator.get("acceleratorType"),
        gpus=int(accelerator.get("acceleratorCount", 0)),
        driver=drivers.get(driver, "default"),
        capacity=rules.capacity_of(body),
        labels=dict(config.get("labels", {})),
        taints=[
            {"key": taint["key"], "value": taint.get("value", ""), "effect": effects[taint["effect"]]}
            for taint in config.get("taints", [])
        ],
        disk_gb=config.get("diskSizeGb", 100),
        # nodeCount is the current size. The API also keeps the initial size.
        nodes_per_zone=inputs.get("nodeCount", body.get("initialNodeCount", 0)) if fixed else None,
        min_nodes=low,
        max_nodes=high,
        workload_identity=workload_pool(cluster) is not None and metadata == "GKE_METADATA",
        topology=body.get("placementPolicy", {}).get("tpuTopology"),
        upgrade=flat(body.get("upgradeSettings", {})),
        compact=body.get("placementPolicy", {}).get("type") == "COMPACT",
        block=_reserved_block(config),
        network_profile=body.get("networkConfig", {}).get("acceleratorNetworkProfile", ""),
    )


def _reserved_block(config: Properties) -> str:
    """The block of a reservation that a pool uses; empty if it uses the whole reservation or none."""
    names = config.get("reservationAffinity", {}).get("values", [])
    return next(filter(None, (reserved_part(name).block for name in names)), "")
