"""Only here: Autopilot creates nodes with NICs for a run on a compute class, whose claims the real Kueue counts."""

from __future__ import annotations

import copy

import yaml

from gke_ai.catalog.fabric.rdma import NICS_PER_POD, RESOURCE
from tests.support.emulator import eventually, fresh
from tests.support.mistakes import PROJECT, base
from tests.support.rdma import RUN, of_queue, running


def test_a_run_on_a_compute_class_gets_the_nics_of_its_nodes() -> None:
    good = copy.deepcopy(base("rdma", "on_a_class"))
    run = {key: value for key, value in RUN.items() if key != "pool"} | {"computeClass": "b200"}
    values = {
        "cluster": {"name": "llm-cluster", "mode": "autopilot", "location": "us-central1"},
        "computeClasses": good["computeClasses"],
        "queues": good["queues"],
        "training": [run],
    }
    with fresh() as emulator:
        file = emulator.state / "rdma-class.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {f"gke-ai:{key}": value for key, value in values.items()}
        file.write_text(yaml.safe_dump({"config": {"gcp:project": PROJECT, **content}}))
        emulator.make("up", file)
        eventually(lambda: len(running(emulator, "first")) == 2, "the run has its nodes")
        claims = emulator.get("resourceclaims", "-n", "llm")
        results = [claim["status"]["allocation"]["devices"]["results"] for claim in claims]
        assert [len(devices) for devices in results] == [NICS_PER_POD, NICS_PER_POD]
        assert of_queue(emulator)[RESOURCE] == "16"
        zones = {node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in emulator.get("nodes")}
        assert "us-central1-b" in zones
