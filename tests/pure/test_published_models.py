"""The sizes of models that the program computes, beside logs of vLLM, sizes of files and the functions of vLLM."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from gke_ai.catalog.engines.model import Model
from gke_ai.catalog.engines.model_memory import kv_cache_bytes, weights_bytes
from gke_ai.catalog.engines.models import find_model
from gke_ai.catalog.engines.vllm import CONCURRENT_BATCHES
from gke_ai.catalog.quantities import GI
from gke_ai.settings import load
from gke_ai.settings.estimates import model_memory
from gke_ai.settings.estimates.model_memory import Load, load_of
from tests.support.mistakes import vllm
from tests.support.recorder import PROJECT, ROOT

Row = Mapping[str, Any]
ROWS: list[Row] = yaml.load((ROOT / "tests/data/published_models.yaml").read_text(), yaml.CSafeLoader)
TOLERANCE = 0.02
# How the rows differ: what each of them must have among the models
KINDS = ("AWQ", "FP8", "GPTQ", "gpt-oss", "gemma", "Llama", "Llama-4", "Qwen", "DeepSeek", "mistralai", "Kimi", "phi")


def model_of(row: Row) -> Model:
    model = find_model(row["model"])
    assert model is not None, row["model"]
    return model if row.get("windows", True) else replace(model, sliding_window=None)


def figures(row: Row) -> dict[str, tuple[float, float]]:
    """The figures of a row: what was published, and what the program computes, in bytes."""
    model, gpus = model_of(row), row.get("gpus", 1)
    result: dict[str, tuple[float, float]] = {}
    if "weights" in row:
        files = row["kind"] == "file"
        seen = model.loaded_gib_on_hopper if row.get("gpu") == "nvidia-h100-80gb" else model.loaded_gib
        whole = replace(model, unloaded=0) if files else model
        result["weights"] = row["weights"] * GI, weights_bytes(whole, gpus, loaded_gib=None if files else seen)
    if cache := row.get("cache"):
        size = kv_cache_bytes(model, cache["tokens"], gpus, in_flight=CONCURRENT_BATCHES * cache.get("batch", 0))
        result["KV cache"] = cache.get("bytes", cache.get("gib", 0) * GI), size
    if free := row.get("free"):
        share = f"--gpu-memory-utilization={free['utilization']}"
        arguments = [share, *(["--enforce-eager"] if row.get("eager") else [])]
        values = vllm(model=row["model"], accelerator=row["gpu"], gpus=gpus, maxModelLen=4096, arguments=arguments)
        (server,) = load(values, PROJECT).servers
        loaded, (place, *_) = load_of(server), model_memory.places(server)
        assert isinstance(loaded, Load)
        need = loaded.need(place)
        result["free for the KV cache"] = free["gib"] * GI, loaded.available(place) - need.likely + need.kv_cache
    return result


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['model']} {row['kind']}")
def test_computed_size_is_the_published_one(row: Row) -> None:
    for subject, (published, computed) in figures(row).items():
        assert computed == pytest.approx(published, rel=row.get("tolerance", TOLERANCE)), subject


def test_rows_have_a_source_a_reason_for_more_tolerance_and_all_kinds_of_weights() -> None:
    for row in ROWS:
        assert row["source"].startswith("https://"), row
        assert ("tolerance" in row) == ("reason" in row), row
    models = {row["model"] for row in ROWS}
    assert len(models - {row["model"] for row in ROWS if row.get("given")}) >= 20
    for kind in KINDS:
        assert any(kind in model for model in models), kind
