"""Rules of model servers: the arguments of each engine, and the needs of a server on a TPU slice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import PurePosixPath

from gke_ai.catalog.engines import vllm
from gke_ai.catalog.engines.engine import ENGINES, JETSTREAM_GRPC_PORT, JETSTREAM_HTTP_PORT, JETSTREAM_METRICS_PORT
from gke_ai.catalog.engines.model_cache import release_of
from gke_ai.catalog.engines.models import find_model
from gke_ai.catalog.machines.disks import attached_disks
from gke_ai.settings.model import AnyServer, JetStream, Server, TpuServer, TpuWorkload, VllmTpu
from gke_ai.settings.problems import SHOWN, TOKEN, Problem, nearest
from gke_ai.settings.resolved import Placed, ResolvedStack
from gke_ai.settings.rules.common import each, each_server, join_names, needs, rule

_MAXTEXT_NAME = re.compile(r"[a-z0-9][-a-z0-9_.]*")
_BUCKET_ADDRESS = re.compile(r"gs://[a-z0-9][-a-z0-9_.]+[a-z0-9]/\S+")

each_jetstream = each(lambda stack: [placed.section for placed in stack.of(JetStream)])


@each_server
def servers_have_one_slice(server: Server) -> Iterator[Problem]:
    """A server on TPUs names a TPU pool of the stack or a slice, not both."""
    if isinstance(server, TpuServer) and server.pool is not None and server.tpu is not None:
        cause = "`pool` and `tpu` are mutually exclusive. The slice could contradict that of the pool"
        yield Problem(server.at("tpu"), cause, "Remove one of them")


@each(lambda stack: stack.tpu_workloads)
def slices_are_single_host(placed: Placed[TpuWorkload]) -> Iterator[Problem]:
    """The slice of a server on TPUs is one machine, as a replica is one pod."""
    server, tpu_slice = placed.section, placed.slice
    if isinstance(server, TpuServer) and tpu_slice.multi_host:
        cause = f"a {tpu_slice.topology} slice of {tpu_slice.machine_type} has {tpu_slice.hosts} machines, and this is "
        cause += f"single-host {ENGINES[server.engine].title}. A pod would get a part of the slice and never start"
        remedy = f"Choose a single-host slice of TPU {tpu_slice.version}"
        yield Problem(server.at("pool" if server.pool else "tpu"), cause, remedy)


@each_jetstream
def ports_are_apart(server: JetStream) -> Iterator[Problem]:
    """The ports of a JetStream pod and of its Service do not collide."""
    if server.port == JETSTREAM_GRPC_PORT:
        cause = f"port {server.port} is JetStream's own gRPC port. Kubernetes would refuse the Service"
        yield Problem(server.at("port"), cause, f"Choose another port, for example {JETSTREAM_HTTP_PORT}")
    if server.metrics_port in (JETSTREAM_GRPC_PORT, JETSTREAM_HTTP_PORT):
        cause = f"JetStream already listens on port {server.metrics_port}. The server would not start"
        yield Problem(server.at("metricsPort"), cause, f"Choose another port, for example {JETSTREAM_METRICS_PORT}")


@each_jetstream
def jetstream_gets_what_it_reads(server: JetStream) -> Iterator[Problem]:
    """JetStream's model is a MaxText name, its checkpoint is in a bucket, and its lengths allow an answer."""
    if not _MAXTEXT_NAME.fullmatch(server.model):
        cause = f'"{server.model}" is not a MaxText model name. The server would not start'
        yield Problem(server.at("model"), cause, "Write the name in MaxText, for example gemma-7b")
    if not _BUCKET_ADDRESS.fullmatch(server.checkpoint):
        cause = f'"{server.checkpoint}" is not a gs:// URI of a checkpoint. The server would find no model'
        remedy = "Write gs://BUCKET/PATH, the folder of the converted checkpoint"
        yield Problem(server.at("checkpoint"), cause, remedy)
    if server.max_prefill_length >= server.max_target_length:
        cause = f"prompts may have {server.max_prefill_length} tokens, and prompt and answer together "
        cause += f"{server.max_target_length}. The answer could have no tokens"
        yield Problem(server.at("maxPrefillLength"), cause, f"Set it below {server.max_target_length}")


@each_server
def arguments_are_free_to_set(server: Server) -> Iterator[Problem]:
    """No argument repeats a key of the server, and none contains a token."""
    set_by, reading = server.command_line.set_arguments, server.reading
    for name, text in zip(reading.names, reading.texts, strict=True):
        if TOKEN.search(text):
            cause = "the argument contains a token in plain text. Everyone who can read this file or the cluster "
            cause += "could read it"
            remedy = "Remove it, revoke the token, and set a new one with pulumi config set --secret gke-ai:hfToken"
            yield Problem(server.at("arguments"), cause, remedy)
        elif name in set_by:
            cause = f"{set_by[name]} sets {name}. The server would get it twice"
            yield Problem(server.at("arguments"), cause, f"Remove it and set {server.at(set_by[name])}")


@rule
def arguments_are_accepted(stack: ResolvedStack) -> Iterator[Problem]:
    """The pinned release accepts the arguments. Those of another image are a warning."""
    pinned = (server for server in stack.settings.serving if has_pinned_release(server))
    return islice(chain.from_iterable(map(refused_arguments, pinned)), SHOWN)


