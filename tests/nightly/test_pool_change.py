"""Only here: no moment without a ready replica while the engine replaces the nodes of a pool."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR, GKE_NODEPOOL, INSTANCE_TYPE, NVIDIA_GPU, POOL
from tests.support.emulator import Emulator, settled
from tests.support.examples import EXAMPLE, changed

SERVICE = "llm-service"
NODES_OF_TWO = "g2-standard-24"
NODES_OF_FOUR = "g2-standard-48"


def pool(**keys: Any) -> dict[str, Any]:
    """Sections of a stack with two replicas of a server on a pool with these keys, and quota for no third."""
    bounds = {"minNodes": 1, "maxNodes": 3}
    quota = {"cpu": "16", "memory": "80Gi", NVIDIA_GPU: "4", "ephemeral-storage": "80Gi"}
    queues = {
        "flavors": [{"name": "l4", "pools": ["l4"]}],
        "clusterQueues": [{"name": "gpus", "flavors": [{"flavor": "l4", "quota": quota}]}],
        "localQueues": [{"name": "team", "namespace": "llm", "clusterQueue": "gpus"}],
    }
    server = {"pool": "l4", "queue": "team", "priorityClass": None, "replicas": 2, "disruptionBudget": True}
    pools = [{"name": "l4", "autoscaling": bounds, **keys}]
    return {"gpuPools": pools, "queues": queues, **changed("serving", **server), "training": []}


def nodes(emulator: Emulator) -> list[dict[str, str]]:
    return [node["metadata"]["labels"] for node in emulator.get("nodes", "-l", GKE_ACCELERATOR)]


@contextmanager
def replica_states(emulator: Emulator) -> Iterator[list[frozenset[str]]]:
    """The server's ready endpoints by name, after each change that the API server reports."""
    states: list[frozenset[str]] = []
    command = ("get", "endpointslices", "-n", "llm", "-l", f"kubernetes.io/service-name={SERVICE}", "-o", "json", "-w")
    process = emulator.start("kubectl", "--kubeconfig", emulator.kubeconfig(), *command)

    def read() -> None:
        assert process.stdout
        text = ""
        for line in process.stdout:
            text += line
            if line == "}\n":  # the end of an object, which is written over many lines
                endpoints = json.loads(text).get("endpoints") or []
                ready = [endpoint for endpoint in endpoints if endpoint["conditions"]["ready"]]
                states.append(frozenset(endpoint["targetRef"]["name"] for endpoint in ready))
                text = ""

    reader = Thread(target=read)
    reader.start()
    try:
        yield states
    finally:
        process.terminate()
        reader.join()


def change_pool(emulator: Emulator, **after: Any) -> None:
    """Change the pool and observe its server: both replicas move, one is always ready, and the old pool is deleted."""
    (before,) = {node[GKE_NODEPOOL] for node in nodes(emulator)}
    with replica_states(emulator) as states:
        output = emulator.make("up", emulator.configure(EXAMPLE, **pool(**after)))
    assert all(states), f"no replica was ready at a moment: {states}"
    assert states[0].isdisjoint(states[-1]), "both replicas were moved"
    assert len(states[0]) == len(states[-1]) == 2
    assert "pods are still on its old nodes" in output
    assert {node[INSTANCE_TYPE] for node in nodes(emulator)} == {after["machineType"]}
    assert before not in {node[GKE_NODEPOOL] for node in nodes(emulator)}
    pools = [resource for resource in emulator.exported()["resources"] if resource["type"].endswith(":NodePool")]
    assert before not in {pool["outputs"]["name"] for pool in pools}
    assert not any(pool.get("delete") for pool in pools)


def test_no_moment_without_a_ready_replica_while_a_pool_is_replaced(emulator: Emulator) -> None:
    emulator.make("up", emulator.configure(EXAMPLE, **pool(machineType=NODES_OF_TWO)))
    change_pool(emulator, machineType=NODES_OF_TWO, createBeforeDelete=True)  # switched on for a pool that is there
    change_pool(emulator, machineType=NODES_OF_FOUR, createBeforeDelete=True)
    assert {node[POOL] for node in nodes(emulator)} == {"l4"}
    settled(emulator)
