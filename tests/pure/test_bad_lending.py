"""Mistakes in borrowing and lending limits: each is reported alone, with path, cause and remedy."""

from __future__ import annotations

from functools import partial

from tests.support.mistakes import base, problems_of, put

good = partial(base, "lending")


def test_each_run_that_serving_cannot_reclaim_quota_from_is_reported() -> None:
    values = good()
    put("training.0.priorityClass", "high")(values)
    values["training"].append({**values["training"][0], "name": "another"})
    assert [problem.path for problem in problems_of(values)] == [
        "gke-ai:training[0].priorityClass",
        "gke-ai:training[1].priorityClass",
    ]
