"""Only here: the file for `pulumi import` from the events of Pulumi's engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.emulator import Emulator

PROJECT = "projects/my-project"
REGION = f"{PROJECT}/regions/us-central1"
CLUSTER = f"{PROJECT}/locations/us-central1/clusters/ml"
SECTIONS: dict[str, Any] = {
    "cluster": {"name": "ml", "mode": "standard", "location": "us-central1", "vpc": {"name": "net"}},
    "gpuPools": [{"name": "gpus", "machineType": "g2-standard-24", "zones": ["us-central1-a"], "nodesPerZone": 1}],
    "buckets": [{"name": "models-of-ml"}],
}


@pytest.fixture
def emulator(tmp_path: Path) -> Emulator:
    """An emulator without clusters."""
    return Emulator(tmp_path / "state")


def test_the_file_has_the_ids_of_cluster_pools_and_network_and_the_components_around_them(emulator: Emulator) -> None:
    config, file = emulator.written(**SECTIONS), emulator.state / "import.json"
    printed = emulator.run("gke-ai", "preview", "--stack", "test", "--config", str(config), "--import-file", str(file))
    assert f"pulumi import --stack test --file {file}" in printed, "the next step"
    resources = json.loads(file.read_text())["resources"]
    ids = {(item["type"].rpartition(":")[2], item["id"]) for item in resources if "id" in item}
    assert ids == {
        ("Cluster", CLUSTER),
        ("NodePool", f"{CLUSTER}/nodePools/default-pool"),
        ("NodePool", f"{CLUSTER}/nodePools/gpus"),
        ("Network", f"{PROJECT}/global/networks/net"),
        ("Subnetwork", f"{REGION}/subnetworks/net"),
        ("Router", f"{REGION}/routers/net"),
        ("RouterNat", "my-project/us-central1/net/net"),
    }
    components = {item["name"]: item["type"].rpartition(":")[2] for item in resources if item.get("component")}
    assert sorted(components.values()) == ["ClusterNetwork", "GkeCluster", "GpuNodePool"]
    assert {item["parent"] for item in resources if "id" in item} == components.keys()
    names = [item["name"] for item in resources]
    assert all(names.index(item["parent"]) < names.index(item["name"]) for item in resources if "parent" in item)
