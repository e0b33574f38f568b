"""Models since Gemma 3n: rows of gke_ai.catalog.models.

KAITO publishes the size of the files of many models on Hugging Face, and their dimensions. Files have also the module
for multi-token prediction, which is loaded only if it is asked for: up to 3 % of them. What KAITO does not publish is
in the configurations of Transformers and MaxText: windows, and layers that share a cache.

Left out, because what decides their memory was not found in public: Gemma 4 12B (its KV heads without a window),
DeepSeek V4 (its compressed cache) and Mistral Large 3 (the width of its experts).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gke_ai.catalog.model import Model, linear_state, with_embeddings
from gke_ai.catalog.quantities import GI

_KAITO = (
    "https://github.com/kaito-project/kaito/blob/056b8280b1a8debf644bc6f4399e913a1f9c7e70/"
    "presets/workspace/models/model_catalog.yaml"
)
_TRANSFORMERS = "https://github.com/huggingface/transformers/blob/v5.17.0/src/transformers/models"
_MAXTEXT = "https://github.com/AI-Hypercomputer/maxtext/blob/main/src/maxtext/configs/models"
_GLM = "https://github.com/NVIDIA-NeMo/Megatron-Bridge/blob/main/docs/models/glm/glm45.md"
_RECIPES = "https://github.com/vllm-project/recipes/blob/main/models"
_DEVSTRAL = "https://github.com/fetchwiki/mistralai-Devstral-Small-2507/blob/main/model.safetensors.index.json"

# Values per token and layer that sparse attention of DeepSeek V3.2 caches: a latent with its RoPE dimensions, of 16
# bits, and the key of its indexer, 128 values of 8 bits with a scale of 32: vllm/models/deepseek_v32/attention.py
_LATENT = 512 + 64
_SPARSE = _LATENT + (128 + 4) // 2


def _ids(owner: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{owner}/{name}" for name in names)


def _tuned(name: str) -> tuple[str, ...]:
    return _ids("google", name, f"{name}-it")


def _gemma_models() -> Iterator[Model]:
    # Parameters of the text and the audio model by these configurations, and of the vision tower of 300 M. Four of five
    # layers have a window: https://github.com/huggingface/transformers, models/gemma3n/convert_gemma3n_weights.py
    for size, parameters, layers, shared in (("E2B", 5_439_438_272, 30, 10), ("E4B", 7_849_978_192, 35, 15)):
        source = f"{_TRANSFORMERS}/gemma3n/configuration_gemma3n.py"
        model = Model(_tuned(f"gemma-3n-{size}"), parameters, layers, 8, 2, 256, 32768, source, 512, 16)
        name = "Gemma3nForConditionalGeneration"
        yield with_embeddings(replace(model, shared_layers=shared, architecture=name), (262_400, 2048, 1))
    for size, gib, layers, kv_heads, local, shared, width in (
        ("E2B", 9.54, 35, 1, 12, 20, 1536),
        ("E4B", 14.89, 42, 2, 20, 18, 2560),
    ):
        source = f"{_MAXTEXT}/gemma4-{size.lower()}.yml"
        names = _tuned(f"gemma-4-{size}")
        model = Model(names, round(gib * GI / 2), layers, 8, kv_heads, 256, 131072, source, 512, local)
        name = "Gemma4ForConditionalGeneration"
        model = replace(model, architecture=name, full_head_size=512, rope_tables=3, shared_layers=shared)
        yield with_embeddings(model, (262_144, width, 1))


def _mistral_models() -> Iterator[Model]:
    text = Model((), 23_572_403_200, 40, 32, 8, 128, 131072, _DEVSTRAL, architecture="MistralForCausalLM")
    text = with_embeddings(text, (131_072, 5120, 2))
    yield replace(text, names=_ids("mistralai", "Devstral-Small-2505", "Devstral-Small-2507"))
    first = _ids("mistralai", "Mistral-Small-24B-Base-2501", "Mistral-Small-24B-Instruct-2501")
    yield replace(text, names=first, context_length=32768)
    third = ("Mistral-Small-3.1-24B-Base-2503", "Mistral-Small-3.1-24B-Instruct-2503")
    names = _ids("mistralai", *third, "Mistral-Small-3.2-24B-Instruct-2506")
    # With the vision tower of Transformers' configuration of this model.
    images = replace(text, names=names, parameters=24_011_361_280, source=f"{_TRANSFORMERS}/mistral3")
    yield replace(images, architecture="Mistral3ForConditionalGeneration")
    parameters = 119_000_000_000
    small = Model(
        *(_ids("mistralai", "Mistral-Small-4-119B-2603"), parameters, 36, 32, 32, 128, 1_048_576),
        source=f"{_TRANSFORMERS}/mistral4/configuration_mistral4.py",
        latent_size=256 + 64,
        bytes_per_parameter=112.63 * GI / parameters,
        architecture="Mistral3ForConditionalGeneration",
        expert_size=2048,
        experts_per_token=4,
    )
    yield with_embeddings(small, (131_072, 4096, 2))


def _qwen_models() -> Iterator[Model]:
    # Every fourth layer has full attention: full_attention_interval of Transformers' qwen3_5.
    # Value heads of linear attention follow from caches that were measured: tests/measured_memory.csv. Qwen 3.5 27B has
    # the dimensions of 3.6: https://github.com/THUDM/slime/blob/main/scripts/models/qwen3.5-27B.sh
    for name, gib, layers, heads, kv_heads, width, tables, linear_heads in (
        ("3.5-2B", 4.24, 24, 8, 2, 2048, 1, None),
        ("3.5-4B", 8.68, 32, 16, 4, 2560, 1, None),
        ("3.5-9B", 17.98, 32, 16, 4, 4096, 2, 32),
        ("3.5-27B", 51.75, 64, 24, 4, 5120, 2, 48),
        ("3.6-27B", 51.75, 64, 24, 4, 5120, 2, 48),
        ("3.8-27B", 51.75, 64, 24, 4, 5120, 2, 48),
        ("3.6-35B-A3B", 66.97, 40, 16, 2, 2048, 2, 32),
        ("3.5-122B-A10B", 232.99, 48, 32, 2, 3072, 2, None),
    ):
        model = Model(_ids("Qwen", f"Qwen{name}"), round(gib * GI / 2), layers, heads, kv_heads, 256, 262144, _KAITO)
        kind = "Qwen3_5Moe" if "-A" in name else "Qwen3_5"
        model = replace(model, architecture=f"{kind}ForConditionalGeneration")
        model = _without_prediction(with_embeddings(model, (248_320, width, tables)))
        if linear_heads is not None:
            model = replace(model, linear_state=linear_state(linear_heads))
        # The width of the experts of the other is not published there.
        expert = 512 if name.endswith("A3B") else None
        experts = 8 if expert else None
        yield replace(model, linear_layers=layers * 3 // 4, expert_size=expert, experts_per_token=experts)


def _without_prediction(model: Model) -> Model:
    """The model without its module for multi-token prediction: a layer, and a matrix from two widths to one."""
    matrix = 2 * (model.hidden_size or 0) ** 2
    per_layer = (model.parameters - model.embeddings - matrix) // (model.layers + 1)
    return replace(model, unloaded=per_layer + matrix)


def _glm_models() -> Iterator[Model]:
    # Parameters by Transformers' glm4_moe with these dimensions.
    air = Model(_ids("zai-org", "GLM-4.5-Air"), 106_851_586_048, 46, 96, 8, 128, 131072, _GLM, expert_size=1408)
    air = replace(air, architecture="Glm4MoeForCausalLM", experts_per_token=8)
    yield with_embeddings(air, (151_552, 4096, 2))
    large = Model(_ids("zai-org", "GLM-4.5"), 352_797_814_784, 92, 96, 8, 128, 131072, _GLM, expert_size=1536)
    large = replace(large, architecture="Glm4MoeForCausalLM", experts_per_token=8)
    large = with_embeddings(large, (151_552, 5120, 2))
    yield large
    # The same dimensions, with a longer context.
    longer = replace(large, context_length=202752)
    yield replace(longer, names=_ids("zai-org", "GLM-4.6"), source=f"{_RECIPES}/zai-org/GLM-4.6.yaml")
    yield replace(longer, names=_ids("zai-org", "GLM-4.7"), source=f"{_RECIPES}/zai-org/GLM-4.7.yaml")
    five = Model(
        *(_ids("zai-org", "GLM-5", "GLM-5.1"), 743_911_199_232, 78, 64, 64, 256, 202752),
        source=f"{_TRANSFORMERS}/glm_moe_dsa/configuration_glm_moe_dsa.py",
        latent_size=_SPARSE,
        architecture="GlmMoeDsaForCausalLM",
        expert_size=2048,
        experts_per_token=8,
    )
    five = with_embeddings(five, (154_880, 6144, 2))
    yield five
    # Only some layers have an indexer: at least the latents are cached.
    gib = 703.75
    last = replace(five, names=_ids("zai-org", "GLM-5.2-FP8"), context_length=1_048_576, source=_KAITO, block=128)
    yield replace(last, latent_size=_LATENT, bytes_per_parameter=gib * GI / five.parameters)


def _sparse_models() -> Iterator[Model]:
    """DeepSeek V3.2 and Kimi K2, with DeepSeek's attention."""
    deepseek = Model(
        *(_ids("deepseek-ai", "DeepSeek-V3.2", "DeepSeek-V3.2-Exp"), 671_877_929_216, 61, 128, 128, 128, 163840),
        source=f"{_MAXTEXT}/deepseek3.2-671b.yml",
        latent_size=_SPARSE,
        architecture="DeepseekV32ForCausalLM",
        expert_size=2048,
        experts_per_token=8,
        block=128,
    )
    deepseek = with_embeddings(deepseek, (129_280, 7168, 2))
    yield replace(deepseek, bytes_per_parameter=deepseek.average(1))
    # Dimensions of Kimi K2, in gke_ai.catalog.models. Its experts have 4 bits here.
    kimi = replace(deepseek, names=(), parameters=1_026_408_232_448, attention_heads=64, kv_heads=64, block=1)
    kimi = with_embeddings(replace(kimi, context_length=262144, latent_size=_LATENT), (163_840, 7168, 2))
    kimi = replace(kimi, bytes_per_parameter=554.32 * GI / kimi.parameters, architecture="DeepseekV3ForCausalLM")
    thinking = f"{_RECIPES}/moonshotai/Kimi-K2-Thinking.yaml"
    yield replace(kimi, names=_ids("moonshotai", "Kimi-K2-Thinking"), source=thinking)
    names = _ids("moonshotai", "Kimi-K2.5", "Kimi-K2.6", "Kimi-K2.7-Code")
    yield replace(kimi, names=names, source=_KAITO, architecture="KimiK25ForConditionalGeneration")


MODELS_2026: tuple[Model, ...] = (
    *_gemma_models(),
    *_mistral_models(),
    *_qwen_models(),
    *_glm_models(),
    *_sparse_models(),
)
