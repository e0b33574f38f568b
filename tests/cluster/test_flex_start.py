"""Only here: whole TPU slices are created for the pods of a real Job, and deleted after it, or are queued by Kueue."""

import pytest

from gke_ai.catalog.nodes.shape import GKE_NODEPOOL, GKE_TPU_TOPOLOGY
from tests.support.emulator import Emulator, begun, eventually, gone, settled
from tests.support.mistakes import base
from tests.support.workloads import MULTI, SINGLE, finish, running, slices

STANDARD, AUTOPILOT = "examples/flex-start-tpu.yaml", "examples/flex-start-tpu-autopilot.yaml"


def complete(emulator: Emulator) -> set[str]:
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
    of_slice = emulator.get("nodes", "-l", f"{GKE_TPU_TOPOLOGY}={MULTI}")
    assert len({node["metadata"]["labels"][GKE_NODEPOOL] for node in of_slice}) == 1
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


@pytest.mark.nightly
def test_runs_get_their_nodes_by_a_request_in_turn(emulator: Emulator) -> None:
    values = base("tpu_workloads", "queued")
    del values["tpuPools"][1]  # one that is there all the time
    config = emulator.written(**values)
    before = begun(emulator, config)
    emulator.make("up", config)
    jobset, job = (job["name"] for job in emulator.outputs()["jobs"])

    child = f"{jobset}-slice-0-0"  # of a slice that grows from zero, and so has its pool by name
    eventually(lambda: len(running(emulator, child)) == 4, "the run that was submitted first has its slice")
    assert slices(emulator) == {MULTI: 4}
    (request,) = emulator.get("provisioningrequests", "-n", "team")
    assert request["spec"]["provisioningClassName"] == "queued-provisioning.gke.io"
    assert request["spec"]["parameters"]["maxRunDurationSeconds"] == "7200"
    assert [podset["count"] for podset in request["spec"]["podSets"]] == [4]
    assert not running(emulator, job)
    settled(emulator)

    finish(emulator, child, "team")
    eventually(lambda: len(running(emulator, job)) == 4, "the other has a slice when there is quota")
    requests = emulator.get("provisioningrequests", "-A")
    assert "3600" in [request["spec"]["parameters"]["maxRunDurationSeconds"] for request in requests]
    emulator.make("down")
    gone(emulator, before)
