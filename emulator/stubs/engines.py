"""Stubs of model servers with OpenAI's API (vLLM, TGI and others)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator, Mapping
from functools import partial

from emulator.stubs.load import Load, token_count
from emulator.stubs.server import WRONG_FORM, Answer, ErrorAnswer, Object, Route, StubServer, metric, serve


def tgi(port: int, slots: int, models: list[str], series: Mapping[str, str]) -> None:
    """https://huggingface.co/docs/text-generation-inference/reference/api_reference

    Its metrics have no labels: https://huggingface.co/docs/text-generation-inference/reference/metrics
    """
    load = Load(slots)

    def generate(request: Object) -> Answer:
        if "inputs" not in request:
            raise ErrorAnswer(422, "inputs is missing")
        count = token_count(request.get("parameters", {}).get("max_new_tokens"))
        return {"generated_text": load.text(count)}

    # TGI answers for any model name.
    routes = {"POST /generate": generate, **openai(load, models, strict=False)}
    serve(port, {"GET /health": lambda _: "", "GET /metrics": lambda _: metrics(load, series), **routes})


def server(
    port: int,
    health_path: str,
    request_path: str,
    form: str,
    slots: int,
    models: list[str],
    metrics_path: str,
    series: Mapping[str, str],
    api_key_variable: str = "",
    max_model_len: int | None = None,
    shutdown_seconds: int = 0,
    adapters: Mapping[str, str] | None = None,
) -> None:
    """A server as vLLM, by the paths, metrics and form of a request that the catalog describes.

    It requires the API key in the variable of its environment, if it is set. On SIGTERM it does as `shut_down` says.
    Unlike vLLM, it loads nothing, so it answers at once.
    """
    load = Load(slots)

    def generate(request: Object) -> Answer:
        if "prompt" not in request:
            raise ErrorAnswer(422, "prompt is missing")
        return {"response": load.text(token_count(request.get("max_tokens")))}

    limit = max_model_len
    routes: dict[str, Route] = (
        with_open_paths(openai(load, models, limit=limit, adapters=adapters), load, limit)
        if form == "completions"
        else {f"POST {request_path}": generate}
    )
    # The labels of vLLM: vllm/v1/metrics/loggers.py
    labels = f'model_name="{models[0] if models else "stub"}",engine="0"'
    routes[f"GET {metrics_path}"] = lambda _: metrics(load, series, labels) + vllm_metrics(load, labels)
    routes[f"GET {health_path}"] = lambda _: ""
    # Blocked and waited for: Python can miss a signal with a handler that comes just before the main thread waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    http = serve(port, routes, api_key=os.environ.get(api_key_variable, ""), strict=True)
    signal.sigwait({signal.SIGTERM})
    shut_down(http, load, shutdown_seconds)


def shut_down(http: StubServer, load: Load, seconds: int) -> None:
    """Ends the server as vLLM does: maintain/real_vllm/recorded.yaml.

    With `--shutdown-timeout`, open answers may finish within `seconds`, the health check passes, and new requests get
    500. Then the engine ends, without the flag at once: open answers get nothing more, and the server waits until
    their clients leave or it is killed.
    """
    print(f"SIGTERM with {http.clients} open answers", flush=True)
    http.refusing = True
    deadline = time.monotonic() + seconds
    while http.clients and time.monotonic() < deadline:
        time.sleep(0.02)
    load.freeze()
    http.shutdown()
    http.server_close()
    while http.clients:
        time.sleep(0.02)
    os._exit(0)


def vllm_metrics(load: Load, labels: str) -> str:
    """Further metrics of vLLM: vllm/v1/metrics/loggers.py"""
    config = f'{labels},block_size="16",num_gpu_blocks="4096",gpu_memory_utilization="0.92"'
    generated = metric("vllm:generation_tokens_total", "Generated tokens", {labels: load.generated}, "counter")
    return generated + metric("vllm:cache_config_info", "Configuration of the cache", {config: 1})


def metrics(load: Load, series: Mapping[str, str], labels: str = "") -> str:
    """The series of an engine, by the names of the metrics in `gke_ai.catalog.engines.engine`.

    Each running request takes the same share of the KV cache.
    """
    values = {"queuedRequests": load.waiting, "runningRequests": load.running, "kvCacheUsage": load.share}
    return "".join(metric(series[key], key, {labels: value}) for key, value in values.items() if key in series)


def openai(
    load: Load,
    models: list[str],
    strict: bool = True,
    limit: int | None = None,
    adapters: Mapping[str, str] | None = None,
) -> dict[str, Route]:
    """The routes of OpenAI's API: https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html

    Args:
        load: The requests of the engine.
        models: Names of the model. Without a name, the stub answers for any.
        strict: Refuse requests for other models and wrong requests as vLLM does, with 400.
        limit: Longest sequence, in tokens. A word counts as one. Default: no limit.
        adapters: Paths of LoRA adapters, by name.
    """

    paths = adapters or {}

    def listed(_: Object) -> Answer:
        fields: Object = {"object": "model", "created": 0, "owned_by": "stub"}
        if strict:
            fields["max_model_len"] = limit
        # As `show_available_models` in vllm/entrypoints/openai/models/serving.py
        cards = [{"id": model, **fields} for model in models]
        fields["max_model_len"] = None
        cards += [{"id": name, **fields, "root": path, "parent": models[0]} for name, path in paths.items()]
        return {"object": "list", "data": cards}

    def complete(chat: bool, request: Object) -> Answer:
        needed = "messages" if chat else "prompt"
        if strict:
            check_request(request, chat, limit)
        elif needed not in request:
            raise ErrorAnswer(422, f"{needed} is missing")
        model = request.get("model") or (models[0] if models else "stub")
        if strict and models and model not in [*models, *paths]:
            raise ErrorAnswer(404, f"The model `{model}` does not exist.", "model")
        completion = Completion(load, chat, model, request, as_vllm=strict)
        return completion.events() if request.get("stream") else completion.whole()

    return {
        "GET /v1/models": listed,
        "POST /v1/completions": partial(complete, False),
        "POST /v1/chat/completions": partial(complete, True),
    }


def with_open_paths(routes: dict[str, Route], load: Load, limit: int | None) -> dict[str, Route]:
    """The routes, and some of those that vLLM serves to clients without its key: maintain/real_vllm/recorded.yaml."""

    def tokenize(request: Object) -> Answer:
        if not request.keys() & {"messages", "prompt"}:
            raise ErrorAnswer(400, "prompt is missing", "body.prompt", WRONG_FORM)
        count = prompt_tokens(request, "messages" in request)
        return {"count": count, "max_model_len": limit, "tokens": list(range(count)), "token_strs": None}

    return routes | {
        "POST /invocations": lambda it: routes[f"POST /v1/{'chat/' if 'messages' in it else ''}completions"](it),
        "POST /tokenize": tokenize,
        "GET /load": lambda _: {"server_load": load.running + load.waiting},
        "GET /docs": lambda _: "<html></html>",
        "GET /openapi.json": lambda _: {"openapi": "3.1.0", "paths": {}},
    }


def check_request(request: Object, chat: bool, limit: int | None) -> None:
    """Refuses what vLLM refuses: no prompt, no tokens, and prompts and answers that exceed the longest sequence."""
    needed = "messages" if chat else "prompt"
    if needed not in request:
        where, kind = ("body.messages", WRONG_FORM) if chat else ("prompt", "")
        raise ErrorAnswer(400, f"{needed} is missing", where, kind)
    name = "max_completion_tokens" if request.get("max_completion_tokens") is not None else "max_tokens"
    asked = request.get(name)
    if asked is not None and not isinstance(asked, int):
        raise ErrorAnswer(400, f"{name} is not a number", f"body.{name}", WRONG_FORM)
    if request.get("stream_options") and not request.get("stream"):
        raise ErrorAnswer(400, "stream_options need stream", "stream_options")
    if asked is not None and asked < 1:
        raise ErrorAnswer(400, f"{name} must be at least 1, got {asked}.", name)
    length = prompt_tokens(request, chat) + (asked or 1)
    if limit is not None and length > limit:
        where = "input_text" if asked and asked >= limit else "input_tokens"
        raise ErrorAnswer(400, f"The longest sequence has {limit} tokens. The request needs {length}.", where)


def prompt_tokens(request: Object, chat: bool) -> int:
    """Words of the prompt: each counts as a token."""
    texts = (
        [str(message.get("content")) for message in request["messages"] if isinstance(message, dict)]
        if chat
        else [str(request["prompt"])]
    )
    return sum(len(text.split()) for text in texts)


class Completion:
    """The answer to one request, for a chat or a prompt.

    In OpenAI's API, each event of a stream has the usage of tokens that a client asked for, and only the last one is
    not empty. With `as_vllm`, the last one alone has it, and some events have two tokens.
    """

    def __init__(self, load: Load, chat: bool, model: str, request: Object, as_vllm: bool) -> None:
        self._load = load
        self._together = as_vllm
        self._empty_usage = not as_vllm
        self._chat = chat
        self._count = token_count(request.get("max_completion_tokens") or request.get("max_tokens"))
        self._prompt = prompt_tokens(request, chat)
        self._with_usage = bool((request.get("stream_options") or {}).get("include_usage"))
        kind = "chatcmpl" if chat else "cmpl"
        self._common = {"id": f"{kind}-{time.time_ns()}", "created": int(time.time()), "model": model}

    def whole(self) -> Object:
        """The whole answer, once its last token exists."""
        text = self._load.text(self._count)
        content = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        kind = "chat.completion" if self._chat else "text_completion"
        return {**self._common, "object": kind, "choices": [_choice(content, "length")], "usage": self._usage()}

    def events(self) -> Generator[Object, None, None]:
        """The answer token by token. A chat begins with an event that has only the role.

        vLLM sends tokens together that come faster than it sends: a recorded answer had 400 tokens in 307 events.
        """
        fields = {**self._common, "object": "chat.completion.chunk" if self._chat else "text_completion"}
        if self._with_usage and self._empty_usage:
            fields["usage"] = None
        if self._chat:
            yield {**fields, "choices": [_choice({"delta": {"role": "assistant", "content": ""}}, None)]}
        text = ""
        for number, token in enumerate(self._load.tokens(self._count), 1):
            text += token
            if self._together and number % 4 == 3 and number < self._count:
                continue
            content = {"delta": {"content": text}} if self._chat else {"text": text}
            yield {**fields, "choices": [_choice(content, "length" if number == self._count else None)]}
            text = ""
        if self._with_usage:
            yield {**fields, "choices": [], "usage": self._usage()}

    def _usage(self) -> Object:
        tokens = {"prompt_tokens": self._prompt, "completion_tokens": self._count}
        return {**tokens, "total_tokens": sum(tokens.values())}


def _choice(content: Object, finish_reason: str | None) -> Object:
    return {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}
