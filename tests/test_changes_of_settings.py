"""Each optional setting of clusters and pools, turned on and off again: what an `up` does to each resource.

The program runs as a whole on both configurations. The emulated gcp plugin, which decides by the measured table of the
provider, compares what they register.
"""

from __future__ import annotations

import copy
import json
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from gke_ai.settings import model
from tests import planning, recorded
from tests.planning import operations
from tests.recorder import Record, run_program

Config = dict[str, Any]
Plan = dict[str, str]

CLUSTER = {"name": "c", "mode": "standard", "location": "us-west4"}
GPU_POOL = {"name": "l4", "machineType": "g2-standard-24", "nodesPerZone": 1}
TPU_POOL = {"name": "tpus", "version": "v5e", "topology": "2x4", "nodesPerZone": 2, "zones": ["us-west4-a"]}
STANDARD: Config = {"cluster": CLUSTER, "gpuPools": [GPU_POOL], "tpuPools": [TPU_POOL]}


def standard(**cluster: Any) -> Config:
    """The Standard cluster with some of its keys set."""
    return STANDARD | {"cluster": CLUSTER | cluster}


def gpu(**pool: Any) -> Config:
    """The Standard cluster with a GPU pool of other keys; None leaves one out."""
    return STANDARD | {"gpuPools": [{key: value for key, value in (GPU_POOL | pool).items() if value is not None}]}


def tpu(**pool: Any) -> Config:
    """The Standard cluster with a TPU pool of other keys; None leaves one out."""
    return STANDARD | {"tpuPools": [{key: value for key, value in (TPU_POOL | pool).items() if value is not None}]}


BARE: Config = {"cluster": {"name": "c", "location": "us-west4"}}
SHARED = standard(network="shared", subnetwork="ai")
OWN = standard(vpc={})
GATEWAY: Config = OWN | {
    "serving": [{"name": "s", "engine": "vllm", "model": "google/gemma-3-4b-it", "maxModelLen": 4096, "pool": "l4"}],
    "gateway": {"plainHttp": True, "routes": [{"name": "r", "servers": [{"server": "s"}]}]},
}
EXISTING: Config = {"cluster": {"name": "c", "location": "us-west4", "mode": "existing"}}
# GKE chooses three of its four zones.
FOUR_ZONES = {"cluster": CLUSTER | {"location": "us-central1"}, "gpuPools": [GPU_POOL]}
GROWING = {"nodesPerZone": None, "autoscaling": {"maxNodes": 3}}
SPOT = {"nodesPerZone": None, "autoscaling": {"minNodes": 3, "maxNodes": 3}, "capacity": {"mode": "spot"}}
FLEX = {**GROWING, "capacity": {"mode": "flexStart"}}
QUEUED = {**GROWING, "capacity": {"mode": "queuedFlexStart"}}
IRONWOOD = {
    "cluster": CLUSTER | {"location": "us-central1"},
    "tpuPools": [
        {"name": "tpus", "version": "tpu7x", "topology": "2x2x2", "zones": ["us-central1-c"], "workloadPolicy": "a"}
    ],
}

POOLS = ("NodePool default-pool", "NodePool l4", "NodePool tpus")
NETWORK = ("Network c", "Subnetwork c", "Router c", "RouterNat c")
ACCOUNT = ("Account gke-nodes", "IAMMember gke-nodes/container.defaultNodeServiceAccount")
SAME: Plan = {}
# A cluster and the provider of its objects: together or not at all.
ANOTHER = {"Cluster c": "replace", "kubernetes c": "replace"}
EVERY_POOL_ANEW = dict.fromkeys(POOLS, "replace")


def update(*names: str) -> Plan:
    return dict.fromkeys(names, "update")


def replace(*names: str) -> Plan:
    return dict.fromkeys(names, "replace")


def create(*names: str) -> Plan:
    return dict.fromkeys(names, "create")


def delete(*names: str) -> Plan:
    return dict.fromkeys(names, "delete")


@dataclass(frozen=True)
class Row:
    """A setting that is off in `base` and on with `change`, and what either step does; `off` is as `on` if left out."""

    base: Config
    change: Config
    on: Plan
    off: Plan | None = field(default=None)


