"""`python -m ops.when` reads a run and a cluster, and says when and why the run starts."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from catalog.nodes import NVIDIA_GPU
from catalog.tpus import GOOGLE_TPU
from forecast.state import State, requests, state
from ops import when
from ops.run_file import read_run
from ops.snapshot.format import build
from ops.stack import Stack, Stop
from tests.snapshots import TAKEN

Object = dict[str, Any]
STACK = Stack("prod")


def time(minutes_ago: float) -> str:
    return (TAKEN - timedelta(minutes=minutes_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def uid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def workload(
    name: str, created: float, started: float | None = None, ended: float | None = None, gpus: int = 8
) -> Object:
    """A Workload of training, with times in minutes before the snapshot."""
    times = {"QuotaReserved": started, "Admitted": started, "Finished": ended}
    status: Object = {
        "conditions": [
            {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": time(minutes)}
            for kind, minutes in times.items()
            if minutes is not None
        ]
    }
    if started is not None:
        assignment = {
            "name": "main",
            "flavors": {NVIDIA_GPU: "l4"},
            "resourceUsage": {NVIDIA_GPU: str(gpus)},
            "count": 1,
        }
        status["admission"] = {"clusterQueue": "training", "podSetAssignments": [assignment]}
    container = {"name": "main", "resources": {"requests": {NVIDIA_GPU: str(gpus)}}}
    template = {"metadata": {}, "spec": {"containers": [container]}}
    spec = {"queueName": "gpus", "priority": 20, "podSets": [{"name": "main", "count": 1, "template": template}]}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid(f"job {name}"), "controller": True}
    metadata = {
        "name": f"job-{name}",
        "namespace": "training",
        "uid": uid(name),
        "creationTimestamp": time(created),
        "ownerReferences": [owner],
    }
    return {"metadata": metadata, "spec": spec, "status": status}


def objects(*workloads: Object) -> dict[str, list[Object]]:
    """Queues for L4 GPUs and TPU slices as in prod, and Workloads of training."""
    gpus = [{"name": "cpu", "nominalQuota": "100"}, {"name": "memory", "nominalQuota": "500Gi"}]
    gpus += [{"name": NVIDIA_GPU, "nominalQuota": "8"}, {"name": "ephemeral-storage", "nominalQuota": "500Gi"}]
    covered = ["cpu", "memory", NVIDIA_GPU, "ephemeral-storage"]
    group = {"coveredResources": covered, "flavors": [{"name": "l4", "resources": gpus}]}
    chips = [{"name": "cpu", "nominalQuota": "1k"}, {"name": "memory", "nominalQuota": "2Ti"}]
    chips += [{"name": GOOGLE_TPU, "nominalQuota": "16"}]
    slices = {"coveredResources": ["cpu", "memory", GOOGLE_TPU], "flavors": [{"name": "slices", "resources": chips}]}
    preemption = {"withinClusterQueue": "LowerPriority"}
    return {
        "ResourceFlavor": [
            {"metadata": {"name": "l4"}, "spec": {"nodeLabels": {"gpu": "l4"}}},
            {"metadata": {"name": "slices"}},
        ],
        "ClusterQueue": [
            {"metadata": {"name": "training"}, "spec": {"resourceGroups": [group], "preemption": preemption}},
            {"metadata": {"name": "slices"}, "spec": {"resourceGroups": [slices]}},
        ],
        "LocalQueue": [
            {"metadata": {"name": "gpus", "namespace": "training"}, "spec": {"clusterQueue": "training"}},
            {"metadata": {"name": "slices", "namespace": "training"}, "spec": {"clusterQueue": "slices"}},
        ],
        "PriorityClass": [{"metadata": {"name": "urgent"}, "value": 100}],
        "WorkloadPriorityClass": [{"metadata": {"name": "soon"}, "value": 50}],
        "Workload": list(workloads),
    }


def cluster(*workloads: Object) -> State:
    return state(objects(*workloads), TAKEN)


def job(**more: Any) -> Object:
    """A Job of two pods with 2 GPUs each."""
    container = {"name": "main", "image": "x", "resources": {"limits": {NVIDIA_GPU: "2"}}}
    metadata = {"name": "mine", "namespace": "training", "labels": {"kueue.x-k8s.io/queue-name": "gpus"}}
    metadata["labels"] |= more.pop("labels", {})
    spec = {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [container], **more}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(job()))
    return path


def test_a_job_is_read_as_kueue_counts_it(file: Path) -> None:
    run = read_run(file, STACK, cluster())
    assert (run.name, run.queue, run.priority) == ("training/job/mine", "training", 0)
    assert run.needs == {NVIDIA_GPU: 4}


def test_a_jobset_adds_up_its_jobs(file: Path) -> None:
    jobs = [{"name": name, "replicas": 2, "template": {"spec": job()["spec"]}} for name in ("a", "b")]
    file.write_text(yaml.safe_dump({**job(), "kind": "JobSet", "spec": {"replicatedJobs": jobs}}))
    assert read_run(file, STACK, cluster()).needs == {NVIDIA_GPU: 16}


def test_a_run_is_read_as_it_stands_in_the_configuration(file: Path) -> None:
    config = yaml.safe_load(Path("Pulumi.prod.yaml").read_text())["config"]
    finetune, pretrain = config["gke-ai:training"]
    for content in (finetune, {"training": [finetune]}, {"gke-ai:training": [finetune]}):
        file.write_text(yaml.safe_dump(content))
        run = read_run(file, STACK, cluster())
        assert (run.queue, run.needs[NVIDIA_GPU], run.priority) == ("training", 8, 20)
        assert run.name.startswith("training/job/finetune-")
    file.write_text(yaml.safe_dump(pretrain))
    assert read_run(file, STACK, cluster()).needs[GOOGLE_TPU] == 32


@pytest.mark.parametrize(
    ("labels", "more", "priority"),
    [({}, {"priorityClassName": "urgent"}, 100), ({"kueue.x-k8s.io/priority-class": "soon"}, {}, 50)],
)
def test_the_priority_is_that_of_the_class(file: Path, labels: dict[str, str], more: Object, priority: int) -> None:
    file.write_text(yaml.safe_dump(job(labels=labels, **more)))
    assert read_run(file, STACK, cluster()).priority == priority


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "is not valid YAML"),
        ("apiVersion: v1\nkind: Service", "has no run"),
        (yaml.safe_dump({**job(), "metadata": {"name": "x"}}), "has no kueue.x-k8s.io/queue-name"),
        (yaml.safe_dump({**job(), "spec": {}}), "this is no Job that Kubernetes accepts"),
        (yaml.safe_dump(job(priorityClassName="none")), "there is no priority class none"),
        (
            yaml.safe_dump(job(labels={"kueue.x-k8s.io/queue-name": "cpus"})),
            "no local queue training/cpus. It has training/gpus",
        ),
        (yaml.safe_dump_all([job(), job()]), "has 2 Jobs"),
        ("training: []", "is not a list with one run"),
        ("name: mine\nvolume: {bucket: none}\npods: many", "run.yaml.pods: "),
    ],
)
def test_a_file_without_a_run_is_refused(file: Path, content: str, message: str) -> None:
    file.write_text(content)
    with pytest.raises(Stop, match=message):
        read_run(file, STACK, cluster())


def test_requests_are_those_of_the_scheduler() -> None:
    pod = {
        "overhead": {"cpu": "100m"},
        "initContainers": [
            {"resources": {"requests": {"cpu": "3"}}},
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        ],
        "containers": [{"resources": {"limits": {"cpu": "1", NVIDIA_GPU: "1"}}}],
    }
    assert requests([(2, pod)]) == {"cpu": pytest.approx(6.2), NVIDIA_GPU: 2}


def test_workloads_are_read_with_their_times() -> None:
    ended, running, waiting = cluster(workload("a", 100, 90, 30), workload("b", 80, 30), workload("c", 10)).records
    now = TAKEN.timestamp()
    assert (ended.started, ended.ended) == (now - 5400, now - 1800)
    assert (running.started, running.ended, running.usage) == (now - 1800, None, ((("l4", NVIDIA_GPU), 8.0),))
    assert (waiting.started, waiting.run.needs, waiting.run.name) == (None, {NVIDIA_GPU: 8}, "training/job/c")
    assert ended.tested


def test_a_node_selector_excludes_flavors_with_other_labels(file: Path) -> None:
    file.write_text(yaml.safe_dump(job(nodeSelector={"gpu": "a100"})))
    assert read_run(file, STACK, cluster()).unsuitable == {"l4"}


def printed(capsys: pytest.CaptureFixture[str], file: Path, *workloads: Object, json: bool = False) -> str:
    """What the command prints for a snapshot with these Workloads."""
    snapshot = file.with_name("snapshot.json")
    snapshot.write_text(build("prod", objects(*workloads), TAKEN).to_json())
    when.main(["--snapshot", str(snapshot), str(file), *(["--json"] if json else [])])
    return capsys.readouterr().out


def test_the_command_says_when_and_why(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    past = [workload(f"old-{n}", 11_000 - 240 * n, 11_000 - 240 * n, 10_940 - 240 * n) for n in range(45)]
    output = printed(capsys, file, *past, workload("big", 40, 30), workload("next", 20))
    assert output.startswith("Starts in 1 h ")
    assert "on flavor l4 of cluster queue training" in output
    assert "It needs 4 GPUs more than are free now. 1 waiting run of its queue is ahead of it." in output
    assert "training/job/big" in output
    assert "training/job/next" in output
    assert "45 ended runs" in output
    assert "No past run had to wait" in output


def test_the_command_prints_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(printed(capsys, file, workload("big", 40, 30), json=True))
    assert answer["seconds"]["low"] <= answer["seconds"]["median"] <= answer["seconds"]["high"]
    assert answer["missing"] == {NVIDIA_GPU: 4}
    assert [holder["run"] for holder in answer["holders"]] == ["training/job/big"]


def test_the_command_names_who_is_preempted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(yaml.safe_dump(job(priorityClassName="urgent")))
    output = printed(capsys, file, workload("big", 40, 30))
    assert output.startswith("Starts at once, on flavor l4 of cluster queue training.")
    assert "Kueue preempts 1 run for it: training/job/big (8 GPUs, priority 20)" in output


def test_the_command_says_why_a_run_never_starts(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = job()
    large["spec"] |= {"parallelism": 5, "completions": 5}
    file.write_text(yaml.safe_dump(large))
    output = printed(capsys, file)
    assert "never starts in cluster queue training" in output
    assert "It requests 10 of nvidia.com/gpu, and the queue never has more than 8 in flavor l4." in output


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5, "5 s"),
        (300, "5 min"),
        (11_400, "3 h 10 min"),
        (7200, "2 h"),
        (187_200, "2 days 4 h"),
        (14 * 86_400, "14 days"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert when.duration(seconds) == text
