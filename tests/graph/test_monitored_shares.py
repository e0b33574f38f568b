"""Charts of shares and the alert for a starved queue, which fires in a real Prometheus."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from emulator.pulumi.plugin import decode, encode
from gke_ai.catalog.engines import dashboards
from gke_ai.components.monitoring import SystemMonitoring
from tests.support.prometheus import Prometheus, Series, running
from tests.support.recorder import PROJECT, Record, configuration, shared_record

Build = Callable[..., Record]
HERE = {"cluster": "ai", "flavor": "h100", "resource": "nvidia.com/gpu"}
N, INFINITE = 80, float("inf")


def monitored(build: Build, **parts: Any) -> Record:
    return build(SystemMonitoring, {"project": PROJECT, "cluster": "ai", "queues": True, **parts})


def titles(built: Record, kind: str) -> set[str]:
    inputs = [decode(encode(resource.inputs)) for resource in built.all(kind)]
    return {item.get("displayName") or json.loads(item["dashboardJson"])["displayName"] for item in inputs}


def test_only_a_stack_whose_queues_share_quota_has_charts_and_an_alert_of_it(build: Build) -> None:
    assert "ai: shares" not in titles(monitored(build), "Dashboard")
    assert "ai: a queue is starved" not in titles(monitored(build), "AlertPolicy")
    assert "ai: shares" in titles(monitored(build, cohorts=True), "Dashboard")
    assert "ai: a queue is starved" in titles(monitored(build, cohorts=True), "AlertPolicy")
    by_usage = monitored(build, past_usage=True)
    assert "ai: shares" in titles(by_usage, "Dashboard")
    assert "ai: a queue is starved" not in titles(by_usage, "AlertPolicy")
    assert "ai: shares" not in titles(monitored(build, cohorts=True, queues=False), "Dashboard")


def test_the_example_with_a_cohort_monitors_its_shares() -> None:
    built = shared_record({**configuration("Pulumi.prod.yaml"), "gke-ai:monitoring": {}}, True)
    assert any(title.endswith(": shares") for title in titles(built, "Dashboard"))


def test_what_a_queue_borrows_and_lends_is_drawn_and_an_infinite_share_has_no_line(tmp_path: Path) -> None:
    charts = {chart.title: chart.lines() for chart in dashboards.share_charts("ai", True, True)}
    with running(tmp_path) as prometheus:
        prometheus.take(
            [
                *queue("a", 4, 7),
                *queue("b", 8, 2),
                *queue("c", 8, 1, lending=3),
                *(Series("kueue_cluster_queue_weighted_share", {"cluster": "ai", "cluster_queue": name}, [share] * N)
                  for name, share in (("a", 250.0), ("b", 0.0), ("c", float("nan")))),
                *(Series("kueue_cohort_weighted_share", {"cluster": "ai", "cohort": name}, [share] * N)
                  for name, share in (("team", 125.0), ("zero", INFINITE))),
                Series("kueue_local_queue_admission_fair_sharing_usage", {"cluster": "ai", "name": "lq"}, [3.5] * N),
            ]
        )  # fmt: skip

        def values(title: str) -> dict[str, float]:
            lines = [line for key, chart in charts.items() if key.startswith(title) for line in chart]
            found = [series for line in lines for series in prometheus.query(line)]
            names = ("cluster_queue", "cohort", "name")
            return {
                next(item["metric"][name] for name in names if name in item["metric"]): float(item["value"][1])
                for item in found
            }

        assert values("Accelerators borrowed") == {"a": 3.0}
        assert values("Unused accelerators") == {"b": 6.0, "c": 3.0}
        assert values("Share") == {"a": 250.0, "b": 0.0, "team": 125.0}
        assert values("Past usage") == {"lq": 3.5}


def queue(
    name: str,
    nominal: float,
    used: float,
    pending: float = 0,
    lending: float = INFINITE,
    root: str = "all",
    since: int = 0,
    **labels: str,
) -> list[Series]:
    """Kueue's metrics of a cluster queue: its workloads have waited since a minute."""
    here = {**HERE, "cluster_queue": name, "cohort": "team", **labels}
    waits = {"cluster": here["cluster"], "cluster_queue": name, "resource": here["resource"]}
    info = {"cluster": here["cluster"], "cluster_queue": name, "parent_cohort": "team", "root_cohort": root}
    amounts = {"nominal_quota": nominal, "resource_reservation": used, "resource_usage": used, "lending_limit": lending}
    return [
        *(Series(f"kueue_cluster_queue_{metric}", here, [value] * N) for metric, value in amounts.items()),
        Series("kueue_cluster_queue_resource_pending", waits, [0.0] * since + [pending] * (N - since)),
        Series("kueue_cluster_queue_info", info, [1.0] * N),
    ]


def quota(amount: float, root: str = "all", **labels: str) -> Series:
    """Kueue's metric of the quota of a whole tree. It leaves out what its members do not lend."""
    return Series("kueue_cohort_subtree_quota", {**HERE, "cohort": root, **labels}, [amount] * N)


STARVED: Mapping[str, tuple[list[Series], set[str]]] = {
    "others use its quota": ([quota(8), *queue("a", 4, 1, 2), *queue("b", 4, 7)], {"a"}),
    "nothing of it waits": ([quota(8), *queue("a", 4, 1), *queue("b", 4, 7)], set()),
    "it uses all of its own": ([quota(8), *queue("a", 4, 4, 2), *queue("b", 4, 4)], set()),
    "what it lacks is free": ([quota(8), *queue("a", 4, 1, 2), *queue("b", 4, 4)], set()),
    "another resource waits": (
        [quota(8), *queue("a", 4, 1), *queue("b", 4, 7), *queue("a", 9, 9, 5, resource="cpu")],
        set(),
    ),
    "the quota of a cohort is free": ([quota(10), *queue("a", 4, 1, 8), *queue("b", 4, 6)], set()),
    "another one lends nothing, and uses all of it": (
        [quota(4), *queue("a", 4, 2, 4), *queue("b", 8, 8, lending=0)],
        set(),
    ),
    "the tree of another cluster": ([quota(8), *queue("a", 4, 1, 2), *queue("b", 4, 7, cluster="other")], set()),
    "another tree": ([quota(4), quota(4, "else"), *queue("a", 4, 1, 2), *queue("b", 4, 7, root="else")], set()),
    "for half an hour": ([quota(8), *queue("a", 4, 1, 2, since=50), *queue("b", 4, 7)], set()),
    "three levels": ([quota(8), *queue("a", 4, 0, 2), *queue("b", 2, 4), *queue("c", 2, 4)], {"a"}),
}


@pytest.mark.parametrize("case", STARVED)
def test_alert_fires_for_a_queue_that_waits_while_others_use_its_quota(case: str, build: Build, tmp_path: Path) -> None:
    series, starved = STARVED[case]
    inputs = [decode(encode(item.inputs)) for item in monitored(build, cohorts=True).all("AlertPolicy")]
    (policy,) = (item for item in inputs if item["displayName"] == "ai: a queue is starved")
    (condition,) = (item["conditionPrometheusQueryLanguage"] for item in policy["conditions"])
    assert condition["duration"] == "3600s"
    with running(tmp_path) as prometheus:
        prometheus.take(series)
        assert prometheus.fires(condition) == bool(starved)
        assert named(prometheus, condition) >= starved


def named(prometheus: Prometheus, condition: Mapping[str, Any]) -> set[str]:
    return {series["metric"]["cluster_queue"] for series in prometheus.query(condition["query"])}
