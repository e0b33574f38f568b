"""Only here: the queue of each of three engines scales its own server alone, through the real HPA.

The controllers are real; the servers are stubs that queue requests as their engines do.
"""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.cluster.users import repeated
from tests.support.emulator import Emulator, deployed_and_deleted, eventually, settled
from tests.support.recorder import configuration
from tests.support.workloads import values

EXAMPLE = "examples/vllm-autoscaling.yaml"
TOKEN_SECONDS = 0.05
SCALE_IN_SECONDS = 30
MAX_REPLICAS = 3
# Requests at once. With two slots per replica, more than five wait per replica until there are three replicas.
CROWD = 24
# Both vLLM servers have the same series. Each autoscaler reads those of its own server.
WAITING = "vllm_num_requests_waiting"
SERVERS = {"gemma": WAITING, "gemma-tpu": WAITING, "gemma-tgi": "tgi_queue_size"}


def sections() -> dict[str, Any]:
    """The example's server, and the same model on a TPU and on TGI in the same namespace. Each runs two requests."""
    config = configuration(EXAMPLE)
    (vllm,) = config["gke-ai:serving"]
    (scaler,) = config["gke-ai:autoscaling"]
    (pool,) = config["gke-ai:gpuPools"]
    vllm["arguments"] = ["--max-num-seqs=2"]
    tgi, tpu = ({key: value for key, value in vllm.items() if key not in left} for left in (["arguments"], ["gpus"]))
    tpu |= {"name": "gemma-tpu", "engine": "vllm-tpu", "pool": "v5e"}
    v5e = {"name": "v5e", "version": "v5e", "topology": "2x4", "zones": pool["zones"], "nodesPerZone": MAX_REPLICAS}
    tgi |= {"name": "gemma-tgi", "engine": "tgi", "env": {"MAX_BATCH_SIZE": "2"}}
    short = {"maxReplicas": MAX_REPLICAS, "scrapeIntervalSeconds": 5, "scaleInWindowSeconds": SCALE_IN_SECONDS}
    return {
        "gpuPools": [{**pool, "autoscaling": {"minNodes": 2, "maxNodes": 2 * MAX_REPLICAS}}],
        "tpuPools": [v5e],
        "serving": [vllm, tpu, tgi],
        "autoscaling": [{**scaler, **short, "name": name, "server": name} for name in SERVERS],
    }


@pytest.fixture(scope="module")
def deployed() -> Iterator[Emulator]:
    """The stack. The tests below use it in order."""
    slow = {"GKE_AI_STUB_TOKEN_SECONDS": str(TOKEN_SECONDS)}
    with deployed_and_deleted(EXAMPLE, sections(), **slow) as emulator:
        yield emulator


def deployment(emulator: Emulator, name: str) -> dict[str, Any]:
    (content,) = emulator.get("deployments", "-n", "llm", f"--field-selector=metadata.name={name}")
    return content


def replicas(emulator: Emulator, name: str) -> int:
    return int(deployment(emulator, name)["spec"]["replicas"])


@contextmanager
def proxy(emulator: Emulator) -> Iterator[str]:
    """The address of an authenticated proxy to the API server."""
    process = emulator.start("kubectl", "--kubeconfig", emulator.kubeconfig(), "proxy", "--port=0")
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait()


@contextmanager
def crowd(emulator: Emulator, server: str) -> Iterator[None]:
    """That many users of a server. A user also asks again after 503: pods are ready before their stubs listen."""
    body = json.dumps({"model": "google/gemma-2-9b-it", "prompt": "Who?", "max_tokens": 40})
    path = f"/api/v1/namespaces/llm/services/{server}:8000/proxy/v1/completions"

    def ask() -> None:
        connection = http.client.HTTPConnection(address, timeout=120)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read().decode()
        connection.close()
        assert response.status in (200, 503), answer

    with proxy(emulator) as address, repeated(*[ask] * CROWD):
        yield


def test_each_server_reads_its_own_queue_and_has_one_replica(deployed: Emulator) -> None:
    idle = [{metric: "0"} for metric in SERVERS.values()]
    eventually(lambda: [values(deployed, name, "llm") for name in SERVERS] == idle, "each reads that nobody waits", 180)
    assert [replicas(deployed, name) for name in SERVERS] == [1, 1, 1]


@pytest.mark.parametrize("name", SERVERS)
def test_queue_brings_replicas_to_its_server_alone_and_its_end_takes_them_back(deployed: Emulator, name: str) -> None:
    with crowd(deployed, name):
        state = partial(deployment, deployed, name)
        all_ready = f"{name} has {MAX_REPLICAS} replicas"
        eventually(lambda: state()["status"].get("readyReplicas") == MAX_REPLICAS, all_ready, 240)
        others = [replicas(deployed, other) for other in SERVERS if other != name]
        assert others == [1, 1], "nobody waits for the other servers"
        if name == "gemma":
            settled(deployed)
            assert replicas(deployed, name) == MAX_REPLICAS, "neither the second up nor the refresh set them back"
    eventually(lambda: replicas(deployed, name) == 1, f"{name} has one replica again", SCALE_IN_SECONDS + 120)
    assert values(deployed, name, "llm") == {SERVERS[name]: "0"}
