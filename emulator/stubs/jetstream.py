"""Stubs of JetStream's two containers."""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path

from emulator.stubs.load import Load, token_count
from emulator.stubs.server import Answer, ErrorAnswer, Object, metric, serve

# Shares of the chips' memory: used by the model, and added by full slots.
MODEL_MEMORY, SLOTS_MEMORY = 0.25, 0.65


def maxengine(port: int, metrics_port: int | None, slots: int, id: str, chips_file: str, chips: Object) -> None:
    """JetStream's engine.

    JetStream serves gRPC on `port`, which only the HTTP front in its pod calls.
    """

    def write_memory(share: float) -> None:
        used = int(chips["memory"] * (MODEL_MEMORY + SLOTS_MEMORY * share))
        fresh = f"{chips_file}.new"
        Path(fresh).write_text(json.dumps(chips | {"used": used}))
        os.replace(fresh, chips_file)

    load = Load(slots, write_memory)

    def generate(request: Object) -> Answer:
        return {"response": load.text(token_count(request.get("max_tokens")))}

    serve(port, {"POST /generate": generate})
    if metrics_port:
        serve(metrics_port, {"GET": lambda _: metrics(load, id)})


def metrics(load: Load, pod: str) -> str:
    """https://github.com/AI-Hypercomputer/JetStream, jetstream/core/metrics/prometheus.py"""
    backlog, used = {f'id="{pod}"': load.waiting}, {f'id="{pod}",idx="0"': load.share}
    return metric("jetstream_prefill_backlog_size", "Requests that wait", backlog) + metric(
        "jetstream_slots_used_percentage", "Share of decoding slots in use, 0 to 1", used
    )


def jetstream_http(port: int, engine_port: int) -> None:
    """The HTTP front of JetStream, which forwards requests to the engine in its pod.

    https://cloud.google.com/kubernetes-engine/docs/tutorials/serve-gemma-tpu-jetstream
    """

    def generate(request: Object) -> Answer:
        if "prompt" not in request:
            raise ErrorAnswer(422, "prompt is missing")
        connection = http.client.HTTPConnection("127.0.0.1", engine_port)
        try:
            connection.request("POST", "/generate", json.dumps(request))
            answer: Object = json.load(connection.getresponse())
        except OSError as error:
            raise ErrorAnswer(503, f"the engine doesn't answer: {error}") from error
        finally:
            connection.close()
        return answer

    healthy = {path: lambda _: "" for path in ("GET /", "GET /health", "GET /healthcheck")}
    serve(port, {**healthy, "POST /generate": generate})
