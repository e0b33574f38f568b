"""Mistakes in servers and compute classes: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from functools import partial

from tests.support.mistakes import base, problems_of, put

good = partial(base, "serving")


def test_gke_chooses_a_boot_disk_for_a_class_on_autopilot() -> None:
    configuration = good()
    put("serving.1.resources", {"ephemeralStorage": "60Gi"})(configuration)
    assert [problem.path for problem in problems_of(configuration)] == ["gke-ai:serving[1].resources.ephemeralStorage"]
    put("cluster.mode", "autopilot")(configuration)
    assert "gke-ai:serving[1].resources.ephemeralStorage" not in [
        problem.path for problem in problems_of(configuration)
    ]


def test_jetstream_needs_no_token() -> None:
    values = good()
    values["serving"] = values["serving"][2:3]
    assert problems_of(values, token_given=False) == []