# What Google's provider plans: `changes-of-settings` and `mends` of its measurement, of which the emulator's table and
# emulator/tests/provider_changes.yaml are the part that is used.
WINDOW = {
    "startTime": "2026-01-03T00:00:00Z",
    "endTime": "2026-01-03T08:00:00Z",
    "recurrence": "FREQ=WEEKLY;BYDAY=SA,SU",
}
EXCLUSION = {"name": "pretraining", "startTime": "2026-03-01T00:00:00Z", "endTime": "2026-03-21T00:00:00Z"}
MINOR = {**EXCLUSION, "scope": "NO_MINOR_UPGRADES"}

ROWS: dict[str, tuple[Row, ...]] = {
    # --- the cluster ---
    "cluster.name": (
        Row(
            STANDARD,
            {"cluster.name": "d"},
            create("Cluster d", "kubernetes d") | delete("Cluster c", "kubernetes c") | EVERY_POOL_ANEW,
            create("Cluster c", "kubernetes c") | delete("Cluster d", "kubernetes d") | EVERY_POOL_ANEW,
        ),
    ),
    "cluster.mode": (
        Row(
            BARE,
            {"cluster.mode": "standard"},
            ANOTHER | create("NodePool default-pool"),
            ANOTHER | delete("NodePool default-pool"),
        ),
        Row(
            BARE | {"cluster": BARE["cluster"] | {"nodeServiceAccount": "nodes@my-project.iam.gserviceaccount.com"}},
            {"cluster.mode": "standard"},
            ANOTHER | create("NodePool default-pool"),
            ANOTHER | delete("NodePool default-pool"),
        ),
        Row(
            BARE,
            {"cluster.mode": "existing"},
            delete("Cluster c") | replace("kubernetes c"),
            create("Cluster c") | replace("kubernetes c"),
        ),
    ),
    "cluster.existingMode": (Row(EXISTING, {"cluster.existingMode": "autopilot"}, SAME),),
    "cluster.location": (Row(BARE, {"cluster.location": "us-east4"}, ANOTHER),),
    "cluster.maintenance": (
        Row(STANDARD, {"cluster.maintenance": {"window": WINDOW}}, update("Cluster c")),
        Row(STANDARD, {"cluster.maintenance": {"window": WINDOW, "exclusions": [EXCLUSION]}}, update("Cluster c")),
    ),
    "cluster.maintenance.exclusions": (
        Row(
            standard(maintenance={"window": WINDOW}),
            {"cluster.maintenance.exclusions": [EXCLUSION]},
            update("Cluster c"),
        ),
    ),
    "cluster.maintenance.exclusions.scope": (
        Row(
            standard(maintenance={"window": WINDOW, "exclusions": [EXCLUSION]}),
            {"cluster.maintenance.exclusions": [MINOR]},
            update("Cluster c"),
        ),
    ),
    "cluster.releaseChannel": (Row(STANDARD, {"cluster.releaseChannel": "stable"}, update("Cluster c")),),
    "cluster.systemPool": (
        Row(STANDARD, {"cluster.systemPool": {"machineType": "e2-standard-8"}}, update("NodePool default-pool")),
    ),
    "cluster.systemPool.name": (
        Row(
            STANDARD,
            {"cluster.systemPool.name": "system"},
            create("NodePool system") | delete("NodePool default-pool"),
            create("NodePool default-pool") | delete("NodePool system"),
        ),
    ),
    "cluster.systemPool.machineType": (
        Row(STANDARD, {"cluster.systemPool.machineType": "e2-standard-8"}, update("NodePool default-pool")),
        # Of another family, which boots from other disks.
        *(
            Row(
                standard(systemPool={"machineType": machine}),
                {"cluster.systemPool.machineType": other},
                update("NodePool default-pool"),
            )
            for machine in ("e2-standard-4", "n2-standard-4", "n2d-standard-4")
            for other in ("n4-standard-4", "c4-standard-4")
        ),
    ),
    "cluster.systemPool.nodesPerZone": (
        Row(STANDARD, {"cluster.systemPool.nodesPerZone": 2}, update("NodePool default-pool")),
    ),
    "cluster.systemPool.zones": (
        Row(
            STANDARD,
            {"cluster.systemPool.zones": ["us-west4-a"]},
            update("NodePool default-pool", "NodePool l4"),  # which has the cluster's zones
        ),
    ),
    "cluster.network": (Row(STANDARD, {"cluster.network": "shared", "cluster.subnetwork": "ai"}, ANOTHER),),
    "cluster.subnetwork": (Row(standard(network="shared"), {"cluster.subnetwork": "ai"}, ANOTHER),),
    "cluster.podsRange": (Row(SHARED, {"cluster.podsRange": "pods"}, ANOTHER),),
    "cluster.servicesRange": (Row(SHARED, {"cluster.servicesRange": "services"}, ANOTHER),),
    "cluster.vpc": (Row(STANDARD, {"cluster.vpc": {}}, ANOTHER | create(*NETWORK), ANOTHER | delete(*NETWORK)),),
    "cluster.vpc.name": (
        Row(
            OWN,
            {"cluster.vpc.name": "d"},
            ANOTHER | delete(*NETWORK) | create(*(name.replace(" c", " d") for name in NETWORK)),
            ANOTHER | create(*NETWORK) | delete(*(name.replace(" c", " d") for name in NETWORK)),
        ),
    ),
    "cluster.vpc.nodesCidr": (Row(OWN, {"cluster.vpc.nodesCidr": "10.16.0.0/20"}, ANOTHER | replace("Subnetwork c")),),
    "cluster.vpc.podsCidr": (Row(OWN, {"cluster.vpc.podsCidr": "10.64.0.0/14"}, ANOTHER | replace("Subnetwork c")),),
    "cluster.vpc.servicesCidr": (
        Row(OWN, {"cluster.vpc.servicesCidr": "10.12.0.0/20"}, ANOTHER | replace("Subnetwork c")),
    ),
    "cluster.vpc.proxyCidr": (
        Row(GATEWAY, {"cluster.vpc.proxyCidr": "10.12.0.0/23"}, replace("Subnetwork c-proxies")),
    ),
    "cluster.vpc.nat": (
        Row(OWN, {"cluster.vpc.nat": False}, delete("Router c", "RouterNat c"), create("Router c", "RouterNat c")),
    ),
    "cluster.privateNodes": (
        Row(STANDARD, {"cluster.privateNodes": True}, update("Cluster c", *POOLS)),
        Row(BARE, {"cluster.privateNodes": True}, update("Cluster c")),
    ),
    "cluster.publicEndpoint": (
        Row(standard(dnsEndpoint=True), {"cluster.publicEndpoint": False}, update("Cluster c")),
        Row(STANDARD, {"cluster.publicEndpoint": False, "cluster.dnsEndpoint": True}, update("Cluster c")),
    ),
    # The one that can't be turned off: the cloud keeps them, and the program warns.
    "cluster.authorizedNetworks": (
        Row(STANDARD, {"cluster.authorizedNetworks": ["8.8.8.0/24"]}, update("Cluster c"), SAME),
    ),
    "cluster.dnsEndpoint": (Row(STANDARD, {"cluster.dnsEndpoint": True}, update("Cluster c")),),
    "cluster.nodeServiceAccount": (
        Row(
            STANDARD,
            {"cluster.nodeServiceAccount": "gke-nodes"},
            create(*ACCOUNT) | EVERY_POOL_ANEW,
            delete(*ACCOUNT) | EVERY_POOL_ANEW,
        ),
        Row(
            BARE,
            {"cluster.nodeServiceAccount": "gke-nodes"},
            create(*ACCOUNT) | update("Cluster c"),
            delete(*ACCOUNT) | update("Cluster c"),
        ),
    ),
    "cluster.labels": (Row(STANDARD, {"cluster.labels": {"team": "a"}}, update("Cluster c")),),
    "cluster.protect": (Row(STANDARD, {"cluster.protect": True}, update("Cluster c")),),
    # --- GPU pools ---
    "gpuPools.accelerator": (Row(STANDARD, {"gpuPools.0.accelerator": "nvidia-l4"}, SAME),),
    "gpuPools.gpusPerNode": (
        Row(STANDARD, {"gpuPools.0.gpusPerNode": 2}, SAME),
        Row(
            gpu(machineType="n1-standard-8", accelerator="nvidia-tesla-t4", gpusPerNode=1),
            {"gpuPools.0.gpusPerNode": 2},
            replace("NodePool l4"),
        ),
    ),
    "gpuPools.driver": (Row(STANDARD, {"gpuPools.0.driver": "latest"}, replace("NodePool l4")),),
    "gpuPools.zones": (
        Row(STANDARD, {"gpuPools.0.zones": ["us-west4-a"]}, update("NodePool l4")),
        Row(FOUR_ZONES, {"gpuPools.0.zones": ["us-central1-a"]}, update("NodePool l4")),
    ),
    "gpuPools.nodesPerZone": (Row(STANDARD, {"gpuPools.0.nodesPerZone": 2}, update("NodePool l4")),),
    "gpuPools.autoscaling": (
        Row(
            STANDARD,
            {"gpuPools.0.autoscaling": {"maxNodes": 3}, "gpuPools.0.nodesPerZone": None},
            update("NodePool l4"),
        ),
    ),
    "gpuPools.autoscaling.minNodes": (
        Row(gpu(**GROWING), {"gpuPools.0.autoscaling.minNodes": 1}, update("NodePool l4")),
    ),
    "gpuPools.capacity": (
        Row(STANDARD, {"gpuPools.0.capacity": {"mode": "spot"}}, replace("NodePool l4")),
        Row(
            STANDARD,
            {"gpuPools.0.capacity": {"mode": "reservation", "reservation": "r"}},
            replace("NodePool l4"),
        ),
        Row(gpu(**GROWING), {"gpuPools.0.capacity": {"mode": "flexStart"}}, replace("NodePool l4")),
        Row(gpu(**GROWING), {"gpuPools.0.capacity": {"mode": "queuedFlexStart"}}, replace("NodePool l4")),
        Row(
            gpu(**SPOT),
            {"gpuPools.0.capacity": {"mode": "flexStart"}, "gpuPools.0.autoscaling": {"maxNodes": 3}},
            replace("NodePool l4"),
        ),
        Row(
            gpu(capacity={"mode": "spot"}),
            {
                "gpuPools.0.capacity": {"mode": "flexStart"},
                "gpuPools.0.autoscaling": {"maxNodes": 3},
                "gpuPools.0.nodesPerZone": None,
            },
            replace("NodePool l4"),
        ),
    ),
    "gpuPools.capacity.mode": (Row(STANDARD, {"gpuPools.0.capacity": {"mode": "onDemand"}}, SAME),),
    "gpuPools.capacity.maxRunDurationSeconds": (
        Row(gpu(**FLEX), {"gpuPools.0.capacity.maxRunDurationSeconds": 3600}, replace("NodePool l4")),
        Row(gpu(**QUEUED), {"gpuPools.0.capacity.maxRunDurationSeconds": 3600}, replace("NodePool l4")),
    ),
    "gpuPools.diskSizeGb": (Row(STANDARD, {"gpuPools.0.diskSizeGb": 300}, update("NodePool l4")),),
    "gpuPools.diskType": (Row(STANDARD, {"gpuPools.0.diskType": "pd-ssd"}, update("NodePool l4")),),
    "gpuPools.labels": (Row(STANDARD, {"gpuPools.0.labels": {"team": "a"}}, update("NodePool l4")),),
    "gpuPools.createBeforeDelete": (Row(STANDARD, {"gpuPools.0.createBeforeDelete": True}, replace("NodePool l4")),),
    # Computed: the provider keeps it when the key is removed.
    "gpuPools.imageStreaming": (
        Row(STANDARD, {"gpuPools.0.imageStreaming": True}, update("NodePool l4"), SAME),
        Row(gpu(imageStreaming=True), {"gpuPools.0.imageStreaming": False}, update("NodePool l4")),
    ),
    "gpuPools.secondaryBootDisk": (
        Row(gpu(imageStreaming=True), {"gpuPools.0.secondaryBootDisk": "global/images/a"}, replace("NodePool l4")),
    ),
    "gpuPools.protect": (Row(STANDARD, {"gpuPools.0.protect": True}, SAME),),
    # --- TPU pools ---
    "tpuPools.machineType": (Row(STANDARD, {"tpuPools.0.machineType": "ct5lp-hightpu-4t"}, replace("NodePool tpus")),),
    "tpuPools.zones": (
        Row(tpu(zones=None, nodesPerZone=1), {"tpuPools.0.zones": ["us-west4-a"]}, update("NodePool tpus")),
    ),
    "tpuPools.nodesPerZone": (Row(STANDARD, {"tpuPools.0.nodesPerZone": 3}, update("NodePool tpus")),),
    "tpuPools.autoscaling": (
        Row(
            STANDARD,
            {"tpuPools.0.autoscaling": {"maxNodes": 3}, "tpuPools.0.nodesPerZone": None},
            update("NodePool tpus"),
        ),
        Row(
            tpu(topology="4x4", nodesPerZone=None),
            {"tpuPools.0.autoscaling": {"maxNodes": 4}},
            update("NodePool tpus"),
        ),
    ),
    "tpuPools.autoscaling.minNodes": (
        Row(tpu(**GROWING), {"tpuPools.0.autoscaling.minNodes": 1}, update("NodePool tpus")),
    ),
    "tpuPools.capacity": (
        Row(STANDARD, {"tpuPools.0.capacity": {"mode": "spot"}}, replace("NodePool tpus")),
        Row(tpu(**GROWING), {"tpuPools.0.capacity": {"mode": "flexStart"}}, replace("NodePool tpus")),
    ),
    "tpuPools.capacity.mode": (Row(STANDARD, {"tpuPools.0.capacity": {"mode": "onDemand"}}, SAME),),
    "tpuPools.capacity.maxRunDurationSeconds": (
        Row(tpu(**FLEX), {"tpuPools.0.capacity.maxRunDurationSeconds": 3600}, replace("NodePool tpus")),
        Row(tpu(**QUEUED), {"tpuPools.0.capacity.maxRunDurationSeconds": 3600}, replace("NodePool tpus")),
    ),
    # Computed: the provider keeps it when the key is removed.
    "tpuPools.imageStreaming": (
        Row(STANDARD, {"tpuPools.0.imageStreaming": True}, update("NodePool tpus"), SAME),
        Row(tpu(imageStreaming=True), {"tpuPools.0.imageStreaming": False}, update("NodePool tpus")),
    ),
    "tpuPools.autoRepair": (Row(STANDARD, {"tpuPools.0.autoRepair": False}, update("NodePool tpus")),),
    "tpuPools.workloadPolicy": (Row(IRONWOOD, {"tpuPools.0.workloadPolicy": "b"}, replace("NodePool tpus")),),
    "tpuPools.diskSizeGb": (Row(STANDARD, {"tpuPools.0.diskSizeGb": 300}, update("NodePool tpus")),),
    "tpuPools.diskType": (Row(STANDARD, {"tpuPools.0.diskType": "pd-ssd"}, update("NodePool tpus")),),
    "tpuPools.labels": (Row(STANDARD, {"tpuPools.0.labels": {"team": "a"}}, update("NodePool tpus")),),
    "tpuPools.protect": (Row(STANDARD, {"tpuPools.0.protect": True}, SAME),),
}
# Required keys, and settings elsewhere, of which a cluster or a pool is made too.
FURTHER: dict[str, Row] = {
    "topology of a fixed slice": Row(
        tpu(topology="4x4", nodesPerZone=None), {"tpuPools.0.topology": "4x8"}, replace("NodePool tpus")
    ),
    "topology of a fixed slice that begins to grow": Row(
        tpu(topology="4x4", nodesPerZone=None),
        {"tpuPools.0.topology": "4x8", "tpuPools.0.autoscaling": {"maxNodes": 8}},
        replace("NodePool tpus"),
    ),
    "topology of a flex-start slice": Row(
        tpu(topology="4x4", **FLEX | {"autoscaling": {"maxNodes": 4}}),
        {"tpuPools.0.topology": "4x8", "tpuPools.0.autoscaling.maxNodes": 8},
        replace("NodePool tpus"),
    ),
    "machine of a TPU pool": Row(
        tpu(topology="2x2"), {"tpuPools.0.topology": "1x1", "tpuPools.0.machineType": None}, replace("NodePool tpus")
    ),
    "machine of a GPU pool with the same GPUs": Row(
        gpu(machineType="g2-standard-12"), {"gpuPools.0.machineType": "g2-standard-16"}, update("NodePool l4")
    ),
    "monitoring": Row(
        STANDARD,
        {"monitoring": {"alerts": False}},
        update("Cluster c") | create("Dashboard accelerators"),
        update("Cluster c") | delete("Dashboard accelerators"),
    ),
    "tenants with a Google Group": Row(
        STANDARD,
        {"tenants": [{"name": "research", "members": ["group:a@example.com"]}]},
        update("Cluster c"),  # which turns Calico on and off too
    ),
    # The other one that can't be turned off: the cloud keeps the group, and the program refuses that.
    "a Google Group of an Autopilot cluster": Row(
        BARE, {"tenants": [{"name": "research", "members": ["group:a@example.com"]}]}, update("Cluster c"), SAME
    ),
    "a secret of Secret Manager": Row(BARE, {"hfTokenSecret": "hf-token"}, update("Cluster c")),
}
RECORDS: dict[str, Record] = {}
"""What each configuration registers: most rows have the same base."""
CASES = [
    *(pytest.param(row, id=f"{key}: {row.change}") for key, rows in ROWS.items() for row in rows),
    *(pytest.param(row, id=name) for name, row in FURTHER.items()),
]


