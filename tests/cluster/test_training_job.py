"""Only here: one run under the real Kueue and JobSet: preempted, resumed, restarted, moved, finished, not repeated."""

from collections.abc import Iterator
from typing import Any

import pytest

from gke_ai.catalog.nodes.shape import GKE_NODEPOOL
from gke_ai.kube.objects import condition, holds
from tests.support.emulator import Emulator, Found, deployed, eventually, gone, settled
from tests.support.examples import section
from tests.support.workloads import finish

EXAMPLE = "examples/training-job.yaml"


@pytest.fixture(scope="module")
def example() -> Iterator[Emulator]:
    """The deployed example. The tests below use it in order."""
    with deployed(EXAMPLE, {}) as emulator:
        yield emulator


def jobset(emulator: Emulator) -> dict[str, Any]:
    (found,) = emulator.get("jobsets", "-n", "llm")
    return found


def name(emulator: Emulator) -> str:
    (job,) = emulator.outputs()["jobs"]
    return str(job["name"])


def pods(emulator: Emulator) -> list[dict[str, Any]]:
    """The run's pods that are running and not being deleted."""
    found = emulator.get("pods", "-n", "llm", "-l", f"jobset.sigs.k8s.io/jobset-name={name(emulator)}")
    running = [pod for pod in found if pod["status"].get("phase") == "Running"]
    return [pod for pod in running if "deletionTimestamp" not in pod["metadata"]]


def workload(emulator: Emulator) -> dict[str, Any]:
    found = emulator.get("workloads", "-n", "llm")
    (own,) = (item for item in found if item["metadata"]["ownerReferences"][0]["kind"] == "JobSet")
    return own


def scale(emulator: Emulator, replicas: int) -> None:
    emulator.kubectl("-n", "llm", "scale", "deployment/gemma", f"--replicas={replicas}")


def words(text: str) -> str:
    return " ".join(text.split())


def test_both_pods_run_and_know_each_other(example: Emulator) -> None:
    eventually(lambda: len(pods(example)) == 2, "both pods run beside a replica of the server")
    run = name(example)
    assert {pod["spec"]["hostname"] for pod in pods(example)} == {f"{run}-worker-0-0", f"{run}-worker-0-1"}
    for pod in pods(example):
        assert pod["spec"]["subdomain"] == run
        container = next(container for container in pod["spec"]["containers"] if container["name"] == "training")
        variables = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert variables["MASTER_ADDR"] == f"{run}-worker-0-0.{run}"
        assert variables["CHECKPOINT_DIR"] == f"/checkpoints/{run}"
        assert pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] in ("0", "1")
    (pod_set,) = workload(example)["status"]["admission"]["podSetAssignments"]
    assert (pod_set["count"], pod_set["resourceUsage"]["nvidia.com/gpu"]) == (2, "4"), "Kueue counts all of its GPUs"
    (service,) = (item for item in example.get("services", "-n", "llm") if item["metadata"]["name"] == run)
    assert service["spec"]["clusterIP"] == "None"
    settled(example)


@pytest.mark.nightly
def test_serving_preempts_the_run_and_the_same_run_resumes(example: Emulator) -> None:
    uid = jobset(example)["metadata"]["uid"]
    scale(example, 2)
    eventually(lambda: jobset(example)["spec"]["suspend"] is True, "the run is suspended")
    eventually(lambda: not pods(example), "its pods have ended")
    assert condition(workload(example), "Evicted")["reason"] == "Preempted"
    scale(example, 1)
    eventually(lambda: len(pods(example)) == 2, "both pods run again")
    assert jobset(example)["metadata"]["uid"] == uid
    assert jobset(example)["status"].get("restartsCountTowardsMax", 0) == 0


