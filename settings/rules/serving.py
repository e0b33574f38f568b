"""Rules of model servers: what each engine takes, and what a server on a TPU slice needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from string import Formatter

from catalog.engines import ENGINES, JETSTREAM_GRPC_PORT, JETSTREAM_HTTP_PORT, JETSTREAM_METRICS_PORT, MAXTEXT_SETTINGS
from settings.model import GpuServer, JetStream, Settings, TpuPool, Vllm
from settings.plan import max_nodes, pools_of, workload_slice
from settings.problems import TOKEN, Problem, nearest
from settings.rules.common import Rule, join_names, needs

_MAXTEXT_NAME = re.compile(r"[a-z0-9][-a-z0-9_.]*")
_BUCKET_ADDRESS = re.compile(r"gs://[a-z0-9][-a-z0-9_.]+[a-z0-9]/\S+")
# The keys of a server that say what these arguments of vLLM do: https://docs.vllm.ai/en/stable/cli/serve.html
_VLLM_ARGUMENTS = {
    "model": "model",
    "port": "port",
    "tensor-parallel-size": "gpus",
    "tp": "gpus",
    "quantization": "quantize",
    "q": "quantize",
    "max-model-len": "maxModelLen",
    "hf-token": "tokenSecret",
}


def _jetstreams(settings: Settings) -> list[JetStream]:
    return [server for server in settings.serving if isinstance(server, JetStream)]


def slice_is_said_once(settings: Settings) -> Iterator[Problem]:
    """A server names a TPU pool of the stack, or a slice."""
    for server in _jetstreams(settings):
        if server.pool is not None and server.tpu is not None:
            cause = "the server names a pool and a slice — the pool has its own, and the two could disagree"
            yield Problem(server.at("tpu"), cause, "Leave one of them out")


def slices_are_single_host(settings: Settings) -> Iterator[Problem]:
    """A replica is one pod, so its slice is one machine."""
    for server in _jetstreams(settings):
        tpu_slice = workload_slice(server, settings)
        if tpu_slice.multi_host:
            yield Problem(
                server.at("pool" if server.pool else "tpu"),
                f"a {tpu_slice.topology} slice of {tpu_slice.machine_type} is {tpu_slice.hosts} machines, and this is "
                "single-host JetStream — a pod would have a part of the slice and never start",
                f"Choose a single-host slice of TPU {tpu_slice.version}, of one machine",
            )


@needs("gke-ai:cluster", "gke-ai:tpuPools")
def replicas_have_nodes(settings: Settings) -> Iterator[Problem]:
    """Each replica of a JetStream server takes a whole machine, and the pool has as many."""
    for server in _jetstreams(settings):
        pools = [pool for pool in pools_of(server, settings) if isinstance(pool, TpuPool)]
        nodes = sum(max_nodes(pool, settings.cluster) for pool in pools)
        # That the pool has no node at all is told of any workload; of a multi-host slice, that it is one.
        if not nodes or server.replicas <= nodes or workload_slice(server, settings).multi_host:
            continue
        yield Problem(
            server.at("replicas"),
            f"{server.replicas} replicas take {server.replicas} nodes, and pool "
            f"{join_names(pool.name for pool in pools)} has {nodes} at most — the others would stay pending",
            f"Set it to {nodes} or less, or make the pool larger",
        )


def ports_are_apart(settings: Settings) -> Iterator[Problem]:
    """What a pod of JetStream listens on, and what its Service offers, are different ports."""
    for server in _jetstreams(settings):
        if server.port == JETSTREAM_GRPC_PORT:
            cause = f"port {server.port} of the Service is JetStream's own, for gRPC — the Service would be refused"
            yield Problem(server.at("port"), cause, f"Choose another, for example {JETSTREAM_HTTP_PORT}")
        if server.metrics_port in (JETSTREAM_GRPC_PORT, JETSTREAM_HTTP_PORT):
            cause = f"JetStream listens on port {server.metrics_port} already — the server would not start"
            yield Problem(server.at("metricsPort"), cause, f"Choose another, for example {JETSTREAM_METRICS_PORT}")


def jetstream_gets_what_it_reads(settings: Settings) -> Iterator[Problem]:
    """The model by MaxText's name, a checkpoint in a bucket, and lengths that leave room for an answer."""
    for server in _jetstreams(settings):
        if not _MAXTEXT_NAME.fullmatch(server.model):
            cause = f'"{server.model}" is no model of MaxText — the server would not start'
            yield Problem(server.at("model"), cause, "Write MaxText's own name, for example gemma-7b")
        if not _BUCKET_ADDRESS.fullmatch(server.checkpoint):
            cause = f'"{server.checkpoint}" is no address of a checkpoint — the server would find no model'
            remedy = "Write gs://BUCKET/PATH, the folder of the converted checkpoint"
            yield Problem(server.at("checkpoint"), cause, remedy)
        if server.max_prefill_length >= server.max_target_length:
            cause = (
                f"prompts may have {server.max_prefill_length} tokens, and prompt and answer together "
                f"{server.max_target_length} — no token would be left for an answer"
            )
            yield Problem(server.at("maxPrefillLength"), cause, f"Set it below {server.max_target_length}")


