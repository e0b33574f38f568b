"""A seeded model of Google's capacity: waits for flex-start, stock-outs and Spot reclaims. Pure.

Each draw follows from the seed and a stable name, not from the order of calls. So the same seed gives the same day, and
two configurations meet the same stock-outs and reclaims. `capacity.yaml` has the figures.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache, cached_property
from itertools import count
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gke_ai.catalog.tables import read_table
from gke_ai.settings.calibration import SpotHistory

FILE = Path(__file__).with_name("capacity.yaml")
DAY, HOUR = 86_400.0, 3600.0
# A history in which Google preempted all VMs that stopped says nothing of how long they ran.
MAX_RATE = 0.99


class _Section(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, extra="forbid", frozen=True)


class Figure(_Section):
    """A figure and its source: a URL, or the assumption that it rests on."""

    value: float = Field(ge=0)
    source: str


class Wait(_Section):
    """A log-normal wait: its median in seconds, and the standard deviation of its logarithm."""

    median_seconds: float = Field(gt=0)
    sigma: float = Field(ge=0)
    source: str


class StockOuts(_Section):
    """How often capacity is lacking in a zone, for capacity modes and prefixes of machine types. Empty: any machine."""

    capacity: list[str]
    machines: list[str] = []
    share: float = Field(ge=0, lt=1)
    mean_hours: float = Field(gt=0)
    source: str

    def apply_to(self, machine: str, mode: str) -> bool:
        """Whether the figures are those of a machine type in a capacity mode."""
        return mode in self.capacity and (not self.machines or machine.startswith(tuple(self.machines)))


class Reclaims(_Section):
    """Spot reclaims: of a node per day, the share of nodes that one takes, and when users stop Spot VMs themselves."""

    per_day: Figure
    together: Figure
    stopped_after_hours: Figure


class Autoscaler(_Section):
    """What GKE's autoscaler does without capacity: pauses between attempts, and how long it waits for flex-start."""

    retry_seconds: Figure
    longest_retry_seconds: Figure
    flex_start_seconds: Figure


class CapacityFigures(_Section):
    """All figures of the model, each with its source."""

    waits: dict[str, Wait]
    stock_outs: list[StockOuts]
    reclaims: Reclaims
    autoscaler: Autoscaler


@cache
def read_figures(file: Path = FILE) -> CapacityFigures:
    """Reads the figures of the model."""
    return CapacityFigures.model_validate(read_table(file))


