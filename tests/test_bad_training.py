"""Mistakes with training jobs: each is found, alone, at its path, with a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from gke_ai.settings import load
from gke_ai.settings.model import TrainingRun
from tests.mistakes import (
    PROJECT,
    TOKEN,
    Configuration,
    Mistake,
    good,
    of_subject,
    problems_of,
    put,
)

RUN = "training.0"


def training() -> Configuration:
    """A run of two pods that reads one bucket and writes its checkpoints to another."""
    values = good()
    values["hfTokenSecret"] = "hf-token"
    values["buckets"] = [
        {"name": "datasets", "grants": [{"namespace": "llm", "role": "roles/storage.objectViewer"}]},
        {"name": "checkpoints", "grants": [{"namespace": "llm"}]},
    ]
    values["training"] = [
        {
            "kind": "job",
            "name": "pretrain",
            "queue": "lq",
            "priorityClass": "low",
            "pool": "l4",
            "image": "registry.example.com/pretrain:1.0.0",
            "command": ["torchrun", "train.py"],
            "args": ["--data=/data"],
            "pods": 2,
            "gpusPerPod": 2,
            "env": {"LOG_LEVEL": "info"},
            "resources": {"cpu": 8, "memory": "32Gi", "ephemeralStorage": "10Gi"},
            "volumes": [{"bucket": "datasets", "mountPath": "/data", "readOnly": True}],
            "checkpoints": {"bucket": "checkpoints", "path": "pretrain/first", "keep": 3, "mountPath": "/saved"},
            "resumeFrom": "pretrain/earlier",
            "sidecarMemoryLimit": "2Gi",
            "sidecarCpu": "1",
            "sharedMemory": "16Gi",
            "rendezvousPort": 29400,
            "maxRestarts": 2,
            "ignoreDisruptions": True,
            "terminationGracePeriodSeconds": 120,
            "tokenSecret": {"name": "hf-secret"},
        }
    ]
    return values


def classed() -> Configuration:
    """The same run on nodes of a compute class, without a queue."""
    values = training()
    values["computeClasses"] = [{"name": "l4-class", "priorities": [{"machineType": "g2-standard-24"}]}]
    run = values["training"][0]
    del run["pool"], run["queue"]
    run["computeClass"] = "l4-class"
    return values


def bad(id: str, change: Any, path: str, cause: str, remedy: str, base: Any = training) -> Mistake:
    return Mistake(id, change, f"gke-ai:{path}", cause, remedy, base)


MISTAKES = [
    bad(
        "more pods than the pool has room for",
        put(f"{RUN}.pods", 4),
        "training[0].pods",
        "the JobSet runs 4 pods at once, and the pool has room for 3",
        "Make the pool larger, or request fewer pods",
        lambda: (
            {key: value for key, value in training().items() if key not in ("queues", "serving")}
            | {
                "training": [
                    {k: v for k, v in training()["training"][0].items() if k not in ("queue", "priorityClass")}
                ]
            }
        ),
    ),
    bad(
        "two runs with one directory",
        lambda values: values["training"].append(
            {**values["training"][0], "name": "other", "resumeFrom": "pretrain/second"}
        ),
        "training[1].checkpoints.path",
        "pretrain writes its checkpoints to the same folder of bucket checkpoints",
        "Write another path, or remove it",
    ),
    bad(
        "a key of a Secret that cannot be one",
        put(f"{RUN}.tokenSecret.key", "a/b"),
        "training[0].tokenSecret.key",
        '"a/b" is not a valid key of a Secret',
        "Use letters, digits",
        lambda: training() | {"serving": []},
    ),
    bad(
        "a token in plain text",
        put(f"{RUN}.env", {"WANDB": TOKEN}),
        "training[0].env.WANDB",
        "the variable contains a token in plain text",
        "Remove it, revoke the token",
    ),
]


@pytest.mark.parametrize("base", [training, classed], ids=lambda base: base.__name__)
def test_good_configuration_has_no_problem(base: Any) -> None:
    load(base(), PROJECT, token_given=False)


def test_every_key_of_a_training_job_has_a_mistake() -> None:
    reported = {
        mistake.path.removeprefix("gke-ai:training[0].").partition("[")[0] for mistake in of_subject("training")
    }
    reported = {part for path in reported for part in (path, path.partition(".")[0])}
    keys = {field.alias for name, field in TrainingRun.model_fields.items() if name in TrainingRun.__annotations__}
    assert keys - reported == set()


def test_a_run_and_a_fine_tuning_run_do_not_share_a_directory() -> None:
    values = training()
    values["training"].insert(0, good()["training"][0])
    values["training"][0]["volume"] = {"bucket": "checkpoints"}
    values["training"][0]["modelPath"] = "/model-data/pretrain/first"
    (problem,) = problems_of(values, token_given=False)
    assert problem.path == "gke-ai:training[1].checkpoints.path"
    assert "finetune writes its checkpoints to the same folder of bucket checkpoints" in problem.cause


def test_a_run_may_read_and_write_one_bucket() -> None:
    values = training()
    values["training"][0]["volumes"][0]["bucket"] = "checkpoints"
    assert problems_of(values, token_given=False) == []


def test_a_run_without_a_token_needs_none() -> None:
    values = training()
    del values["hfTokenSecret"], values["serving"], values["training"][0]["tokenSecret"]
    assert problems_of(values, token_given=False) == []
