"""Only here: the emulated cloud and API server take the networks of A3 Mega, and pods of a run start on such nodes."""

from __future__ import annotations

from gke_ai.catalog.fabric.gpudirect import GPUDIRECT_LABEL
from tests.support.emulator import Emulator, eventually
from tests.support.mistakes import base
from tests.support.rdma import RUN


def test_the_pods_of_a_run_start_on_two_nodes_and_each_has_the_installers(emulator: Emulator) -> None:
    good = base("gpudirect")
    pools, training = [{**good["gpuPools"][0], "nodesPerZone": 2}], [{**RUN, "pool": "mega"}]
    sections = {"cluster": good["cluster"], "gpuPools": pools, "queues": good["queues"], "training": training}
    emulator.make("up", emulator.written(**sections))

    def nodes_of(namespace: str) -> list[str]:
        pods = emulator.get("pods", "-n", namespace)
        return sorted(pod["spec"].get("nodeName", "") for pod in pods if pod["status"].get("phase") == "Running")

    nodes = [node["metadata"] for node in emulator.get("nodes") if GPUDIRECT_LABEL in node["metadata"]["labels"]]
    names = sorted(node["name"] for node in nodes)
    assert len(names) == 2
    eventually(lambda: nodes_of("llm") == names, "pods of the run on both nodes")
    eventually(lambda: nodes_of("gpudirect") == sorted(2 * names), "both installers on each node")
