"""Rules of the weights that a server loads: models in buckets, and LoRA adapters with the memory reserved for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import PurePosixPath

from gke_ai.catalog.engines import vllm
from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.engines.model_cache import (
    ACCOUNT,
    CANNOT_WRITE,
    COMPILED_PATH,
    COMPILED_SINCE,
    MOUNT_PATH,
    STREAMER_SINCE,
    WITHOUT_COMPILED,
    access_of,
    release_of,
)
from gke_ai.catalog.kueue.namespaces import MODEL_CACHE
from gke_ai.catalog.quantities import parse_quantity, readable
from gke_ai.settings.estimates.model_memory import model_of
from gke_ai.settings.model import AnyServer, FolderGrant, LoraAdapter, ModelCache, Server, Vllm, Workload
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules.common import BUCKETS, each_server, join_names, needs, rule

# https://git-scm.com/docs/git-check-ref-format, without characters that a path or a URL would need to escape
_REVISION = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]*(/[A-Za-z0-9][-A-Za-z0-9_.]*)*")
# vLLM takes adapters as NAME=PATH, and a path with a comma as JSON: vllm/entrypoints/launchers/cli_args.py
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?")
_FOLDER = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]*(/[A-Za-z0-9][-A-Za-z0-9_.]*)*/?")
# A value of a header that a route matches has up to 4096 characters. Names of this length are readable.
_MAX_NAME = 128


def _cached(serving: list[AnyServer]) -> Iterator[tuple[Server, ModelCache]]:
    for server in serving:
        if server.model_cache is not None:
            yield server, server.model_cache


def _compiling(serving: list[AnyServer]) -> Iterator[tuple[Server, ModelCache]]:
    return ((server, cache) for server, cache in _cached(serving) if cache.compile_cache)


@rule
def engines_read_buckets(stack: ResolvedStack) -> Iterator[Problem]:
    """The server's engine can read a model from a bucket, in the way that the server names."""
    for server, cache in _cached(stack.settings.serving):
        engine, access = ENGINES[server.engine], access_of(server.engine)
        if not access.readers:
            cause = f"{engine.title} cannot use a model cache: {access.reason}. The server would not start"
            yield Problem(server.at("modelCache"), cause, "Remove it, or use another engine")
        elif cache.reader not in access.readers:
            cause = f"{engine.title} has no reader {cache.reader}. The server would not start"
            yield Problem(server.at("modelCache.reader"), cause, f"Write {join_names(access.readers)}")
        elif cache.reader == "streamer" and (release_of(server.images[0]) or STREAMER_SINCE) < STREAMER_SINCE:
            since = ".".join(map(str, STREAMER_SINCE))
            cause = f"{server.images[0].partition('@')[0]} has no streamer for Cloud Storage, which comes with "
            cause += f"{since}. The server would not start"
            yield Problem(server.at("modelCache.reader"), cause, "Write fuse, or set a newer image")


@needs("gke-ai:buckets")
def buckets_of_models_exist(stack: ResolvedStack) -> Iterator[Problem]:
    """The bucket is one of the stack's, and keeps what is in it."""
    for server, cache in _cached(stack.settings.serving):
        path = server.at("modelCache.bucket")
        yield from BUCKETS.unknown(stack, path, cache.bucket, "the model could not be stored there")
        for bucket in stack.settings.buckets:
            if bucket.name == cache.bucket and bucket.delete_after_days is not None:
                cause = f"bucket {bucket.name} deletes objects after {bucket.delete_after_days} days. "
                cause += "New replicas would then find no model"
                yield Problem(path, cause, f"Choose another bucket, or remove {bucket.at('deleteAfterDays')}")


@rule
def compiled_code_can_be_kept(stack: ResolvedStack) -> Iterator[Problem]:
    """The server compiles something, and its pods mount the bucket. Its replicas may start at the same time."""
    for server, cache in _compiling(stack.settings.serving):
        path, image, since = server.at("modelCache.compileCache"), server.images[0], COMPILED_SINCE
        if server.engine != "vllm":
            cause = f"{ENGINES[server.engine].title} keeps no compiled code in a folder. It has no effect"
            yield Problem(path, cause, "Remove it")
        elif not cache.how.mounts:
            cause = f"reader {cache.reader} mounts no bucket, and vLLM keeps compiled code in a folder"
            yield Problem(path, cause, "Write reader: fuse, or remove it")
        elif not server.compiles or server.env.get(WITHOUT_COMPILED) == "1":
            cause = "the server's arguments and variables turn it off: vLLM compiles nothing, or keeps nothing"
            yield Problem(path, f"{cause}. It has no effect", "Remove it, or them")
        elif (release_of(image) or since) < since:
            cause = f"{image.partition('@')[0]} is older than {'.'.join(map(str, since))}, the first release known to "
            cause += "keep files whole if replicas start at the same time"
            yield Problem(path, cause, "Remove it, or set a newer image")


