"""Only here: Autopilot creates nodes with NICs for a run on a compute class, whose claims the real Kueue counts."""

from __future__ import annotations

from gke_ai.catalog.fabric.rdma import NICS_PER_POD, RESOURCE
from tests.support.emulator import Emulator, eventually
from tests.support.mistakes import base
from tests.support.rdma import RUN, allocated, of_queue, running


def test_a_run_on_a_compute_class_gets_the_nics_of_its_nodes(emulator: Emulator) -> None:
    good = base("rdma", "on_a_class")
    run = {key: value for key, value in RUN.items() if key != "pool"} | {"computeClass": "b200"}
    cluster = {"name": "llm-cluster", "mode": "autopilot", "location": "us-central1"}
    sections = {"computeClasses": good["computeClasses"], "queues": good["queues"], "training": [run]}
    emulator.make("up", emulator.written(cluster=cluster, **sections))
    eventually(lambda: len(running(emulator, "first")) == 2, "the run has its nodes")
    assert [len(devices) for devices in allocated(emulator)] == [NICS_PER_POD, NICS_PER_POD]
    assert of_queue(emulator)[RESOURCE] == "16"
    zones = {node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in emulator.get("nodes")}
    assert "us-central1-b" in zones