class Capacity:
    """The capacity of the simulated days of a seed. All times are seconds of the simulated clock.

    `begin` is the time of its second 0. Without it, no reservation ends.
    """

    def __init__(
        self,
        seed: int,
        history: Iterable[SpotHistory] = (),
        figures: CapacityFigures | None = None,
        begin: datetime | None = None,
    ) -> None:
        self.seed, self.begin = seed, begin
        self._figures = figures or read_figures()
        self._history = {entry.key: entry.rate for entry in history}
        self._changes = cache(lambda machine, mode, zone: _Sequence(self._draw_changes(machine, mode, zone)))
        self._reclaims = cache(lambda machine, zone: _Sequence(self._draw_reclaims(machine, zone)))

    @cached_property
    def flex_start_seconds(self) -> float:
        """How long GKE waits for flex-start capacity before it tries the next choice."""
        return self._figures.autoscaler.flex_start_seconds.value

    def wait(self, mode: str, name: str) -> float:
        """Returns the seconds that a request waits for capacity apart from stock-outs. 0 for most capacity modes."""
        figures = self._figures.waits.get(mode)
        if figures is None:
            return 0.0
        return self._chance(f"wait/{mode}/{name}").lognormvariate(math.log(figures.median_seconds), figures.sigma)

    def available(self, machine: str, mode: str, zone: str, at: float) -> float:
        """Returns when GKE gets a machine in a zone for which it asks at a time: at once, or by a later attempt."""
        until = self._out_until(machine, mode, zone, at)
        attempt, pause = at, self._figures.autoscaler.retry_seconds.value
        while attempt < until:
            attempt += pause
            pause = min(2 * pause, self._figures.autoscaler.longest_retry_seconds.value)
            until = self._out_until(machine, mode, zone, attempt)
        return attempt

    def stock_out(self, machine: str, mode: str, zones: Sequence[str], end: float) -> float:
        """Returns for how many seconds until `end` no zone has capacity."""
        at = out = 0.0
        while at < end:
            until = min(self._out_until(machine, mode, zone, at) for zone in zones)
            if until <= at:  # some zone has capacity, until the next stock-out of one of them
                at = min(self._next_stock_out(machine, mode, zone, at) for zone in zones)
                continue
            out += min(until, end) - at
            at = until
        return out

    def reclaim(self, machine: str, zone: str, name: str, since: float, nodes: int = 1) -> float:
        """Returns when Google reclaims a Spot node; of several nodes, the first one. Infinite: never."""
        share = 1 - (1 - self._figures.reclaims.together.value) ** nodes
        events = self._reclaims(machine, zone)
        for index in count(events.after(since)):
            at = events[index]
            if at == math.inf or self._chance(f"reclaim/{machine}/{zone}/{index}/{name}").random() < share:
                return at
        raise AssertionError

    def reclaims_per_second(self, machine: str, zone: str) -> float:
        """Returns the rate at which Google reclaims a Spot node.

        Google's history has the share p of preempted VMs among all that stopped on a day. If users stop a VM at the
        rate u, and both are independent of the VM's age, p = r / (r + u), so r = u p / (1 - p).
        """
        figures = self._figures.reclaims
        share = self._history.get((machine, zone))
        if share is None:
            return -math.log(1 - figures.per_day.value) / DAY
        share = min(share, MAX_RATE)
        return share / (1 - share) / (figures.stopped_after_hours.value * HOUR)

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}/{name}")

    def _out_until(self, machine: str, mode: str, zone: str, at: float) -> float:
        """The end of the stock-out at a time, or the time itself."""
        changes = self._changes(machine, mode, zone)
        index = changes.after(at)
        return changes[index] if index % 2 else at  # an odd number of changes since 0: out

    def _next_stock_out(self, machine: str, mode: str, zone: str, at: float) -> float:
        changes = self._changes(machine, mode, zone)
        index = changes.after(at)
        return changes[index + index % 2]

    def _draw_changes(self, machine: str, mode: str, zone: str) -> Iterator[float]:
        """The times at which stock-outs begin and end, in turn. The first one begins at 0 if the day begins with it."""
        figures = next((entry for entry in self._figures.stock_outs if entry.apply_to(machine, mode)), None)
        if figures is None or not figures.share:
            return
        chance = self._chance(f"stock-out/{mode}/{machine}/{zone}")
        lasts = figures.mean_hours * HOUR
        between = lasts * (1 - figures.share) / figures.share
        at = 0.0 if chance.random() < figures.share else chance.expovariate(1 / between)
        while True:
            yield at
            at += chance.expovariate(1 / lasts)
            yield at
            at += chance.expovariate(1 / between)

    def _draw_reclaims(self, machine: str, zone: str) -> Iterator[float]:
        """When Google reclaims Spot capacity of a machine type in a zone: a Poisson process."""
        rate = self.reclaims_per_second(machine, zone) / self._figures.reclaims.together.value
        chance, at = self._chance(f"reclaims/{machine}/{zone}"), 0.0
        while rate:
            at += chance.expovariate(rate)
            yield at


class _Sequence:
    """Increasing times, drawn as far as they are asked for. Infinite after the last one."""

    def __init__(self, draw: Iterator[float]) -> None:
        self._draw = draw
        self._times: list[float] = []

    def __getitem__(self, index: int) -> float:
        while len(self._times) <= index:
            self._times.append(next(self._draw, math.inf))
        return self._times[index]

    def after(self, at: float) -> int:
        """The index of the first time after `at`."""
        while not self._times or self._times[-1] <= at:
            self[len(self._times)]
        return bisect_right(self._times, at)
