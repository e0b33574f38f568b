"""The command that describes a model, with files written by hand in the published shapes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.ops.facts import model_shape as model
from gke_ai.settings import load
from gke_ai.terminal import Stop
from tests.support.commands import gke_ai
from tests.support.mistakes import vllm
from tests.support.recorder import PROJECT

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
WEIGHTS = {"lm_head.weight": "model-00004-of-00004.safetensors"}
INDEX = {"metadata": {"total_size": 16_060_522_496}, "weight_map": WEIGHTS}


def described(config: dict[str, Any], index: dict[str, Any] | None = None, **files: int) -> dict[str, Any]:
    return model.shape(config, INDEX if index is None else index, files, None)


def test_shape_of_llama() -> None:
    assert described(LLAMA) == {
        "parameters": 8_030_261_248,
        "layers": 32,
        "attentionHeads": 32,
        "kvHeads": 8,
        "headSize": 128,
        "contextLength": 131072,
        "bytesPerParameter": 2,
        "architecture": "LlamaForCausalLM",
        "embeddings": 2 * 128256 * 4096,
        "vocabulary": 128256,
        "hiddenSize": 4096,
    }


SLIDING = {"sliding_window": 1024}
LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
# What a model's configuration has beside that of Llama: what its shape then has.
ATTENTION: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Gemma 3 by a pattern": ({**SLIDING, "sliding_window_pattern": 4}, {"slidingWindow": 1024, "slidingLayers": 24}),
    "Gemma 3 by its layers": (
        {**SLIDING, "layer_types": ["sliding_attention"] * 27 + ["full_attention"] * 5},
        {"slidingWindow": 1024, "slidingLayers": 27},
    ),
    "Mistral 7B v0.1, every layer": ({"sliding_window": 4096}, {"slidingWindow": 4096, "slidingLayers": 32}),
    "Qwen2, stated and not used": ({"sliding_window": 131072, "use_sliding_window": False}, {}),
    "no window": ({"sliding_window": None}, {}),
    "Llama 4": (
        {"attention_chunk_size": 8192, "layer_types": ["chunked_attention"] * 24 + ["full_attention"] * 8},
        {"slidingWindow": 8192, "slidingLayers": 24, "chunked": True},
    ),
    "Qwen 3.5": ({"full_attention_interval": 4}, {"linearLayers": 24}),
    # 32 x 128 x 128 values of 32 bits, and 3 inputs of (2 x 16 + 32) x 128 values of 16
    "Qwen 3.5 with its heads": (
        {"full_attention_interval": 4, "linear_num_value_heads": 32, "linear_num_key_heads": 16}
        | {"linear_key_head_dim": 128, "linear_conv_kernel_dim": 4},
        {"linearLayers": 24, "linearState": 2_146_304},
    ),
    "DeepSeek": (LATENT, {"latentSize": 576}),
    "DeepSeek with an index": ({**LATENT, "index_head_dim": 128}, {"latentSize": 642}),
    "experts": ({"moe_intermediate_size": 768, "num_experts_per_tok": 8}, {"expertSize": 768, "expertsPerToken": 8}),
    "RoPE that lengthens": ({"rope_scaling": {"type": "linear", "factor": 4.0}}, {"contextLength": 524288}),
    "YaRN, whose length is in the figure": ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, {}),
    "Gemma 3, whose length is in the figure": (
        {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "model_type": "gemma3_text"},
        {},
    ),
    "Mixtral": ({"num_local_experts": 8, "intermediate_size": 14336}, {"expertSize": 14336}),
    "blocks": ({"quantization_config": {"weight_block_size": [128, 128]}}, {"block": 128}),
    "Gemma 4": ({"num_global_key_value_heads": 4, "global_head_dim": 512}, {"fullKvHeads": 4, "fullHeadSize": 512}),
    "Gemma 3n, whose last layers share a cache": (
        {**SLIDING, "num_kv_shared_layers": 12, "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 8},
        {"slidingWindow": 1024, "slidingLayers": 15, "sharedLayers": 12},
    ),
    "size of a head": ({"head_dim": 256}, {"headSize": 256}),
    "tied embeddings": ({"tie_word_embeddings": True}, {"embeddings": 128256 * 4096}),
}


@pytest.mark.parametrize(("further", "expected"), ATTENTION.values(), ids=ATTENTION)
def test_each_kind_of_attention_is_read(further: dict[str, Any], expected: dict[str, Any]) -> None:
    assert described({**LLAMA, **further}) == {**described(LLAMA), **expected}


def test_dimensions_of_a_model_with_images_are_those_of_its_text() -> None:
    nested = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": LLAMA}
    assert described(nested) == {**described(LLAMA), "architecture": "Gemma3ForConditionalGeneration"}


def test_size_without_an_index_is_that_of_the_safetensors_alone() -> None:
    files = {"model.safetensors": 2_471_645_608, "original/model.safetensors": 10**12, "pytorch_model.bin": 10**12}
    assert described(LLAMA, {}, **files)["parameters"] == 1_235_822_804
    with pytest.raises(Stop, match="no safetensors"):
        described(LLAMA, {}, **{"pytorch_model.bin": 10})


def test_printed_shape_is_a_valid_key_of_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "sliding_window": 4096}))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(INDEX))
    gke_ai("model", tmp_path)
    printed = capsys.readouterr().out
    assert printed.endswith("# files with the weights: 16.06 GB\n")
    shape = yaml.safe_load(printed)["modelShape"]
    values = vllm(model="acme/tuned", accelerator="nvidia-l4", maxModelLen=4096, modelShape=shape)
    (server,) = load(values, PROJECT).servers
    assert server.section.checkpoint_bytes == 16_060_522_496
