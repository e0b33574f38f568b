"""Only here: the real endpoint picker behind a real Envoy follows the objects of Gateways in a cluster."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import yaml

from emulator import cluster
from emulator.cloud.api import APPLY_PATCH, MERGE_PATCH, Object, answer, client
from emulator.cloud.folder import Folder
from emulator.cluster import ClusterRecord, PoolRecord
from emulator.machine import processes
from emulator.tests import gateway_objects, spares
from emulator.tests.clusters import clusters_in
from emulator.tests.gateway_objects import NAMESPACE, gateway, pool, route
from emulator.tests.harness import eventually

if TYPE_CHECKING:  # its import takes two seconds, in each process that collects the tests
    import openai
    from openai.types.chat import ChatCompletionChunk, ChatCompletionUserMessageParam

pytestmark = pytest.mark.cluster

ZONE = "us-central1-a"
RECORD = ClusterRecord("gw", "p", "us-central1", "standard", [ZONE], "1.36.1-gke.1", gateway_api=True)
SYSTEM_POOL = PoolRecord("default-pool", "e2-standard-16", [ZONE], nodes_per_zone=2)
HTTP = {"name": "http", "port": 80, "protocol": "HTTP"}
PLURALS = {"InferencePool": "inferencepools", "HTTPRoute": "httproutes"}
MODEL, ADAPTER = "google/gemma-2b", "sql"
API_KEY = "a key of clients"
KEY_HEADER = {"Authorization": f"Bearer {API_KEY}"}
CLIENT = httpx.Client(timeout=60, trust_env=False, headers=KEY_HEADER)
# A slow machine takes this long at most to start a control plane's worth of processes.
START_SECONDS = 120


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A cluster with two pools of servers: `old` with two replicas and two pickers, `new` with one of each."""
    with clusters_in(tmp_path_factory.mktemp("state")) as root:
        spares.give(root)
        cluster.create(RECORD.name, RECORD)
        cluster.set_pool(RECORD.name, SYSTEM_POOL)
        with client(folder()) as api:
            answer(api.post("/api/v1/namespaces", json={"metadata": {"name": NAMESPACE}}))
            server = gateway_objects.server
            objects = [server("old", 2, token_seconds=0.01), server("new", 1, token_seconds=0.01, adapter=ADAPTER)]
            objects.append(gateway_objects.api_key(API_KEY))  # servers wait for it
            objects += [*pool("old", pickers=2), *pool("new", "FailOpen"), gateway(HTTP), route(old=1, new=0)]
            for item in objects:
                apply(api, item)
            yield api


def folder() -> Folder:
    return Folder(RECORD.name)


def path_of(item: Object) -> str:
    version, kind, metadata = item["apiVersion"], item["kind"], item["metadata"]
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    return f"{root}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"


def apply(api: httpx.Client, item: Object) -> None:
    parameters = {"fieldManager": "test", "force": "true", "fieldValidation": "Strict"}
    answer(api.patch(path_of(item), params=parameters, content=yaml.safe_dump(item), headers=APPLY_PATCH))


def status(api: httpx.Client, item: Object) -> Object:
    found: Object = answer(api.get(path_of(item))).get("status", {})
    return found


def url(api: httpx.Client) -> str:
    """The address of the Gateway, once it works. On GKE a client reads it the same way."""
    addresses = eventually(lambda: status(api, gateway(HTTP)).get("addresses"), "the Gateway has an address")
    return f"http://{addresses[0]['value']}/v1"


def ask(address: str, tag: str = "", model: str = MODEL) -> int:
    """Sends a chat with one token and returns the status. The tag, its user agent, is in the log."""
    message = {"role": "user", "content": f"question {time.time_ns()}"}
    request = {"model": model, "max_tokens": 1, "messages": [message]}
    return CLIENT.post(f"{address}/chat/completions", json=request, headers={"User-Agent": tag}).status_code


