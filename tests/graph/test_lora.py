"""Servers with LoRA adapters: vLLM's flags, the Jobs that download adapters, and the memory of the GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from gke_ai.catalog.engines.model_memory import adapters_bytes
from gke_ai.catalog.engines.models import find_model
from tests.support.examples import container_of
from tests.support.recorder import PROJECT, Record, configuration, shared_record

EXAMPLE = "examples/model-cache.yaml"
BUCKET = f"models-{PROJECT}"
ADAPTERS = [
    {"name": "sql", "source": "my-team/gemma-2-sql", "revision": "v2", "rank": 8},
    {"name": "support", "source": "my-team/gemma-2-support", "rank": 33},
    {"name": "local", "source": f"gs://{BUCKET}/runs/local/"},
]


def recorded(preview: bool = False, **server: Any) -> Record:
    config = configuration(EXAMPLE)
    config["gke-ai:serving"][0] |= {"loraAdapters": ADAPTERS, **server}
    return shared_record(config, preview)


def flags(record: Record) -> list[str]:
    """The arguments from the adapters on."""
    words: list[str] = container_of(record)["args"]
    return words[words.index("--lora-modules") :]


def test_vllm_reads_adapters_from_the_folders_of_the_bucket() -> None:
    record = recorded()
    assert flags(record)[:8] == [
        "--lora-modules",
        "sql=/models/my-team/gemma-2-sql/v2",
        "support=/models/my-team/gemma-2-support/main",
        "local=/models/runs/local",
        *("--enable-lora", "--max-lora-rank=64", "--max-loras=3", "--max-cpu-loras=3"),
    ]
    assert record.outputs["servers"][0]["adapters"] == ["sql", "support", "local"]
    # Fewer adapters at once reserve less, and all stay in memory.
    assert {"--max-loras=2", "--max-cpu-loras=3"} <= {*flags(recorded(maxLoras=2))}


def test_vllm_downloads_adapters_itself_without_a_bucket_and_a_server_without_adapters_has_no_flag() -> None:
    record = recorded(modelCache=None, loraAdapters=[{"name": "sql", "source": "my-team/gemma-2-sql"}])
    assert flags(record)[:2] == ["--lora-modules", "sql=my-team/gemma-2-sql"]
    assert record.all("Job") == []
    without = recorded(loraAdapters=[])
    assert not [word for word in container_of(without)["args"] if "lora" in word]
    assert without.outputs["servers"][0]["adapters"] == []


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_server_waits_for_a_job_per_adapter_on_hugging_face(preview: bool) -> None:
    record = recorded(preview)
    jobs = record.all("Job")
    downloaded = set()
    for job in jobs:
        variables = job.inputs["spec"]["template"]["spec"]["containers"][0]["env"]
        values = {variable["name"]: variable.get("value") for variable in variables}
        downloaded.add((values["MODEL"], values["MODEL_DIRECTORY"]))
    adapters = ("my-team/gemma-2-sql/v2", "my-team/gemma-2-support/main")
    assert {(adapter.rpartition("/")[0], f"/models/{adapter}") for adapter in adapters} < downloaded
    assert len(downloaded) == len(jobs) == 3, "the model, and no Job for the adapter that is in the bucket"
    assert {f"Job {job.object_name}" for job in jobs} <= record.waits_for(record.one("Deployment"))


@pytest.mark.parametrize(
    ("name", "width", "query", "key", "feed_forward"),
    [
        ("meta-llama/Llama-3.1-8B", 4096, 4096, 1024, 14336),
        ("google/gemma-2-9b-it", 3584, 4096, 2048, 14336),
        ("google/gemma-3-27b-it", 5376, 4096, 2048, 21504),
    ],
)
def test_memory_of_adapters_is_what_vllm_reserves(
    name: str, width: int, query: int, key: int, feed_forward: int
) -> None:
    model = find_model(name)
    assert model is not None
    embeddings = 2 * (128_256 + width) if "llama" in name else 0
    for shards in (1, 4):
        divided = (2 * query + 2 * key + 3 * feed_forward) / shards
        reserved = (model.layers * (7 * width + divided) + embeddings) * 64 * 3 * 2
        assert adapters_bytes(model, shards, slots=3, rank=64) == pytest.approx(reserved, rel=0.03)


def test_memory_of_adapters_is_unknown_for_latent_attention() -> None:
    model = find_model("deepseek-ai/DeepSeek-V3")
    assert model is not None
    assert adapters_bytes(model, 8, slots=1, rank=16) == 0
