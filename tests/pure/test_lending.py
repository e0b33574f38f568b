"""Cohorts: how much quota a queue can use, the limits of the ClusterQueue, and mistakes in borrowing and lending."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import pytest

from gke_ai.manifests.cluster_queue import cluster_queue
from gke_ai.ops.status.queues import quota_rows
from gke_ai.settings import load, model
from tests.support.mistakes import PROJECT, base

good = partial(base, "lending")

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("borrowing", "lending", "max_gpus"),
    [
        ({}, {}, 6),
        ({GPU: "3"}, {}, 5),
        ({}, {GPU: "3"}, 5),
        ({GPU: "2"}, {GPU: "3"}, 4),
        ({GPU: "3"}, {GPU: "2"}, 4),
        ({GPU: "100"}, {}, 6),
        ({"cpu": "0"}, {}, 6),
    ],
    ids=["no limit", "borrows less", "is lent less", "borrows least", "is lent least", "limit above all", "of another"],
)
def test_maximum_of_a_queue_includes_loans(borrowing: dict[str, str], lending: dict[str, str], max_gpus: int) -> None:
    values = good()
    values["training"], values["serving"] = [], []  # of any size
    queues = values["queues"]["clusterQueues"]
    queues[0]["flavors"][0]["lendingLimit"], queues[1]["flavors"][0]["borrowingLimit"] = lending, borrowing
    ((quota, amounts),) = load(values, PROJECT).cluster_queues[1].limits()
    assert (quota.section.flavor, amounts[GPU]) == ("l4", Fraction(max_gpus))
    assert amounts["cpu"] == (20 if "cpu" in borrowing else 60)


def test_queue_without_a_cohort_borrows_nothing() -> None:
    values = good()
    values["training"], values["serving"] = [], []
    for queue in values["queues"]["clusterQueues"]:
        queue["flavors"][0] = {key: queue["flavors"][0][key] for key in ("flavor", "quota")}
        del queue["cohort"]
    for queue, own in zip(load(values, PROJECT).cluster_queues, (4, 2), strict=True):
        ((_, amounts),) = queue.limits()
        assert amounts[GPU] == own


def test_cluster_queue_has_only_the_configured_limits() -> None:
    nominal = {"cpu": "20", GPU: "2", "memory": "80Gi"}
    quota = model.FlavorQuota(
        flavor="l4", quota=nominal, borrowing_limit={GPU: "4"}, lending_limit={GPU: "0", "cpu": "10"}
    )
    spec = cluster_queue(model.ClusterQueue(name="training", cohort="l4", flavors=[quota]), [nominal])
    assert spec["cohortName"] == "l4"
    assert spec["resourceGroups"][0]["flavors"][0]["resources"] == [
        {"name": "cpu", "nominalQuota": "20", "lendingLimit": "10"},
        {"name": GPU, "nominalQuota": "2", "borrowingLimit": "4", "lendingLimit": "0"},
        {"name": "memory", "nominalQuota": "80Gi"},
    ]


@pytest.mark.parametrize(
    ("total", "borrowed", "shown"), [("8", "4", "8, 4 borrowed"), ("4", "0", "4"), ("4", None, "4")]
)
def test_status_shows_borrowed_quota(total: str, borrowed: str | None, shown: str) -> None:
    taken = {"name": GPU, "total": total} | ({"borrowed": borrowed} if borrowed else {})
    queue = {
        "metadata": {"name": "training"},
        "spec": {"resourceGroups": [{"flavors": [{"name": "l4", "resources": [{"name": GPU, "nominalQuota": "4"}]}]}]},
        "status": {"flavorsReservation": [{"name": "l4", "resources": [taken]}]},
    }
    assert list(quota_rows([queue])) == [("training", "l4", GPU, shown, "4")]