def works(api: httpx.Client) -> str:
    """The Gateway's address, once it answers."""
    address = url(api)
    eventually(lambda: ask(address) == 200, "the gateway answers", START_SECONDS)
    return address


def send(address: str, count: int, code: int = 200) -> list[Object]:
    """Sends requests, which all get this status code, and returns their lines in Envoy's log."""
    tag = f"{time.time_ns()}"
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(lambda _: ask(address, tag), range(count))) == {code}
    file = folder().log / f"gateway_{NAMESPACE}_inference-gateway_access.log"

    def logged() -> list[Object]:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return [line for line in lines if line["userAgent"] == tag]

    eventually(lambda: len(logged()) == count, "all requests are logged")
    return logged()


def shares(address: str, count: int) -> Counter[str]:
    """How many of `count` requests each pool gets."""
    return Counter(line["backend"].rpartition("/")[2] for line in send(address, count))


def pods(api: httpx.Client, name: str) -> dict[str, str]:
    """The addresses of the pods of a server, by name, without those that terminate."""
    found = answer(api.get(f"/api/v1/namespaces/{NAMESPACE}/pods", params={"labelSelector": f"app={name}"}))["items"]
    current = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
    return {pod["metadata"]["name"]: f"{pod['status'].get('podIP')}:8000" for pod in current}


def through_pods_proxy(address: str) -> httpx.Client:
    """A client of one pod, past the gateway."""
    proxy = f"http://{folder().pod_proxy.read_text()}"
    return httpx.Client(base_url=f"http://{address}", proxy=proxy, timeout=120, headers=KEY_HEADER)


def test_a_gateway_gets_its_address_and_says_that_it_works(api: httpx.Client) -> None:
    works(api)
    found = status(api, gateway(HTTP))
    assert {c["type"]: c["status"] for c in found["conditions"]} == {"Accepted": "True", "Programmed": "True"}
    assert found["listeners"][0]["attachedRoutes"] == 1
    for item in (route(), *(item for item in pool("old") if item["kind"] == "InferencePool")):
        (parent,) = status(api, item)["parents"]
        assert {c["type"]: c["status"] for c in parent["conditions"]} == {"Accepted": "True", "ResolvedRefs": "True"}
    classes = answer(api.get("/apis/gateway.networking.k8s.io/v1/gatewayclasses"))["items"]
    assert "gke-l7-rilb" in {item["metadata"]["name"] for item in classes}


def test_the_openai_client_gets_each_event_of_a_streamed_chat_at_once_if_it_has_the_key(api: httpx.Client) -> None:
    import openai

    address = works(api)
    with pytest.raises(openai.AuthenticationError), streamed_chat(address, 20, api_key="another key"):
        pass
    with streamed_chat(address, 20) as stream:
        text = "".join(event.choices[0].delta.content or "" for event in stream)
    assert text.startswith("A stub of the emulated cloud")
    # This whole answer takes 1,000 seconds, and the client gives up after 60.
    with streamed_chat(address, 100_000) as stream:
        assert next(iter(stream)).choices


@contextmanager
def streamed_chat(address: str, tokens: int, api_key: str = API_KEY) -> Iterator[openai.Stream[ChatCompletionChunk]]:
    import openai

    with openai.OpenAI(base_url=address, api_key=api_key, max_retries=0, timeout=60) as client:
        hi: ChatCompletionUserMessageParam = {"role": "user", "content": "hi"}
        with client.chat.completions.create(model=MODEL, messages=[hi], max_tokens=tokens, stream=True) as stream:
            yield stream


