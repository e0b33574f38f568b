"""Only here: the emulated cloud and API server take the networks of A3 Mega, and pods of a run start on such nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gke_ai.catalog.fabric.gpudirect import GPUDIRECT_LABEL
from tests.support.emulator import Emulator, eventually, fresh
from tests.support.mistakes import PROJECT, base
from tests.support.rdma import RUN

Object = dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Emulator]:
    """A pool of two A3 Mega nodes with a run on both."""
    good = base("gpudirect")
    pools = [{**good["gpuPools"][0], "nodesPerZone": 2}]
    values = {
        "cluster": good["cluster"],
        "gpuPools": pools,
        "queues": good["queues"],
        "training": [{**RUN, "pool": "mega"}],
    }
    with fresh() as emulator:
        content = {f"gke-ai:{key}": value for key, value in values.items()}
        file = emulator.state / "gpudirect.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump({"config": {"gcp:project": PROJECT, **content}}))
        emulator.make("up", file)
        yield emulator


def test_the_pods_of_the_run_start_and_each_node_has_the_installers(cluster: Emulator) -> None:
    def nodes_of(namespace: str) -> list[str]:
        pods = cluster.get("pods", "-n", namespace)
        return sorted(pod["spec"].get("nodeName", "") for pod in pods if pod["status"].get("phase") == "Running")

    nodes = [node["metadata"] for node in cluster.get("nodes") if GPUDIRECT_LABEL in node["metadata"]["labels"]]
    names = sorted(node["name"] for node in nodes)
    assert len(names) == 2
    eventually(lambda: nodes_of("llm") == names, "pods of the run on both nodes")
    eventually(lambda: nodes_of("gpudirect") == sorted(2 * names), "both installers on each node")


def test_the_cluster_has_the_networks(cluster: Emulator) -> None:
    parameters = cluster.get("gkenetworkparamsets")
    assert [item["spec"]["vpc"] for item in parameters] == [f"llm-cluster-gpudirect-{n}" for n in range(1, 9)]
    assert len(cluster.get("networks.networking.gke.io")) == 8
