"""`gke-ai model NAME`: prints the key `modelShape` of a server for a model on Hugging Face.

It reads `config.json`, the weight index and the size of the files, and no weights. NAME may be a folder with the same
files. A gated model needs the variable HF_TOKEN.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gke_ai.catalog.engines.model import linear_state
from gke_ai.terminal import Stop

HUB = "https://huggingface.co"
CONFIG, INDEX, WEIGHTS = "config.json", "model.safetensors.index.json", ".safetensors"
Object = dict[str, Any]


def show(name: str, revision: str, hub: str) -> None:
    """Prints the key modelShape of a server for a model on Hugging Face, or in a folder."""
    described = of_folder(Path(name)) if Path(name).is_dir() else of_hub(name, revision, hub)
    print(yaml.safe_dump({"modelShape": described}, sort_keys=False).rstrip())
    print(f"# files with the weights: {described['parameters'] * described['bytesPerParameter'] / 1e9:.2f} GB")


def of_hub(name: str, revision: str, hub: str = HUB) -> Object:
    """The shape of a model on Hugging Face."""
    info = fetched(f"{hub}/api/models/{name}/revision/{revision}?blobs=true") or {}
    config = fetched(f"{hub}/{name}/resolve/{revision}/{CONFIG}")
    if config is None:
        raise Stop(f"{name} has no {CONFIG} at {revision}. Name a model in the format of transformers.")
    index = fetched(f"{hub}/{name}/resolve/{revision}/{INDEX}") or {}
    files = {file["rfilename"]: int(file.get("size") or 0) for file in info.get("siblings", [])}
    return shape(config, index, files, (info.get("safetensors") or {}).get("total"))


def of_folder(folder: Path) -> Object:
    """The shape of a model in a folder."""
    if not (folder / CONFIG).exists():
        raise Stop(f"{folder} has no {CONFIG}. Name a folder in the format of transformers.")
    index = json.loads((folder / INDEX).read_text()) if (folder / INDEX).exists() else {}
    files = {file.name: file.stat().st_size for file in folder.iterdir() if file.is_file()}
    return shape(json.loads((folder / CONFIG).read_text()), index, files, None)


def fetched(url: str) -> Object | None:
    """The JSON at a URL; None if there is none. Stops if the hub refuses."""
    request = urllib.request.Request(url)
    if token := os.environ.get("HF_TOKEN"):
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            result: Object = json.load(answer)
            return result
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise Stop(f"{url}: HTTP {error.code}. Accept the license of the model, and set HF_TOKEN.") from None
    except OSError as error:
        raise Stop(f"{url} can't be read: {error}. Run this where Hugging Face can be reached.") from None


def shape(config: Object, index: Object, files: Mapping[str, int], parameters: int | None) -> Object:
    """The key `modelShape`, from a model's files.

    Args:
        config: `config.json`.
        index: `model.safetensors.index.json`; empty if there is none.
        files: Sizes of all files, in bytes.
        parameters: Number of parameters, if the hub reports it.
    """
    text = {**config, **config.get("text_config", {})}
    size = weights(index, files)
    # Only the product with bytesPerParameter counts, and it is the exact size.
    count = int(parameters or index.get("metadata", {}).get("total_parameters") or size // 2)
    heads = int(text["num_attention_heads"])
    # Input and output embeddings are the same by default of transformers.
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", True))
    result: Object = {
        "parameters": count,
        "layers": int(text["num_hidden_layers"]),
        "attentionHeads": heads,
        "kvHeads": int(text.get("num_key_value_heads") or heads),
        "headSize": int(text.get("head_dim") or text["hidden_size"] // heads),
        "contextLength": int(text["max_position_embeddings"] * rope_factor(config, text)),
        "bytesPerParameter": size / count,
        "architecture": config.get("architectures", [""])[0],
        "embeddings": int(text["vocab_size"]) * int(text["hidden_size"]) * (1 if tied else 2),
        "vocabulary": int(text["vocab_size"]),
        "hiddenSize": int(text["hidden_size"]),
        **windows(text),
        **experts(config, text),
    }
    if text.get("kv_lora_rank"):
        # The indexer of sparse attention caches its key in 8 bits, with a scale of 32: half as many values of 16.
        values = int(text.get("index_head_dim") or 0)
        indexer = (values + 4 * (values // 128)) // 2
        result["latentSize"] = int(text["kv_lora_rank"]) + int(text["qk_rope_head_dim"]) + indexer
    for key, name in (("fullKvHeads", "num_global_key_value_heads"), ("fullHeadSize", "global_head_dim")):
        if text.get(name):
            result[key] = int(text[name])
    return result


def rope_factor(config: Object, text: Object) -> float:
    """By how much RoPE lengthens the context beyond `max_position_embeddings`, as vLLM computes it.

    https://github.com/vllm-project/vllm/blob/v0.31.0/vllm/config/model.py, _get_and_verify_max_len
    """
    stated = text.get("rope_parameters") or text.get("rope_scaling") or {}
    kind = stated.get("rope_type") or stated.get("type")
    included = kind in ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")
    if included or "gemma3" in str(config.get("model_type")):
        return 1
    return float(stated.get("factor") or 1)


def weights(index: Object, files: Mapping[str, int]) -> int:
    """Size of the files that the index names, or of all safetensors beside `config.json`."""
    named = set(index.get("weight_map", {}).values())
    beside = {name for name in files if name.endswith(WEIGHTS) and "/" not in name}
    sizes = [size for name, size in files.items() if name in (named or beside)]
    total = int(index.get("metadata", {}).get("total_size") or 0)
    if not total and not sum(sizes):
        raise Stop("The model has no safetensors, so its size is unknown. Write modelShape by hand.")
    return total or sum(sizes)


def windows(text: Object) -> Object:
    """Layers with a window, with chunks, with linear attention and with the cache of another layer."""
    shared = int(text.get("num_kv_shared_layers") or 0)
    layers = int(text["num_hidden_layers"]) - shared
    kinds = list(text.get("layer_types") or [])[:layers]
    result: Object = {"sharedLayers": shared} if shared else {}
    if interval := text.get("full_attention_interval"):
        kinds = kinds or ["full_attention" if (n + 1) % interval == 0 else "linear_attention" for n in range(layers)]
    if linear := kinds.count("linear_attention"):
        result["linearLayers"] = linear
        names = ("num_value_heads", "num_key_heads", "key_head_dim", "conv_kernel_dim")
        sizes = [int(text.get(f"linear_{name}") or 0) for name in names]
        if all(sizes):
            result["linearState"] = linear_state(*sizes)
    if chunked := kinds.count("chunked_attention"):
        return {**result, "slidingWindow": int(text["attention_chunk_size"]), "slidingLayers": chunked, "chunked": True}
    window = text.get("sliding_window")
    sliding = kinds.count("sliding_attention") if kinds else layers
    if pattern := text.get("sliding_window_pattern"):
        sliding = layers - layers // int(pattern)
    if not window or text.get("use_sliding_window") is False or not sliding:
        return result
    return {**result, "slidingWindow": int(window), "slidingLayers": sliding}


def experts(config: Object, text: Object) -> Object:
    """Width of an expert, and of a block of quantized weights."""
    result: Object = {}
    local = text.get("intermediate_size") if text.get("num_local_experts") else None
    if size := text.get("moe_intermediate_size") or local:
        result["expertSize"] = int(size)
        if count := text.get("num_experts_per_tok"):
            result["expertsPerToken"] = int(count)
    block = (config.get("quantization_config") or {}).get("weight_block_size")
    return {**result, "block": int(block[0])} if block else result
