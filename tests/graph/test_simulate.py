"""A simulation uses the queues that the program registers, and refuses a trace or a configuration that it can't use."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.forecast.simulate.command import queues_of
from gke_ai.forecast.simulate.kueue import configuration as manager
from gke_ai.forecast.simulate.objects import Queues, workload
from gke_ai.terminal import Stop
from tests.support import repository
from tests.support.commands import gke_ai
from tests.support.recorder import configuration, load_stack, shared_record
from tests.support.simulation.theory import configuration as queues_with
from tests.support.simulation.theory import run

PROD = "Pulumi.prod.yaml"
STACKS = ["Pulumi.dev.yaml", PROD, "examples/mixed-training-inference.yaml"]


def compared(objects: Iterable[Mapping[str, Any]]) -> dict[tuple[str, ...], Any]:
    """The specs of the objects that a simulation has, by kind, namespace and name."""
    return {
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]): item.get("spec") or {}
        for item in objects
        if item.get("kind") in ("ResourceFlavor", "ClusterQueue", "LocalQueue")
    }


@pytest.mark.parametrize("path", STACKS)
def test_queues_are_those_that_the_program_registers(path: str) -> None:
    expected = compared(item.inputs for item in shared_record(configuration(path)).resources.values())
    found = compared(item for _, item in Queues(load_stack(configuration(path))).objects())
    assert len(found) >= 3
    assert found == expected


def test_kueue_has_the_configuration_of_the_program_but_for_three_settings() -> None:
    releases = shared_record(configuration(PROD)).all("Release")
    (values,) = (release.inputs["values"] for release in releases if release.name == "kueue")
    program = yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])
    simulated = manager(queues_of(repository.source(PROD)))
    changed = {key for key in program if program[key] != simulated.get(key)}
    assert changed == {"leaderElection", "clientConnection", "metrics"} | ({"waitForPodsReady"} & program.keys())


def test_queues_that_share_quota_are_one_group() -> None:
    queues = queues_with({"a": {"gpus": 1, "cohort": "x"}, "b": {"gpus": 1, "cohort": "x"}, "c": {"gpus": 1}})
    assert sorted(map(sorted, queues.groups())) == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("preemption", "priorities", "possible"),
    [
        ({"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"}, {1, 2}, False),
        ({}, {1}, False),
        ({}, {1, 2}, True),
        ({"reclaimWithinCohort": "Any"}, {1}, True),
        ({"withinClusterQueue": "LowerOrNewerEqualPriority"}, {1}, True),
    ],
)
def test_preemption_is_possible_if_the_policies_allow_it(preemption: Any, priorities: set[int], possible: bool) -> None:
    assert queues_with({"a": {"gpus": 1, "preemption": preemption}}).can_preempt(["a"], priorities) == possible


def test_a_workload_asks_for_the_accelerators_of_its_queue() -> None:
    queues = queues_of(repository.source(PROD))
    gpu, tpu = "nvidia.com/gpu", "google.com/tpu"
    resources = {name: queues.accelerator(name) for name in queues.cluster_queues}
    assert resources == {"serving": gpu, "training": gpu, "slices": tpu, "v5e": tpu}
    item = workload(3, run(0, 10, pods=2, accelerators=4), 20, "google.com/tpu")
    (pods,) = item["spec"]["podSets"]
    requests = pods["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert (pods["count"], requests["google.com/tpu"], item["spec"]["priority"]) == (2, "4", 20)


@pytest.mark.parametrize("path", STACKS)
def test_generated_runs_fit_the_queues_of_every_stack(path: str) -> None:
    queues = queues_of(repository.source(path))
    for source in queues.sources():
        name = queues.by_local[source.queue]
        (limits,) = [total for _, total in queues.cluster_queues[name].limits()]
        wanted = {"cpu": source.cpu, "memory": source.memory * 2**30, queues.accelerator(name): source.accelerators}
        for resource, amount in wanted.items():
            assert amount * source.most_pods <= limits.get(resource, 0), (source, resource)


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"queue": "other"}, "submits to team/other"), ({"priority": "top"}, "priority class top, but")],
)
def test_a_trace_of_another_stack_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Stop, match=message):
        queues_with({"one": {"gpus": 1}}, {"low": 1}).check((run(0, 1, **fields),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "There is no configuration"),
        ("config: {gke-ai:cluster: {name: c}}", "no local queues"),
        ("config: {gke-ai:queues: {clusterQueue: []}}", "gke-ai:queues"),
        ("[1]", "not a configuration"),
    ],
)
def test_a_configuration_without_queues_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "stack.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Stop, match=message):
        queues_of(file)


def test_an_imported_trace_is_printed_as_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, submitted = tmp_path / "cluster_log.csv", "2020-06-09 18:41:27"
    header = "vc,gpu_num,cpu_num,node_num,submit_time,start_time,duration"
    file.write_text(f"{header}\nvcX,1,4,1,{submitted},{submitted},249\n")
    gke_ai("trace-import", "helios", file, "--queue", "vcX=team/gpus")
    assert capsys.readouterr().out.splitlines()[1] == "0,team/gpus,,1,1,4,16,249,0,no"
