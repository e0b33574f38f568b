"""Random changes are valid and repeatable, and a comparison finds every planted wrong prediction."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gke_ai.forecast.result.forecast import Eviction, Forecast, Nodes, Start, Wait
from tests.support.rehearsal.fates import Fate
from tests.support.rehearsal.outcomes import differences as compare
from tests.support.rehearsal.seeds import generate, random_case
from tests.support.rehearsal.stack import configuration, problems
from tests.support.rehearsal.verdicts import Outcome, Verdict, differences, judge, report
from tests.support.timelines import named

SEEDS = 100
CASE = random_case(0)


def test_a_seed_always_gives_the_same_change_and_the_seeds_every_kind_of_change() -> None:
    assert [generate(seed) for seed in range(3)] == [generate(seed) for seed in range(3)]
    cases = [random_case(seed) for seed in range(SEEDS)]
    assert len({(repr(case.scenario.queues["clusterQueues"]), case.text) for case in cases}) == SEEDS
    assert all(case.scenario != case.changed for case in cases)
    kinds = (
        *("quota", "borrowingLimit", "lendingLimit", "withinClusterQueue", "reclaimWithinCohort"),
        *("FIFO", "priority class", "change their order", "the cohort", "new run", "new server"),
        *("is removed", "replicas become", "GPUs become", "pool"),
    )
    assert [kind for kind in kinds if not any(kind in case.text for case in cases)] == []


def test_the_scenarios_of_several_seeds_are_one_valid_configuration_and_a_refused_one_is_found() -> None:
    cases = [random_case(seed) for seed in range(5)]
    scenarios = [(case.namespace, case.scenario) for case in cases]
    assert problems(scenarios) == ""
    assert problems([(case.namespace, case.changed) for case in cases]) == ""
    names = {queue["name"] for queue in configuration(scenarios)["gke-ai:queues"]["clusterQueues"]}
    assert len(names) == sum(len(scenario.queues["clusterQueues"]) for _, scenario in scenarios)
    scenario = replace(CASE.scenario, queues={**CASE.scenario.queues, "flavors": []})
    assert "gke-ai:queues" in problems([("seed-0", scenario)])


TRUE = Forecast(
    stack="test",
    change="queues",
    settled=True,
    seconds=10,
    horizon=1800,
    evictions=(Eviction(named("team/job/a"), "q", 10, "Preempted", "InClusterQueue", named("team/job/z"), "l4"),),
    starts=(Start(named("team/job/z"), "q", 30, "l4"), Start(named("team/deployment/gemma"), "q", 30, "l4", count=2)),
    waits=(Wait(named("team/job/a"), "q", 10, "Pending", "2 more GPUs"),),
    nodes=(Nodes("l4", "onDemand", "g2-standard-24", "nvidia-l4", 2, before=1, came=2, went=0, after=3),),
)


def with_first(forecast: Forecast, part: str, **changes: object) -> Forecast:
    first, *others = getattr(forecast, part)
    parts: dict[str, Any] = {part: (replace(first, **changes), *others)}
    return replace(forecast, **parts)


def without(part: str) -> Callable[[Forecast], Forecast]:
    return lambda forecast: replace(forecast, **{part: ()})  # type: ignore[arg-type]


def first(part: str, **changes: object) -> Callable[[Forecast], Forecast]:
    return lambda forecast: with_first(forecast, part, **changes)


def invented(forecast: Forecast) -> Forecast:
    return replace(forecast, evictions=(*forecast.evictions, Eviction(named("team/job/b"), "q", 10, "Preempted")))


def one_too_few(forecast: Forecast) -> Forecast:
    return replace(forecast, starts=(forecast.starts[0], replace(forecast.starts[1], count=1)))


PLANTED: dict[str, tuple[Callable[[Forecast], Forecast], str]] = {
    "an eviction is missing": (without("evictions"), "team/job/a"),
    "an eviction is invented": (invented, "team/job/b"),
    "another preemptor": (first("evictions", preemptor="team/job/y"), "team/job/a"),
    "no preemptor is named": (first("evictions", preemptor=""), "team/job/a"),
    "the flavor is another": (first("starts", flavor="spot"), "team/job/z"),
    "a start is missing": (lambda forecast: replace(forecast, starts=forecast.starts[1:]), "team/job/z"),
    "one replica too few starts": (one_too_few, "team/deployment/gemma"),
    "a wait is missing": (without("waits"), "team/job/a"),
    "a node too many comes": (first("nodes", came=3, after=4), "pool l4"),
    "nodes have another capacity mode": (first("nodes", capacity="spot"), "pool l4"),
    "nodes have another machine": (first("nodes", machine="g2-standard-48"), "pool l4"),
}


def test_a_right_prediction_has_no_difference_whatever_its_times_and_texts() -> None:
    assert compare(TRUE, TRUE) == []
    other = with_first(with_first(TRUE, "starts", seconds=9, waited=9), "waits", text="no quota")
    assert compare(other, TRUE) == []


@pytest.mark.parametrize(("plant", "where"), PLANTED.values(), ids=PLANTED)
def test_a_planted_wrong_prediction_is_found(plant: Callable[[Forecast], Forecast], where: str) -> None:
    for lines in (compare(plant(TRUE), TRUE), compare(TRUE, plant(TRUE))):
        assert lines
        assert all(line.name.startswith(where) for line in lines)


def outcome(*fates: Fate, forecast: Forecast = TRUE) -> Outcome:
    return Outcome(Counter(), Counter(fates), forecast)


RIGHT = outcome(Fate("team/a", "evicted", "team/z"))
WRONG = outcome(Fate("team/b", "evicted", "team/z"))
NODES_WRONG = outcome(Fate("team/a", "evicted", "team/z"), forecast=replace(TRUE, nodes=()))


def test_the_fates_that_this_test_reads_and_the_forecast_must_both_agree() -> None:
    assert list(differences(RIGHT, RIGHT)) == []
    assert len(list(differences(WRONG, RIGHT))) == 2
    assert len(list(differences(NODES_WRONG, RIGHT))) == 1


@pytest.mark.parametrize(
    ("forecast", "again", "kind"),
    [
        *((RIGHT, RIGHT, "agrees"), (RIGHT, WRONG, "agrees"), (WRONG, RIGHT, "chance")),
        *((WRONG, WRONG, "differs"), (WRONG, None, "differs")),
    ],
)
def test_only_what_two_forks_decide_differently_is_chance(forecast: Outcome, again: Outcome | None, kind: str) -> None:
    assert judge(CASE, RIGHT, forecast, again).kind == kind


def test_a_node_that_comes_and_goes_is_told_from_one_that_stays() -> None:
    def with_nodes(came: int, went: int) -> Outcome:
        pool = TRUE.nodes[0]
        changed = replace(pool, came=came, went=went, after=pool.before + came - went)
        return replace(RIGHT, forecast=replace(TRUE, nodes=(changed, *TRUE.nodes[1:])))

    assert judge(CASE, with_nodes(3, 1), with_nodes(2, 0), None).kind == "recreated"
    assert judge(CASE, with_nodes(3, 0), with_nodes(2, 0), None).kind == "differs"
    assert judge(CASE, replace(with_nodes(3, 1), fates=WRONG.fates), with_nodes(2, 0), None).kind == "differs"


def test_the_report_names_every_prediction_that_was_wrong() -> None:
    differs, chance = (judge(random_case(seed), RIGHT, WRONG, again) for seed, again in ((7, WRONG), (8, RIGHT)))
    text = report([Verdict(CASE, "agrees"), differs, chance])
    assert text.startswith(
        "1 of 3 forecasts agree with what happened, 0 agree except for an idle node that was created again, "
        "1 were left to chance by Kueue, 1 differ."
    )
    for line in ("seed 7 differs", "seed 8 chance", "only forecast: team/b evicted by team/z"):
        assert line in text
    assert "seed 0" not in text
