"""TrainJobs, RayJobs and RayClusters: their pods, their state as runs, and what submit says of their manifests."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.kube.names import WorkloadName
from gke_ai.kube.pods import counted, pod_sets, templates, wanted_pods
from gke_ai.ops.runs.command import Run
from gke_ai.ops.submit.fit import Fit
from gke_ai.ops.submit.manifest import problems_of, read_manifest
from gke_ai.terminal import Stop
from tests.support.further_kinds import SMALL, ray_cluster, ray_cluster_spec, ray_job, train_job
from tests.support.submitted import PUBLISHED

Object = dict[str, Any]
NAME = "spec.rayClusterSpec.workerGroupSpecs"


@pytest.mark.parametrize(
    ("item", "counts", "gpus"),
    [
        (train_job(nodes=3), [3], 3),
        (ray_cluster(cluster=ray_cluster_spec(2)), [1, 2], 2),
        (ray_job(cluster=ray_cluster_spec(2)), [1, 2, 1], 2),
        (ray_job(submissionMode="HTTPMode"), [1, 1], 1),
    ],
)
def test_pods_are_counted_with_what_they_request(item: Object, counts: list[int], gpus: int) -> None:
    assert [count for count, _ in pod_sets(item)] == counts
    assert wanted_pods(item) == sum(counts)
    assert len([*templates(item["kind"], item)]) == len(counts)
    assert counted(pod_sets(item))["requests.nvidia.com/gpu"] == gpus


def test_a_pod_has_only_fields_that_the_api_server_knows_and_a_group_as_many_as_its_hosts() -> None:
    """The API server is asked whether it would create such a pod."""
    (template,) = templates("TrainJob", train_job(nodes=3))
    (container,) = template["spec"]["containers"]
    assert container.keys() <= {"name", "image", "command", "args", "env", "resources"}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    cluster = ray_cluster_spec(2)
    cluster["workerGroupSpecs"][0]["numOfHosts"] = 4
    assert wanted_pods(ray_cluster(cluster=cluster)) == 9
    del cluster["workerGroupSpecs"][0]["replicas"]
    assert wanted_pods(ray_cluster(cluster=cluster)) == 1


@pytest.mark.parametrize(
    ("item", "status", "state"),
    [
        (train_job(suspend=True), {}, "Suspended"),
        (train_job(), {"conditions": [{"type": "Complete", "status": "True"}]}, "Completed"),
        (ray_job(), {"jobDeploymentStatus": "Running", "jobStatus": "SUCCEEDED"}, "Started"),
        (ray_job(), {"jobDeploymentStatus": "Complete"}, "Completed"),
        (ray_job(), {"jobDeploymentStatus": "ValidationFailed"}, "Failed"),
        (ray_cluster(), {"state": "ready"}, "Started"),
    ],
)
def test_the_state_of_a_run(item: Object, status: Object, state: str) -> None:
    assert Run("mine", "team-a", item["kind"], item={**item, "status": status}).state == state


def test_pods_of_a_rayjob_are_those_of_its_ray_cluster_and_the_one_that_submits_it() -> None:
    run = Run("mine", "a", "RayJob", item={**ray_job(), "status": {"rayClusterName": "mine-x1"}})
    labels: list[Object] = [{"ray.io/cluster": "mine-x1"}, {"batch.kubernetes.io/job-name": "mine"}, {}]
    pods = [{"metadata": {"namespace": "a", "labels": one}, "status": {"phase": "Running"}} for one in labels]
    assert [run.owns(pod) for pod in pods] == [True, True, False]
    assert Run("mine", "a", "TrainJob").selector == "jobset.sigs.k8s.io/jobset-name=mine"


@pytest.mark.parametrize(
    ("workload", "owner", "name"),
    [
        ("trainjob-my-run-f8af2", {"kind": "Job", "name": "my-run-node-0"}, "team-a/trainjob/my-run"),
        ("rayjob-run-0f74e", {"kind": "RayCluster", "name": "run-jtz5w"}, "team-a/rayjob/run"),
        ("", {"kind": "RayCluster", "name": "work"}, "team-a/raycluster/work"),
        ("jobset-run-0f74e", {"kind": "Job", "name": "run-node-0"}, "team-a/job/run-node-0"),
    ],
)
def test_a_pod_has_the_name_of_the_run_that_kueue_queued(workload: str, owner: Object, name: str) -> None:
    metadata: Object = {"namespace": "team-a", "name": "x", "ownerReferences": [{**owner, "controller": True}]}
    metadata["annotations"] = {"kueue.x-k8s.io/workload": workload} if workload else {}
    assert str(WorkloadName.of_pod({"metadata": metadata})) == name


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (train_job(nodes=3), "queue lq has no quota for memory"),
        (ray_job(cluster=ray_cluster_spec(3)), "queue lq has no quota for memory"),
        (train_job(), "the stack has no Kubeflow Trainer, so nothing would start a TrainJob"),
        (ray_job(), "the stack has no KubeRay, so nothing would start a RayJob"),
    ],
)
def test_a_manifest_is_checked_by_the_same_rules_as_a_job(item: Object, problem: str) -> None:
    fit = Fit.of_queue(PUBLISHED, "lq")
    assert [text for text in problems_of(Path("run.yaml"), item, PUBLISHED, fit) if problem in text]


def test_a_manifest_of_a_stack_with_its_controller_has_no_problem() -> None:
    # Of a Ray cluster, the head has no GPU, and the taint keeps it off nodes with some.
    quotas = {
        name: {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": gpus} for name, gpus in (("cpu", "0"), ("l4", "2"))
    }
    flavors = [{"flavor": name, "quota": quota} for name, quota in quotas.items()]
    queues = {**PUBLISHED.sections["queues"], "trainer": "install", "ray": "install"}
    queues["clusterQueues"] = [{**queues["clusterQueues"][0], "flavors": flavors}]
    queues["flavors"] = [{"name": "cpu"}, *queues["flavors"]]
    published = replace(PUBLISHED, sections={**PUBLISHED.sections, "queues": queues})
    for item in (train_job(), ray_job(), ray_cluster(cluster=ray_cluster_spec(each=SMALL))):
        assert [*problems_of(Path("run.yaml"), item, published, Fit.of_queue(published, "lq"))] == []


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (train_job(nodes="two"), r"spec.trainer.numNodes is no number"),
        (ray_job(cluster=ray_cluster_spec("two")), rf"{NAME}\[0\].replicas is no number"),
    ],
)
def test_a_count_that_is_no_number_is_refused(item: Object, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(item))
    with pytest.raises(Stop, match=problem):
        read_manifest(file)
