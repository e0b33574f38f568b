"""Only here: users of a real Envoy are served while a version gets a share, takes over, fails and is rolled back.

The endpoint pickers and Envoy are real; the servers are stubs.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import yaml

from tests.cluster.users import client, repeated
from tests.support.emulator import ROOT, Emulator, deployed_and_deleted, eventually, settled

EXAMPLE = "examples/inference-gateway.yaml"
READY_SECONDS = 20
ROUTE, NEXT = "httproute/gemma", "gemma-next"
# Paths at which vLLM answers without a key: maintain/real_vllm/recorded.yaml
POSTS = ("/invocations", "/tokenize")
OPEN = (*POSTS, "/metrics", "/load", "/docs", "/openapi.json")


def sections(gemma: int | None, gemma_next: int | None) -> dict[str, Any]:
    """The example's servers with these weights. Without a weight, the server is not in the stack.

    The new version runs on nodes of its own, whose capacity the test takes away.
    """
    config = yaml.safe_load((ROOT / EXAMPLE).read_text())["config"]
    (pool,) = config["gke-ai:gpuPools"]
    spot = {**pool, "name": "spot", "capacity": {"mode": "spot"}, "autoscaling": {"maxNodes": 2}}
    shares = {name: weight for name, weight in (("gemma", gemma), (NEXT, gemma_next)) if weight is not None}
    servers = [server | {"replicas": 1} for server in config["gke-ai:serving"] if server["name"] in shares]
    for server in servers:
        if server["name"] == NEXT:
            server |= {"pool": "spot", "readyTimeoutSeconds": READY_SECONDS}
    route = {"name": "gemma", "servers": [{"server": name, "weight": weight} for name, weight in shares.items()]}
    gateway = {**config["gke-ai:gateway"], "routes": [route]}
    return {"gpuPools": [pool, spot], "serving": servers, "gateway": gateway}


@pytest.fixture(scope="module")
def deployed() -> Iterator[Emulator]:
    """The first version behind its gateway. The tests below use it in order."""
    with deployed_and_deleted(EXAMPLE, sections(100, None)) as emulator:
        with client(emulator) as gateway:
            # The emulator's pods are Ready before their pickers listen.
            eventually(lambda: ask(gateway) == 200, "the gateway answers")
        yield emulator


def up(emulator: Emulator, gemma: int | None, gemma_next: int | None, fails: bool = False) -> str:
    return emulator.make("up", emulator.configure(EXAMPLE, **sections(gemma, gemma_next)), fails=fails)


def weights(emulator: Emulator) -> dict[str, int]:
    route = json.loads(emulator.kubectl("get", ROUTE, "-n", "llm", "-o", "json"))
    return {ref["name"]: ref["weight"] for ref in route["spec"]["rules"][0]["backendRefs"]}


def ask(gateway: httpx.Client, batch: str = "") -> int:
    """The status of an answer. The prompts differ, so that no cached prefix decides. The access log has the batch."""
    prompt = f"{time.monotonic_ns()}: who?"
    body = {"model": "google/gemma-3-4b-it", "prompt": prompt, "max_tokens": 2}
    return gateway.post("/v1/completions", params={"batch": batch}, json=body).status_code


def served(emulator: Emulator, requests: int) -> Counter[str]:
    """The servers whose pods answered this many requests."""
    log = next((emulator.state / "clusters").glob("*/log/gateway_*_access.log"))
    batch = f"batch-{time.monotonic_ns()}"

    def logged() -> list[str]:
        return [line for line in log.read_text().splitlines() if batch in line]

    with client(emulator) as gateway:
        assert {ask(gateway, batch) for _ in range(requests)} == {200}
    eventually(lambda: len(logged()) == requests, "the access log has all requests")
    return Counter(NEXT if f"llm/{NEXT}" in line else "gemma" for line in logged())


@contextmanager
def users(emulator: Emulator) -> Iterator[None]:
    """Someone who asks the gateway all the time, and is always answered."""

    def ask_and_pause() -> int:
        status = ask(gateway)
        time.sleep(0.05)
        return status

    with client(emulator) as gateway, repeated(ask_and_pause) as statuses:
        yield
    assert {*statuses} == {200}, Counter(statuses)


@pytest.mark.parametrize("path", OPEN)
def test_path_that_needs_no_key_is_closed_at_the_gateway(deployed: Emulator, path: str) -> None:
    through_api_server = f"/api/v1/namespaces/llm/services/gemma:8000/proxy{path}"
    # A path for POST refuses GET: the server knows it.
    assert deployed.status_of("GET", through_api_server) == (405 if path in POSTS else 200)
    with client(deployed) as gateway:
        assert gateway.get(path).status_code == 404
        assert gateway.post(path, json={"prompt": "who?"}).status_code == 404


def test_gateway_serves_the_api_to_clients_with_the_key(deployed: Emulator) -> None:
    with client(deployed) as gateway:
        assert ask(gateway) == 200
        del gateway.headers["Authorization"]
        assert ask(gateway) == 401
    settled(deployed)


def test_a_canary_gets_no_request_until_it_is_ready_then_its_share_and_takes_over(deployed: Emulator) -> None:
    deployed.run("capacity", "spot=0")
    with users(deployed):
        output = up(deployed, 90, 10, fails=True)
    assert f"llm/{NEXT} has no ready replica after {READY_SECONDS} s" in output
    assert weights(deployed) == {"gemma": 100}
    assert served(deployed, 20) == {"gemma": 20}

    # The rollback is one change and does not wait.
    with users(deployed):
        up(deployed, 100, 0)
    assert weights(deployed) == {"gemma": 100, NEXT: 0}
    assert served(deployed, 20) == {"gemma": 20}
    settled(deployed)

    deployed.run("capacity", "spot=1")
    with users(deployed):
        up(deployed, 50, 50)
    assert weights(deployed) == {"gemma": 50, NEXT: 50}
    # The load balancer takes a changed route a moment after the API server has it, as on GKE.
    eventually(lambda: NEXT in served(deployed, 10), "the gateway has the new weights")
    answers = served(deployed, 100)
    assert 20 <= answers[NEXT] <= 80, answers

    # Promotion and removal lose no request.
    with users(deployed):
        up(deployed, 0, 100)
        eventually(lambda: served(deployed, 20).keys() == {NEXT}, "all requests go to the new version")
        up(deployed, None, 100)
    assert weights(deployed) == {NEXT: 100}
    assert [server["metadata"]["name"] for server in deployed.get("inferencepool", "-n", "llm")] == [NEXT]
    settled(deployed)


def test_failed_rollout_leaves_the_old_version_serving(deployed: Emulator) -> None:
    def replicas() -> list[str]:
        running = ("-l", f"app={NEXT}", "--field-selector=status.phase=Running")
        return [pod["metadata"]["name"] for pod in deployed.get("pods", "-n", "llm", *running)]

    before = replicas()
    deployed.run("capacity", "spot=0")
    changed = sections(None, 100)
    # A second pod on the one node of the old version has no room, and there is no other.
    changed["serving"][0]["gpus"] = 2
    with users(deployed):
        output = deployed.make("up", deployed.configure(EXAMPLE, **changed), fails=True)
    assert "its earlier replicas keep serving" in output
    assert replicas() == before
    deployed.run("capacity", "spot=1")
    with users(deployed):
        up(deployed, None, 100)
