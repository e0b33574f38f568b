"""Stubs of model servers with OpenAI's API (vLLM, TGI and others)."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping
from functools import partial

from emulator.stubs.load import Load, token_count
from emulator.stubs.server import Answer, ErrorAnswer, Object, Route, metric, serve


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
) -> None:
    """A server of any engine in the catalog, which describes its paths, its metrics and the form of a request.

    It requires the API key in the variable of its environment, if it is set.
    """
    load = Load(slots)

    def generate(request: Object) -> Answer:
        if "prompt" not in request:
            raise ErrorAnswer(422, "prompt is missing")
        return {"response": load.text(token_count(request.get("max_tokens")))}

    routes: dict[str, Route] = openai(load, models) if form == "completions" else {f"POST {request_path}": generate}
    # The labels of vLLM: https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/metrics/loggers.py
    labels = f'model_name="{models[0] if models else "stub"}",engine="0"'
    routes[f"GET {metrics_path}"] = lambda _: metrics(load, series, labels)
    serve(port, {f"GET {health_path}": lambda _: "", **routes}, api_key=os.environ.get(api_key_variable, ""))


def metrics(load: Load, series: Mapping[str, str], labels: str = "") -> str:
    """The series of an engine, by the names of the metrics in `catalog.engines`.

    Each running request takes the same share of the KV cache.
    """
    values = {"queuedRequests": load.waiting, "runningRequests": load.running, "kvCacheUsage": load.share}
    return "".join(metric(series[key], key, {labels: value}) for key, value in values.items() if key in series)


def openai(load: Load, models: list[str], strict: bool = True) -> dict[str, Route]:
    """The routes of OpenAI's API: https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html

    Args:
        load: The requests of the engine.
        models: Names of the model. Without a name, the stub answers for any.
        strict: Refuse requests for other models.
    """

    def listed(_: Object) -> Answer:
        fields = {"object": "model", "created": 0, "owned_by": "stub"}
        return {"object": "list", "data": [{"id": model, **fields} for model in models]}

    def complete(chat: bool, request: Object) -> Answer:
        needed = "messages" if chat else "prompt"
        if needed not in request:
            raise ErrorAnswer(422, f"{needed} is missing")
        model = request.get("model") or (models[0] if models else "stub")
        if strict and models and model not in models:
            raise ErrorAnswer(404, f"The model `{model}` does not exist.")
        completion = Completion(load, chat, model, request)
        return completion.events() if request.get("stream") else completion.whole()

    return {
        "GET /v1/models": listed,
        "POST /v1/completions": partial(complete, False),
        "POST /v1/chat/completions": partial(complete, True),
    }


class Completion:
    """The answer to one request, for a chat or a prompt."""

    def __init__(self, load: Load, chat: bool, model: str, request: Object) -> None:
        self._load = load
        self._chat = chat
        self._count = token_count(request.get("max_completion_tokens") or request.get("max_tokens"))
        self._prompt = len(str(request["messages" if chat else "prompt"]).split())
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
        """The answer token by token. A chat begins with an event that has only the role."""
        fields = {**self._common, "object": "chat.completion.chunk" if self._chat else "text_completion"}
        if self._with_usage:
            fields["usage"] = None
        if self._chat:
            yield {**fields, "choices": [_choice({"delta": {"role": "assistant", "content": ""}}, None)]}
        for number, token in enumerate(self._load.tokens(self._count), 1):
            content = {"delta": {"content": token}} if self._chat else {"text": token}
            yield {**fields, "choices": [_choice(content, "length" if number == self._count else None)]}
        if self._with_usage:
            yield {**fields, "choices": [], "usage": self._usage()}

    def _usage(self) -> Object:
        tokens = {"prompt_tokens": self._prompt, "completion_tokens": self._count}
        return {**tokens, "total_tokens": sum(tokens.values())}


def _choice(content: Object, finish_reason: str | None) -> Object:
    return {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}
