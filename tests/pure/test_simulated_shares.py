"""Shares of local queues beside their weights, and what other victims of preemption would have lost."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from gke_ai import settings
from gke_ai.forecast.render import shares as words
from gke_ai.forecast.render.markdown import simulated
from gke_ai.forecast.result.simulation import LOCAL, Simulation, parse
from gke_ai.forecast.simulate.compared import Side, simulation, written_days
from gke_ai.forecast.simulate.giving_way import least_lost, unsaved
from gke_ai.forecast.simulate.kueue import configuration
from gke_ai.forecast.simulate.objects import Object, Queues
from gke_ai.forecast.simulate.replay import Replay
from gke_ai.forecast.simulate.result import day
from gke_ai.forecast.simulate.run import Run
from gke_ai.forecast.simulate.shares import contended, parts_by_weight, shares
from tests.support.simulation.fake import FirstComeFirstServed
from tests.support.simulation.theory import run
from tests.support.simulation.week import configurations, quota, trace

L4 = [{"name": "l4", "accelerator": "nvidia-l4"}]


def queues(**keys: Any) -> Queues:
    return Queues(settings.ResolvedStack(settings.Settings.model_validate({"queues": {"flavors": L4, **keys}})))


def held(number: int, team: str, spans: list[tuple[float, float]], accelerators: int = 1, time: float = 0.0) -> Run:
    """A run that held quota at these times, and ended."""
    row = replace(run(time, 1), queue=f"{team}/gpus", accelerators=accelerators)
    times: Any = {"admitted": [*spans], "spans": [*spans], "flavors": ["l4"] * len(spans)}
    return Run(number, row, team, **times, ended=bool(spans))


def test_only_hours_in_which_all_wait_count() -> None:
    assert contended([[(0, 10), (8, 20)], [(5, 12), (15, 30)]]) == [(5, 12), (15, 20)]
    assert contended([[(0, 10)], []]) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("arrival", {}),
        ("fair", {"team-a/gpus": 3 / 6, "team-b/gpus": 2 / 6, "team-c/gpus": 1 / 6}),
        ("usage", {"team-a/gpus": 3 / 6, "team-b/gpus": 2 / 6, "team-c/gpus": 1 / 6}),
    ],
)
def test_the_part_by_weight_follows_fair_sharing_or_past_usage(name: str, expected: dict[str, float]) -> None:
    own = queues(**configurations()[name])
    (tree,) = {*own.trees.values()}
    assert parts_by_weight(own, tree) == pytest.approx(expected)


def test_a_queue_has_its_own_quota_and_by_weight_what_the_cohorts_above_it_have() -> None:
    def queue(name: str, cohort: str, gpus: int, weight: str) -> dict[str, Any]:
        flavors = [{"flavor": "l4", "quota": quota(gpus)}]
        return {"name": name, "cohort": cohort, "flavors": flavors, "fairSharing": {"weight": weight}}

    cohorts = [
        {"name": "company", "flavors": [{"flavor": "l4", "quota": quota(12)}]},
        {"name": "research", "parent": "company", "fairSharing": {"weight": "2"}},
    ]
    members = [queue("x", "research", 4, "3"), queue("y", "research", 0, "1"), queue("z", "company", 4, "1")]
    local = [{"name": "gpus", "namespace": name, "clusterQueue": name} for name in "xyz"]
    own = queues(cohorts=cohorts, clusterQueues=members, localQueues=local, fairSharing={})
    assert {*own.trees.values()} == {"cohort/company"}
    # Research gets 8 of the company's 12: x has 4 + 6, y 2, z 4 + 4.
    assert parts_by_weight(own, "cohort/company") == pytest.approx({"x/gpus": 0.5, "y/gpus": 0.1, "z/gpus": 0.4})


def test_the_shares_are_of_what_was_held_while_all_waited() -> None:
    own = queues(**configurations()["fair"])
    runs = [
        held(0, "team-a", [(0, 7200)], 6),
        held(1, "team-b", [(0, 3600)], 4),
        held(2, "team-c", [(0, 3600)], 2),
        *(held(3 + place, team, [(3600, 7200)]) for place, team in enumerate(("team-a", "team-b", "team-c"))),
    ]
    assert [(share.hours, share.part) for share in shares(runs, own, 7200)] == [(6, 0.5), (4, 4 / 12), (2, 2 / 12)]


def compared() -> Simulation:
    """An hour in which the first configuration gives each team as much, and the second one by weight."""

    def runs(*accelerators: int) -> list[Run]:
        teams = ("team-a", "team-b", "team-c")
        first = [
            held(n, team, [(0, 3600)], count) for n, (team, count) in enumerate(zip(teams, accelerators, strict=True))
        ]
        return [*first, *(held(3 + n, team, [(3600, 3601)]) for n, team in enumerate(teams))]

    sides = []
    for name, each in (("arrival", (12, 12, 12)), ("fair", (18, 12, 6))):
        own = queues(**configurations()[name])
        sides.append(Side(f"{name}.yaml", own, [day(own, runs(*each))]))
    result = simulation("prod", "week.csv", [1], sides, [])
    assert '"shares": [{"queue": "team-a/gpus"' in result.written(written_days(sides, [1]))
    return result


def test_the_verdict_compares_each_configuration_with_the_weights_of_the_one_that_has_some() -> None:
    assert words.sentences(compared()) == [
        "With arrival.yaml, the weights do not hold: team-a/gpus is 16.7 points below its part by weight. "
        "Kueue preempts no run. The parts are team-a/gpus 33.3%, team-b/gpus 33.3% and team-c/gpus 33.3%.",
        "With fair.yaml, the weights hold: team-a/gpus is 0.0 points below its part by weight. "
        "Kueue preempts no run. The parts are team-a/gpus 50.0%, team-b/gpus 33.3% and team-c/gpus 16.7%.",
    ]


def test_the_report_and_the_file_have_the_shares() -> None:
    result = parse(compared().written())
    assert result.figure(LOCAL, "team-a/gpus", "part") is not None
    opening, tables = simulated(result)
    assert "the weights hold" in opening
    assert "| team-a/gpus | arrival.yaml | 12.0 | 33.3% | 1 | – |" in tables
    assert "|  | fair.yaml | 18.0 | 50.0% | 3 | 50.0% |" in tables


def test_the_picture_has_an_area_for_each_team_and_lines_at_the_weights() -> None:
    text = words.drawn(compared())
    picture = ElementTree.fromstring(text)
    areas = [path for path in picture.iter() if path.tag.endswith("path") and "f-none" not in path.get("class", "")]
    dashed = [path for path in picture.iter() if path.get("stroke-dasharray")]
    assert (len(areas), len(dashed)) == (6, 4)
    assert "50.0%" in text


def test_a_day_without_weights_says_nothing_of_shares() -> None:
    own = queues(**configurations()["arrival"])
    result = simulation("prod", "t", [1], [Side("a.yaml", own, [day(own, [held(0, "team-a", [(0, 3600)])])])], [])
    assert words.sentences(result) == []
    assert "Shares" not in simulated(result)[1]


def victim(
    number: int, spans: list[tuple[float, float]], every: float, accelerators: int = 2, priority: str = ""
) -> Run:
    row = replace(run(0, 9000, checkpoint=every, priority=priority), accelerators=accelerators)
    times: Any = {"admitted": [*spans], "spans": [*spans], "flavors": ["l4"] * len(spans)}
    return Run(number, row, "team-a", **times, ended=True)


def test_what_a_stop_loses_is_the_work_since_the_last_checkpoint() -> None:
    twice = victim(0, [(0, 700), (1000, 2000)], 300)
    # 600 s are kept, so the second time begins there.
    assert [unsaved(twice, at) for at in (700, 1250, 1950, 3000)] == [100, 250, 50, 0]
    assert unsaved(victim(0, [(0, 700)], 0), 700) == 700


def test_other_victims_have_the_same_priority_and_flavor_and_enough_accelerators() -> None:
    lost = victim(0, [(0, 1000), (2000, 3000)], 0)
    saved = victim(1, [(0, 5000)], 900)
    # Instead of 1000 s, a victim would have lost the 100 s since 900 s, on 2 accelerators.
    assert least_lost([lost, saved]) == 200
    small, urgent = victim(1, [(0, 5000)], 900, accelerators=1), victim(1, [(0, 5000)], 900, priority="high")
    elsewhere = victim(1, [(0, 5000)], 900)
    elsewhere.flavors = ["spot"]
    for other in (small, urgent, elsewhere, victim(1, [(1000, 5000)], 900)):
        assert least_lost([lost, other]) == 2000
    # Of two victims at the same time, only one can have the newest checkpoint.
    assert least_lost([lost, victim(2, [(0, 1000), (2000, 3000)], 0), saved]) == 2200


def test_each_team_asks_for_more_than_its_part_of_the_week() -> None:
    hours = dict.fromkeys(("team-a", "team-b", "team-c"), 0.0)
    for row in trace():
        hours[row.queue.partition("/")[0]] += row.accelerators * row.duration / 3600
    assert all(value > 0.55 * 36 * 168 for value in hours.values()), hours


class Sampling(FirstComeFirstServed):
    """Notes what happens, in order: the clock of past usage, and what is written."""

    def __init__(self) -> None:
        super().__init__(1, "teams")
        self.noted: list[object] = []

    def sample(self, second: float, interval: float) -> None:
        self.noted.append((second, interval))

    def write(self, puts: Iterable[Object], deletes: Iterable[Object]) -> None:
        self.noted.append("write")
        super().write(puts, deletes)


def test_usage_is_counted_until_each_event_before_kueue_learns_of_it() -> None:
    rows = (replace(run(0, 100), queue="team-a/gpus"), replace(run(50, 100), queue="team-b/gpus"))
    kueue = Sampling()
    Replay(kueue, queues(**configurations()["usage"]), rows).run()
    assert kueue.noted == [(0, 300), "write", (50, 300), "write", (100, 300), "write", (200, 300), "write"]


def test_queues_ordered_by_past_usage_have_one_clock() -> None:
    usage, fair = (configurations()[name] for name in ("usage", "fair"))
    alone = {"name": "alone", "flavors": [{"flavor": "l4", "quota": quota(1)}]}
    assert len(queues(**{**usage, "clusterQueues": [*usage["clusterQueues"], alone]}).groups()) == 1
    assert len(queues(**{**fair, "clusterQueues": [*fair["clusterQueues"], alone]}).groups()) == 2


def test_kueue_gets_the_cohorts_the_weights_and_the_settings_of_its_manager() -> None:
    fair, usage = (queues(**configurations()[name]) for name in ("fair", "usage"))
    items = [item for _, item in fair.objects()]
    kinds = [item["kind"] for item in items]
    assert kinds.index("Cohort") < kinds.index("ClusterQueue")
    weights = {item["metadata"]["name"]: item["spec"].get("fairSharing") for item in items if "Queue" in item["kind"]}
    assert weights == {"team-a": {"weight": "3"}, "team-b": {"weight": "2"}, "team-c": {"weight": "1"}, "gpus": None}
    assert configuration(fair)["fairSharing"] == {"preemptionStrategies": ["LessThanInitialShare"]}
    local = [item["spec"]["fairSharing"]["weight"] for _, item in usage.objects() if item["kind"] == "LocalQueue"]
    (teams,) = [item["spec"] for _, item in usage.objects() if item["kind"] == "ClusterQueue"]
    assert (local, teams["admissionScope"]) == (["3", "2", "1"], {"admissionMode": "UsageBasedAdmissionFairSharing"})
    assert configuration(usage)["admissionFairSharing"]["usageHalfLifeTime"] == "86400s"


def test_generated_runs_of_a_queue_without_quota_ask_for_what_it_may_borrow() -> None:
    assert {source.accelerators for source in queues(**configurations()["fair"]).sources()} == {4}
