"""Mistakes of a calibration file have a path, and plans use its figures."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.catalog.nodes.shape import NodeShape, allocatable
from gke_ai.catalog.quantities import GI, parse_quantity
from gke_ai.registered.registration import RegisteredStack, Resource
from gke_ai.review.policy.rules.accelerators import quota_within_capacity
from gke_ai.settings import BadConfiguration, load
from gke_ai.settings.calibration import Calibration, read
from tests.support.mistakes import Configuration, good

NODE: dict[str, Any] = {
    "machineType": "g2-standard-24",
    "gpu": "nvidia-l4",
    "gpus": 2,
    "diskSizeGb": 100,
    "allocatable": {"cpu": "22", "memory": "80Gi", "ephemeral-storage": "40Gi"},
    "daemonSets": {"cpu": "500m"},
    "nodes": 3,
    "measuredOn": "2026-11-21",
    "gkeVersion": "v1.34.1-gke.1829001",
}
DURATION = {"step": "modelLoad", "of": "llm/gemma", "seconds": 200, "maxSeconds": 240, "count": 2}
DURATION |= {"measuredOn": "2026-11-21", "gkeVersion": "v1.34.1-gke.1829001"}
L4 = NodeShape("l4", "g2-standard-24", "nvidia-l4", 2, "default", "onDemand", "us-central1-a", 100, {}, True)


def written(folder: Path, content: Any) -> Path:
    """A calibration file with this content."""
    file = folder / "calibration.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


def calibrated(file: Path) -> Configuration:
    """A configuration without mistakes that names the file."""
    return {**good(), "calibration": str(file)}


@pytest.mark.parametrize(
    ("content", "where", "cause"),
    [
        ("nodes: [", "", "is not valid YAML: line 2: "),
        ([1], "", "valid dictionary"),
        ({"machines": []}, "machines: ", "not permitted"),
        ({"nodes": [{**NODE, "nodes": None}]}, "nodes[0].nodes: ", "valid integer"),
        ({"nodes": [{**NODE, "allocatable": {"disk": "1"}}]}, "nodes[0].allocatable.disk", "'cpu', 'memory'"),
        ({"nodes": [{**NODE, "machineType": "g9-standard-1"}]}, "nodes[0].machineType: ", "not a machine type"),
        ({"nodes": [{**NODE, "gpus": 3}]}, "nodes[0].gpus: ", "does not have 3 nvidia-l4"),
        ({"nodes": [{**NODE, "allocatable": {"cpu": "-1"}}]}, "nodes[0].allocatable.cpu: ", "-1 is below zero"),
        ({"nodes": [{**NODE, "daemonSets": {"cpu": "-1"}}]}, "nodes[0].daemonSets.cpu: ", "-1 is below zero"),
        ({"nodes": [{**NODE, "allocatable": {"cpu": "25"}}]}, "nodes[0].allocatable.cpu: ", "more than the 24"),
        ({"nodes": [{**NODE, "allocatable": {"memory": "4GB"}}]}, "nodes[0].allocatable.memory: ", "'4GB'"),
        ({"nodes": [NODE, NODE]}, "nodes[1]: ", "is listed twice"),
        ({"durations": [{**DURATION, "seconds": -1}]}, "durations[0].seconds: ", "greater than or equal to 0"),
        ({"durations": [{**DURATION, "step": "lunch"}]}, "durations[0].step: ", "'modelLoad'"),
    ],
)
def test_unusable_file_is_a_problem_with_path_and_remedy(tmp_path: Path, content: Any, where: str, cause: str) -> None:
    file = written(tmp_path, content)
    with pytest.raises(BadConfiguration) as bad:
        load(calibrated(file), "my-project")
    (problem,) = bad.value.problems
    assert problem.path == "gke-ai:calibration"
    assert problem.cause.startswith(where)
    assert cause in problem.cause
    assert str(file) in problem.cause
    assert problem.remedy


def test_file_reads_as_it_was_written_and_a_missing_one_is_a_problem(tmp_path: Path) -> None:
    first = read(written(tmp_path, {"nodes": [NODE], "durations": [DURATION]}))
    again = read(written(tmp_path, first.written()))
    assert again == first
    assert again.written() == first.written()
    duration = again.duration("modelLoad", "llm/gemma")
    assert duration
    assert duration.max_seconds == 240
    with pytest.raises(BadConfiguration, match=r"none\.yaml does not exist") as bad:
        load(calibrated(tmp_path / "none.yaml"), "my-project")
    assert "gke-ai verify" in str(bad.value)


def test_room_of_a_node_is_its_measured_allocatable_less_daemon_sets(tmp_path: Path) -> None:
    measured = read(written(tmp_path, {"nodes": [NODE]}))
    amounts = {"cpu": Fraction("21.5"), "memory": 80 * GI, "ephemeral-storage": 40 * GI, "nvidia.com/gpu": 2}
    assert measured.room(L4).items() >= amounts.items()
    assert measured.allocatable(L4)["cpu"] == 22
    other_disk = read(written(tmp_path, {"nodes": [{**NODE, "diskSizeGb": 500}]})).room(L4)
    computed = Calibration().room(L4)
    assert (other_disk["cpu"], other_disk["ephemeral-storage"]) == (Fraction("21.5"), computed["ephemeral-storage"])
    other_machine = read(written(tmp_path, {"nodes": [{**NODE, "machineType": "g2-standard-48", "gpus": 4}]}))
    assert other_machine.room(L4) == computed
    assert Calibration().allocatable(L4) == allocatable(L4)


def test_pod_that_fits_a_computed_node_is_refused_on_a_measured_one(tmp_path: Path) -> None:
    values = good()
    load(values, "my-project")
    small = {**NODE, "diskSizeGb": values["gpuPools"][0].get("diskSizeGb", 100), "allocatable": {"cpu": "3"}}
    with pytest.raises(BadConfiguration) as bad:
        load(calibrated(written(tmp_path, {"nodes": [small]})), "my-project")
    assert any("requests" in problem.cause and "2.5 CPU" in problem.cause for problem in bad.value.problems)


def test_derived_quota_and_its_policy_use_measured_figures(tmp_path: Path) -> None:
    figures = {**NODE, "allocatable": {"cpu": "23950m"}, "daemonSets": {}}
    values = calibrated(written(tmp_path, {"nodes": [figures]}))
    values["queues"]["clusterQueues"][0]["flavors"][0]["quota"] = "derive"
    stack = load(values, "my-project")
    (pool,) = stack.settings.gpu_pools
    nodes = pool.max_nodes(stack.cluster)
    quota = stack.cluster_queues[0].quotas[0].texts
    assert parse_quantity(quota["cpu"]) == nodes * parse_quantity("23950m")

    def registered(kind: str, spec: dict[str, Any]) -> Resource:
        return Resource("urn", f"kubernetes:x:{kind}", "l4", {"kind": kind, "metadata": {"name": "l4"}, "spec": spec})

    amounts = [{"name": resource, "nominalQuota": text} for resource, text in quota.items()]
    place = {"name": pool.name, "location": "us-central1", "nodeLocations": ["us-central1-a"]}
    machine = {"machineType": "g2-standard-24", "diskSizeGb": pool.disk_size_gb}
    inputs = {**place, "nodeConfig": machine, "autoscaling": {"totalMaxNodeCount": nodes}}
    resources = [
        registered("ClusterQueue", {"resourceGroups": [{"flavors": [{"name": "l4", "resources": amounts}]}]}),
        registered("ResourceFlavor", {"nodeLabels": {"cloud.google.com/gke-nodepool": pool.name}}),
        Resource("urn", "gcp:container/nodePool:NodePool", pool.name, inputs),
    ]
    named = {"gke-ai:calibration": values["calibration"]}
    assert list(quota_within_capacity.check(RegisteredStack(resources, named))) == []
    assert "cpu" in str(next(iter(quota_within_capacity.check(RegisteredStack(resources)))))
