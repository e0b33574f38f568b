"""Only here: the recorded picture of a preemption is what happens on dev when its server scales."""

import json

import pytest

from maintain.pages.pictures.record import RECORDING, course
from tests.support.emulator import Emulator, eventually
from tests.support.workloads import all_running

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def test_the_recorded_picture_is_what_happens_when_the_server_scales(emulator: Emulator) -> None:
    emulator.make("up", emulator.configure("Pulumi.dev.yaml"))
    eventually(lambda: all_running(emulator, "llm"), "the run has started")
    record = "import json; from gke_ai.workspace.stack import Stack; from maintain.pages.pictures.record import record"
    output = emulator.run("python", "-c", f"{record}; print(json.dumps(record(Stack({emulator.stack!r}))))")
    assert course(json.loads(output.splitlines()[-1])) == course(json.loads(RECORDING.read_text())), "record it again"
