"""Arguments of vLLM are judged as its own parser was recorded to judge them, and read as it reads them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gke_ai.catalog import vllm
from gke_ai.catalog.engines import ENGINES
from gke_ai.catalog.tables import table
from gke_ai.catalog.vllm import LORA_FLAGS
from gke_ai.settings.flags import flags_of, read
from tests.repository import ROOT

ROWS = yaml.safe_load((ROOT / "tests" / "vllm_arguments.yaml").read_text())
FILE = ENGINES["vllm"].flags


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row["line"]))
def test_the_verdict_is_that_of_the_real_parser(row: dict[str, Any]) -> None:
    mistakes = read(tuple(row["line"]), FILE).mistakes
    assert bool(mistakes) == bool(row["refused"]), (row, mistakes)


def test_the_release_has_the_flags_of_the_catalog_and_none_of_those_that_it_calls_removed() -> None:
    for name in ("vllm", "vllm-tpu"):
        engine, flags = ENGINES[name], flags_of(FILE)
        assert engine.memory is not None
        memory = engine.memory
        named = {
            *(flag.lstrip("-") for flag in engine.names.values()),
            *(*engine.aliases, *memory.changed_by, *LORA_FLAGS, *vllm.WITHOUT_IMAGES, vllm.PIPELINE_FLAG),
            *(memory.batch_flag, memory.expert_parallel_flag, memory.utilization_flag, memory.kv_cache_flag),
            *(engine.metrics_off, engine.shutdown_flag, engine.limits.running_setting),
        }
        assert {flag.removeprefix("no-") for flag in named if not flag.isupper()} <= {*flags}
        assert not {*engine.removed} & {*flags}


def test_the_flags_and_the_verdicts_are_those_of_the_pinned_release() -> None:
    assert table(FILE)["release"] == vllm.RELEASE
    assert len(ROWS) > 100
    assert all("refused" in row for row in ROWS), "run python -m maintain.real_vllm.flags"
