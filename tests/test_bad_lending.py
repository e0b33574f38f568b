"""Mistakes in borrowing and lending limits: each is reported alone, with path, cause and remedy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.test_bad_configuration import Configuration, Mistake, both, drop, is_reported_alone, problems_of, put
from tests.test_bad_configuration import good as one_queue

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


MISTAKES = [
    Mistake(
        "a limit to lending without a cohort",
        both(drop(f"{SERVING}.cohort"), drop(f"{TRAINING}.flavors.0.borrowingLimit"), put("training.0.queue", "lq")),
        "gke-ai:queues.clusterQueues[0].flavors[0].lendingLimit",
        "cluster queue serving has no cohort, so it has no queue to lend to. Kueue would refuse it",
        "Set the same gke-ai:queues.clusterQueues[0].cohort in another queue, or remove lendingLimit",
    ),
    Mistake(
        "a limit to borrowing without a cohort",
        both(drop(f"{TRAINING}.cohort"), drop(f"{SERVING}.flavors.0.lendingLimit"), put("training.0.queue", "lq")),
        "gke-ai:queues.clusterQueues[1].flavors[0].borrowingLimit",
        "cluster queue training has no cohort, so it has no queue to borrow from. Kueue would refuse it",
        "Set the same gke-ai:queues.clusterQueues[1].cohort in another queue, or remove borrowingLimit",
    ),
    Mistake(
        "a cohort that nobody else is in",
        both(put(f"{TRAINING}.cohort", "14"), drop(f"{SERVING}.flavors.0.lendingLimit"), put("training.0.queue", "lq")),
        "gke-ai:queues.clusterQueues[1].flavors[0].borrowingLimit",
        "no other queue of cohort 14 has quota for flavor l4. training has no queue to borrow from",
        "Use the same cohort and flavor in another cluster queue, or remove borrowingLimit",
    ),
    Mistake(
        "more lent than there is",
        put(f"{SERVING}.flavors.0.lendingLimit", {"nvidia.com/gpu": "5"}),
        'gke-ai:queues.clusterQueues[0].flavors[0].lendingLimit["nvidia.com/gpu"]',
        "5 of nvidia.com/gpu is more than the quota, 4. Kueue would refuse it",
        "Write at most 4",
    ),
    Mistake(
        "half a GPU borrowed",
        put(f"{TRAINING}.flavors.0.borrowingLimit", {"nvidia.com/gpu": "2500m"}),
        'gke-ai:queues.clusterQueues[1].flavors[0].borrowingLimit["nvidia.com/gpu"]',
        "2500m of nvidia.com/gpu is not a whole number",
        "Write a whole number",
    ),
    Mistake(
        "a limit of a resource without quota",
        put(f"{SERVING}.flavors.0.lendingLimit", {"nvidia.com/gpus": "3"}),
        'gke-ai:queues.clusterQueues[0].flavors[0].lendingLimit["nvidia.com/gpus"]',
        "cluster queue serving has no quota for nvidia.com/gpus in flavor l4. The limit would have no effect",
        "Did you mean nvidia.com/gpu?",
    ),
    Mistake(
        "a limit below zero",
        put(f"{TRAINING}.flavors.0.borrowingLimit", {"cpu": "-1"}),
        "gke-ai:queues.clusterQueues[1].flavors[0].borrowingLimit.cpu",
        "-1 is below zero",
        'Write for example "4"',
    ),
    Mistake(
        "a run that fits only with more than may be borrowed",
        put(f"{TRAINING}.flavors.0.borrowingLimit", {"nvidia.com/gpu": "1"}),
        "gke-ai:training[0].pods",
        "the 2 pods of training finetune together request 4 GPUs, and cluster queue training has at most 3 GPUs",
        "raise the quota",
    ),
    Mistake(
        "a run that fits only with more than others lend",
        put(f"{SERVING}.flavors.0.lendingLimit", {"nvidia.com/gpu": "1"}),
        "gke-ai:training[0].pods",
        "the 2 pods of training finetune together request 4 GPUs, and cluster queue training has at most 3 GPUs",
        "raise the quota",
    ),
    Mistake(
        "training that serving cannot take its quota back from",
        put("training.0.priorityClass", "high"),
        "gke-ai:training[0].priorityClass",
        "training finetune has priority 20, server gemma has 20, and serving lends its quota to training. "
        "Serving could not reclaim the quota that training borrows",
        "{reclaimWithinCohort: Any}",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake_is_reported_once_with_path_cause_and_remedy(mistake: Mistake) -> None:
    is_reported_alone(mistake, good())


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
