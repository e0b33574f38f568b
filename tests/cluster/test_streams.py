"""Only here: a rollout and a scale-in cut no stream, and refuse no request, behind a real Envoy, router and pickers.

The servers are stubs, which do on SIGTERM as a real vLLM was recorded to do (maintain/real_vllm/recorded.yaml).
"""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from gke_ai.catalog.engines.inference_extension import MODEL_HEADER
from tests.cluster.users import client, repeated
from tests.support.emulator import ROOT, Emulator, deployed_and_deleted, eventually

EXAMPLE = "examples/inference-gateway.yaml"
SERVER, MODEL, LLAMA = "gemma", "google/gemma-3-4b-it", "meta-llama/Llama-3.2-3B-Instruct"
PATH = "/v1/chat/completions"
USERS, TOKENS, TOKEN_SECONDS = 12, 200, 0.15
# A stream takes 30 s, and users begin at different places of their first one. So at any time, of those that are open at
# the deletion of a pod, two thirds are still open at its SIGTERM.
DRAIN_SECONDS = 10


class Answer(NamedTuple):
    """A streamed answer as its client saw it."""

    status: int
    missing_tokens: int
    last: str


WHOLE = Answer(200, 0, "[DONE]")


def sections(*arguments: str) -> dict[str, Any]:
    """Two of the example's servers, one with two replicas and these arguments. The pool has room to replace them."""
    config = yaml.safe_load((ROOT / EXAMPLE).read_text())["config"]
    servers = {server["name"]: server for server in config["gke-ai:serving"]}
    servers[SERVER] |= {"arguments": list(arguments), "drainSeconds": DRAIN_SECONDS}
    (pool,) = config["gke-ai:gpuPools"]
    pool["autoscaling"] = {"minNodes": 1, "maxNodes": 6}
    gateway = config["gke-ai:gateway"]
    gateway["routes"][0]["servers"] = [{"server": SERVER}]
    return {"gpuPools": [pool], "serving": [servers[SERVER], servers["llama"]], "gateway": gateway}


@pytest.fixture(scope="module")
def deployed() -> Iterator[Emulator]:
    """The servers behind their gateway. The tests below use them in order."""
    variables = {"GKE_AI_STUB_TOKEN_SECONDS": str(TOKEN_SECONDS), "GKE_AI_PRE_STOP_SECONDS": str(DRAIN_SECONDS)}
    with deployed_and_deleted(EXAMPLE, sections(), **variables) as emulator:
        # The emulator's pods are Ready before the pickers and the router listen.
        eventually(lambda: works(emulator), "the gateway answers for both models")
        yield emulator


def pods(emulator: Emulator) -> set[str]:
    """The server's pods, those that terminate included."""
    return {pod["metadata"]["name"] for pod in emulator.get("pods", "-n", "llm", "-l", f"app={SERVER}")}


def terminating(emulator: Emulator) -> str | None:
    """The server's pod that is deleted and still exists."""
    listed = emulator.get("pods", "-n", "llm", "-l", f"app={SERVER}")
    return next((pod["metadata"]["name"] for pod in listed if "deletionTimestamp" in pod["metadata"]), None)


def asked(emulator: Emulator, pod: str) -> int:
    """The status of a new request to a pod, past the gateway and its picker: at a path that needs no key."""
    path = f"/api/v1/namespaces/llm/pods/{pod}:8000/proxy/invocations"
    return emulator.status_of("POST", path, {"prompt": "who?", "max_tokens": 1})


def at_sigterm(emulator: Emulator, pod: str) -> int:
    """How many answers were open when a pod got SIGTERM, by the log of its stub. It also got no other signal."""
    (log,) = emulator.state.glob(f"clusters/*/log/llm_{pod}_*.log")
    (count,) = re.findall(r"^SIGTERM with (\d+) open answers$", log.read_text(), re.M)
    return int(count)


def failures(emulator: Emulator) -> Counter[str]:
    (log,) = emulator.state.glob("clusters/*/log/gateway_*_access.log")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return Counter(f"{line['status']} {line['time']} {line['details']}" for line in lines if line["status"] != 200)


def words(event: str) -> int:
    """The tokens of an event. A stub's tokens are words, and an event may have several."""
    choices = json.loads(event).get("choices") if event.startswith("{") else None
    return len((choices[0]["delta"].get("content") or "").split()) if choices else 0


def works(emulator: Emulator) -> bool:
    with client(emulator) as gateway:
        return all(answer(gateway, model, 1).status == 200 for model in (MODEL, LLAMA))


def answer(gateway: httpx.Client, model: str = MODEL, count: int = TOKENS) -> Answer:
    """Asks for a stream and reads it to its end. The prompts differ, so that no cached prefix decides."""
    prompt = f"{time.monotonic_ns()}: who?"
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": count, "stream": True}
    tokens, last = 0, ""
    try:
        with gateway.stream("POST", PATH, json=body) as response:
            for line in response.iter_lines():
                if line:
                    last = line.removeprefix("data: ")
                    tokens += words(last)
    except httpx.HTTPError as error:
        return Answer(0, count - tokens, repr(error))
    return Answer(response.status_code, count - tokens, last)


@contextmanager
def users(emulator: Emulator) -> Iterator[Counter[Answer]]:
    """A burst of users. Their answers are known at the end."""

    def user(first: int) -> Callable[[], Answer]:
        counts = chain([first], repeat(TOKENS))
        return lambda: answer(gateway, count=next(counts))

    known = Counter[Answer]()
    burst = [user(TOKENS * (number + 1) // USERS) for number in range(USERS)]
    with client(emulator) as gateway, repeated(*burst) as answers:
        yield known
    known.update(answers)


def test_client_that_sets_the_header_of_a_model_gets_the_list_of_its_route(deployed: Emulator) -> None:
    def listed(gateway: httpx.Client, headers: dict[str, str]) -> list[str]:
        return [model["id"] for model in gateway.get("/v1/models", headers=headers).json()["data"]]

    with client(deployed) as gateway:
        assert listed(gateway, {}) == [MODEL], "the first route alone"
        assert listed(gateway, {MODEL_HEADER: LLAMA}) == [LLAMA, "sql", "reports"]


def test_rollout_cuts_no_stream_and_refuses_no_request(deployed: Emulator) -> None:
    old = pods(deployed)
    assert len(old) == 2
    with users(deployed) as answers:
        deployed.make("up", deployed.configure(EXAMPLE, **sections("--max-num-seqs=64")))
        eventually(lambda: not old & pods(deployed), "the old pods have ended", 180)
    assert answers.keys() == {WHOLE}, (answers, failures(deployed))
    assert answers[WHOLE] >= 2 * USERS, "each user asked again"
    assert sum(at_sigterm(deployed, pod) for pod in old), "no answer was open, so nothing was shown"


def test_scale_in_by_a_pod_cuts_no_stream_and_refuses_no_request(deployed: Emulator) -> None:
    before = pods(deployed)
    with users(deployed) as answers:
        # As the autoscaler does: one pod per period.
        deployed.kubectl("scale", "deployment", SERVER, "-n", "llm", "--replicas=1")
        pod = eventually(lambda: terminating(deployed), "a pod terminates")
        assert asked(deployed, pod) == 200, "a request that was on its way is answered"
        eventually(lambda: len(pods(deployed)) == 1, "one pod has ended", 180)
    assert answers.keys() == {WHOLE}, (answers, failures(deployed))
    assert before - pods(deployed) == {pod}
    assert at_sigterm(deployed, pod), "no answer was open, so nothing was shown"
