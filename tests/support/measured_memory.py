"""What vLLM 0.31.0 took of GPUs in 43 starts, beside estimates: `python -m tests.support.measured_memory`.

`measured_memory.csv` has GiB per GPU, measured on two H100 (85,017,493,504 bytes each) with random weights of real
shapes. Rows of other GPU types are an H100 capped to their memory. `fits` and `longest` are vLLM's own check.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from gke_ai.catalog.engines.model import Model
from gke_ai.catalog.engines.models import find_model
from gke_ai.catalog.quantities import GI
from gke_ai.settings import load
from gke_ai.settings.estimates.model_memory import Load, Place, load_of
from tests.support.recorder import PROJECT, ROOT

_MEMORY_GIB = {"nvidia-h100-80gb": 85_017_493_504 / GI, "nvidia-l4": 22.05, "nvidia-tesla-a100": 39.59}
_CASES: Mapping[str, dict[str, Any]] = yaml.load(
    (ROOT / "tests" / "data" / "measured_models.yaml").read_text(), yaml.CSafeLoader
)


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
        return self.measured["case"]

    def gib(self, column: str) -> float:
        return float(self.measured[f"{column}_gib"])

    @property
    def longest(self) -> int:
        """The longest sequence that vLLM took."""
        return int(self.measured["longest"])

    @cached_property
    def load(self) -> Load:
        further = dict(_CASES[self.case.partition(".")[0]])
        model = further.pop("model")
        flags = ("max_num_batched_tokens", "max_num_seqs")
        arguments = [f"--{flag.replace('_', '-')}={self.measured[flag]}" for flag in flags]
        arguments += ["--enforce-eager"] if self.measured["enforce_eager"] == "True" else []
        arguments += further.get("arguments", [])
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
        return Place(self.measured["gpu"], _MEMORY_GIB[self.measured["gpu"]] * GI)

    def computed(self, *names: str, likely: bool = True) -> float:
        parts = self.load.need(self.place).parts
        return sum((part.likely if likely else part.least) / GI for part in parts if part.name in names)

    def longest_computed(self, likely: bool) -> int:
        """The longest sequence as expected, or at most."""
        return self.load.longest(self.place, likely)


def rows() -> list[Row]:
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
    lines = ["| case | taken | at least | expected | longest | at most | expected |", f"| --- |{' --: |' * 6}"]
    for row in rows():
        taken = sum(row.gib(part) for part in PARTS)
        least, likely = (sum(row.computed(*names, likely=end) for names in PARTS.values()) for end in (False, True))
        lengths = row.longest, row.longest_computed(likely=False), row.longest_computed(likely=True)
        cells = [f"{taken:.1f}", f"{least:.1f}", f"{likely:.1f}", *(f"{length:,}" for length in lengths)]
        lines.append(f"| {' | '.join([row.case, *cells])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
