"""Cohorts: how much quota a queue can use, the limits of the ClusterQueue, and mistakes in borrowing and lending."""

from fractions import Fraction
from typing import Any

import pytest

from gke_ai.manifests.cluster_queue import cluster_queue
from gke_ai.ops.status.queues import quota_rows
from gke_ai.settings import load, model
from tests.support.mistakes import PROJECT, base

GPU = "nvidia.com/gpu"


def good() -> dict[str, Any]:
    """Values with workloads of any size."""
    return base("lending") | {"training": [], "serving": []}


@pytest.mark.parametrize(
    ("borrowing", "lending", "max_gpus"),
    [
        pytest.param({}, {}, 6, id="no limit"),
        pytest.param({GPU: "3"}, {}, 5, id="borrows less"),
        pytest.param({}, {GPU: "3"}, 5, id="is lent less"),
        pytest.param({GPU: "2"}, {GPU: "3"}, 4, id="borrows least"),
        pytest.param({GPU: "3"}, {GPU: "2"}, 4, id="is lent least"),
        pytest.param({GPU: "100"}, {}, 6, id="limit above all"),
        pytest.param({"cpu": "0"}, {}, 6, id="limit of another resource"),
    ],
)
def test_maximum_of_a_queue_includes_loans(borrowing: dict[str, str], lending: dict[str, str], max_gpus: int) -> None:
    values = good()
    queues = values["queues"]["clusterQueues"]
    queues[0]["flavors"][0]["lendingLimit"], queues[1]["flavors"][0]["borrowingLimit"] = lending, borrowing
    ((quota, amounts),) = load(values, PROJECT).cluster_queues[1].limits()
    assert (quota.section.flavor, amounts[GPU]) == ("l4", Fraction(max_gpus))
    assert amounts["cpu"] == (20 if "cpu" in borrowing else 60)


def test_queue_without_a_cohort_borrows_nothing() -> None:
    values = good()
    for queue in values["queues"]["clusterQueues"]:
        queue["flavors"][0] = {key: queue["flavors"][0][key] for key in ("flavor", "quota")}
        del queue["cohort"]
    for queue, own in zip(load(values, PROJECT).cluster_queues, (4, 2), strict=True):
        ((_, amounts),) = queue.limits()
        assert amounts[GPU] == own


def test_cluster_queue_has_only_the_configured_limits() -> None:
    nominal = {"cpu": "20", GPU: "2", "memory": "80Gi"}
    lent = {GPU: "0", "cpu": "10"}
    quota = model.FlavorQuota(flavor="l4", quota=nominal, borrowing_limit={GPU: "4"}, lending_limit=lent)
    spec = cluster_queue(model.ClusterQueue(name="training", cohort="l4", flavors=[quota]), [nominal])
    assert spec["cohortName"] == "l4"
    assert spec["resourceGroups"][0]["flavors"][0]["resources"] == [
        {"name": "cpu", "nominalQuota": "20", "lendingLimit": "10"},
        {"name": GPU, "nominalQuota": "2", "borrowingLimit": "4", "lendingLimit": "0"},
        {"name": "memory", "nominalQuota": "80Gi"},
    ]


def test_status_shows_borrowed_quota() -> None:
    flavor = {"name": "l4", "resources": [{"name": GPU, "nominalQuota": "4"}]}
    queue: Any = {"metadata": {"name": "training"}, "spec": {"resourceGroups": [{"flavors": [flavor]}]}}
    for taken, shown in (
        ({"total": "8", "borrowed": "4"}, "8, 4 borrowed"),
        ({"total": "4", "borrowed": "0"}, "4"),
        ({"total": "4"}, "4"),
    ):
        queue["status"] = {"flavorsReservation": [{"name": "l4", "resources": [{"name": GPU, **taken}]}]}
        assert list(quota_rows([queue])) == [("training", "l4", GPU, shown, "4")]