def arguments_are_free_to_set(settings: Settings) -> Iterator[Problem]:
    """No argument that a key of the server already sets, and none with a token in it."""
    for server in settings.serving:
        if isinstance(server, JetStream):
            set_by = {name: _key(text) for name, text in MAXTEXT_SETTINGS.items() if text.startswith("{")}
            given = list(server.arguments.items())
        elif isinstance(server, Vllm):
            set_by = _VLLM_ARGUMENTS
            given = [(text.partition("=")[0].lstrip("-").replace("_", "-"), text) for text in server.arguments]
        else:
            continue
        for name, text in given:
            if TOKEN.search(text):
                cause = "a token stands in plain text — everyone who can read this file or the cluster could read it"
                remedy = "Leave it out: run pulumi config set --secret gke-ai:hfToken, and revoke this token"
                yield Problem(server.at("arguments"), cause, remedy)
            elif name in set_by:
                cause = f"{name} is set by {set_by[name]} — the server would be told twice"
                yield Problem(server.at("arguments"), cause, f"Leave it out and set {server.at(set_by[name])}")


def _key(text: str) -> str:
    (field,) = (name for _, name, _, _ in Formatter().parse(text) if name)
    return JetStream.model_fields[field].alias or field


def quantisation_is_known(settings: Settings) -> Iterator[Problem]:
    """A method that the engine has; vLLM adds some with each release, so an image of one's own may have others."""
    for server in settings.serving:
        if not isinstance(server, GpuServer) or server.quantize is None:
            continue
        engine = ENGINES[server.engine]
        if server.quantize in engine.quantize or (isinstance(server, Vllm) and server.image is not None):
            continue
        cause = f"{server.quantize} is no quantisation method of {engine.title} — the server would not start"
        yield Problem(server.at("quantize"), cause, nearest(server.quantize, engine.quantize))


def scratch_volumes_have_a_place(settings: Settings) -> Iterator[Problem]:
    """A scratch volume is mounted at a path of its own."""
    for server in settings.serving:
        if server.scratch is None:
            continue
        path = PurePosixPath(server.scratch.mount_path)
        if not path.is_absolute() or ".." in path.parts or str(path) in ("/", "/dev/shm"):
            cause = f"{path} can't hold the volume — it takes an absolute path other than / and /dev/shm"
            yield Problem(server.at("scratch.mountPath"), cause, "Write for example /tmp")


def pods_have_time_to_end(settings: Settings) -> Iterator[Problem]:
    """The grace period includes the time for which a pod that is to end goes on answering."""
    for server in settings.serving:
        if server.drain_seconds >= server.termination_grace_period_seconds:
            cause = f"a pod goes on answering for {server.drain_seconds} s, and is killed after "
            cause += f"{server.termination_grace_period_seconds} s. Requests that it is answering then are cut off"
            remedy = f"Set it above {server.drain_seconds}, or lower drainSeconds"
            yield Problem(server.at("terminationGracePeriodSeconds"), cause, remedy)


RULES: tuple[Rule, ...] = (
    slice_is_said_once,
    slices_are_single_host,
    replicas_have_nodes,
    ports_are_apart,
    jetstream_gets_what_it_reads,
    arguments_are_free_to_set,
    quantisation_is_known,
    scratch_volumes_have_a_place,
    pods_have_time_to_end,
)
