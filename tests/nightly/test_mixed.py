"""Only here: the real Kueue admits, gates and preempts what serving and training submit, on Autopilot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gke_ai.kube.objects import condition, holds
from tests.support.emulator import Emulator, Found, eventually, fresh, gone, settled
from tests.support.workloads import admitted

EXAMPLE = "examples/mixed-training-inference-autopilot.yaml"
SERVER = "deployment/tgi-gemma-deployment"


@pytest.fixture(scope="module")
def example() -> Iterator[Emulator]:
    """The deployed example. The tests below use it in order."""
    with fresh() as emulator:
        emulator.make("up", emulator.configure(EXAMPLE))
        yield emulator


def pods(emulator: Emulator) -> dict[str, int]:
    """How many pods of the server run, and how many are gated."""
    server_pods = emulator.get("pods", "-n", "llm", "-l", "app=gemma-server")
    alive = [pod for pod in server_pods if "deletionTimestamp" not in pod["metadata"]]
    gated = [pod for pod in alive if pod["spec"].get("schedulingGates")]
    running = [pod for pod in alive if pod["status"].get("phase") == "Running" and holds(pod, "Ready")]
    return {"running": len(running), "gated": len(gated), "all": len(alive)}


def gpus_used(emulator: Emulator) -> str:
    """GPUs reserved in the cluster queue."""
    (queue,) = emulator.get("clusterqueues")
    (flavor,) = queue["status"]["flavorsReservation"]
    return str(next(r["total"] for r in flavor["resources"] if r["name"] == "nvidia.com/gpu"))


def scale(emulator: Emulator, replicas: int) -> None:
    """Scale the server as its user would."""
    emulator.kubectl("-n", "llm", "scale", SERVER, f"--replicas={replicas}")


def test_training_runs_beside_one_replica(example: Emulator) -> None:
    eventually(lambda: pods(example) == {"running": 1, "gated": 0, "all": 1}, "one replica runs")
    eventually(lambda: len(admitted(example, "Job")) == 1, "the fine-tune Job is admitted beside it")
    eventually(lambda: gpus_used(example) == "6", "2 GPUs serve and 4 train")


def test_second_up_and_refresh_change_nothing(example: Emulator) -> None:
    settled(example)


def test_fourth_replica_is_gated_by_quota(example: Emulator) -> None:
    scale(example, 4)
    eventually(lambda: pods(example) == {"running": 3, "gated": 1, "all": 4}, "three of four replicas run")
    assert gpus_used(example) == "6"
    assert len(admitted(example, "Pod")) == 3
    status = example.make("status")
    assert "SchedulingGated" in status
    assert "insufficient unused quota" in " ".join(status.split())


def test_training_resumes_when_serving_needs_less(example: Emulator) -> None:
    scale(example, 1)
    eventually(lambda: len(admitted(example, "Job")) == 1, "the Job is admitted again")
    eventually(lambda: example.get("jobs", "-n", "llm")[0]["status"].get("active") == 2, "both pods of the Job run")
    (job,) = example.get("jobs", "-n", "llm")
    assert job["spec"]["suspend"] is False


def test_second_replica_preempts_training(example: Emulator) -> None:
    scale(example, 2)
    eventually(lambda: pods(example) == {"running": 2, "gated": 0, "all": 2}, "both replicas run")
    (job,) = example.get("jobs", "-n", "llm")
    assert job["spec"]["suspend"] is True
    (evicted,) = (
        workload
        for workload in example.get("workloads", "-n", "llm")
        if workload["metadata"]["ownerReferences"][0]["kind"] == "Job"
    )
    assert condition(evicted, "Evicted")["reason"] == "Preempted"
    assert "Evicted: Preempted" in " ".join(example.make("status").split())
    scale(example, 1)
    eventually(lambda: len(admitted(example, "Job")) == 1, "the Job is admitted once more")


def test_down_leaves_nothing(example: Emulator) -> None:
    example.make("down")
    gone(example, Found(frozenset(), frozenset()))
