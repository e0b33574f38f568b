"""Mistakes in monitoring: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from typing import Any

from tests.mistakes import Configuration, Mistake, problems_of, put
from tests.mistakes import good as mixed

CHANNEL = "projects/my-project/notificationChannels/1234567890"


def good(**watch: Any) -> Configuration:
    """The mixed stack, monitored."""
    return {**mixed(), "monitoring": {"channels": [CHANNEL], **watch}}


def bare() -> Configuration:
    """A cluster and a bucket."""
    values = mixed()
    return {"cluster": values["cluster"], "buckets": values["buckets"], "monitoring": {}}


MISTAKES = [
    Mistake(
        "more channels than Google tells",
        put("monitoring.channels", [f"{CHANNEL}{index}" for index in range(17)]),
        "gke-ai:monitoring.channels",
        "there are 17 channels, and Google allows 16 per alert. It would refuse the alerts",
        "Combine channels",
        good,
    ),
]


def test_a_monitored_stack_is_good() -> None:
    assert problems_of(good()) == []


def test_unparsed_section_is_not_reported_as_missing() -> None:
    values = bare()
    values["serving"] = [{"name": "gemma", "model": "google/gemma-2-9b-it", "modell": ""}]
    assert "gke-ai:monitoring" not in [problem.path for problem in problems_of(values)]