def changed(config: Config, change: Config) -> Config:
    """The configuration with the keys at these paths set; None removes one."""
    result = copy.deepcopy(config)
    for path, value in change.items():
        *parents, last = path.split(".")
        place: Any = result
        for parent in parents:
            place = place[int(parent)] if parent.isdigit() else place.setdefault(parent, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return result


@pytest.mark.parametrize("row", CASES)
def test_a_setting_is_turned_on_and_off_as_the_provider_plans_it(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(config: Config) -> Record:
        text = json.dumps(config)
        if text not in RECORDS:
            keys = {f"gke-ai:{key}": value for key, value in config.items()}
            RECORDS[text] = run_program(keys, False, monkeypatch)
        return RECORDS[text]

    off, on = run(row.base), run(changed(row.base, row.change))
    assert operations(planning.known(off), on, tmp_path / "on") == row.on
    assert operations(planning.known(on), off, tmp_path / "off") == (row.on if row.off is None else row.off)


def optional_keys(section: type[BaseModel], path: str) -> Iterator[str]:
    """Every key under a section that may be left out."""
    for name, info in section.model_fields.items():
        key = f"{path}.{info.alias or name}"
        if not info.is_required():
            yield key
        for part in (info.annotation, *typing.get_args(info.annotation)):
            for nested in (part, *typing.get_args(part)):
                if isinstance(nested, type) and issubclass(nested, BaseModel):
                    yield from optional_keys(nested, key)


def test_every_optional_key_of_clusters_and_pools_is_in_the_table() -> None:
    sections = (("cluster", model.Cluster), ("gpuPools", model.GpuPool), ("tpuPools", model.TpuPool))
    keys = {key for path, section in sections for key in optional_keys(section, path)}
    assert "gpuPools.capacity.maxRunDurationSeconds" in keys, "sections within sections count"
    assert keys == ROWS.keys()


# --- upgrades -----------------------------------------------------------------------------------------------------

# As docs/upgrading.md lists them: newly stated off forms, and the label of pools, all in place.
UPGRADES = {
    "dev": update("Cluster ai-dev"),
    "prod": update("Cluster ai-prod"),
    "mixed-training-inference": update("Cluster llm-cluster"),
    "mixed-training-inference-autopilot": update("Cluster llm-cluster"),
    "multislice-training": update("Cluster multislice-cluster"),
    "multislice-training-autopilot": update("Cluster multislice-cluster"),
}


@pytest.mark.parametrize("system", recorded.systems("0.2.0"))
def test_an_upgrade_replaces_no_cluster_and_no_pool(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, resources = recorded.read("0.2.0", system, "test")
    state = {
        (resource["type"], resource["urn"].split("::", 3)[3]): planning.Known(
            resource.get("inputs", {}), resource.get("outputs", {})
        )
        for resource in resources
        # A member is named by the project's number, which this recorder makes up.
        if not resource["type"].endswith("IAMMember")
    }
    after = run_program({"gcp:project": "stand-in-project", **config}, False, monkeypatch)
    planned = {name: plan for name, plan in operations(state, after, tmp_path).items() if "IAMMember" not in name}
    # Each pool gets its label.
    pools = {"gke-ai:index:GpuNodePool", "gke-ai:index:TpuNodePool", "gke-ai:index:FlexStartTpuPool"}
    labeled = [f"NodePool {pool.name}" for pool in after.resources.values() if pool.type in pools]
    assert planned == UPGRADES.get(system, {}) | update(*labeled)
