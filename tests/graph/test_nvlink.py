"""NVLink domains of GB200: what a pool of A4X makes of its policy, its placement, its nodes and its pods."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gke_ai.catalog.nodes import ARM_TAINT
from gke_ai.settings.reading import PREFIX
from tests.mistakes import base
from tests.recorder import Record, load_stack, shared_record

ARM = {"key": ARM_TAINT.key, "operator": "Equal", "value": ARM_TAINT.value, "effect": ARM_TAINT.effect}


def stack_of(**changes: Any) -> dict[str, Any]:
    """A stack with a pool of GB200 and a run on one node of it."""
    values = copy.deepcopy(base("nvlink", "good"))
    values["gpuPools"][0] |= changes
    return {f"{PREFIX}{key}": value for key, value in values.items()}


def pods_of(record: Record) -> dict[str, Any]:
    (job,) = record.one("JobSet").inputs["spec"]["replicatedJobs"]
    spec: dict[str, Any] = job["template"]["spec"]["template"]["spec"]
    return spec


def test_a_workload_policy_places_the_pool_in_one_domain() -> None:
    record = shared_record(stack_of())
    policy, pool = record.one("ResourcePolicy"), record.one("NodePool", "gb200")
    assert policy.inputs["workloadPolicy"] == {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "1x72"}
    assert policy.inputs["region"] == "us-central1"
    assert policy.inputs["name"].startswith("gb200-")
    assert pool.inputs["placementPolicy"] == {"type": "", "policyName": policy.inputs["name"]}
    assert pool.inputs["nodeLocations"] == ["us-central1-b"]
    assert f"ResourcePolicy {policy.inputs['name']}" in record.waits_for(pool)


def test_nodes_have_hyperdisk_local_ssds_and_no_network_profile() -> None:
    pool = shared_record(stack_of()).one("NodePool", "gb200")
    assert pool.inputs["nodeConfig"]["diskType"] == "hyperdisk-balanced"
    assert pool.inputs["nodeConfig"]["ephemeralStorageLocalSsdConfig"] == {"localSsdCount": 4}
    assert "acceleratorNetworkProfile" not in pool.inputs["networkConfig"]


def test_pods_and_the_flavor_tolerate_arm_nodes() -> None:
    record = shared_record(stack_of())
    assert pods_of(record)["tolerations"] == [ARM]
    assert ARM in record.one("ResourceFlavor").inputs["spec"]["tolerations"]


def test_a_server_tolerates_arm_nodes() -> None:
    values = stack_of()
    image = "us-docker.pkg.dev/my-project/serving/vllm-arm64:1.0.0"
    values[f"{PREFIX}serving"] = [
        {"name": "chat", "model": "google/gemma-2-9b-it", "maxModelLen": 4096, "pool": "gb200", "image": image}
    ]
    (server,) = shared_record(values).all("Deployment")
    assert server.inputs["spec"]["template"]["spec"]["tolerations"] == [ARM]


def test_pods_on_other_machines_get_no_toleration() -> None:
    values = {f"{PREFIX}{key}": value for key, value in base("topology", "good").items()}
    assert "tolerations" not in pods_of(shared_record(values))


def test_a_pool_of_another_cluster_has_another_policy() -> None:
    values = stack_of()
    names = set()
    for cluster in ("one", "two"):
        values[f"{PREFIX}cluster"] = {**values[f"{PREFIX}cluster"], "name": cluster}
        names.add(shared_record(copy.deepcopy(values)).one("ResourcePolicy").inputs["name"])
    assert len(names) == 2


@pytest.mark.parametrize(("gpus", "expected"), [(1, 1), (4, 4)])
def test_a_run_on_one_node_is_accepted(gpus: int, expected: int) -> None:
    values = stack_of()
    values[f"{PREFIX}training"][0]["gpusPerPod"] = gpus
    placed = load_stack(values).placed[0]
    assert (placed.accelerators, placed.claims_nics) == (expected, False)
