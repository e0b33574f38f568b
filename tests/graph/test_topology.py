"""Placement by topology: the objects of pools, flavors and runs, and which flavors have a topology by default."""

from collections.abc import Callable
from typing import Any

import pytest

from gke_ai.catalog.fabric import topology
from gke_ai.catalog.fabric.topology import HOSTNAME, LEVELS, TOPOLOGY
from gke_ai.catalog.section_files import PREFIX
from gke_ai.components import GpuNodePool
from gke_ai.settings.published import place
from gke_ai.settings.resolved.queues import flavors_of
from tests.support.mistakes import base
from tests.support.recorder import PROJECT, Record, load_stack, shared_record
from tests.support.registered import published

Build = Callable[..., Record]
BLOCK = LEVELS["block"]
POOL = {"name": "b200", "project": PROJECT, "cluster": "c", "location": "us-central1", "zones": ["us-central1-b"]}
A4 = {**POOL, "machine_type": "a4-highgpu-8g", "nodes_per_zone": 4, "capacity": {"mode": "spot"}}


def stack_of(name: str = "good", **changes: Any) -> dict[str, Any]:
    """A stack with a run of four A4 nodes in one block."""
    values = base("topology", name)
    values["gpuPools"][0] |= changes
    return {f"{PREFIX}{key}": value for key, value in values.items()}


def with_topology(values: dict[str, Any]) -> dict[str, bool]:
    return {flavor.section.name: flavor.has_topology for flavor in load_stack(values).flavors}


def test_levels_come_before_the_flavor_that_names_them_and_the_queue() -> None:
    record = shared_record(stack_of())
    levels = [{"nodeLabel": label} for label in (*LEVELS.values(), HOSTNAME)]
    assert record.one("Topology", TOPOLOGY).inputs["spec"] == {"levels": levels}
    flavor = record.one("ResourceFlavor")
    assert flavor.inputs["spec"] == {
        "nodeLabels": {"cloud.google.com/gke-accelerator": "nvidia-b200", "cloud.google.com/gke-nodepool": "b200"},
        "topologyName": TOPOLOGY,
        # Kueue compares a Job's template, without the toleration that Kubernetes adds to pods, with the nodes' taints.
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
    assert f"Topology {TOPOLOGY}" in record.waits_for(flavor)
    assert "ResourceFlavor b200" in record.waits_for(record.one("ClusterQueue"))


def test_a_run_names_its_level_on_its_pods_and_requests_what_it_is_limited_to() -> None:
    (job,) = shared_record(stack_of()).one("JobSet").inputs["spec"]["replicatedJobs"]
    template = job["template"]["spec"]["template"]
    assert template["metadata"]["annotations"][topology.REQUIRED] == BLOCK
    for container in template["spec"]["containers"]:
        assert container["resources"]["requests"] == container["resources"]["limits"] != {}


def test_a_fine_tuning_run_names_its_level_too() -> None:
    values = stack_of()
    (run,) = values[f"{PREFIX}training"]
    kept = {key: run[key] for key in ("name", "queue", "pool", "pods", "gpusPerPod", "acceptSlowNetwork")}
    level = {"preferred": "block", "groups": {"pods": 2, "level": "subblock"}}
    values[f"{PREFIX}training"] = [{**kept, "volume": {"bucket": "checkpoints"}, "topology": level}]
    annotations = shared_record(values).one("Job").inputs["spec"]["template"]["metadata"]["annotations"]
    expected = {topology.PREFERRED: BLOCK, topology.GROUPS: LEVELS["subblock"], topology.GROUP_SIZE: "2"}
    assert {name: annotations[name] for name in topology.ANNOTATIONS if name in annotations} == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"capacity": {"mode": "spot"}}, False),
        ({"capacity": {"mode": "spot"}, "compactPlacement": True}, True),
        ({"machineType": "a3-highgpu-8g"}, False),
        # Kueue places only on nodes that exist.
        ({"nodesPerZone": None, "autoscaling": {"minNodes": 4, "maxNodes": 8}}, False),
    ],
)
def test_a_flavor_has_a_topology_if_its_nodes_exist_and_have_the_labels(changes: Any, expected: bool) -> None:
    assert with_topology(stack_of(**changes) | {f"{PREFIX}training": []}) == {"b200": expected}


def test_flavors_that_share_a_queue_with_one_without_topology_have_none_by_default() -> None:
    values = stack_of("mixed") | {f"{PREFIX}training": []}
    assert with_topology(values) == {"b200": True, "spot": False}  # as stated
    flavors = values[f"{PREFIX}queues"]["flavors"]
    del flavors[0]["topology"]
    # A third flavor, which could have one, shares a queue with the first.
    values[f"{PREFIX}gpuPools"].append({**values[f"{PREFIX}gpuPools"][0], "name": "more"})
    flavors.append({"name": "more", "pools": ["more"]})
    shared = [{"flavor": name, "quota": {"nvidia.com/gpu": "8"}} for name in ("b200", "more")]
    values[f"{PREFIX}queues"]["clusterQueues"].append({"name": "other", "flavors": shared})
    assert with_topology(values) == {"b200": False, "spot": False, "more": False}


@pytest.mark.parametrize(
    ("queues", "stated", "expected"),
    [
        ({"kueue": "existing"}, None, False),
        ({"kueue": "existing"}, True, True),
        ({"kueue_version": "0.18.4"}, None, False),
        ({"kueue_version": "0.19.2"}, None, True),
    ],
)
def test_another_kueue_places_by_topology_if_the_flavor_says_so(queues: Any, stated: Any, expected: bool) -> None:
    stack = load_stack(stack_of())
    (flavor,) = stack.queues.flavors
    changed = stack.queues.model_copy(update={**queues, "flavors": [flavor.model_copy(update={"topology": stated})]})
    pools = {pool.section.name: pool for pool in stack.node_pools}
    assert [flavor.has_topology for flavor in flavors_of(changed, pools)] == [expected]


def test_a_tenant_submits_the_run_that_the_program_would_register() -> None:
    values = stack_of()
    (run,) = values[f"{PREFIX}training"]
    run["namespace"] = "team"
    values[f"{PREFIX}queues"]["localQueues"][0]["namespace"] = "team"
    for bucket in values[f"{PREFIX}buckets"]:
        bucket["grants"] = [{**grant, "namespace": "team"} for grant in bucket["grants"]]
    values[f"{PREFIX}tenants"] = [{"name": "team", "priorityClasses": ["low"], "podSecurity": "privileged"}]
    own = published(values, "team")
    placed, problems = place(own, "training", run)
    assert (placed is not None, problems) == (True, [])
    _, problems = place(own, "training", {**run, "topology": {"required": "host"}})
    assert "a host has 8" in str(problems)


def test_compact_nodes_have_a_policy_and_a_replacement_of_another_name(build: Build) -> None:
    first, compact = (
        build(GpuNodePool, A4, create_before_delete=True, compact_placement=compact).one("NodePool").inputs
        for compact in (False, True)
    )
    assert ("placementPolicy" in first, compact["placementPolicy"]) == (False, {"type": "COMPACT"})
    assert first["name"] != compact["name"]
