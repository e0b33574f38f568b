"""Arguments of vLLM are judged as its own parser was recorded to judge them, and read as it reads them."""

from time import process_time
from typing import Any

import pytest
import yaml

from gke_ai.catalog.engines import vllm
from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.engines.vllm import LORA_FLAGS
from gke_ai.catalog.tables import table
from gke_ai.settings.engine.arguments import flags_of, read
from tests.support.repository import ROOT

ROWS = yaml.safe_load((ROOT / "tests" / "data" / "vllm_arguments.yaml").read_text())
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


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (["--max_num_seqs", "64"], {"max-num-seqs": "64"}),
        (["--max-num-seqs=32", "--max-num-seqs=64"], {"max-num-seqs": "64"}),
        (["--max-num-batched-tokens=8K"], {"max-num-batched-tokens": "8192"}),
        (["-tp=2", "-q", "awq"], {"tensor-parallel-size": "2", "quantization": "awq"}),
        (["-ep"], {"enable-expert-parallel": ""}),
        (["--gpu-memory-util", "0.5"], {"gpu-memory-utilization": "0.5"}),
        (["--device-memory-utilization=.5"], {"gpu-memory-utilization": "0.5"}),
        (["--enforce-eager", "--no-enforce-eager"], {"no-enforce-eager": ""}),
        (["--seed", "-1", "--served-model-name", "a", "b"], {"seed": "-1", "served-model-name": "a b"}),
        (["-O3", "-cc.mode=3"], {"optimization-level": "3", "compilation-config": '{"mode": 3}'}),
        (["--limit-mm-per-prompt.image", "0"], {"limit-mm-per-prompt": '{"image": 0}'}),
        (["--newer_flag", "1", "--other=2"], {"newer-flag": "1", "other": "2"}),
    ],
)
def test_values_are_read_in_every_spelling(line: list[str], values: dict[str, str]) -> None:
    assert read(tuple(line), FILE).values == values


@pytest.mark.parametrize(
    "line",
    [
        *(["--x" + ".a" * 100_000 + "=1"], ["--compilation-config" + ".a" * 60 + "=" + "[" * 100_000]),
        *(["--compilation-config=" + "[" * 100_000], ["--kv-transfer-config=" + '\\"' * 60_000]),
        *(["--max-num-batched-tokens=" + "9" * 5000 + "k"], ["--max-num-batched-tokens=" + "9" * 4299 + "T"]),
        *(["--cpu-offload-gb=" + "9" * 5000], ["--no-such-flag" * 10_000], ["--max-num-seqs=x"] * 20_000),
        *([f"--unknown-{n}" for n in range(20_000)], ["x"] * 20_000, ["--served-model-name", *["a"] * 20_000]),
    ],
    ids=lambda line: f"{line[0][:30]} {len(line)}",
)
def test_hostile_arguments_are_read_in_bounded_time(line: list[str]) -> None:
    started = process_time()
    reading = read(tuple(line), FILE)
    assert all(len(mistake.remedy) < 400 for mistake in reading.mistakes)
    assert process_time() - started < 5