@needs("gke-ai:buckets", "gke-ai:tenants")
def compiled_code_is_the_servers_own(stack: ResolvedStack) -> Iterator[Problem]:
    """Nothing but the server writes what vLLM loads as code."""
    loaded = "vLLM loads what is in its folder as code"
    tenants = {tenant.name for tenant in stack.settings.tenants}
    for server, cache in _compiling(stack.settings.serving):
        path, account = server.at("serviceAccount"), _account_of(server)
        users = [other.name for other in stack.workloads if other is not server and _account_of(other) == account]
        if server.namespace in tenants:
            cause = f"members of tenant {server.namespace} may run pods as {server.service_account}, which could write "
            cause += f"the server's compiled code: {loaded}"
            remedy = "Move the server to a namespace without members, or remove compileCache"
            yield Problem(server.at("namespace"), cause, remedy)
        elif server.service_account == "default" or users:
            who = "every pod of the namespace that states none" if account[1] == "default" else join_names(users)
            cause = f"{who} has {server.service_account} too, and could write the server's compiled code: {loaded}"
            yield Problem(path, cause, "Name a service account that only this server has, or remove compileCache")
        writers = {
            (grant.namespace, grant.service_account)
            for bucket in stack.granted_buckets
            for grant in bucket.grants
            if bucket.section.name == cache.bucket
            and not isinstance(grant, FolderGrant)
            and grant.role not in CANNOT_WRITE
        } - {(MODEL_CACHE, ACCOUNT), account}
        if writers:
            names = join_names(sorted(map("/".join, writers)))
            cause = f"{names} can write to all of {cache.bucket}. {loaded}"
            remedy = "Use a bucket for models alone, or remove compileCache"
            yield Problem(server.at("modelCache.bucket"), cause, remedy)


def _account_of(workload: Workload) -> tuple[str, str]:
    return workload.namespace, workload.service_account


@rule
def revisions_are_names(stack: ResolvedStack) -> Iterator[Problem]:
    """A revision is a commit, a tag or a branch."""
    for server, cache in _cached(stack.settings.serving):
        yield from is_a_revision(server.at("modelCache.revision"), cache.revision)


def is_a_revision(path: str, revision: str) -> Iterator[Problem]:
    """A problem if it is not a commit, a tag or a branch."""
    if not _REVISION.fullmatch(revision) or ".." in revision:
        cause = f'"{revision}" is not a commit, tag or branch. Hugging Face would not find it'
        yield Problem(path, cause, "Write for example main, or a commit")


@rule
def file_caches_hold_the_model(stack: ResolvedStack) -> Iterator[Problem]:
    """The file cache holds the whole model, and only a mounted bucket has one."""
    for server, cache in _cached(stack.settings.serving):
        path, size = server.at("modelCache.fileCache"), server.checkpoint_bytes
        if cache.reader not in access_of(server.engine).readers:
            continue  # engines_read_buckets reports it
        if not cache.how.mounts:
            for key in ("file_cache", "file_cache_medium", "sidecar_cpu", "sidecar_memory"):
                if key in cache.model_fields_set:
                    name = ModelCache.model_fields[key].alias
                    cause = f"{name} has no effect with reader {cache.reader}, which mounts no bucket"
                    yield Problem(server.at(f"modelCache.{name}"), cause, "Remove it")
        elif cache.file_cache is None and size is None:
            model = server.hub_ids.get("model")
            cause = f"the catalog does not have the model {model}, so the size of its cache is unknown"
            remedy = f"Set it above the size of the model's files, or describe {server.at('modelShape')}"
            yield Problem(path, cause, remedy)
        elif cache.file_cache is not None and size is not None and parse_quantity(cache.file_cache) < size:
            cause = f"the model has {readable('memory', Fraction(size))}, and the cache holds {cache.file_cache}. "
            cause += "Files that do not fit are not downloaded in parallel"
            yield Problem(path, cause, "Make it larger, or remove it")


@rule
def folder_of_models_is_free(stack: ResolvedStack) -> Iterator[Problem]:
    """No other volume of the server is mounted where the bucket is."""
    for server, cache in _cached(stack.settings.serving):
        if server.scratch is None or not cache.how.mounts:
            continue
        mount = PurePosixPath(server.scratch.mount_path)
        for taken in map(PurePosixPath, [MOUNT_PATH, *([COMPILED_PATH] if cache.compile_cache else [])]):
            if mount.is_relative_to(taken) or taken.is_relative_to(mount):
                cause = f"the bucket with the model is mounted at {taken}. One volume would hide the other"
                yield Problem(server.at("scratch.mountPath"), cause, "Write for example /tmp")


