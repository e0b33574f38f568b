"""Common models, with the dimensions that decide how much accelerator memory they need: `models.yaml` lists them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from gke_ai.catalog.engines.model import Model, linear_state
from gke_ai.catalog.quantities import GI
from gke_ai.catalog.tables import table


@cache
def models() -> tuple[Model, ...]:
    """Returns all models of the catalog."""
    return tuple(_model(tuple(row.pop("names")), row.pop("dimensions"), **row) for row in table("engines/models.yaml"))


def _model(names: tuple[str, ...], dimensions: dict[str, Any], source: str, architecture: str) -> Model:
    """Returns the model of a row, with the figures that follow from others."""
    tables, files_gib = dimensions.pop("embedding_tables"), dimensions.pop("files_gib", None)
    quantized_bytes, value_heads = dimensions.pop("quantized_bytes", None), dimensions.pop("value_heads", None)
    model = Model(names, source=source, architecture=architecture, **dimensions)
    model = replace(model, embeddings=tables * dimensions["vocabulary"] * dimensions["hidden_size"])
    if files_gib is not None:
        model = replace(model, bytes_per_parameter=files_gib * GI / model.parameters)
    if quantized_bytes is not None:
        model = replace(model, bytes_per_parameter=model.average(quantized_bytes))
    return model if value_heads is None else replace(model, linear_state=linear_state(value_heads))


@cache
def _by_name() -> Mapping[str, Model]:
    return {name.lower(): model for model in models() for name in model.names}


@cache
def _by_bare_name() -> Mapping[str, Model]:
    names = ((name, model) for model in models() for name in model.names if "/" in name)
    return {name.partition("/")[2].lower(): model for name, model in names}


# Bytes per weight in 4 bits, with a scale of 16 bits and a zero per group of 128 (AWQ, GPTQ), and with a scale of 8
# bits per 16 (NVFP4). Embeddings stay in 16 bits: gke_ai.catalog.engines.model.Model.average
FOUR_BITS, NVFP4 = 0.5 + 2.5 / 128, 0.5 + 1 / 16
# Suffixes of quantized copies, with minimum bytes per quantized parameter.
# https://huggingface.co/RedHatAI, https://huggingface.co/Qwen, https://huggingface.co/unsloth
_QUANTIZED: tuple[tuple[str, float], ...] = (
    (r"-fp8(-dynamic|-block)?", 1),
    (r"-(gptq-int8|int8|quantized\.w8a8|quantized\.w8a16)", 1),
    (r"-(awq|awq-int4|gptq|gptq-int4|int4|quantized\.w4a16)", FOUR_BITS),
    (r"-(bnb-4bit|unsloth-bnb-4bit)", 0.5),
    (r"-nvfp4", NVFP4),
)
# Copies in FP8 whose weights have scales per block of 128: the config.json of https://huggingface.co/Qwen/Qwen3-30B-A3B-FP8
_BLOCKS = re.compile(r"qwen/qwen3.*-fp8|.*-fp8-block")
# Copies with more parts in 16 bits, by the GiB of their weights. Attention of the first, which vLLM was seen to load:
# https://github.com/vllm-project/vllm/issues/6746. Attention and more of the others, in the files:
# https://github.com/kaito-project/kaito, presets/workspace/models/model_catalog.yaml
_SIZES: Mapping[str, float] = {
    **{f"meta-llama/{name}-fp8": 8 * 57.752 for name in ("llama-3.1-405b", "llama-3.1-405b-instruct")},
    **{f"meta-llama/{name}-fp8": 8 * 57.752 for name in ("meta-llama-3.1-405b", "meta-llama-3.1-405b-instruct")},
    "qwen/qwen3.5-122b-a10b-gptq-int4": 73.47,
    "qwen/qwen3.5-397b-a17b-gptq-int4": 219.56,
}


def find_model(name: str) -> Model | None:
    """Returns the model with this ID, or a quantized copy of a model in the catalog; None if there is none."""
    wanted = name.lower()
    if wanted in _by_name():
        return _by_name()[wanted]
    for ending, size in _QUANTIZED:
        if match := re.fullmatch(rf"(?P<base>.+?){ending}", wanted):
            base = match["base"]
            original = _by_name().get(base) or _by_bare_name().get(base.rpartition("/")[2])
            if original is not None:
                average = min(original.bytes_per_parameter, original.average(size))
                if wanted in _SIZES:
                    average = _SIZES[wanted] * GI / original.parameters
                block = 128 if _BLOCKS.fullmatch(wanted) else original.block
                method = "bitsandbytes" if "bnb" in ending else ""
                copy = replace(original, bytes_per_parameter=average, block=block, method=method)
                return replace(copy, loaded_gib=_unpacked(copy)) if "-awq" in wanted else copy
    return None


def _unpacked(model: Model) -> float:
    """GiB of an AWQ copy as vLLM loads it: zeros have 16 bits, as scales. 4 bits in the files."""
    return model.parameters * model.average(0.5 + 4 / 128) / GI