def test_open_answers_outlive_the_deletion_of_their_pods(api: httpx.Client) -> None:
    """As in a rollout: vLLM has `--shutdown-timeout`, and the answer takes longer than a process has without it."""
    address, tokens = works(api), 800
    with streamed_chat(address, tokens) as stream:
        events = iter(stream)
        next(events)
        names = [name for server in ("old", "new") for name in pods(api, server)]
        for name in names:
            answer(api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"))
        generated = [event for event in events if event.choices and event.choices[0].delta.content]
    text = "".join(event.choices[0].delta.content or "" for event in generated)
    assert len(text.split()) == tokens
    assert generated[-1].choices[0].finish_reason == "length"


def test_the_picker_prefers_the_replica_with_the_shortest_queue(api: httpx.Client) -> None:
    address = works(api)
    (name, busy), (_, free) = pods(api, "old").items()

    def waiting() -> float:
        lines = direct.get("/metrics").text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_waiting"))

    with through_pods_proxy(busy) as direct, ThreadPoolExecutor(8) as threads:
        # Two run and six wait, for longer than any machine needs for this test.
        request = {"model": MODEL, "prompt": "long", "max_tokens": 100_000}
        held = [threads.submit(direct.post, "/v1/completions", json=request) for _ in range(8)]
        try:
            eventually(lambda: waiting() == 6, "six requests wait")
            time.sleep(2)  # the picker reads the metrics every 0.2 s
            picked = Counter(line["pod"] for line in send(address, 20))
            assert not any(request.done() for request in held)
            assert picked == {free: 20}
        finally:  # replaces the pod, whose open requests fail
            answer(api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"))
            eventually(lambda: name not in pods(api, "old") and len(pods(api, "old")) == 2, "a new pod")


def test_the_picker_takes_a_path_with_a_query_for_completions(api: httpx.Client) -> None:
    address, chat = works(api), {"messages": [{"role": "user", "content": "hi"}]}
    requests: dict[str, Object] = {"chat/completions": chat, "completions": {"prompt": "hi"}}
    codes = {
        f"{path}{query}": CLIENT.post(f"{address}/{path}{query}", json={"model": MODEL, **request}).status_code
        for path, request in requests.items()
        for query in ("", "?user=1")
    }
    assert [path for path, code in codes.items() if code != 200] == ["chat/completions?user=1"]
    assert codes["chat/completions?user=1"] == 400


def test_each_pool_gets_its_share_of_the_requests_and_one_with_weight_0_nothing(api: httpx.Client) -> None:
    address = works(api)
    with weights(api, old=90, new=10):
        eventually(lambda: shares(address, 40)["new"], "the new weights")
        got = shares(address, 200)
        # Of 200 requests 20 are expected, with a standard deviation of 4.2. Chance exceeds these limits less than once
        # in ten million runs.
        assert 1 <= got["new"] <= 45
        assert got["old"] == 200 - got["new"]
    for item, other in (("new", "old"), ("old", "new")):
        with weights(api, **{item: 1, other: 0}):
            eventually(lambda: not shares(address, 10)[other], "the new weights")  # noqa: B023
            assert shares(address, 50) == {item: 50}


@contextmanager
def weights(api: httpx.Client, **of_pools: int) -> Iterator[None]:
    """Divides the requests by these weights; afterwards `old` gets all."""
    apply(api, route(**of_pools))
    try:
        yield
    finally:
        apply(api, route(old=1, new=0))


@pytest.mark.parametrize(("name", "code"), [("new", 200), ("old", 500)])  # FailOpen, FailClose
def test_without_a_picker_a_pool_fails_as_its_failure_mode_says(api: httpx.Client, name: str, code: int) -> None:
    address = works(api)
    with weights(api, **{name: 1}):
        eventually(lambda: shares(address, 1)[name], "the weights")
        scale(api, f"{name}-epp", 0)
        try:
            eventually(lambda: not pickers(name), "the picker has ended")
            eventually(lambda: {ask(address) for _ in range(5)} == {code}, f"every request gets {code}")
            assert all(line["pod"] is None for line in send(address, 10, code))
        finally:
            scale(api, f"{name}-epp", 1)
            eventually(lambda: pickers(name), "the picker runs")
    works(api)


def scale(api: httpx.Client, deployment: str, replicas: int) -> None:
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{deployment}"
    answer(api.patch(path, json={"spec": {"replicas": replicas}}, headers=MERGE_PATCH))


def pickers(name: str) -> list[int]:
    """The processes of a pool's endpoint picker."""
    mark = f"--pool-name\0{name}\0".encode()
    return [pid for pid, command in commands().items() if mark in command]


def commands() -> dict[int, bytes]:
    """The command lines of the cluster's processes, by id."""
    result = {}
    for pid in processes.of(folder().path):
        with suppress(OSError):  # it has ended
            result[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
    return result


def test_the_router_sends_each_model_to_its_pool(api: httpx.Client) -> None:
    """By the name in the body of the request: the model to `old`, and the adapter to `new`."""
    import openai

    address = works(api)
    assert ask(address, model=ADAPTER) == 404, "all requests go to `old`, which has no adapter"
    added = [*gateway_objects.router(), gateway_objects.route_of_model(ADAPTER, "new")]
    for item in added:
        apply(api, item)
    try:
        eventually(lambda: ask(address, model=ADAPTER) == 200, "the router answers", START_SECONDS)
        assert shares(address, 10) == {"old": 10}
        with openai.OpenAI(base_url=address, api_key=API_KEY, max_retries=0, timeout=60) as chat:
            for model in (MODEL, ADAPTER):
                answered = chat.completions.create(model=model, prompt="x" * 200_000, max_tokens=1)
                assert answered.model == model
            with pytest.raises(openai.NotFoundError):
                chat.completions.create(model="unknown", prompt="hi")
            assert [listed.id for listed in chat.models.list()] == [MODEL], "no model in the request"
        assert {ask(address, model=ADAPTER) for _ in range(5)} == {200}
        with weights(api, old=1, new=1):
            eventually(lambda: shares(address, 10)["new"], "the canary's share of the model")
    finally:
        for item in reversed(added):
            answer(api.delete(path_of(item)))
    eventually(lambda: ask(address, model=ADAPTER) == 404, "the router has gone")
    works(api)


def test_a_listener_serves_tls_with_the_certificate_of_its_secret(api: httpx.Client) -> None:
    address = works(api)
    https = {"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "cert"}]}}
    apply(api, gateway(HTTP, https))
    try:
        secret = gateway_objects.certificate("cert")
        eventually(lambda: programmed(api) == "False", "the gateway waits for its certificate")
        apply(api, secret)
        eventually(lambda: programmed(api) == "True", "the gateway works")
        plain, encrypted = (address["value"] for address in status(api, gateway(HTTP))["addresses"])
        assert address == f"http://{plain}/v1"
        trusted = ssl.create_default_context(cadata=base64.b64decode(secret["data"]["tls.crt"]).decode())
        with httpx.Client(verify=trusted, trust_env=False, headers=KEY_HEADER) as https_client:
            assert https_client.get(f"https://{encrypted}/v1/models").status_code == 200
        assert ask(address) == 200
    finally:
        apply(api, gateway(HTTP))


def programmed(api: httpx.Client) -> str:
    conditions = {c["type"]: c["status"] for c in status(api, gateway(HTTP))["conditions"]}
    return str(conditions["Programmed"])


def test_the_gateway_and_its_envoy_go_together(api: httpx.Client) -> None:
    address = works(api)
    answer(api.delete(path_of(gateway(HTTP))))
    try:
        eventually(lambda: not envoys(), "Envoy has ended")
        with pytest.raises(httpx.TransportError):
            ask(address)
        eventually(lambda: not status(api, route()).get("parents"), "the route has no parent")
    finally:
        apply(api, gateway(HTTP))
    assert works(api) == address  # the address stays, so that clients find it again


def envoys() -> list[int]:
    return [pid for pid, command in commands().items() if command.partition(b"\0")[0].endswith(b"/envoy")]


def test_every_process_ends_with_the_cluster(api: httpx.Client) -> None:
    works(api)
    assert min(len(envoys()), len(pickers("old")), len(pickers("new"))) > 0
    cluster.delete(RECORD.name)
    assert commands() == {}
