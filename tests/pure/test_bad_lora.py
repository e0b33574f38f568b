"""Mistakes in LoRA adapters: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from functools import partial

import pytest

from gke_ai.catalog.engines.vllm_architectures import ARCHITECTURES, WITHOUT_LORA
from gke_ai.settings.model import LoraAdapter
from tests.support.mistakes import SHAPE, base, of_subject, problems_of

PATH = "gke-ai:serving[0]"


good = partial(base, "lora")


def test_every_key_of_an_adapter_has_a_mistake() -> None:
    paths = {mistake.path.rpartition(".")[2] for mistake in of_subject("lora")}
    assert {field.alias for field in LoraAdapter.model_fields.values()} <= paths


@pytest.mark.parametrize("engine", ["vllm-tpu", "tgi", "jetstream"])
def test_adapters_of_other_engines_are_refused(engine: str) -> None:
    values = good()
    values["serving"][0]["engine"] = engine
    assert f"{PATH}.loraAdapters" in {problem.path for problem in problems_of(values)}


def test_architecture_counts_where_memory_is_not_checked() -> None:
    values = good()
    shape = {**SHAPE, "architecture": "FalconForCausalLM"}
    values["serving"][0] |= {"modelShape": shape, "arguments": ["--dtype=float16"]}
    assert [problem.path for problem in problems_of(values)] == [f"{PATH}.loraAdapters"]


def test_architectures_without_lora_are_those_of_the_pinned_release() -> None:
    assert WITHOUT_LORA < ARCHITECTURES
    assert "GemmaForCausalLM" not in WITHOUT_LORA
