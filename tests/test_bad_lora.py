"""Mistakes in LoRA adapters: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

import pytest

from gke_ai.catalog.vllm_architectures import ARCHITECTURES, WITHOUT_LORA
from gke_ai.settings.model import LoraAdapter
from tests.mistakes import Configuration, of_subject, problems_of
from tests.test_bad_model_cache import good as cached
from tests.test_model_memory import SHAPE

PATH = "gke-ai:serving[0]"


def good() -> Configuration:
    """A vLLM server with three adapters, of which one is a folder of its bucket; nothing is wrong."""
    values = cached()
    values["serving"][0]["loraAdapters"] = [
        {"name": "sql", "source": "my-team/gemma-2-sql", "revision": "v2", "rank": 8},
        {"name": "support", "source": "my-team/gemma-2-support"},
        {"name": "folder", "source": "gs://models/adapters/sql"},
    ]
    return values


def test_good_adapters_have_no_problem() -> None:
    assert problems_of(good()) == []


def test_every_key_of_an_adapter_has_a_mistake() -> None:
    paths = {mistake.path.rpartition(".")[2] for mistake in of_subject("lora")}
    assert {field.alias for field in LoraAdapter.model_fields.values()} <= paths


@pytest.mark.parametrize("engine", ["vllm-tpu", "tgi", "jetstream"])
def test_adapters_of_other_engines_are_refused(engine: str) -> None:
    values = good()
    values["serving"][0]["engine"] = engine
    assert f"{PATH}.loraAdapters" in {problem.path for problem in problems_of(values)}


def test_image_of_the_user_may_have_lora_for_any_architecture() -> None:
    values = good()
    shape = {**SHAPE, "architecture": "FalconForCausalLM"}
    values["serving"][0] |= {"modelShape": shape, "image": "registry.example/vllm:1"}
    assert problems_of(values) == []


def test_architecture_counts_where_memory_is_not_checked() -> None:
    values = good()
    shape = {**SHAPE, "architecture": "FalconForCausalLM"}
    values["serving"][0] |= {"modelShape": shape, "arguments": ["--dtype=float16"]}
    assert [problem.path for problem in problems_of(values)] == [f"{PATH}.loraAdapters"]


def test_architectures_without_lora_are_those_of_the_pinned_release() -> None:
    assert WITHOUT_LORA < ARCHITECTURES
    assert "GemmaForCausalLM" not in WITHOUT_LORA


def test_flags_of_adapters_are_free_without_the_key() -> None:
    values = cached()
    values["serving"][0]["arguments"] = ["--enable-lora", "--max-lora-rank=64"]
    assert problems_of(values) == []