def has_pinned_release(server: Server) -> bool:
    """Whether its image is of the pinned release, as the engine's project publishes it."""
    engine, (name, _, _) = ENGINES[server.engine], server.images[0].partition(":")
    return name.endswith(engine.image_name) and release_of(server.images[0]) == release_of(engine.image)


def refused_arguments(server: Server) -> Iterator[Problem]:
    """The arguments that the pinned release refuses, but for those that other rules report."""
    engine, reading, set_by = ENGINES[server.engine], server.reading, server.command_line.set_arguments
    for mistake in reading.mistakes if engine.flags else ():
        name, text = reading.names[mistake.index], reading.texts[mistake.index]
        if name in set_by or TOKEN.search(text):
            continue
        refuses = f"has no flag --{name[:80]}" if mistake.is_unknown else f"refuses {text[:80]}"
        cause = f"{engine.title} {vllm.RELEASE} {refuses}. The server would not start"
        yield Problem(server.at(f"arguments[{mistake.index}]"), cause, engine.removed.get(name) or mistake.advice)
    for index, name in reading.abbreviated.items():
        text = reading.texts[index]
        if name in set_by or TOKEN.search(text):
            continue
        taken = f"{engine.title} {vllm.RELEASE} takes {text[:80]} for --{name}"
        cause = f"{taken}. It would not start as soon as a release has another flag that begins so"
        yield Problem(server.at(f"arguments[{index}]"), cause, f"Write --{name}")


@each_server
def quantization_is_known(server: Server) -> Iterator[Problem]:
    """The engine has the quantization method. The user's own vLLM image may have other methods."""
    engine = ENGINES[server.engine]
    model = find_model(server.hub_ids.get("model", ""))
    if model is not None and model.method and model.method not in engine.quantize and server.image is None:
        cause = f"{server.model} is quantized with {model.method}, which {engine.title} does not have"
        cause += ". The server would not start"
        yield Problem(server.at("model"), cause, "Choose a copy in AWQ, GPTQ or FP8, or another engine")
    if server.quantization is None:
        return
    if server.quantization in engine.quantize or (engine.quantize_of_own_images and server.image is not None):
        return
    cause = f"{server.quantization} is not a quantization method of {engine.title}. The server would not start"
    yield Problem(server.at("quantize"), cause, nearest(server.quantization, engine.quantize))


@each_server
def scratch_volumes_have_a_mount_path(server: Server) -> Iterator[Problem]:
    """The mount path of a scratch volume is valid."""
    if server.scratch is None:
        return
    path = PurePosixPath(server.scratch.mount_path)
    if not path.is_absolute() or ".." in path.parts or str(path) in ("/", "/dev/shm"):
        cause = f"{path} is not a valid mount path. It must be absolute, and not / or /dev/shm"
        yield Problem(server.at("scratch.mountPath"), cause, "Write for example /tmp")


@needs("gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:computeClasses")
@each(lambda stack: stack.servers)
def scratch_disks_can_be_attached(placed: Placed[AnyServer]) -> Iterator[Problem]:
    """The machines of a server attach the disk of its scratch volume. The type of a class of one's own is unknown."""
    server, names, kind = placed.section, [machine.name for machine in placed.machines], placed.scratch_disk
    if server.scratch is None or not names:
        return
    lacking = [name for name in names if kind not in attached_disks(name)]
    if kind is not None and lacking:
        cause = f"disks of StorageClass {server.scratch.storage_class} are of type {kind}, which {lacking[0]} does not "
        cause += "attach. The pods would stay pending"
        remedy = "Remove storageClass, or write a class of a type that the machine attaches: "
        remedy += f"{' or '.join(attached_disks(lacking[0]))}"
        yield Problem(server.at("scratch.storageClass"), cause, remedy)
    elif kind is None and server.scratch.storage_class is None:
        cause = f"no disk type can be attached to all machines of the server: {join_names(dict.fromkeys(names))}. "
        remedy = "Remove scratch, or choose machines of one family"
        yield Problem(server.at("scratch"), f"{cause}On some, pods would stay pending", remedy)


@each_server
def xla_caches_have_a_path(server: Server) -> Iterator[Problem]:
    """The folder for compiled programs is a path of the container."""
    if not isinstance(server, VllmTpu) or server.xla_cache is None:
        return
    path = PurePosixPath(server.xla_cache)
    if not path.is_absolute() or ".." in path.parts or path.is_relative_to("/dev/shm"):
        cause = f"{server.xla_cache} is not an absolute path of a folder, or uses memory. Programs would not be kept"
        yield Problem(server.at("xlaCache"), cause, "Write for example /tmp/xla-cache")


@each_server
def pods_have_time_to_end(server: Server) -> Iterator[Problem]:
    """The grace period is longer than the time for which a terminating pod still answers."""
    if server.drain_seconds >= server.termination_grace_period_seconds:
        cause = f"a terminating pod answers for {server.drain_seconds} s, and is killed after "
        cause += f"{server.termination_grace_period_seconds} s. Its open requests would be cut off"
        remedy = f"Set it above {server.drain_seconds}, or lower drainSeconds"
        yield Problem(server.at("terminationGracePeriodSeconds"), cause, remedy)