@each_server
def adapters_have_names_of_their_own(server: Server) -> Iterator[Problem]:
    """Names of adapters are valid, and differ from each other and from the model's."""
    taken = {server.served_model: "the model"}
    for index, adapter in enumerate(server.adapters):
        path = server.at(f"loraAdapters[{index}].name")
        if not _NAME.fullmatch(adapter.name) or len(adapter.name) > _MAX_NAME:
            cause = f'"{adapter.name}" is not a valid name of an adapter. The server would not start'
            yield Problem(path, cause, f"Use up to {_MAX_NAME} letters, digits, '-', '_', '.' and '/'")
        elif adapter.name in taken:
            cause = f"{taken[adapter.name]} has the name {adapter.name} too. The server would not start"
            yield Problem(path, cause, "Rename the adapter")
        taken.setdefault(adapter.name, "another adapter")


@each_server
def models_take_adapters(server: Server) -> Iterator[Problem]:
    """The engine's pinned image has LoRA for the model's architecture; the user's own image is not checked."""
    engine, model = ENGINES[server.engine], model_of(server)
    if not server.adapters or server.image is not None or model is None:
        return
    if (name := model.architecture) in engine.without_lora:
        cause = f"{engine.title} {vllm.RELEASE} has no LoRA for {name}, the architecture of {server.model}"
        remedy = "Remove loraAdapters, or choose another model or image"
        yield Problem(server.at("loraAdapters"), f"{cause}. The server would not start", remedy)


@each_server
def adapters_can_be_read(server: Server) -> Iterator[Problem]:
    """Replicas find each adapter: on Hugging Face, or in the mounted bucket of the model."""
    cache = server.model_cache
    if server.adapters and cache is not None and not cache.how.mounts:
        cause = f"reader {cache.reader} mounts no bucket, and vLLM reads adapters from a folder"
        yield Problem(server.at("modelCache.reader"), f"{cause}. The server would not start", "Write fuse")
        return
    for index, adapter in enumerate(server.adapters):
        path = server.at(f"loraAdapters[{index}]")
        yield from _folder_problems(adapter, cache, path) if adapter.of_bucket else _hub_problems(adapter, cache, path)


def _folder_problems(adapter: LoraAdapter, cache: ModelCache | None, path: str) -> Iterator[Problem]:
    """Problems of an adapter in a bucket."""
    if cache is None:
        cause = f"{adapter.source} is in a bucket, and the server mounts none. It would not start"
        yield Problem(f"{path}.source", cause, "Set modelCache with this bucket, or write an id on Hugging Face")
        return
    root = f"gs://{cache.bucket}/"
    if not adapter.source.startswith(root):
        cause = f"{adapter.source} is not in bucket {cache.bucket}, the one that the server mounts. It would not start"
        yield Problem(f"{path}.source", cause, f"Copy the adapter to {root}, or write an id on Hugging Face")
    elif not _FOLDER.fullmatch(adapter.source.removeprefix(root)):
        cause = f'"{adapter.source}" is not a folder of bucket {cache.bucket}. The server would not start'
        yield Problem(f"{path}.source", cause, f"Write {root}FOLDER, with letters, digits, '-', '_', '.' and '/'")
    elif "revision" in adapter.model_fields_set:
        cause = f"{adapter.source} is a folder of a bucket, and a folder has no revision"
        yield Problem(f"{path}.revision", cause, "Remove it")


def _hub_problems(adapter: LoraAdapter, cache: ModelCache | None, path: str) -> Iterator[Problem]:
    """Problems of an adapter on Hugging Face. `models_are_hub_ids` checks its id."""
    if cache is None and "revision" in adapter.model_fields_set:
        cause = "vLLM downloads the main branch of an adapter. The revision would have no effect"
        yield Problem(f"{path}.revision", cause, "Set modelCache, or remove the revision")
    else:
        yield from is_a_revision(f"{path}.revision", adapter.revision)


@each_server
def memory_is_reserved_for_adapters(server: Server) -> Iterator[Problem]:
    """maxLoras is at most the number of adapters."""
    if not isinstance(server, Vllm) or server.max_loras is None or server.max_loras <= len(server.adapters):
        return
    cause = f"the server has {len(server.adapters)} adapters, and {server.max_loras} would run at once. "
    remedy = f"Set it to {len(server.adapters)} or less" if server.adapters else "Remove it, or add loraAdapters"
    yield Problem(server.at("maxLoras"), f"{cause}The server would not start", remedy)
