"""Compares two outcomes of the same change, each read from a whole watch: a forecast, and what happened. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from gke_ai.forecast.compare.comparison import AS_FORECAST, NOT_FORECAST, NOT_SEEN, OTHERWISE, Fact, Line, facts
from gke_ai.forecast.result.forecast import Forecast


class PoolFact(NamedTuple):
    pool: str
    capacity: str
    machine: str
    came: int
    went: int
    after: int


def pool_facts(forecast: Forecast) -> frozenset[PoolFact]:
    """Returns what happens to the pools whose nodes change."""
    return frozenset(
        PoolFact(pool.pool, pool.capacity, pool.machine, pool.came, pool.went, pool.after)
        for pool in forecast.nodes
        if pool.came or pool.went
    )


def compare(forecast: Forecast, happened: Forecast) -> list[Line]:
    """Returns a line for each workload and pool that changes in either, sorted by name."""
    return sorted([*_workloads(forecast, happened), *_pools(forecast, happened)])


def differences(forecast: Forecast, happened: Forecast) -> list[Line]:
    """Returns the lines whose verdict is not `as forecast`."""
    return [line for line in compare(forecast, happened) if line.verdict != AS_FORECAST]


def _workloads(forecast: Forecast, happened: Forecast) -> Iterator[Line]:
    sides = facts(forecast), facts(happened)
    for name in {fact.workload for side in sides for fact in side}:
        ours, theirs = ({fact: count for fact, count in side.items() if fact.workload == name} for side in sides)
        yield Line(str(name), _verdict(ours, theirs), tuple(_texts(ours)), tuple(_texts(theirs)))


def _pools(forecast: Forecast, happened: Forecast) -> Iterator[Line]:
    sides = pool_facts(forecast), pool_facts(happened)
    for key in {fact[:3] for side in sides for fact in side}:
        ours, theirs = ({fact for fact in side if fact[:3] == key} for side in sides)
        texts = [
            tuple(f"{fact.came} come, {fact.went} go, {fact.after} after" for fact in side) for side in (ours, theirs)
        ]
        yield Line(f"pool {key[0]} ({key[1]})", _verdict(ours, theirs), *texts)


def _texts(side: dict[Fact, int]) -> Iterator[str]:
    for fact, count in sorted(side.items()):
        text = str(fact).removeprefix(f"{fact.workload} ")
        yield f"{text} ({count} replicas)" if count > 1 else text


def _verdict(ours: object, theirs: object) -> str:
    if ours == theirs:
        return AS_FORECAST
    if not theirs:
        return NOT_SEEN
    return OTHERWISE if ours else NOT_FORECAST
