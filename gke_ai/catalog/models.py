"""Common models, with the dimensions that decide how much accelerator memory they need.

The key of a model is its ID on Hugging Face, regardless of case; models that JetStream serves also have their MaxText
name. Parameters follow from the dimensions in the sources, including vision towers and all experts of MoE models.

Each row names the published code or document with its dimensions. The original is the `config.json` of the model on
Hugging Face, such as https://huggingface.co/google/gemma-2-9b-it/blob/main/config.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from gke_ai.catalog.model import Embeddings, Model, linear_state, with_embeddings
from gke_ai.catalog.models_2026 import MODELS_2026
from gke_ai.catalog.quantities import GI

_LITGPT = "https://github.com/Lightning-AI/litgpt/blob/main/litgpt/config.py"
_MAXTEXT = "https://github.com/AI-Hypercomputer/maxtext/blob/main/src/maxtext/configs/models"
_DEEPSEEK = "https://github.com/deepseek-ai/DeepSeek-V3/blob/main/inference/configs/config_671B.json"
_R1 = "https://github.com/deepseek-ai/DeepSeek-R1#deepseek-r1-distill-models"
_GPT_OSS = "https://arxiv.org/abs/2508.10925"
_LLAMA_4 = "https://github.com/meta-llama/llama-models/blob/main/models/llama4/MODEL_CARD.md"


# Ends of the names of architectures
_TEXT, _IMAGES = "ForCausalLM", "ForConditionalGeneration"


def _of(family: str, embeddings: Embeddings, model: Model, kind: str = _TEXT) -> Model:
    """Returns the model with its architecture and its embeddings."""
    return with_embeddings(replace(model, architecture=f"{family}{kind}"), embeddings)


def _with_fp8(model: Model) -> Model:
    """Returns the model with 8 bits per parameter, but for the embeddings."""
    return replace(model, bytes_per_parameter=model.average(1))


def _ids(owner: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{owner}/{name}" for name in names)


def _llama(*names: str) -> tuple[str, ...]:
    """Returns the IDs of Llama 3.x models: base and instruct, with and without the former prefix."""
    both = [variant for name in names for variant in (name, f"{name}-Instruct")]
    return _ids("meta-llama", *both, *(f"Meta-{name}" for name in both))


def _gemma(family: str, *sizes: str, base: str = "") -> tuple[str, ...]:
    return _ids("google", *(f"{family}-{size}{suffix}" for size in sizes for suffix in (base, "-it")))


def _qwen3(size: str, *further: str) -> tuple[str, ...]:
    return _ids("Qwen", f"Qwen3-{size}", f"Qwen3-{size}-Base", *(f"Qwen3-{size}-{name}" for name in further))


def _gemma_models() -> Iterator[Model]:
    # Context of Gemma 1: https://arxiv.org/abs/2403.08295
    names = (*_gemma("gemma", "2b"), "gemma-2b")
    yield _of("Gemma", (256_000, 2048, 1), Model(names, 2_506_172_416, 18, 8, 1, 256, 8192, f"{_MAXTEXT}/gemma-2b.yml"))
    names = (*_gemma("gemma", "7b"), *_ids("google", "codegemma-7b-it"), "gemma-7b")
    yield _of(
        "Gemma", (256_000, 3072, 1), Model(names, 8_537_680_896, 28, 16, 16, 256, 8192, f"{_MAXTEXT}/gemma-7b.yml")
    )
    # Every other layer of Gemma 2 is local.
    for size, parameters, layers, heads, kv_heads, head_size, width in (
        ("2b", 2_614_341_888, 26, 8, 4, 256, 2304),
        ("9b", 9_241_705_984, 42, 16, 8, 256, 3584),
        ("27b", 27_227_128_320, 46, 32, 16, 128, 4608),
    ):
        names = (*_gemma("gemma-2", size), f"gemma2-{size}")
        source = f"{_MAXTEXT}/gemma2-{size}.yml"
        two = Model(names, parameters, layers, heads, kv_heads, head_size, 8192, source, 4096, layers // 2)
        yield _of("Gemma2", (256_000, width, 1), two)
    # Five of six layers of Gemma 3 are local; context: https://arxiv.org/abs/2503.19786
    names = _gemma("gemma-3", "1b", base="-pt")
    yield _of("Gemma3", (262_144, 1152, 1), Model(names, 999_885_952, 26, 4, 1, 256, 32768, _LITGPT, 512, 22))
    for size, parameters, layers, heads, kv_heads, head_size, local, width in (
        ("4b", 4_300_079_472, 34, 8, 4, 256, 29, 2560),
        ("12b", 12_187_325_040, 48, 16, 8, 256, 40, 3840),
        ("27b", 27_432_406_640, 62, 32, 16, 128, 52, 5376),
    ):
        names = _gemma("gemma-3", size, base="-pt")
        source = f"{_MAXTEXT}/gemma3-{size}.yml"
        three = Model(names, parameters, layers, heads, kv_heads, head_size, 131072, source, 1024, local)
        # Layers without a window have eight times the positions: rope_scaling of config.json.
        three = replace(three, rope_tables=1 + 8)
        yield _of("Gemma3", (262_208, width, 1), three, _IMAGES)
    # Five of six layers of Gemma 4 are local, and the others have fewer, larger heads. Parameters
    # with the vision tower. Context: https://ai.google.dev/gemma/docs/core/model_card_4
    for name, parameters, layers, heads, kv_heads, full_kv_heads, expert, width in (
        ("31B", 31_273_045_356, 60, 32, 16, 4, None, 5376),
        ("26B-A4B", 25_805_571_406, 30, 16, 8, 2, 704, 2816),
    ):
        names = _ids("google", f"gemma-4-{name}", f"gemma-4-{name}-it")
        source = f"{_MAXTEXT}/gemma4-{name.partition('B')[0].lower()}b.yml"
        four = Model(
            *(names, parameters, layers, heads, kv_heads, 256, 262144, source, 1024, layers * 5 // 6),
            full_kv_heads=full_kv_heads,
            full_head_size=512,
            expert_size=expert,
            experts_per_token=8 if expert else None,
            rope_tables=3,
            # Keys of layers without a window are loaded as values too: k_eq_v_layers in vLLM's gemma4.py.
            unloaded=-(layers // 6 * full_kv_heads * 512 * width),
        )
        yield _of("Gemma4", (262_144, width, 1), four, _IMAGES)


def _llama_models() -> Iterator[Model]:
    for size, parameters, layers, heads, kv_heads, width in (
        ("7b", 6_738_415_616, 32, 32, 32, 4096),
        ("13b", 13_015_864_320, 40, 40, 40, 5120),
        ("70b", 68_976_648_192, 80, 64, 8, 8192),
    ):
        names = (*_ids("meta-llama", f"Llama-2-{size}-hf", f"Llama-2-{size}-chat-hf"), f"llama2-{size}")
        two = Model(names, parameters, layers, heads, kv_heads, 128, 4096, f"{_MAXTEXT}/llama2-{size}.yml")
        yield _of("Llama", (32_000, width, 2), two)
    distilled = "deepseek-ai/DeepSeek-R1-Distill-Llama"
    small = _of("Llama", (128_256, 4096, 2), Model((), 8_030_261_248, 32, 32, 8, 128, 131072, _LITGPT))
    large = _of("Llama", (128_256, 8192, 2), Model((), 70_553_706_496, 80, 64, 8, 128, 131072, _LITGPT))
    yield replace(small, names=(*_llama("Llama-3-8B"), "llama3-8b"), context_length=8192)
    yield replace(large, names=(*_llama("Llama-3-70B"), "llama3-70b"), context_length=8192)
    yield replace(small, names=(*_llama("Llama-3.1-8B"), f"{distilled}-8B", "llama3.1-8b"))
    yield replace(large, names=(*_llama("Llama-3.1-70B"), f"{distilled}-70B", "llama3.1-70b"))
    names = (*_llama("Llama-3.1-405B"), "llama3.1-405b")
    yield _of("Llama", (128_256, 16384, 2), Model(names, 405_853_388_800, 126, 128, 8, 128, 131072, _LITGPT))
    one = Model(_llama("Llama-3.2-1B"), 1_235_814_400, 16, 32, 8, 64, 131072, _LITGPT)
    yield _of("Llama", (128_256, 2048, 1), one)
    three = Model(_llama("Llama-3.2-3B"), 3_212_749_824, 28, 24, 8, 128, 131072, _LITGPT)
    yield _of("Llama", (128_256, 3072, 1), three)
    yield replace(large, names=(*_ids("meta-llama", "Llama-3.3-70B-Instruct"), "llama3.3-70b"))
    # Three of four layers of Llama 4 attend to chunks of 8,192 tokens; dimensions: MaxText's llama4-17b-16e.yml.
    for name, parameters, context in (
        ("Llama-4-Scout-17B-16E", 109_000_000_000, 10_485_760),
        ("Llama-4-Maverick-17B-128E", 400_000_000_000, 1_048_576),
    ):
        names = _ids("meta-llama", name, f"{name}-Instruct")
        four = Model(names, parameters, 48, 40, 8, 128, context, _LLAMA_4, 8192, 36, chunked=True)
        yield _of("Llama4", (202_048, 5120, 2), four, _IMAGES)


def _mistral_models() -> Iterator[Model]:
    seven = Model((), 7_241_732_096, 32, 32, 8, 128, 32768, f"{_MAXTEXT}/mistral-7b.yml")
    seven = _of("Mistral", (32_000, 4096, 2), seven)
    first = _ids("mistralai", "Mistral-7B-v0.1", "Mistral-7B-Instruct-v0.1")
    yield replace(seven, names=first, sliding_window=4096, sliding_layers=32)
    yield replace(seven, names=(*_ids("mistralai", "Mistral-7B-Instruct-v0.2"), "mistral-7b"))
    third = _ids("mistralai", "Mistral-7B-v0.3", "Mistral-7B-Instruct-v0.3")
    yield with_embeddings(replace(seven, names=third, parameters=7_248_023_552), (32_768, 4096, 2))
    names = (*_ids("mistralai", "Mixtral-8x7B-v0.1", "Mixtral-8x7B-Instruct-v0.1"), "mixtral-8x7b")
    small = Model(names, 46_702_792_704, 32, 32, 8, 128, 32768, _LITGPT, expert_size=14336, experts_per_token=2)
    yield _of("Mixtral", (32_000, 4096, 2), small)
    names = (*_ids("mistralai", "Mixtral-8x22B-v0.1", "Mixtral-8x22B-Instruct-v0.1"), "mixtral-8x22b")
    large = Model(names, 140_630_071_296, 56, 48, 8, 128, 65536, _LITGPT, expert_size=16384, experts_per_token=2)
    yield _of("Mixtral", (32_768, 6144, 2), large)
    names = _ids("mistralai", "Mistral-Large-Instruct-2407", "Mistral-Large-Instruct-2411")
    source = "https://huggingface.co/mistralai/Mistral-Large-Instruct-2407"
    yield _of("Mistral", (32_768, 12288, 2), Model(names, 122_610_069_504, 88, 96, 8, 128, 131072, source))


def _qwen_models() -> Iterator[Model]:
    # The config.json of the instruct models sets 32,768 tokens: https://huggingface.co/Qwen/Qwen2.5-7B-Instruct
    for size, parameters, layers, heads, kv_heads, head_size, context, embeddings in (
        ("0.5B", 494_032_768, 24, 14, 2, 64, 32768, (151_936, 896, 1)),
        ("1.5B", 1_543_714_304, 28, 12, 2, 128, 131072, (151_936, 1536, 1)),
        ("3B", 3_085_938_688, 36, 16, 2, 128, 32768, (151_936, 2048, 1)),
        ("7B", 7_615_616_512, 28, 28, 4, 128, 131072, (152_064, 3584, 2)),
        ("14B", 14_770_033_664, 48, 40, 8, 128, 131072, (152_064, 5120, 2)),
        ("32B", 32_763_876_352, 64, 40, 8, 128, 131072, (152_064, 5120, 2)),
        ("72B", 72_706_203_648, 80, 64, 8, 128, 131072, (152_064, 8192, 2)),
    ):
        base = Model((f"Qwen/Qwen2.5-{size}",), parameters, layers, heads, kv_heads, head_size, context, _LITGPT)
        base = _of("Qwen2", embeddings, base)
        yield base
        tuned = [f"Qwen2.5-{size}-Instruct"]
        if size != "72B":
            tuned += [f"Qwen2.5-Coder-{size}", f"Qwen2.5-Coder-{size}-Instruct"]
        yield replace(base, names=_ids("Qwen", *tuned), context_length=32768)
        if size in ("1.5B", "7B", "14B", "32B"):
            names = _ids("deepseek-ai", f"DeepSeek-R1-Distill-Qwen-{size}")
            # The smallest has output embeddings of its own: 151,936 x 1,536 more parameters.
            own = replace(base, names=names, source=_R1)
            if size == "1.5B":
                own = with_embeddings(
                    replace(own, parameters=parameters + embeddings[0] * embeddings[1]), (*embeddings[:2], 2)
                )
            yield own
    for size, parameters, layers, heads, kv_heads, embeddings, expert in (
        ("0.6B", 596_049_920, 28, 16, 8, (151_936, 1024, 1), None),
        ("1.7B", 1_720_574_976, 28, 16, 8, (151_936, 2048, 1), None),
        ("4B", 4_022_468_096, 36, 32, 8, (151_936, 2560, 1), None),
        ("8B", 8_190_735_360, 36, 32, 8, (151_936, 4096, 2), None),
        ("14B", 14_768_307_200, 40, 40, 8, (151_936, 5120, 2), None),
        ("32B", 32_762_123_264, 64, 64, 8, (151_936, 5120, 2), None),
        ("30B-A3B", 30_532_122_624, 48, 32, 4, (151_936, 2048, 2), 768),
        ("235B-A22B", 235_093_634_560, 94, 64, 4, (151_936, 4096, 2), 1536),
    ):
        now = Model(_qwen3(size), parameters, layers, heads, kv_heads, 128, 40960, _LITGPT, expert_size=expert)
        now = replace(now, experts_per_token=8 if expert else None)
        now = _of("Qwen3Moe" if expert else "Qwen3", embeddings, now)
        yield now
        if size in ("4B", "30B-A3B", "235B-A22B"):
            names = _ids("Qwen", f"Qwen3-{size}-Instruct-2507", f"Qwen3-{size}-Thinking-2507")
            coder = _ids("Qwen", "Qwen3-Coder-30B-A3B-Instruct") if size == "30B-A3B" else ()
            yield replace(now, names=(*names, *coder), context_length=262144)
    names = _ids("Qwen", "Qwen3-Coder-480B-A35B-Instruct")
    source = f"{_MAXTEXT}/qwen3-480b-a35b.yml"
    large = Model(names, 480_154_875_392, 62, 96, 8, 128, 262144, source, expert_size=2560, experts_per_token=8)
    yield _of("Qwen3Moe", (151_936, 6144, 2), large)
    # Every fourth layer of Qwen 3.5 has full attention. Parameters with the vision tower.
    # Context: https://huggingface.co/Qwen/Qwen3.5-397B-A17B
    for size, parameters, layers, heads, embeddings, expert, experts, linear_heads in (
        ("35B-A3B", 35_104_000_000, 40, 16, (248_320, 2048, 2), 512, 8, 32),
        ("397B-A17B", 396_800_000_000, 60, 32, (248_320, 4096, 2), 1024, 10, 64),
    ):
        source = f"{_MAXTEXT}/qwen3.5-{size.lower()}.yml"
        hybrid = Model(_ids("Qwen", f"Qwen3.5-{size}"), parameters, layers, heads, 2, 256, 262144, source)
        hybrid = replace(hybrid, linear_layers=layers * 3 // 4, linear_state=linear_state(linear_heads))
        hybrid = replace(hybrid, expert_size=expert, experts_per_token=experts)
        yield _of("Qwen3_5Moe", embeddings, hybrid, _IMAGES)


def _other_models() -> Iterator[Model]:
    # The multi-token prediction module of V3 and R1 is not loaded unless it is asked for.
    names = _ids(
        "deepseek-ai", "DeepSeek-V3", "DeepSeek-V3-Base", "DeepSeek-V3-0324", "DeepSeek-R1", "DeepSeek-R1-0528"
    )
    latent = 512 + 64
    three = Model(
        *(names, 671_026_419_200, 61, 128, 128, 128, 163840, _DEEPSEEK),
        latent_size=latent,
        expert_size=2048,
        experts_per_token=8,
        block=128,
    )
    three = _with_fp8(_of("DeepseekV3", (129_280, 7168, 2), three))
    yield three
    # The same dimensions: https://huggingface.co/deepseek-ai/DeepSeek-V3.1#model-downloads
    names = _ids("deepseek-ai", "DeepSeek-V3.1", "DeepSeek-V3.1-Base", "DeepSeek-V3.1-Terminus")
    yield replace(three, names=names, source="https://huggingface.co/deepseek-ai/DeepSeek-V3.1")
    # MaxText's kimi-k2-1t.yml: 384 experts instead of 256 in 60 layers, one dense layer and half the heads.
    names = _ids("moonshotai", "Kimi-K2-Base", "Kimi-K2-Instruct")
    kimi = replace(three, names=names, parameters=1_026_408_232_448, attention_heads=64, kv_heads=64)
    kimi = replace(kimi, context_length=131072, source=f"{_MAXTEXT}/kimi-k2-1t.yml")
    yield _with_fp8(with_embeddings(kimi, (163_840, 7168, 2)))
    names = _ids("deepseek-ai", "DeepSeek-V2-Lite", "DeepSeek-V2-Lite-Chat")
    source = f"{_MAXTEXT}/deepseek2-16b.yml"
    lite = Model(names, 15_706_484_224, 27, 16, 16, 128, 163840, source, latent_size=latent, expert_size=1408)
    lite = replace(lite, experts_per_token=6)
    yield _of("DeepseekV2", (102_400, 2048, 2), lite)
    mini = _of("Phi3", (32_064, 3072, 2), Model((), 3_821_079_552, 32, 32, 32, 96, 131072, _LITGPT))
    yield replace(
        mini,
        names=_ids("microsoft", "Phi-3-mini-4k-instruct"),
        context_length=4096,
        sliding_window=2048,
        sliding_layers=32,
    )
    # By default vLLM serves models with LongRoPE up to the length before it: `_get_and_verify_max_len` in its
    # config/model.py.
    mini = replace(mini, default_length=4096)
    yield replace(mini, names=_ids("microsoft", "Phi-3-mini-128k-instruct", "Phi-3.5-mini-instruct"))
    four = Model(_ids("microsoft", "phi-4"), 14_659_507_200, 40, 40, 10, 128, 16384, _LITGPT)
    four = _of("Phi3", (100_352, 5120, 2), four)
    yield four
    yield replace(four, names=_ids("microsoft", "Phi-4-reasoning", "Phi-4-reasoning-plus"), context_length=32768)
    names = _ids("microsoft", "Phi-4-mini-instruct", "Phi-4-mini-reasoning")
    mini = Model(names, 3_836_021_760, 32, 24, 8, 128, 131072, _LITGPT, default_length=4096)
    yield _of("Phi3", (200_064, 3072, 1), mini)
    # Experts in MXFP4, the rest in BF16: the model card gives the sizes of the checkpoints, 12.8 GiB and 60.8 GiB.
    # vLLM pads the experts. On Hopper it loads 13.03 and 61.43 GiB, as tests/measured_memory.csv records. On others it
    # was seen to load 13.72 and 64.38: https://myoceane.fr/index.php/ai-vllm-a100-gemma-4/,
    # https://github.com/vllm-project/vllm/issues/33155
    for size, parameters, layers, gib, hopper, others in (
        ("20b", 20_914_757_184, 24, 12.8, 13.03, 13.72),
        ("120b", 116_829_156_672, 36, 60.8, 61.43, 64.38),
    ):
        model = Model(
            *((f"openai/gpt-oss-{size}",), parameters, layers, 64, 8, 64, 131072, _GPT_OSS),
            sliding_window=128,
            sliding_layers=layers // 2,
            bytes_per_parameter=gib * GI / parameters,
            expert_size=2880,
            experts_per_token=4,
            loaded_gib=others,
            loaded_gib_on_hopper=hopper,
        )
        yield _of("GptOss", (201_088, 2880, 2), model)


MODELS: tuple[Model, ...] = (
    *_gemma_models(),
    *_llama_models(),
    *_mistral_models(),
    *_qwen_models(),
    *_other_models(),
    *MODELS_2026,
)
_BY_NAME: Mapping[str, Model] = MappingProxyType({name.lower(): model for model in MODELS for name in model.names})
_BY_BARE_NAME: Mapping[str, Model] = MappingProxyType(
    {name.partition("/")[2].lower(): model for model in MODELS for name in model.names if "/" in name}
)
# Bytes per weight in 4 bits, with a scale of 16 bits and a zero per group of 128 (AWQ, GPTQ), and with a scale of 8
# bits per 16 (NVFP4). Embeddings stay in 16 bits: gke_ai.catalog.models.Model.average
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
_SIZES: Mapping[str, float] = MappingProxyType(
    {f"{name}-FP8".lower(): 8 * 57.752 for name in _llama("Llama-3.1-405B")}
    | {"qwen/qwen3.5-122b-a10b-gptq-int4": 73.47, "qwen/qwen3.5-397b-a17b-gptq-int4": 219.56}
)


def find_model(name: str) -> Model | None:
    """Returns the model with this ID, or a quantized copy of a model in the catalog; None if there is none."""
    wanted = name.lower()
    if wanted in _BY_NAME:
        return _BY_NAME[wanted]
    for ending, size in _QUANTIZED:
        if match := re.fullmatch(rf"(?P<base>.+?){ending}", wanted):
            base = match["base"]
            original = _BY_NAME.get(base) or _BY_BARE_NAME.get(base.rpartition("/")[2])
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
