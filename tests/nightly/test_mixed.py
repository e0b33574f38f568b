"""Only here: the real Kueue admits, gates and preempts what serving and training submit, on Autopilot."""

from gke_ai.kube.objects import condition, holds
from tests.support.emulator import Emulator, begun, eventually, gone, settled
from tests.support.workloads import admitted

EXAMPLE = "examples/mixed-training-inference-autopilot.yaml"
SERVER = "deployment/tgi-gemma-deployment"


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


def test_serving_and_training_share_the_quota_on_autopilot(emulator: Emulator) -> None:
    def scale(replicas: int, running: int, gated: int = 0) -> None:
        """Scales the server as its user would."""
        emulator.kubectl("-n", "llm", "scale", SERVER, f"--replicas={replicas}")
        expected = {"running": running, "gated": gated, "all": replicas}
        eventually(lambda: pods(emulator) == expected, f"{running} of {replicas} replicas run")

    def trains() -> None:
        eventually(lambda: len(admitted(emulator, "Job")) == 1, "the fine-tune Job is admitted beside one replica")

    config = emulator.configure(EXAMPLE)
    before = begun(emulator, config)
    emulator.make("up", config)
    eventually(lambda: pods(emulator) == {"running": 1, "gated": 0, "all": 1}, "one replica runs")
    trains()
    eventually(lambda: gpus_used(emulator) == "6", "2 GPUs serve and 4 train")
    settled(emulator)

    # The quota gates the fourth replica.
    scale(4, running=3, gated=1)
    assert gpus_used(emulator) == "6"
    assert len(admitted(emulator, "Pod")) == 3
    status = emulator.make("status")
    assert "SchedulingGated" in status
    assert "insufficient unused quota" in " ".join(status.split())

    # Training resumes when serving needs less.
    scale(1, running=1)
    trains()
    eventually(lambda: emulator.get("jobs", "-n", "llm")[0]["status"].get("active") == 2, "both pods of the Job run")
    (job,) = emulator.get("jobs", "-n", "llm")
    assert job["spec"]["suspend"] is False

    # The second replica preempts it.
    scale(2, running=2)
    (job,) = emulator.get("jobs", "-n", "llm")
    assert job["spec"]["suspend"] is True
    workloads = emulator.get("workloads", "-n", "llm")
    (evicted,) = (item for item in workloads if item["metadata"]["ownerReferences"][0]["kind"] == "Job")
    assert condition(evicted, "Evicted")["reason"] == "Preempted"
    assert "Evicted: Preempted" in " ".join(emulator.make("status").split())
    scale(1, running=1)
    trains()
    emulator.make("down")
    gone(emulator, before)
