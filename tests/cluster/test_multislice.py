"""Only here: the real JobSet gives each slice a pool of its own, restarts failed slices, and Kueue orders the runs."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from gke_ai.catalog.nodes.shape import GKE_NODEPOOL
from gke_ai.kube.objects import condition, holds
from tests.support.emulator import Emulator, Found, deployed, eventually, gone, settled
from tests.support.examples import section
from tests.support.workloads import fails, finish, running

EXAMPLE = "examples/multislice-training.yaml"


@pytest.fixture(scope="module")
def example() -> Iterator[Emulator]:
    """The deployed example. The tests below use it in order."""
    with deployed(EXAMPLE, {}) as emulator:
        yield emulator


# The child Jobs of the example's JobSets.
ONE, TWO, THREE = ([f"multislice-{count}slice-slice-{index}" for index in range(count)] for count in (1, 2, 3))


POOLS = [["nodepool1"], ["nodepool2"], ["nodepool3"]]


def run_fully(emulator: Emulator, jobs: list[str], pods: int = 2) -> bool:
    return all(len(running(emulator, job)) == pods for job in jobs)


def pools(emulator: Emulator, jobs: list[str]) -> list[set[str]]:
    of_node = {node["metadata"]["name"]: node["metadata"]["labels"][GKE_NODEPOOL] for node in emulator.get("nodes")}
    return [{of_node[pod["spec"]["nodeName"]] for pod in running(emulator, job)} for job in jobs]


def slices(emulator: Emulator, job: str) -> set[tuple[str, str]]:
    """The number of slices and the child Job's own number, from the variables that read JobSet's labels."""
    slice_pods = set()
    for pod in running(emulator, job):
        read = [variable["valueFrom"]["fieldRef"]["fieldPath"] for variable in pod["spec"]["containers"][0]["env"][:2]]
        labels = [path.removeprefix("metadata.labels['").removesuffix("']") for path in read]
        slice_pods.add((pod["metadata"]["labels"][labels[0]], pod["metadata"]["labels"][labels[1]]))
    return slice_pods


def jobset(emulator: Emulator, name: str) -> dict[str, Any]:
    (found,) = emulator.get("jobsets", "-n", "default", f"--field-selector=metadata.name={name}")
    return found


def test_three_slices_run_alone_each_on_a_pool_of_its_own(example: Emulator) -> None:
    eventually(lambda: run_fully(example, THREE), "the first JobSet has all slices")
    assert sorted(map(sorted, pools(example, THREE))) == POOLS
    for waiting in (*ONE, *TWO):
        assert not running(example, waiting)
    assert jobset(example, "multislice-1slice")["spec"]["suspend"] is True
    settled(example)


@pytest.mark.nightly
def test_pools_of_slices_are_as_the_stack_relies_on(example: Emulator) -> None:
    eventually(lambda: all(holds(node, "Ready") for node in example.get("nodes")), "all nodes are ready")
    printed = example.make("verify")
    assert fails(printed) == []
    assert re.search(r"^pass +accelerators +pool \S+: google.com/tpu +4 a node", printed, re.MULTILINE), printed
    assert re.search(r"^pass +quota +flavor ", printed, re.MULTILINE), printed


def test_the_others_run_together_when_it_has_finished(example: Emulator) -> None:
    for job in THREE:
        finish(example, job)
    eventually(lambda: run_fully(example, [*ONE, *TWO]), "both others run")
    assert holds(jobset(example, "multislice-3slice"), "Completed")
    assert sorted(map(sorted, pools(example, [*ONE, *TWO]))) == POOLS


@pytest.mark.nightly
def test_failed_slice_restarts_the_jobset_at_most_four_times(example: Emulator) -> None:
    if not holds(jobset(example, "multislice-3slice"), "Completed"):  # at night, nothing has ended it
        for job in THREE:
            finish(example, job)
    for restarts in range(1, 5):
        eventually(lambda: run_fully(example, ONE), "the slice runs")
        finish(example, ONE[0], succeeded=False)
        eventually(
            lambda restarts=restarts: jobset(example, "multislice-1slice")["status"].get("restarts") == restarts,  # type: ignore[misc]
            f"the JobSet is restarted for time {restarts}",
        )
    eventually(lambda: run_fully(example, ONE), "the slice runs for the last time")
    finish(example, ONE[0], succeeded=False)
    eventually(lambda: holds(jobset(example, "multislice-1slice"), "Failed"), "the JobSet has failed")
    assert jobset(example, "multislice-1slice")["status"]["restarts"] == 4


def grown() -> dict[str, Any]:
    """Sections with two more slices that grow from zero and a JobSet over them, and two JobSets with priorities."""
    training, queues = section("training", EXAMPLE), section("queues", EXAMPLE)
    tpu_pools = section("tpuPools", EXAMPLE)
    like = {**tpu_pools[0], "topology": "4x4", "capacity": {"mode": "flexStart"}}
    flex = [{**like, "name": name} for name in ("flex1", "flex2")]
    queues["flavors"] += [{"name": pool["name"], "pools": [pool["name"]]} for pool in flex]
    quota = {"google.com/tpu": 16}
    queues["clusterQueues"][0]["flavors"] += [{"flavor": pool["name"], "quota": quota} for pool in flex]
    queues["priorityClasses"].append({"name": "high-priority", "value": 200})
    like = {key: value for key, value in training[0].items() if key != "name"}
    return {
        "tpuPools": [*tpu_pools, *flex],
        "queues": queues,
        "training": [
            *training,
            {**like, "name": "low-priority", "slices": 1, "priorityClass": "low-priority"},
            {**like, "name": "high-priority", "slices": 3, "priorityClass": "high-priority"},
            {**like, "name": "growing", "slices": 2, "pools": ["flex1", "flex2"]},
        ],
    }


@pytest.mark.nightly
def test_lower_priority_is_preempted_and_resumes_and_slices_grow_from_zero(example: Emulator) -> None:
    example.make("up", example.configure(EXAMPLE, **grown()))
    urgent = [f"high-priority-slice-{index}" for index in range(3)]
    eventually(lambda: run_fully(example, urgent), "the one of higher priority runs")
    workloads = example.get("workloads", "-n", "default")
    (low,) = (item for item in workloads if item["metadata"]["ownerReferences"][0]["name"] == "low-priority")
    assert condition(low, "Evicted")["reason"] == "Preempted"
    assert not running(example, "low-priority-slice-0")
    assert not running(example, TWO[0])

    growing = ["growing-slice-0-0", "growing-slice-1-0"]
    eventually(lambda: run_fully(example, growing, 4), "the slices that grow from zero have come")
    assert pools(example, growing) == [{"flex1"}, {"flex2"}]
    assert [slices(example, job) for job in growing] == [{("2", "0")}, {("2", "1")}], "they are one run of two slices"

    for job in urgent:
        finish(example, job)
    eventually(lambda: run_fully(example, ["low-priority-slice-0", *TWO]), "those of lower priority are back")
    assert example.planned() == {}


def test_down_leaves_nothing(example: Emulator) -> None:
    example.make("down")
    gone(example, Found(frozenset(), frozenset()))
