"""Mistakes in borrowing and lending limits: each is reported alone, with path, cause and remedy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.mistakes import Configuration, both, problems_of, put
from tests.mistakes import good as one_queue

QUEUES = "queues.clusterQueues"
SERVING, TRAINING = f"{QUEUES}.0", f"{QUEUES}.1"
AMOUNTS = {"cpu": "20", "memory": "80Gi", "ephemeral-storage": "100Gi", "nvidia.com/gpu": "2"}


def good() -> Configuration:
    """Serving and training share a pool of 6 GPUs by a cohort, each with a queue of its own; nothing is wrong."""
    values = one_queue()
    serving = {"cpu": "40", "memory": "160Gi", "ephemeral-storage": "200Gi", "nvidia.com/gpu": "4"}
    values["queues"]["clusterQueues"] = [
        {
            "name": "serving",
            "cohort": "l4",
            "flavors": [{"flavor": "l4", "quota": serving, "lendingLimit": {"nvidia.com/gpu": "3"}}],
        },
        {
            "name": "training",
            "cohort": "l4",
            "flavors": [{"flavor": "l4", "quota": AMOUNTS, "borrowingLimit": {"nvidia.com/gpu": "2"}}],
        },
    ]
    values["queues"]["localQueues"] = [
        {"name": "lq", "namespace": "llm", "clusterQueue": "serving"},
        {"name": "runs", "namespace": "llm", "clusterQueue": "training"},
    ]
    values["training"][0]["queue"] = "runs"
    return values


def test_each_run_that_serving_cannot_reclaim_quota_from_is_reported() -> None:
    values = good()
    put("training.0.priorityClass", "high")(values)
    values["training"].append({**values["training"][0], "name": "another"})
    assert [problem.path for problem in problems_of(values)] == [
        "gke-ai:training[0].priorityClass",
        "gke-ai:training[1].priorityClass",
    ]


def test_sharing_by_a_cohort_is_fine() -> None:
    assert problems_of(good()) == []


@pytest.mark.parametrize(
    "change",
    [
        put(f"{SERVING}.preemption", {"reclaimWithinCohort": "Any"}),
        put(f"{SERVING}.preemption", {"reclaimWithinCohort": "Never"}),
    ],
    ids=["reclaimed from any", "never reclaimed, as stated"],
)
def test_equal_priority_is_fine_where_it_does_not_decide(change: Callable[[Configuration], None]) -> None:
    values = good()
    both(put("training.0.priorityClass", "high"), change)(values)
    assert problems_of(values) == []