def test_status_and_logs_show_pods_restarts_checkpoint_and_step(example: Emulator) -> None:
    run = name(example)
    bucket = example.outputs()["jobs"][0]["checkpoints"].removeprefix("gs://").partition("/")[0]
    for step in (100, 120):
        example.run("bucket", "put", bucket, f"{run}/step-{step:08d}-000001/COMPLETE")
    example.run("bucket", "put", bucket, f"{run}/step-00000130-000001/rank-00000.npz")
    assert f"llm/{run} 2 of 2 0 step-00000120-000001 120 Started" in words(example.make("status"))
    logs = example.run("gke-ai", "logs", "pretrain", "--stack", example.stack)
    assert f"JobSet llm/{run}: Started, 2 of 2 pods run, 0 restarts" in logs
    assert "newest complete checkpoint: step-00000120-000001, step 120" in logs


def test_failed_pod_restarts_all_pods(example: Emulator) -> None:
    before = {pod["metadata"]["uid"] for pod in pods(example)}
    finish(example, f"{name(example)}-worker-0", "llm", succeeded=False)
    eventually(lambda: jobset(example)["status"].get("restartsCountTowardsMax") == 1, "the run is restarted")
    eventually(lambda: len(pods(example)) == 2, "both pods run again")
    assert before.isdisjoint({pod["metadata"]["uid"] for pod in pods(example)})
    assert {pod["spec"]["hostname"].rpartition("-")[2] for pod in pods(example)} == {"0", "1"}


def elsewhere() -> dict[str, Any]:
    """Sections with a second pool, on which the run is."""
    (pool,), queues, (run,) = section("gpuPools", EXAMPLE), section("queues", EXAMPLE), section("training", EXAMPLE)
    queues["flavors"].append({"name": "l4-spot", "pools": ["spot"]})
    queues["clusterQueues"][0]["flavors"].append({"flavor": "l4-spot", "quota": "derive"})
    spot = {**pool, "name": "spot", "nodesPerZone": 2, "capacity": {"mode": "spot"}}
    return {"gpuPools": [pool, spot], "queues": queues, "training": [{**run, "pool": "spot"}]}


@pytest.mark.nightly
def test_run_moves_to_another_pool_and_stays_the_same_run(example: Emulator) -> None:
    uid, run = jobset(example)["metadata"]["uid"], name(example)
    restarts = jobset(example)["status"].get("restartsCountTowardsMax")
    example.make("up", example.configure(EXAMPLE, **elsewhere()))
    assert name(example) == run
    eventually(lambda: len(pods(example)) == 2, "both pods run on the other pool")
    pool_of = {node["metadata"]["name"]: node["metadata"]["labels"][GKE_NODEPOOL] for node in example.get("nodes")}
    assert {pool_of[pod["spec"]["nodeName"]] for pod in pods(example)} == {"spot"}
    assert jobset(example)["metadata"]["uid"] == uid
    assert jobset(example)["status"].get("restartsCountTowardsMax") == restarts, "a move is no restart"
    settled(example)


@pytest.mark.nightly
def test_finished_run_stays_until_it_is_removed_and_never_runs_again(example: Emulator) -> None:
    finish(example, f"{name(example)}-worker-0", "llm")
    eventually(lambda: holds(jobset(example), "Completed"), "the run has finished")
    settled(example)
    remove = ("gke-ai", "remove-run", "pretrain", "--stack", example.stack)
    assert "Remove it from gke-ai:training too" in example.run(*remove)
    eventually(lambda: not example.get("jobsets", "-n", "llm"), "the JobSet is gone")
    config = example.configure(EXAMPLE, **elsewhere())
    example.make("up", config)
    assert example.get("jobsets", "-n", "llm") == []

    example.pulumi("refresh", "--yes", "--skip-preview")
    refused = words(example.make("up", config, fails=True))
    assert "was created before, and its JobSet was deleted. A run happens only once." in refused
    assert example.get("jobsets", "-n", "llm") == []

    example.make("up", example.configure(EXAMPLE, **(elsewhere() | {"training": []})))
    assert example.get("jobsets", "-n", "llm") == []
    settled(example)


def test_down_leaves_nothing_but_the_training_data(example: Emulator) -> None:
    kept = {bucket["name"] for bucket in example.outputs()["buckets"] if bucket["onDestroy"] == "keep"}
    assert len(kept) == 1
    example.make("down")
    gone(example, Found(frozenset(kept), frozenset()))
