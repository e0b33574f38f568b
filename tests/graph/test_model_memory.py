"""Whether a model fits its accelerators: figures computed by hand, refused models, and unchecked models."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pulumi
import pytest
import yaml

from gke_ai.catalog.engines.advisories import open_in
from gke_ai.catalog.engines.engine import ENGINES, MARGIN
from gke_ai.catalog.engines.model import Model
from gke_ai.catalog.engines.model_memory import kv_cache_bytes, longest_sequence, shards_that_divide, weights_bytes
from gke_ai.catalog.engines.models import find_model, models
from gke_ai.catalog.engines.vllm import ARCHITECTURES, RELEASE
from gke_ai.catalog.engines.vllm_memory import rope_bytes
from gke_ai.catalog.machines.gpus import GPU_TYPES
from gke_ai.catalog.machines.types import GPUS
from gke_ai.catalog.quantities import GI
from gke_ai.ops.doctor.command import Doctor
from gke_ai.ops.doctor.visit import ADVICE, UNCHECKED
from gke_ai.review.report.changes import plan
from gke_ai.review.report.page import Options, page
from gke_ai.review.report.policies import Verdict
from gke_ai.review.report.preview import Preview, trimmed
from gke_ai.settings import load
from gke_ai.settings.estimates import model_memory
from gke_ai.settings.estimates.model_memory import Load, Need, Unchecked, load_of, unchecked
from gke_ai.settings.estimates.tight_models import tight
from gke_ai.settings.model import Nodes, Vllm
from gke_ai.settings.resolved import Placed
from tests.support.mistakes import (
    LLAMA,
    SHAPE,
    Configuration,
    base,
    described,
    drop,
    one_server,
    problems_of,
    put,
    vllm,
)
from tests.support.recorder import PROJECT, ROOT, run_program

SIZES: dict[str, Any] = yaml.load((ROOT / "tests/data/expected/model_sizes.yaml").read_text(), yaml.CSafeLoader)


def known(name: str) -> Model:
    model = find_model(name)
    assert model is not None, name
    return model


def loaded(values: Configuration) -> Load:
    """The load of the only server of a configuration."""
    load_of_server = load_of(load(values, PROJECT).servers[0])
    assert isinstance(load_of_server, Load)
    return load_of_server


def gaps(values: Configuration) -> list[Unchecked]:
    """The servers of a configuration whose model is not checked."""
    return unchecked(load(values, PROJECT).servers)


def doctor(values: Configuration) -> Doctor:
    return Doctor("dev", PROJECT, load(values, PROJECT), True)


# The catalog
def test_each_name_of_a_model_stands_once_and_is_found_whatever_the_case() -> None:
    names = [name.lower() for model in models() for name in model.names]
    assert len(names) == len(set(names)) > 150
    assert find_model("META-LLAMA/llama-3.1-8b-instruct") is find_model(LLAMA)
    assert find_model("gemma-7b") is find_model("google/gemma-7b-it"), "MaxText's name"
    assert find_model("somebody/Llama-3.1-8B-Instruct") is None
    assert find_model("meta-llama/Llama-3.1-8B-Instruct-tuned") is None


@pytest.mark.parametrize("model", models(), ids=lambda model: model.names[0])
def test_row_of_the_catalog_is_sourced_and_consistent(model: Model) -> None:
    assert model.source.startswith("https://")
    assert "/" in model.names[0], "the first name is an id on Hugging Face"
    assert model.attention_heads % model.kv_heads == 0
    assert 0 <= model.sliding_layers <= model.layers
    assert (model.sliding_window is None) == (model.sliding_layers == 0)
    assert 0.5 <= model.bytes_per_parameter <= 2
    assert model.context_length % 1024 == 0
    assert model.context_length >= 4096
    # No model is served on one GPU only because its heads cannot be shared.
    assert 2 in shards_that_divide(model, split_kv_heads=False)


def test_parameters_and_quantized_copies_have_the_sizes_that_they_are_known_for() -> None:
    for name, billions in SIZES["parameters"].items():
        assert known(name).parameters / 10**9 == pytest.approx(billions, rel=0.005), name
    for name, gigabytes in SIZES["files"].items():
        size = known(name).parameters * known(name).bytes_per_parameter
        assert size / 10**9 == pytest.approx(gigabytes, rel=0.01), name


def test_every_gpu_type_has_its_memory() -> None:
    assert GPU_TYPES.keys() == set(GPUS)
    # Some GPUs have their size in GB in their name: CUDA reports less than that, and no less than 90 %.
    for name, gigabytes in (
        *(("nvidia-tesla-t4", 16), ("nvidia-l4", 24), ("nvidia-tesla-a100", 42.9), ("nvidia-a100-80gb", 85.9)),
        *(("nvidia-h100-80gb", 85.9), ("nvidia-h200-141gb", 151), ("nvidia-rtx-pro-6000", 103)),
    ):
        assert 0.9 * gigabytes <= GPU_TYPES[name].memory_gib * GI / 10**9 <= gigabytes, name


# Figures worked by hand
@pytest.mark.parametrize("row", [*SIZES["weights"], *SIZES["cache"]], ids=lambda row: row["name"])
def test_weights_are_parameters_times_their_size_and_the_kv_cache_is_the_sum_over_the_layers(row: Any) -> None:
    model, shards = known(row["name"]), row["shards"]
    size = kv_cache_bytes(model, row["tokens"], shards) if "tokens" in row else weights_bytes(model, shards)
    assert size == row["bytes"]


def test_longest_sequence_ends_with_the_last_token_that_has_room() -> None:
    model = known(LLAMA)
    assert kv_cache_bytes(model, 131_072, kv_bytes=1) == 8 * GI, "smaller values make a smaller cache"
    room = [131_072 * 1000, 131_072 * 1000 - 1, 10**15, 131_071, -1]
    assert [longest_sequence(model, size) for size in room] == [1000, 999, model.context_length, 0, 0]


@pytest.mark.parametrize(
    ("name", "split_kv_heads", "counts"),
    [
        ("google/gemma-2-9b-it", True, [1, 2, 4, 8]),  # 16 heads, 8 KV heads
        ("google/gemma-2-9b-it", False, [1, 2, 4, 8, 16]),
        ("google/gemma-2b", True, [1, 2, 4, 8]),  # a single KV head is copied
        ("Qwen/Qwen2.5-7B-Instruct", True, [1, 2, 4]),  # 28 heads, 4 KV heads
        ("Qwen/Qwen2.5-7B-Instruct", False, [1, 2, 4, 28]),
    ],
)
def test_accelerators_divide_the_heads(name: str, split_kv_heads: bool, counts: list[int]) -> None:
    assert shards_that_divide(known(name), split_kv_heads) == counts


# What is refused
def with_server(name: str, **server: Any) -> Configuration:
    """A good configuration with some keys of its server."""
    values = base("model_memory", name)
    values["serving"][0] |= server
    return values


def on_tpus(version: str = "v6e", topology: str = "1x1", **server: Any) -> Configuration:
    """An Autopilot cluster with a vLLM server on a TPU slice."""
    return with_server("on_tpus", tpu={"version": version, "topology": topology}, **server)


jetstream = partial(with_server, "jetstream")
on_l4 = partial(base, "model_memory", "on_l4")
tgi_on_h100 = partial(base, "model_memory", "tgi_on_h100")
to_zero = partial(put, value=0)


@pytest.mark.parametrize(
    ("keys", "change", "cause"),
    [
        (SHAPE, drop, " is missing"),
        ((*SHAPE, "slidingWindow", "latentSize", "bytesPerParameter", "kvBytes"), to_zero, "0 is below the minimum"),
    ],
)
def test_numbers_of_a_shape_are_needed_and_positive(keys: Iterable[str], change: Any, cause: str) -> None:
    for key in keys:
        values = described()
        change(f"serving.0.modelShape.{key}")(values)
        (problem,) = problems_of(values)
        assert problem.path == f"gke-ai:serving[0].modelShape.{key}"
        assert cause in problem.cause


L4, H100, H200 = ({"accelerator": f"nvidia-{name}"} for name in ("l4", "h100-80gb", "h200-141gb"))


def test_the_shape_of_a_model_precedes_the_catalog_which_has_its_original_length() -> None:
    values = vllm(**L4, modelShape={**SHAPE, "contextLength": 8192})
    assert problems_of(values) == []
    assert loaded(values).tokens == 8192
    assert loaded(vllm(**L4, model="microsoft/Phi-4-mini-instruct")).tokens == 4096, "without longrope"


def test_only_tgi_has_one_margin_and_is_known_to_lack_kernels() -> None:
    tgi, tpus = one_server(**L4), on_tpus(maxModelLen=1024)
    for values, names in ((tgi, ["weights", "activations"]), (jetstream(), ["weights"]), (tpus, ["weights"])):
        assert [part.name for part in loaded(values).need(model_memory.Place("nvidia-l4", 0)).parts] == names
    assert part(need_of(tgi), "activations") == (MARGIN, MARGIN)
    assert {name for name, engine in ENGINES.items() if engine.newest_kernels} == {"tgi"}


# What is not checked
UNKNOWN = "Not checked: gke-ai:serving[0].model: the catalog does not have the model acme/unknown."
PIPELINE = ["--pipeline_parallel_size=2"]
UNREADABLE = {"arguments": ["--gpu-memory-utilization=most"], "image": "registry.example/vllm:1"}
ARGUMENTS, MEMORY = "gke-ai:serving[0].arguments", "changes how much memory the model needs"
CHUNKED = "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE"
QUANTIZE = "gke-ai:serving[0].quantize: compressed-tensors does not say how many bits a weight has"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (vllm(**L4, model="acme/unknown"), UNKNOWN),
        (on_tpus(arguments=PIPELINE), f"{ARGUMENTS}: --pipeline-parallel-size {MEMORY}"),
        (vllm(**L4, env={"VLLM_USE_V2_MODEL_RUNNER": "0"}), "VLLM_USE_V2_MODEL_RUNNER changes"),
        (vllm(**L4, arguments=["--hf-overrides.max_position_embeddings=8192"]), "--hf-overrides"),
        (vllm(**L4, **UNREADABLE), "--gpu-memory-utilization changes"),
        (vllm(**L4, quantize="compressed-tensors"), QUANTIZE),
        (one_server(**L4, env={"QUANTIZE": "awq"}), "gke-ai:serving[0].env.QUANTIZE: QUANTIZE changes"),
        (jetstream(arguments={"quantization": "int8"}), f"{ARGUMENTS}: quantization changes"),
        (on_tpus(arguments=["--additional-config={}"]), f"--additional-config {MEMORY}"),
        (jetstream(model="olmo3-7b"), "the catalog does not have the model olmo3-7b"),
        # Windows can be turned off for chunked attention.
        (vllm(**H100, model="meta-llama/Llama-4-Scout-17B-16E", gpus=8, env={CHUNKED: "0"}), f"{CHUNKED} {MEMORY}"),
    ],
)
def test_unknown_model_is_listed_and_not_refused(values: Configuration, text: str) -> None:
    assert problems_of(values) == []
    (gap,) = gaps(values)
    assert text in str(gap)


def test_engine_whose_use_of_memory_is_unknown_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_memory, "ENGINES", {"vllm": replace(ENGINES["vllm"], memory=None)})
    found = load_of(Placed(Vllm(name="s", engine="vllm", model=LLAMA), Nodes(), (), None, 0))
    assert isinstance(found, Unchecked)
    assert found.reason == "the memory needs of vllm are unknown"


def test_devices_of_a_chip_share_its_memory() -> None:
    values = on_tpus("tpu7x", "2x2x1")
    (place,) = model_memory.places(load(values, PROJECT).servers[0])
    assert (loaded(values).shards, place.memory) == (8, 94.75 * GI)


def test_known_and_described_models_are_not_listed() -> None:
    shape = {**SHAPE, "bytesPerParameter": 0.5}
    values = vllm(**L4, model="acme/tuned-w4a16", quantize="compressed-tensors", modelShape=shape, maxModelLen=90_000)
    assert problems_of(values) == []
    assert [gaps(known) for known in (on_l4(), described(), tgi_on_h100(), jetstream(), values)] == [[]] * 5


def warnings(values: Configuration, preview: bool, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    messages: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", messages.append)
    run_program({f"gke-ai:{key}": value for key, value in values.items()}, preview, monkeypatch)
    return messages


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_only_an_unknown_model_is_warned_of_once(preview: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert warnings(on_l4(), preview, monkeypatch) == []
    (warning,) = warnings(vllm(**L4, model="acme/unknown"), preview, monkeypatch)
    assert warning == (
        f"{UNKNOWN} Whether the model fits its accelerators is unknown. Describe it in gke-ai:serving[0].modelShape, "
        "which gke-ai model acme/unknown prints."
    )


def previewed(severity: str, message: str) -> Preview:
    return trimmed("dev", [], [], [{"diagnosticEvent": {"severity": severity, "message": message}}])


def test_report_lists_what_is_not_checked_and_no_other_warning() -> None:
    written = page(plan(previewed("warning", f"{UNKNOWN}\n")), Verdict(), Options())
    assert "## Not checked\n\n- gke-ai:serving" in written
    assert written.count("acme/unknown") == 1
    for other in (previewed("warning", "JobSet changes from 0.11 to 0.12"), previewed("info", UNKNOWN)):
        assert other.events == ()
        assert "Not checked" not in page(plan(other), Verdict(), Options())


def test_doctor_lists_what_is_not_checked() -> None:
    assert [*doctor(on_l4()).models()] == []
    (finding,) = doctor(vllm(**L4, model="acme/unknown")).models()
    remedy = "Describe it in gke-ai:serving[0].modelShape, which gke-ai model acme/unknown prints"
    expected = f"{UNKNOWN.removeprefix('Not checked: ')} {remedy}"
    assert (finding.state, finding.text) == (UNCHECKED, expected)


OLD = ["CVE-2025-62164", "CVE-2026-22778", "CVE-2026-48746", "CVE-2026-114053"]


@pytest.mark.parametrize(
    ("image", "numbers"),
    [
        *(("vllm/vllm-openai:v0.31.0", []), ("registry.example/vllm:latest", [])),
        *(("vllm/vllm-openai:v0.30.0", OLD[-1:]), ("vllm/vllm-openai:v0.11.0", OLD)),
    ],
)
def test_doctor_lists_published_advisories_of_an_image(image: str, numbers: list[str]) -> None:
    findings = [*doctor(vllm(**L4, maxModelLen=4096, image=image)).advisories()]
    assert [finding.state for finding in findings] == [ADVICE] * bool(numbers)
    for finding in findings:
        assert [number for number in numbers if number in finding.text] == numbers
        assert "Remove image, or name release 0.31.0 or newer" in finding.text


def test_pinned_images_have_no_published_advisory() -> None:
    assert [*doctor(vllm(**L4, maxModelLen=4096)).advisories()] == []
    assert [list(open_in(name, engine.image)) for name, engine in ENGINES.items()] == [[]] * len(ENGINES)


# By the facts of the pinned release: gke_ai.catalog.engines.vllm
def need_of(values: Configuration) -> Need:
    """What a replica needs on the accelerator that it names."""
    place, *_ = model_memory.places(load(values, PROJECT).servers[0])
    return loaded(values).need(place)


def part(need: Need, name: str) -> tuple[int, int]:
    """A part at least, and as expected."""
    return next((part.least, part.likely) for part in need.parts if part.name == name)


GEMMA = {"model": "google/gemma-3-27b-it", "maxModelLen": 131_072}
SCOUT = "meta-llama/Llama-4-Scout-17B-16E-Instruct"


@pytest.mark.parametrize(
    ("values", "kv_cache"),
    [
        # Layers with a window reserve the batches that run. An H200 is asked for batches of 8,192, of which two run: 10
        # layers x 131,072 tokens and 60 x (1,024 - 1 + 16,384), of 8,192 bytes. The 52 layers with a window are in 6
        # groups of 10. An A100 runs two of 2,048.
        (vllm(**H200, **GEMMA), 8192 * (1_310_720 + 60 * 17_407)),
        (vllm(accelerator="nvidia-a100-80gb", **GEMMA), 8192 * (1_310_720 + 60 * 5_119)),
        (vllm(**H100, **GEMMA, arguments=["--max-num-batched-tokens=1024"]), 8192 * (1_310_720 + 60 * 3_071)),
        # A window that is longer than the sequence reserves the sequence.
        (vllm(**H100, **{**GEMMA, "maxModelLen": 4096}), 8192 * 70 * 4096),
        # An engine without windows caches every token with the heads of each layer.
        (one_server(model="google/gemma-4-31B-it", **H200, maxModelLen=10_000), 10_000 * (50 * 16_384 + 10 * 8192)),
        # Layers with chunked attention cache a chunk on GPUs, and every token on TPUs: 12 layers x 1,000,000 tokens and
        # 36 x (8,192 + 16,384) x 512 bytes, one of 8 KV heads on each GPU.
        (vllm(**H100, model=SCOUT, gpus=8, maxModelLen=1_000_000), 512 * (12_000_000 + 36 * 24_576)),
        (on_tpus("tpu7x", "2x2x1", model=SCOUT, maxModelLen=100_000), 48 * 100_000 * 512),
        # The state of linear attention takes blocks of the cache: 48 heads of 128 x 128 values of 32 bits and the
        # convolution, 3,207,168 bytes, are 784 tokens of 4,096 bytes. 42 blocks of 32,768 tokens and 2 of each of the 3
        # groups of states, in 16 layers.
        (vllm(**H100, model="Qwen/Qwen3.6-27B", maxModelLen=32_768), 16 * (42 + 6) * 784 * 4096),
    ],
)
def test_kv_cache_depends_on_the_attention_of_each_layer(values: Configuration, kv_cache: int) -> None:
    assert need_of(values).kv_cache == kv_cache


def test_only_a_model_that_refuses_fp16_takes_twice_the_memory_on_a_t4() -> None:
    t4 = {"accelerator": "nvidia-tesla-t4", "maxModelLen": 4096}
    for model in ("google/gemma-2-2b-it", "google/gemma-3-4b-it"):
        wide = need_of(vllm(**t4, gpus=2, model=model))
        usual = need_of(vllm(**{**t4, **L4}, gpus=2, model=model))
        rope = rope_bytes(known(model))
        assert part(wide, "weights")[0] - rope == 2 * (part(usual, "weights")[0] - rope)
        assert wide.kv_cache == 2 * usual.kv_cache
    llama = need_of(vllm(**t4, model="meta-llama/Llama-3.2-1B"))
    assert part(llama, "weights")[0] == 2 * 1_235_814_400 + 131_072 * 64 * 2


def test_architectures_of_the_catalog_are_those_of_the_pinned_release() -> None:
    assert {model.architecture for model in models()} <= ARCHITECTURES


@pytest.mark.parametrize(
    ("architecture", "remedy"),
    [
        ("ExaoneMoEForCausalLM", "Set an image of vLLM 0.32.0 or newer"),
        ("Step5ForCausalLM", "Set an image of vLLM 0.33.0 or newer"),
        ("NobodyForCausalLM", "Choose another model or image"),
    ],
)
def test_architecture_that_the_release_lacks_is_refused(architecture: str, remedy: str) -> None:
    shape = {**SHAPE, "architecture": architecture}
    values = vllm(**L4, model="acme/new", maxModelLen=4096, modelShape=shape)
    (problem,) = problems_of(values)
    assert (problem.path, problem.remedy) == ("gke-ai:serving[0].model", remedy)
    assert problem.cause.startswith(f"vLLM {RELEASE} has no architecture {architecture}")
    assert problems_of(vllm(**values["serving"][0], image="registry.example/vllm:1")) == []


# What likely does not fit
TIGHT = vllm(**L4, maxModelLen=32_768)


def test_model_that_likely_does_not_fit_is_warned_of_with_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    (warning,) = warnings(TIGHT, True, monkeypatch)
    assert warning == (
        f"gke-ai:serving[0].maxModelLen: vLLM likely takes 30,512 tokens of {LLAMA} on nvidia-l4, and the server asks "
        "for 32,768. It may not start. Set maxModelLen to 30,512 or less, or use more GPUs. make doctor lists the "
        "parts of the memory."
    )
    assert warnings(vllm(**L4, maxModelLen=30_512), True, monkeypatch) == []
    (finding,) = doctor(TIGHT).models()
    assert finding.state == ADVICE
    assert "vLLM likely takes 30,512 tokens" in finding.text
    lines = {" ".join(line.split()) for line in finding.text.splitlines()}
    assert {"weights 15.0 15.0", "CUDA graphs 0.4 0.9", "sum 20.0 20.6", "can be used 20.3"} <= lines
    assert finding.command == "Set maxModelLen to 30,512 or less, or use more GPUs"


def test_model_whose_rest_hardly_fits_is_warned_of_at_the_gpus() -> None:
    large = {"model": "meta-llama/Llama-3.3-70B-Instruct", "gpus": 2, "maxModelLen": 1024}
    values = vllm(**H100, **large, arguments=["--gpu-memory-utilization=0.885"])
    assert problems_of(values) == []
    (found,) = tight(load(values, PROJECT).servers)
    assert found.path == "gke-ai:serving[0].gpus"
    assert "likely needs 70.6 GiB of 70.1 GiB of nvidia-h100-80gb. The server may not start" in found.reason


def test_memory_beside_weights_follows_the_settings_of_the_server() -> None:
    def need(**server: Any) -> Need:
        return need_of(vllm(**H100, maxModelLen=4096, **server))

    usual = need()
    assert part(usual, "CUDA graphs")[0] > 0
    for change in ({"arguments": ["--enforce-eager"]}, {"env": {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"}}):
        assert "CUDA graphs" not in {part.name for part in need(**change).parts}
    stated = need(arguments=["--compilation-config.cudagraph_mode=PIECEWISE"])
    assert part(stated, "CUDA graphs")[0] == 0, "stated sizes are not bounded"
    another = need(image="vllm/vllm-openai:v0.11.0")
    assert {part.name for part in another.parts if part.least} == {"weights"}, "only weights and cache are bounded"
    fewer = need(arguments=["--max-num-seqs=64", "--max-num-batched-tokens=2048"])
    # 64 of 1,024 requests, and 2,048 of 8,192 tokens
    assert 16 * part(fewer, "sampling")[0] == part(usual, "sampling")[0] == 1024 * 128_256 * 33 // 8
    assert 4 * part(fewer, "activations")[1] == pytest.approx(part(usual, "activations")[1], rel=0.01)
    # 19 of 51 sizes
    assert part(fewer, "CUDA graphs")[1] < 0.4 * part(usual, "CUDA graphs")[1]


@pytest.mark.parametrize("text", ['--limit-mm-per-prompt={"image": 0}', "--limit-mm-per-prompt.image=0"])
def test_server_without_images_needs_no_encoder(text: str) -> None:
    gemma = {"model": "google/gemma-3-4b-it", "maxModelLen": 4096}
    usual, without = need_of(vllm(**H100, **gemma)), need_of(vllm(**H100, **gemma, arguments=[text]))
    # 32 images of 4,096 patches, 1,152 values and 12 tensors of 16 bits: 3.4 GiB
    assert part(usual, "activations")[1] > 2 * part(without, "activations")[1]


# Data and pipeline parallelism
CODER = "Qwen/Qwen3-Coder-30B-A3B-Instruct"


def flags_of(values: Configuration) -> list[str]:
    return load(values, PROJECT).settings.serving[0].command_line.flags


def test_copies_of_the_attention_share_the_gpus_and_the_experts() -> None:
    eight = {**H200, "model": CODER, "gpus": 8, "maxModelLen": 4096}
    values = vllm(**eight, dataParallel=8, arguments=["--enable-expert-parallel"])
    assert problems_of(values) == []
    assert {"--tensor-parallel-size=1", "--data-parallel-size=8"} <= {*flags_of(values)}
    assert "--tensor-parallel-size=8" in flags_of(vllm(**eight))
    # Each rank has all KV heads: 48 layers x 2 x 4 x 128 x 2 bytes
    need = need_of(values)
    assert need.kv_cache == 4096 * 98_304
    # 48 layers of (32 + 4 + 4 + 32) x 128 x 2,048, two embeddings, and an eighth of the rest, in 16 bits
    attention, embeddings = 48 * 72 * 128 * 2048, 2 * 151_936 * 2048
    rank = 2 * (attention + embeddings) + 2 * (30_532_122_624 - attention - embeddings) / 8
    assert part(need, "weights")[0] == pytest.approx(rank + rope_bytes(known(CODER)), rel=0.001)
    # Each rank of a dense model has all of it.
    two, one = vllm(**H100, gpus=2, dataParallel=2, maxModelLen=4096), vllm(**H100, maxModelLen=4096)
    assert part(need_of(two), "weights") == part(need_of(one), "weights")
