"""Only here: the real Kueue requests all nodes of a run at once, and starts it when they exist."""

from __future__ import annotations

import yaml

from tests.support.emulator import Emulator, begun, eventually, gone, settled
from tests.support.mistakes import base
from tests.support.workloads import MULTI, finish, running, slices


def test_runs_get_their_nodes_by_a_request_in_turn(emulator: Emulator) -> None:
    config = emulator.state / "test.yaml"
    values = base("tpu_workloads", "queued")
    del values["tpuPools"][1]  # one that is there all the time
    config.write_text(yaml.safe_dump({"config": {f"gke-ai:{key}": value for key, value in values.items()}}))
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
