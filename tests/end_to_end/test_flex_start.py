"""Batch Jobs on TPU slices by flex-start: slices come whole when a Job wants them, and go when it has ended."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from catalog.nodes import GKE_NODEPOOL, GKE_TPU_TOPOLOGY
from tests.end_to_end.standin import StandIn, begun, eventually, gone, settled

pytestmark = pytest.mark.cluster

STANDARD, AUTOPILOT = "examples/flex-start-tpu.yaml", "examples/flex-start-tpu-autopilot.yaml"
SINGLE, MULTI = "2x2", "4x4"


def slices(stand_in: StandIn) -> Counter[str]:
    """Nodes with TPUs, by the topology of their slice."""
    return Counter(one["metadata"]["labels"][GKE_TPU_TOPOLOGY] for one in stand_in.get("nodes", "-l", GKE_TPU_TOPOLOGY))


def running(stand_in: StandIn, job: str) -> list[dict[str, Any]]:
    """The running pods of a Job."""
    found = stand_in.get("pods", "-A", "-l", f"job-name={job}")
    return [pod for pod in found if pod["status"].get("phase") == "Running"]


def finish(stand_in: StandIn, job: str, namespace: str = "default", succeeded: bool = True) -> None:
    """Ends the containers of a Job's pods."""
    call = "import local.cluster, sys; local.cluster.finish_job(*sys.argv[1:4], succeeded=sys.argv[4] == 'True')"
    stand_in.run("python", "-c", call, stand_in.outputs()["clusterName"], namespace, job, str(succeeded))


def complete(stand_in: StandIn) -> set[str]:
    """Names of the Jobs that have completed."""
    jobs = stand_in.get("jobs", "-n", "default")
    return {job["metadata"]["name"] for job in jobs if job["status"].get("completionTime")}


@pytest.mark.parametrize("example", [STANDARD, AUTOPILOT], ids=["standard", "autopilot"])
def test_slices_come_whole_for_a_job_and_go_after_it(example: str, stand_in: StandIn) -> None:
    config = stand_in.configure(example)
    found = begun(stand_in, config)
    assert not slices(stand_in)
    stand_in.run("capacity", "flexStart=0")
    stand_in.make("up", config)
    waiting = eventually(lambda: stand_in.get("pods", "-n", "default"), "the Jobs have pods")
    assert not [pod for pod in waiting if pod["spec"].get("nodeName")]
    assert "default/job-2" in stand_in.make("status")
    assert not slices(stand_in)

    stand_in.run("capacity", "flexStart=1")
    eventually(lambda: len(running(stand_in, "job-2")) == 4, "the multi-host Job has all its nodes")
    eventually(lambda: len(running(stand_in, "job-1")) == 1, "the single-host Job has its node")
    assert slices(stand_in) == {SINGLE: 1, MULTI: 4}
    pools = {
        one["metadata"]["labels"][GKE_NODEPOOL] for one in stand_in.get("nodes", "-l", f"{GKE_TPU_TOPOLOGY}={MULTI}")
    }
    assert len(pools) == 1
    assert len({pod["spec"]["nodeName"] for pod in running(stand_in, "job-2")}) == 4
    settled(stand_in)

    for job in ("job-1", "job-2"):
        finish(stand_in, job)
    eventually(lambda: complete(stand_in) == {"job-1", "job-2"}, "both Jobs complete")
    eventually(lambda: not slices(stand_in), "both slices go")
    stand_in.make("up", config)
    assert complete(stand_in) == {"job-1", "job-2"}
    assert not slices(stand_in), "a finished run is not run again"
    stand_in.make("down")
    gone(stand_in, found)
