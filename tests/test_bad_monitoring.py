"""Mistakes in monitoring: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.test_bad_configuration import Configuration, Mistake, both, drop, is_reported_alone, problems_of, put
from tests.test_bad_configuration import good as mixed

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
        "an e-mail address for a channel",
        put("monitoring.channels", ["oncall@example.com"]),
        "gke-ai:monitoring.channels[0]",
        "oncall@example.com is not a notification channel. Google would refuse the alerts",
        "gcloud beta monitoring channels list",
        good,
    ),
    Mistake(
        "the id of a channel alone",
        put("monitoring.channels.+", "1234567890"),
        "gke-ai:monitoring.channels[1]",
        "1234567890 is not a notification channel. Google would refuse the alerts",
        "projects/PROJECT/notificationChannels/NUMBER",
        good,
    ),
    Mistake(
        "one channel twice",
        put("monitoring.channels.+", CHANNEL),
        "gke-ai:monitoring.channels[1]",
        "It would be notified once",
        "Remove one of them",
        good,
    ),
    Mistake(
        "more channels than Google tells",
        put("monitoring.channels", [f"{CHANNEL}{index}" for index in range(17)]),
        "gke-ai:monitoring.channels",
        "there are 17 channels, and Google allows 16 per alert. It would refuse the alerts",
        "Combine channels",
        good,
    ),
    Mistake(
        "neither dashboards nor alerts",
        put("monitoring", {"dashboards": False, "alerts": False}),
        "gke-ai:monitoring.dashboards",
        "dashboards and alerts are both false. This section would create nothing",
        "Remove gke-ai:monitoring, or set one of them to true",
        good,
    ),
    Mistake(
        "channels of alerts that are off",
        put("monitoring.alerts", False),
        "gke-ai:monitoring.channels",
        "channels needs alerts, and alerts is false. There would be no alert",
        "Remove it, or remove alerts: false",
        good,
    ),
    Mistake(
        "a limit of an alert that is off",
        both(drop("monitoring.channels"), put("monitoring.alerts", False), put("monitoring.queueStuckMinutes", 30)),
        "gke-ai:monitoring.queueStuckMinutes",
        "alerts is false",
        "Remove it, or remove alerts: false",
        good,
    ),
    Mistake(
        "nothing to watch",
        put("monitoring", {}),
        "gke-ai:monitoring",
        "no queue, no server, no Job and no accelerator",
        "Remove gke-ai:monitoring until there is something to monitor",
        bare,
    ),
    Mistake(
        "an alert on servers without one",
        both(drop("serving"), put("monitoring.serverDownMinutes", 10)),
        "gke-ai:monitoring.serverDownMinutes",
        "the stack has no server",
        "Remove it",
        good,
    ),
    Mistake(
        "an alert on queues without any",
        both(
            drop("queues"),
            drop("serving.0.queue"),
            drop("serving.0.priorityClass"),
            drop("training.0.queue"),
            drop("training.0.priorityClass"),
            put("monitoring.preemptionsPerHour", 3),
        ),
        "gke-ai:monitoring.preemptionsPerHour",
        "the stack has no cluster queue",
        "Remove it",
        good,
    ),
    Mistake(
        "a queue that is stuck for longer than Google looks back",
        put("monitoring.queueStuckMinutes", 2000),
        "gke-ai:monitoring.queueStuckMinutes",
        "1410",
        "",
        good,
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake_in_monitoring_is_reported_once_with_path_cause_and_remedy(mistake: Mistake) -> None:
    is_reported_alone(mistake, mistake.base())


def test_a_monitored_stack_is_good() -> None:
    assert problems_of(good()) == []


def test_unparsed_section_is_not_reported_as_missing() -> None:
    values = bare()
    values["serving"] = [{"name": "gemma", "model": "google/gemma-2-9b-it", "modell": ""}]
    assert "gke-ai:monitoring" not in [problem.path for problem in problems_of(values)]
