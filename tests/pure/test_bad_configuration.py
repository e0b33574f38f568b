"""Mistakes that people make in a configuration: each is found, alone, at its path, with its cause and a remedy."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.settings import BadConfiguration, load
from tests.support import repository
from tests.support.mistakes import PROJECT, TOKEN, good, problems_of, put
from tests.support.recorder import configuration

SECOND_SERVER = {"name": "other", "model": "google/gemma-2-2b", "pool": "l4"}


@pytest.mark.parametrize("path", repository.examples(), ids=lambda path: path.stem)
def test_example_loads(path: Path) -> None:
    config = yaml.safe_load(path.read_text())["config"]
    values = {key.removeprefix("gke-ai:"): value for key, value in config.items() if key.startswith("gke-ai:")}
    assert load(values, PROJECT).cluster.name


def test_missing_token_and_project_name_the_ways_to_set_them() -> None:
    (problem,) = problems_of(good(), token_given=False)
    assert problem.path == "gke-ai:hfToken"
    assert "pulumi config set --secret gke-ai:hfToken" in problem.remedy
    assert "HF_TOKEN" in problem.remedy
    (problem,) = problems_of(good(), project="")
    assert problem.path == "gcp:project", "and no bad name of a bucket"
    assert "pulumi config set gcp:project" in problem.remedy


def test_every_mistake_of_a_file_is_reported_at_once() -> None:
    values = good()
    values["gpuPool"] = []
    values["cluster"]["location"] = "us-centrall1"
    values["buckets"][0]["softDeleteDays"] = 3
    values["gpuPools"][0]["gpusPerNode"] = 3
    values["queues"]["localQueues"][0]["clusterQueue"] = "gpu"
    values["serving"][0]["engine"] = "triton"
    values["serving"].append(SECOND_SERVER | {"pool": "nowhere"})
    values["training"][0]["modelPath"] = "/tmp/model"
    assert [problem.path for problem in problems_of(values, token_given=False)] == [
        *("gke-ai:gpuPool", "gke-ai:hfToken", "gke-ai:cluster.location", "gke-ai:buckets[0].softDeleteDays"),
        *("gke-ai:gpuPools[0].gpusPerNode", "gke-ai:queues.localQueues[0].clusterQueue"),
        *("gke-ai:serving[0].engine", "gke-ai:serving[1].pool", "gke-ai:training[0].modelPath"),
    ]


def keys_of(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every key of sections. Below quota and labels, keys are names."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if isinstance(key, str):
            yield (*path, key)
        if key not in ("quota", "labels"):
            yield from keys_of(inner, (*path, key))


CONFIG = configuration("Pulumi.dev.yaml")
DEV = {key.removeprefix("gke-ai:"): value for key, value in CONFIG.items() if key.startswith("gke-ai:")}


@pytest.mark.parametrize("path", [*keys_of(DEV)], ids=lambda path: ".".join(map(str, path)))
def test_a_misspelled_key_is_one_mistake_with_one_remedy(path: tuple[str | int, ...]) -> None:
    """It is no missing key, and what refers to its section is right."""
    values: Any = deepcopy(DEV)
    holder = values
    for step in path[:-1]:
        holder = holder[step]
    key = str(path[-1])
    wrong = f"{key[:-1]}x{key[-1]}"
    holder[wrong] = holder.pop(key)
    (problem,) = problems_of(values)
    assert problem.path.endswith(wrong)
    assert problem.remedy == f"Did you mean {key}?"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *(("serving.0.env", {"HF_TOKEN": value}) for value in (TOKEN, "canary value", ["canary value"])),
        *((f"serving.0.{key}", TOKEN) for key in ("engine", "gpus", "name", "pool")),
        ("serving.0.model", f"https://user:{TOKEN}@huggingface.co/x"),
        ("serving.0.resources", {"cpu": TOKEN}),
        ("gpuPools.0.capacity", {"mode": TOKEN}),
        ("gpuPools.0.capacity", {"mode": "spot", TOKEN: TOKEN}),
        *((TOKEN, TOKEN), ("hf_Token", "canary value")),
    ],
)
def test_no_message_ever_holds_a_token(path: str, value: object) -> None:
    values = good()
    put(path, value)(values)
    with pytest.raises(BadConfiguration) as caught:
        load(values, PROJECT)
    for text in (str(caught.value), repr(caught.value), repr(caught.value.problems)):
        assert TOKEN not in text
        assert "canary value" not in text


def test_message_has_the_number_of_mistakes_and_the_next_step() -> None:
    values = good()
    values["gpuPools"][0]["gpusPerNode"] = 3
    with pytest.raises(BadConfiguration) as caught:
        load(values, PROJECT)
    lines = str(caught.value).splitlines()
    assert lines[0] == "The configuration of this stack has 1 problem; nothing was changed."
    assert lines[2] == (
        "  - gke-ai:gpuPools[0].gpusPerNode: g2-standard-24 has 2 GPUs, not 3. "
        "GKE would refuse the pool. Set it to 2, or choose g2-standard-48 (4)."
    )
    assert "run the command again" in lines[-1]
