"""Mistakes with training jobs: each is found, alone, at its path, with a remedy."""

from __future__ import annotations

from functools import partial

from gke_ai.settings.model import TrainingRun
from tests.support.mistakes import base, good, of_subject, problems_of

training = partial(base, "training", "training")


def test_two_runs_do_not_share_a_directory() -> None:
    values = training()
    values["training"].append({**values["training"][0], "name": "other", "resumeFrom": "pretrain/second"})
    (problem,) = problems_of(values)
    assert problem.path == "gke-ai:training[1].checkpoints.path"
    assert "pretrain writes its checkpoints to the same folder of bucket checkpoints" in problem.cause
    assert "Write another path, or remove it" in problem.remedy


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


def test_a_run_without_a_token_needs_none() -> None:
    values = training()
    del values["hfTokenSecret"], values["serving"], values["training"][0]["tokenSecret"]
    assert problems_of(values, token_given=False) == []
