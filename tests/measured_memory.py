"""What vLLM 0.31.0 took of GPUs in 43 starts, beside what the program computes: `python -m tests.measured_memory`.

`measured_memory.csv` has GiB per GPU, measured on two H100 (85,017,493,504 bytes each) with random weights of real
shapes. Rows of other GPU types are an H100 capped to their memory. `fits` and `longest` are vLLM's own check.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gke_ai.catalog.model import Model
from gke_ai.catalog.models import find_model
from gke_ai.catalog.quantities import GI
from gke_ai.settings import load
from gke_ai.settings.model_memory import Load, Place, load_of
from tests.recorder import PROJECT

_MEMORY_GIB = {"nvidia-h100-80gb": 85_017_493_504 / GI, "nvidia-l4": 22.05, "nvidia-tesla-a100": 39.59}
_TEXT = ["--language-model-only"]
# Model and settings of a case, by the part of its name before the first period
_CASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "a100-gemma3-12b": ("google/gemma-3-12b-it", {}),
    "a100-qwen3-14b": ("Qwen/Qwen3-14B", {}),
    "dsv2-lite": ("deepseek-ai/DeepSeek-V2-Lite", {}),
    "dsv3-8l-tp2": ("deepseek-ai/DeepSeek-V3", {}),
    "gemma2-27b": ("google/gemma-2-27b-it", {}),
    "gemma3-12b": ("google/gemma-3-12b-it", {}),
    "gemma3-27b-text": ("google/gemma-3-27b-it", {"arguments": _TEXT}),
    "gemma3-27b": ("google/gemma-3-27b-it", {}),
    "gemma4-31b": ("google/gemma-4-31B-it", {}),
    "glm45-air-fp8-tp2": ("zai-org/GLM-4.5-Air-FP8", {}),
    "gpt-oss-120b": ("openai/gpt-oss-120b", {}),
    "gpt-oss-20b": ("openai/gpt-oss-20b", {}),
    "l4-gemma3-4b": ("google/gemma-3-4b-it", {}),
    "l4-llama3b": ("meta-llama/Llama-3.2-3B-Instruct", {}),
    "l4-llama8-32k": ("meta-llama/Llama-3.1-8B-Instruct", {}),
    "llama1b": ("meta-llama/Llama-3.2-1B-Instruct", {}),
    "llama70-awq": ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", {}),
    "llama70-fp8-tp2": ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", {}),
    "llama70-half-tp2": ("meta-llama/Llama-3.3-70B-Instruct", {}),
    "llama70-tp2": ("meta-llama/Llama-3.3-70B-Instruct", {}),
    "llama8-batch32768": ("meta-llama/Llama-3.1-8B-Instruct", {}),
    "llama8-lora4x16": (
        "meta-llama/Llama-3.1-8B-Instruct",
        {"loraAdapters": [{"name": f"a{number}", "source": f"team/a{number}", "rank": 16} for number in range(4)]},
    ),
    "llama8-quantize-fp8": ("meta-llama/Llama-3.1-8B-Instruct", {"quantize": "fp8"}),
    "llama8-seqs256": ("meta-llama/Llama-3.1-8B-Instruct", {}),
    "llama8-w4a16": ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", {}),
    "llama8": ("meta-llama/Llama-3.1-8B-Instruct", {}),
    "mistral-small-31-text": ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", {"arguments": _TEXT}),
    "mistral-small-31": ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", {}),
    "mistral-small": ("mistralai/Mistral-Small-24B-Instruct-2501", {}),
    "mistral7b-v01": ("mistralai/Mistral-7B-Instruct-v0.1", {}),
    "qwen3-30b-fp8": ("Qwen/Qwen3-30B-A3B-FP8", {}),
    "qwen3-30b": ("Qwen/Qwen3-30B-A3B", {}),
    "qwen3-32b-fp8": ("Qwen/Qwen3-32B-FP8", {}),
    "qwen3-32b-seqs256": ("Qwen/Qwen3-32B", {}),
    "qwen3-32b": ("Qwen/Qwen3-32B", {}),
    "qwen35-27b": ("Qwen/Qwen3.5-27B", {}),
    "qwen35-35b-a3b": ("Qwen/Qwen3.5-35B-A3B", {}),
    "qwen35-9b-text": ("Qwen/Qwen3.5-9B", {"arguments": _TEXT}),
}


def _halved(model: Model) -> Model:
    """Half of every matrix of each layer and of the vocabulary, so that two GPUs have what four have of the model."""
    half = replace(model, attention_heads=model.attention_heads // 2, kv_heads=model.kv_heads // 2)
    half = replace(half, hidden_size=model.width, vocabulary=model.least_vocabulary // 2)
    return replace(half, parameters=model.parameters // 2, embeddings=model.embeddings // 2)


def _with_8_layers(model: Model) -> Model:
    """The first 8 layers: 3 dense ones, and 5 with 256 experts and a shared one."""
    width, attention = model.width, 187_107_328
    dense, experts = 3 * width * 18_432, 257 * 3 * width * 2048 + 256 * width
    small = replace(model, layers=8, parameters=model.embeddings + 8 * attention + 3 * dense + 5 * experts)
    return replace(small, bytes_per_parameter=small.average(1))


_CHANGED = {"llama70-half-tp2": _halved, "dsv3-8l-tp2": _with_8_layers}


@dataclass(frozen=True)
class Row:
    """A start of vLLM, and the load that the program computes for it."""

    measured: Mapping[str, str]

    @property
    def case(self) -> str:
        """Its name."""
        return self.measured["case"]

    def gib(self, column: str) -> float:
        """A measured part, in GiB."""
        return float(self.measured[f"{column}_gib"])

    @property
    def longest(self) -> int:
        """The longest sequence that vLLM took."""
        return int(self.measured["longest"])

    @cached_property
    def load(self) -> Load:
        """The program's load."""
        model, further = _CASES[self.case.partition(".")[0]]
        arguments = [
            f"--max-num-batched-tokens={self.measured['max_num_batched_tokens']}",
            f"--max-num-seqs={self.measured['max_num_seqs']}",
            *(["--enforce-eager"] if self.measured["enforce_eager"] == "True" else []),
            *further.get("arguments", []),
        ]
        change = _CHANGED.get(self.case.partition(".")[0])
        # A model that only a part of was measured is too large itself.
        server: dict[str, Any] = {"name": "s", "engine": "vllm"}
        server["model"] = "meta-llama/Llama-3.1-8B" if change else model
        server["gpus"] = int(self.measured["gpus"])
        server |= {"accelerator": self.measured["gpu"], "maxModelLen": 1024, **further, "arguments": arguments}
        (placed,) = load({"cluster": {"mode": "existing"}, "serving": [server]}, PROJECT).servers
        found = load_of(placed)
        assert isinstance(found, Load), found
        original = find_model(model)
        assert original is not None
        changed = replace(found, model=change(original)) if change else found
        return replace(changed, tokens=int(self.measured["max_model_len"]))

    @property
    def place(self) -> Place:
        """The GPU."""
        return Place(self.measured["gpu"], _MEMORY_GIB[self.measured["gpu"]] * GI)

    def computed(self, *names: str, likely: bool = True) -> float:
        """Computed parts, in GiB."""
        parts = self.load.need(self.place).parts
        return sum((part.likely if likely else part.least) / GI for part in parts if part.name in names)

    def longest_computed(self, likely: bool) -> int:
        """The longest sequence as expected, or at most."""
        return self.load.longest(self.place, likely)


def rows() -> list[Row]:
    """All rows."""
    with Path(__file__).with_suffix(".csv").open() as lines:
        return [Row(row) for row in csv.DictReader(lines)]


PARTS = {
    "weights": ("weights", "4 adapters"),
    "buffers": ("sampling", "experts", "outside PyTorch"),
    "activations": ("activations",),
    "graphs": ("CUDA graphs",),
}


def table() -> str:
    """What was measured, in GiB and tokens, beside what the program computes, as Markdown."""
    lines = [
        "| case | taken | at least | expected | longest | at most | expected |",
        "| --- | --: | --: | --: | --: | --: | --: |",
    ]
    for row in rows():
        taken = sum(row.gib(part) for part in PARTS)
        least, likely = (sum(row.computed(*names, likely=end) for names in PARTS.values()) for end in (False, True))
        lengths = row.longest, row.longest_computed(likely=False), row.longest_computed(likely=True)
        cells = [f"{taken:.1f}", f"{least:.1f}", f"{likely:.1f}", *(f"{length:,}" for length in lengths)]
        lines.append(f"| {' | '.join([row.case, *cells])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
