"""Only here: whole TPU slices are created for the pods of a real Job, and deleted after it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gke_ai.catalog.nodes.shape import GKE_NODEPOOL, GKE_TPU_TOPOLOGY
from tests.cluster.emulator import Emulator, begun, eventually, gone, settled

STANDARD, AUTOPILOT = "examples/flex-start-tpu.yaml", "examples/flex-start-tpu-autopilot.yaml"
SINGLE, MULTI = "2x2", "4x4"


def slices(emulator: Emulator) -> Counter[str]:
    """Nodes with TPUs, by the topology of their slice."""
    return Counter(
        node["metadata"]["labels"][GKE_TPU_TOPOLOGY] for node in emulator.get("nodes", "-l", GKE_TPU_TOPOLOGY)
    )


def running(emulator: Emulator, job: str) -> list[dict[str, Any]]:
    """The running pods of a Job."""
    job_pods = emulator.get("pods", "-A", "-l", f"job-name={job}")
    return [pod for pod in job_pods if pod["status"].get("phase") == "Running"]


def finish(emulator: Emulator, job: str, namespace: str = "default", succeeded: bool = True) -> None:
    """End the containers of a Job's pods."""
    call = "import emulator.cluster, sys; emulator.cluster.finish_job(*sys.argv[1:4], succeeded=sys.argv[4] == 'True')"
    emulator.run("python", "-c", call, emulator.outputs()["clusterName"], namespace, job, str(succeeded))


def complete(emulator: Emulator) -> set[str]:
    """Names of the Jobs that have completed."""
    jobs = emulator.get("jobs", "-n", "default")
    return {job["metadata"]["name"] for job in jobs if job["status"].get("completionTime")}


@pytest.mark.parametrize(
    "example",
    [pytest.param(STANDARD, id="standard"), pytest.param(AUTOPILOT, id="autopilot", marks=pytest.mark.nightly)],
)
def test_slices_come_whole_for_a_job_and_go_after_it(example: str, emulator: Emulator) -> None:
    config = emulator.configure(example)
    before = begun(emulator, config)
    assert not slices(emulator)
    emulator.run("capacity", "flexStart=0")
    emulator.make("up", config)
    waiting = eventually(lambda: emulator.get("pods", "-n", "default"), "the Jobs have pods")
    assert not [pod for pod in waiting if pod["spec"].get("nodeName")]
    assert "default/job-2" in emulator.make("status")
    assert not slices(emulator)

    emulator.run("capacity", "flexStart=1")
    eventually(lambda: len(running(emulator, "job-2")) == 4, "the multi-host Job has all its nodes")
    eventually(lambda: len(running(emulator, "job-1")) == 1, "the single-host Job has its node")
    assert slices(emulator) == {SINGLE: 1, MULTI: 4}
    pools = {
        node["metadata"]["labels"][GKE_NODEPOOL] for node in emulator.get("nodes", "-l", f"{GKE_TPU_TOPOLOGY}={MULTI}")
    }
    assert len(pools) == 1
    assert len({pod["spec"]["nodeName"] for pod in running(emulator, "job-2")}) == 4
    settled(emulator)

    for job in ("job-1", "job-2"):
        finish(emulator, job)
    eventually(lambda: complete(emulator) == {"job-1", "job-2"}, "both Jobs complete")
    eventually(lambda: not slices(emulator), "both slices go")
    emulator.make("up", config)
    assert complete(emulator) == {"job-1", "job-2"}
    assert not slices(emulator), "a finished run is not run again"
    emulator.make("down")
    gone(emulator, before)
