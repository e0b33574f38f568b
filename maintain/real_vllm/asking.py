"""Asks a server for what its clients rely on, and describes the answers. The recorder and the test ask the same."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection as Connection
from http.client import HTTPResponse as Answer
from typing import Any

from gke_ai.catalog.engines import vllm
from gke_ai.catalog.engines.engine import ENGINES
from maintain.real_vllm.served import KEY, MAX_MODEL_LEN, MAX_REQUESTS, Served

Object = dict[str, Any]
Process = subprocess.Popen[bytes]
ANSWER_SECONDS = 600
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
TOKENS = 8
BURST, BURST_TOKENS = 3 * MAX_REQUESTS, (20, 100, 500, 2500)
# Answers that finish after SIGTERM, and their tokens.
SHORT, SHORT_TOKENS = 3, 30
# Fields of which the value is part of the API, not only its type.
VALUES = {
    *("object", "role", "finish_reason", "index", "type", "code", "param", "error", "max_model_len"),
    *("prompt_tokens", "completion_tokens", "total_tokens"),
}
# What autoscalers, dashboards and the endpoint picker read. Defaults of the picker (the metric of adapters is left out:
# no server has adapters): https://github.com/kubernetes-sigs/gateway-api-inference-extension, pkg/epp/server/options.go
WAITING, RUNNING, CACHE = LOADS = [
    ENGINES["vllm"].series[name] for name in ("queuedRequests", "runningRequests", "kvCacheUsage")
]
METRICS = (*LOADS, vllm.GENERATED_TOKENS, "vllm:cache_config_info")


@dataclass(frozen=True)
class Question:
    """A request: by default for a completion, with the key."""

    path: str = COMPLETIONS
    body: object = None
    method: str = "POST"
    key: str | None = f"Bearer {KEY}"
    content_type: str = "application/json"


def prompt(**more: object) -> Object:
    return {"prompt": "w1 w2 w3", "max_tokens": TOKENS, **more}


def chat(**more: object) -> Object:
    return {"messages": [{"role": "user", "content": "w1 w2 w3"}], "max_tokens": TOKENS, **more}


def get(path: str, key: str | None = f"Bearer {KEY}") -> Question:
    return Question(path, method="GET", key=key)


QUESTIONS: Mapping[str, Question] = {
    "a completion": Question(body=prompt()),
    "a chat": Question(CHATS, chat()),
    "a chat with max_completion_tokens": Question(CHATS, chat(max_completion_tokens=TOKENS)),
    "the models": get("/v1/models"),
    "the health": get("/health"),
    "no key": Question(body=prompt(), key=None),
    "another key": Question(body=prompt(), key="Bearer other"),
    "the key in lower case": Question(body=prompt(), key=f"bearer {KEY}"),
    "the key without a scheme": Question(body=prompt(), key=KEY),
    "the metrics": get("/metrics"),
    "the longest prompt": Question(body=prompt(prompt="w1 " * (MAX_MODEL_LEN - 1), max_tokens=1)),
    "a prompt that is too long": Question(body=prompt(prompt="w1 " * MAX_MODEL_LEN, max_tokens=1)),
    "a prompt that is too long, without max_tokens": Question(body={"prompt": "w1 " * MAX_MODEL_LEN}),
    "a chat that is too long": Question(CHATS, chat(max_tokens=MAX_MODEL_LEN)),
    "an answer that is too long": Question(body=prompt(max_tokens=MAX_MODEL_LEN)),
    "max_tokens of 0": Question(body=prompt(max_tokens=0)),
    "max_tokens of -1": Question(body=prompt(max_tokens=-1)),
    "max_tokens of 0 in a chat": Question(CHATS, chat(max_tokens=0)),
    "max_tokens that is a word": Question(body=prompt(max_tokens="many")),
    "no prompt": Question(body={"max_tokens": TOKENS}),
    "no messages": Question(CHATS, {"max_tokens": TOKENS}),
    "a list": Question(body=["w1"]),
    "no JSON": Question(body=b"w1"),
    "another content type": Question(body=prompt(), content_type="text/plain"),
    "another model": Question(body=prompt(model="other")),
    "an unknown path": get("/nothing"),
    "another method": get(COMPLETIONS),
    "stream_options without stream": Question(body=prompt(stream_options={"include_usage": True})),
}
# Paths of routes that a server has with other models or settings.
PATHS = ("/v1/nothing", "/v2/nothing", "/inference/nothing", "/cohere/nothing", "/docs", "/openapi.json")
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
STREAMS: Mapping[str, Question] = {
    "a completion": Question(body=prompt(stream=True)),
    "a completion with usage": Question(body=prompt(**USAGE)),
    "a chat": Question(CHATS, chat(stream=True)),
    "a chat with usage": Question(CHATS, chat(**USAGE)),
}


# ------------------------------------------------------------------------------------------------------------ requests
def send(server: Served, question: Question) -> Answer:
    """Sends a request, for the model of the server unless it names another one."""
    return connected(server, question)[1]


def connected(server: Served, question: Question) -> tuple[Connection, Answer]:
    """Sends a request on a connection of its own."""
    connection = Connection("127.0.0.1", server.port, timeout=ANSWER_SECONDS)
    headers = {"Authorization": question.key} if question.key else {}
    body = question.body
    if isinstance(body, dict):
        body = {"model": server.route.model, **body}
    if body is not None:
        headers["Content-Type"] = question.content_type
    data = body if body is None or isinstance(body, bytes) else json.dumps(body)
    connection.request(question.method, question.path, data, headers)
    return connection, connection.getresponse()


def described(response: Answer) -> Object:
    """Status, content type and form of an answer."""
    text, kind = response.read().decode(), response.headers["Content-Type"]
    body = form(json.loads(text)) if kind == "application/json" else "text" if text else "empty"
    return {"status": response.status, "type": kind, "body": body}


def form(value: object, name: str = "") -> object:
    """The form of a JSON value: names of fields, and types in place of values that differ by request."""
    if isinstance(value, dict):
        return {key: form(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [form(item) for item in value]
    if value is None or isinstance(value, bool) or name in VALUES:
        return value
    return "text" if isinstance(value, str) else "number"


def routes(server: Served, known: Collection[str] | None) -> dict[str, str]:
    """The routes of a server, or of a known one, by whether they require the key."""
    if known is None:
        paths = json.loads(send(server, get("/openapi.json", key=None)).read())["paths"]
        known = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
    asked = {route: route.partition(" ")[::2] for route in sorted({*known, *(f"GET {path}" for path in PATHS)})}
    return {
        route: "key" if outcome(server, Question(path, {}, method, key=None)) == 401 else "no key"
        for route, (method, path) in asked.items()
    }


def outcome(server: Served, question: Question) -> int | str:
    """The status of a whole answer, or `refused` where nobody listens or the server stops listening."""
    try:
        response = send(server, question)
        response.read()
        return response.status
    except ConnectionError:
        return "refused"


def probe(server: Served) -> Question:
    check = server.container["readinessProbe"]["httpGet"]
    assert int(check["port"]) == server.port
    return get(check["path"], key=None)


# ------------------------------------------------------------------------------------------------------------- streams
def events(response: Answer) -> Iterator[str]:
    while line := response.readline():
        if line != b"\n":
            yield line.decode().rstrip("\n").removeprefix("data: ")


def stream(server: Served, question: Question) -> Object:
    """The events of a streamed answer in their order, each form once where it repeats, and its number of tokens.

    vLLM can send several tokens in one event, so tokens are counted by their words.
    """
    response = send(server, question)
    forms: list[object] = []
    words = 0
    for data in events(response):
        event = data if data == "[DONE]" else json.loads(data)
        words += len(text_of(event).split())
        seen = form(event) if isinstance(event, dict) else event
        if not forms or forms[-1] != seen:
            forms.append(seen)
    return {"status": response.status, "type": response.headers["Content-Type"], "tokens": words, "events": forms}


def text_of(event: Any) -> str:
    choice = event["choices"][0] if isinstance(event, dict) and event.get("choices") else {}
    return choice.get("text") or choice.get("delta", {}).get("content") or ""


def rest(response: Answer) -> str:
    """How a stream ends: with which reason, and whether its end is marked."""
    last = reason = ""
    try:
        for data in events(response):
            last, reason = data, reason_of(data) or reason
    except TimeoutError:
        return "nothing more, not even an end"
    except ConnectionError:
        return "breaks off"
    if not response.isclosed():  # the last chunk is missing
        return "breaks off"
    return f"{reason}, then [DONE]" if last == "[DONE]" else f"ends after {json.dumps(form(json.loads(last)))}"


def reason_of(data: str) -> str | None:
    """The reason for the end of an answer in an event, or that the event is an error."""
    event = {} if data == "[DONE]" else json.loads(data)
    choices = event.get("choices")
    return "error" if "error" in event else choices[0]["finish_reason"] if choices else None


# ------------------------------------------------------------------------------------------------------------- metrics
def metrics(server: Served) -> dict[str, tuple[dict[str, str], float]]:
    samples = {}
    for line in send(server, get("/metrics", key=None)).read().decode().splitlines():
        if (match := re.fullmatch(r"(\S+?)\{(.*)\} (\S+)", line)) and match[1] in METRICS:
            samples[match[1]] = dict(re.findall(r'(\w+)="([^"]*)"', match[2])), float(match[3])
    return samples


def types(server: Served) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", send(server, get("/metrics", key=None)).read().decode(), re.M))


def under_burst(server: Served) -> Object:
    """The metrics while more requests come than run at once, and after them."""
    families = types(server)
    for tokens in BURST_TOKENS:  # a fast server gets more to do
        before = metrics(server)[vllm.GENERATED_TOKENS][1]
        statuses, highest = burst(server, tokens)
        if highest[RUNNING] == MAX_REQUESTS and highest[WAITING]:
            break
    eventually(lambda: not any(metrics(server)[name][1] for name in LOADS))
    after = metrics(server)
    return {
        "statuses": statuses,
        "metrics": {
            # A type has the name of a counter without its suffix.
            name: {"type": families.get(name) or families[name.removesuffix("_total")], "labels": sorted(labels)}
            for name, (labels, _) in sorted(after.items())
        },
        "most that run": int(highest[RUNNING]),
        "some wait": highest[WAITING] > 0,
        "some of the cache is in use": 0 < highest[CACHE] <= 1,
        "every token is counted": after[vllm.GENERATED_TOKENS][1] - before == BURST * tokens,
    }


def burst(server: Served, tokens: int) -> tuple[list[int | str], dict[str, float]]:
    """The statuses of a burst of requests, and the highest values of metrics meanwhile."""
    highest = dict.fromkeys(LOADS, 0.0)
    question = Question(body=prompt(max_tokens=tokens))
    with ThreadPoolExecutor(BURST) as clients:
        answers = [clients.submit(outcome, server, question) for _ in range(BURST)]
        while not all(answer.done() for answer in answers):
            now = metrics(server)
            highest = {name: max(value, now[name][1]) for name, value in highest.items()}
    return sorted({answer.result() for answer in answers}, key=str), highest


# ----------------------------------------------------------------------------------------------------------------- end
def drained(server: Served, process: Process, patience: float) -> Object:
    """SIGTERM with open answers: some finish within the time of `--shutdown-timeout`, and one cannot."""
    connection, long, short = open_together(server)
    process.send_signal(signal.SIGTERM)
    one = Question(body=prompt(max_tokens=1))
    eventually(lambda: outcome(server, one) != 200)
    return {
        "new request": described(send(server, one)),
        "probe": outcome(server, probe(server)),
        "answers with time": sorted({rest(answer) for answer in short}),
        "answer without time": after(patience, connection, long, server, process),
    }


def frozen(server: Served, process: Process, patience: float) -> Object:
    """SIGTERM with an open answer, without `--shutdown-timeout`."""
    connection, answer = opened(server, MAX_MODEL_LEN - 10)
    assert running(server) == 1, "the answer must still be open: one that has ended shows nothing"
    process.send_signal(signal.SIGTERM)
    return {"open answer": after(patience, connection, answer, server, process)}


def after(patience: float, connection: Connection, answer: Answer, server: Served, process: Process) -> Object:
    """What becomes of an answer that the engine can't finish, and of its server, until the client leaves."""
    connection.sock.settimeout(patience)
    seen = {"rest": rest(answer), "probe": outcome(server, probe(server)), "exit code": process.poll()}
    answer.close()
    connection.close()
    return {**seen, "exit code once the client has left": process.wait(ANSWER_SECONDS)}


def opened(server: Served, tokens: int) -> tuple[Connection, Answer]:
    """A stream of which the first event has been read, and its connection."""
    connection, response = connected(server, Question(body=prompt(max_tokens=tokens, stream=True)))
    assert response.status == 200
    assert next(events(response))
    return connection, response


def open_together(server: Served, tokens: int = SHORT_TOKENS) -> tuple[Connection, Answer, list[Answer]]:
    """A long stream with its connection, and short ones, all open now. A fast server gets more tokens to send."""
    connection, long = opened(server, MAX_MODEL_LEN - 10)
    short = [opened(server, tokens)[1] for _ in range(SHORT)]
    if running(server) == SHORT + 1:
        return connection, long, short
    long.close()
    connection.close()
    eventually(lambda: not running(server))
    return open_together(server, 2 * tokens)


def running(server: Served) -> float:
    return metrics(server)[RUNNING][1]


def eventually(check: Callable[[], object], seconds: float = ANSWER_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)
