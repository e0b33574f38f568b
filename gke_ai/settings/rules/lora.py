"""Rules of LoRA adapters: their names, their sources, and the memory that is reserved for them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gke_ai.catalog.engines import vllm
from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.settings.estimates.model_memory import model_of
from gke_ai.settings.model import LoraAdapter, ModelCache, Server, Vllm
from gke_ai.settings.problems import Problem
from gke_ai.settings.rules.common import each_server
from gke_ai.settings.rules.model_cache import is_a_revision

# vLLM takes adapters as NAME=PATH, and a path with a comma as JSON: vllm/entrypoints/launchers/cli_args.py
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?")
_FOLDER = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]*(/[A-Za-z0-9][-A-Za-z0-9_.]*)*/?")
# A value of a header that a route matches has up to 4096 characters. Names of this length are readable.
_MAX_NAME = 128


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
