"""Mistakes in LoRA adapters: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

import pytest

from gke_ai.catalog.vllm import RELEASE
from gke_ai.catalog.vllm_architectures import ARCHITECTURES, WITHOUT_LORA
from gke_ai.settings.model import LoraAdapter
from tests.test_bad_configuration import Configuration, Mistake, both, drop, is_reported_alone, problems_of, put
from tests.test_bad_model_cache import good as cached
from tests.test_model_memory import SHAPE

FIRST = "serving.0.loraAdapters.0"
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


MISTAKES = [
    Mistake(
        "an adapter without a name",
        drop(f"{FIRST}.name"),
        f"{PATH}.loraAdapters[0].name",
        "name is missing, and a LoRA adapter needs it",
        "Name of the adapter",
    ),
    Mistake(
        "a name that vLLM would split",
        put(f"{FIRST}.name", "sql=2"),
        f"{PATH}.loraAdapters[0].name",
        '"sql=2" is not a valid name of an adapter. The server would not start',
        "Use up to 128 letters",
    ),
    Mistake(
        "an adapter with the name of the model",
        put(f"{FIRST}.name", "google/gemma-2-9b-it"),
        f"{PATH}.loraAdapters[0].name",
        "the model has the name google/gemma-2-9b-it too. The server would not start",
        "Rename the adapter",
    ),
    Mistake(
        "two adapters of one name",
        put("serving.0.loraAdapters.1.name", "sql"),
        f"{PATH}.loraAdapters[1].name",
        "another adapter has the name sql too. The server would not start",
        "Rename the adapter",
    ),
    Mistake(
        "a rank that vLLM does not have",
        put(f"{FIRST}.rank", 1024),
        f"{PATH}.loraAdapters[0].rank",
        "1024 is above the maximum, 512",
        "Set it to 512 or less",
    ),
    Mistake(
        "a source that is a URL",
        put(f"{FIRST}.source", "https://huggingface.co/my-team/gemma-2-sql"),
        f"{PATH}.loraAdapters[0].source",
        "is not an id on Hugging Face. The download would fail",
        "Write OWNER/NAME",
    ),
    Mistake(
        "a folder of another bucket",
        put("serving.0.loraAdapters.2.source", "gs://others/adapters/sql"),
        f"{PATH}.loraAdapters[2].source",
        "gs://others/adapters/sql is not in bucket models, the one that the server mounts",
        "Copy the adapter to gs://models/",
    ),
    Mistake(
        "a bucket without a folder",
        put("serving.0.loraAdapters.2.source", "gs://models/../sql"),
        f"{PATH}.loraAdapters[2].source",
        '"gs://models/../sql" is not a folder of bucket models',
        "Write gs://models/FOLDER",
    ),
    Mistake(
        "a revision of a folder",
        put("serving.0.loraAdapters.2.revision", "v2"),
        f"{PATH}.loraAdapters[2].revision",
        "a folder has no revision",
        "Remove it",
    ),
    Mistake(
        "a revision that is none",
        put(f"{FIRST}.revision", "v2?"),
        f"{PATH}.loraAdapters[0].revision",
        '"v2?" is not a commit, tag or branch',
        "Write for example main",
    ),
    Mistake(
        "a folder without a mounted bucket",
        both(drop("serving.0.modelCache"), drop(f"{FIRST}.revision")),
        f"{PATH}.loraAdapters[2].source",
        "gs://models/adapters/sql is in a bucket, and the server mounts none",
        "Set modelCache with this bucket",
    ),
    Mistake(
        "a revision without a model cache",
        both(drop("serving.0.modelCache"), put("serving.0.loraAdapters.2.source", "my-team/other")),
        f"{PATH}.loraAdapters[0].revision",
        "vLLM downloads the main branch of an adapter",
        "Set modelCache",
    ),
    Mistake(
        "a reader that mounts no bucket",
        put("serving.0.modelCache.reader", "streamer"),
        f"{PATH}.modelCache.reader",
        "reader streamer mounts no bucket, and vLLM reads adapters from a folder",
        "Write fuse",
    ),
    Mistake(
        "more adapters at once than there are",
        put("serving.0.maxLoras", 4),
        f"{PATH}.maxLoras",
        "the server has 3 adapters, and 4 would run at once. The server would not start",
        "Set it to 3 or less",
    ),
    Mistake(
        "adapters at once without adapters",
        both(drop("serving.0.loraAdapters"), put("serving.0.maxLoras", 1)),
        f"{PATH}.maxLoras",
        "the server has 0 adapters",
        "Remove it, or add loraAdapters",
    ),
    Mistake(
        "a flag that the key sets",
        put("serving.0.arguments", ["--max-lora-rank=64"]),
        f"{PATH}.arguments",
        "loraAdapters sets max-lora-rank. The server would get it twice",
        f"Remove it and set {PATH}.loraAdapters",
    ),
    Mistake(
        "adapters of a model whose architecture takes none",
        put("serving.0.modelShape", {**SHAPE, "architecture": "FalconForCausalLM"}),
        f"{PATH}.loraAdapters",
        f"vLLM {RELEASE} has no LoRA for FalconForCausalLM, the architecture of google/gemma-2-9b-it. The server would",
        "Remove loraAdapters, or choose another model or image",
    ),
    Mistake(
        "adapters of a model in the catalog whose architecture takes none",
        put("serving.0.model", "google/gemma-3n-E4B-it"),
        f"{PATH}.loraAdapters",
        f"vLLM {RELEASE} has no LoRA for Gemma3nForConditionalGeneration",
        "Remove loraAdapters",
    ),
    Mistake(
        "adapters that leave no memory",
        put(f"{FIRST}.rank", 512),
        f"{PATH}.gpus",
        "3 adapters 9.7",
        "Set gpus to 2",
    ),
]


def test_good_adapters_have_no_problem() -> None:
    assert problems_of(good()) == []


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_each_mistake_is_reported_alone_with_its_remedy(mistake: Mistake) -> None:
    is_reported_alone(mistake, good())


def test_every_key_of_an_adapter_has_a_mistake() -> None:
    paths = {mistake.path.rpartition(".")[2] for mistake in MISTAKES}
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
