"""The program that keeps the ledger: what it counts of Workloads, budgets and hours, without a cluster.

The Workloads are written as Kueue writes them: `tests/nightly/test_ledger.py` compares with the real one.
"""

from __future__ import annotations

import calendar
import copy
import json
import random
import time
from typing import Any

import pytest

from gke_ai.catalog.kueue import ledger as names
from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.settings.model import Hours
from programs import ledger
from programs.ledger import Ledger, judge, month_of, opens

Object = dict[str, Any]
BEGIN = calendar.timegm((2026, 11, 2, 0, 0, 0))
NEW_YEAR = calendar.timegm((2027, 1, 1, 0, 0, 0))


def clock(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


class Cluster:
    """Workloads as Kueue writes their status, every change of them, and the intervals that really were admitted."""

    def __init__(self) -> None:
        self.workloads: dict[str, Object] = {}
        self.changes: list[Object] = []
        self.intervals: list[tuple[str, str, int, int, int]] = []
        self.since: dict[str, int] = {}

    def _changed(self, uid: str, kind: str) -> None:
        workload = self.workloads[uid]
        workload["metadata"]["resourceVersion"] = str(len(self.changes) + 1)
        self.changes.append({"type": kind, "object": copy.deepcopy(workload)})

    def condition(self, uid: str, kind: str, status: str, now: int) -> None:
        conditions = self.workloads[uid]["status"].setdefault("conditions", [])
        conditions[:] = [item for item in conditions if item["type"] != kind]
        conditions.append({"type": kind, "status": status, "lastTransitionTime": clock(now)})

    def create(self, uid: str, namespace: str, now: int) -> None:
        metadata = {"uid": uid, "name": uid, "namespace": namespace, "creationTimestamp": clock(now)}
        self.workloads[uid] = {"metadata": metadata, "status": {}}
        self._changed(uid, "ADDED")

    def admit(self, uid: str, flavor: str, gpus: int, now: int) -> None:
        use = {"flavors": {NVIDIA_GPU: flavor, "cpu": flavor}, "resourceUsage": {NVIDIA_GPU: str(gpus), "cpu": "4"}}
        self.workloads[uid]["status"]["admission"] = {"podSetAssignments": [use]}
        self.condition(uid, "Admitted", "True", now)
        self.since[uid] = now
        self._changed(uid, "MODIFIED")

    def _ended(self, uid: str, now: int) -> int:
        workload, since = self.workloads[uid], self.since.pop(uid)
        (use,) = workload["status"]["admission"]["podSetAssignments"]
        flavor, gpus = use["flavors"][NVIDIA_GPU], int(use["resourceUsage"][NVIDIA_GPU])
        self.intervals.append((workload["metadata"]["namespace"], flavor, gpus, since, now))
        return now - since

    def evict(self, uid: str, now: int) -> None:
        seconds, status = self._ended(uid, now), self.workloads[uid]["status"]
        total = status.get("accumulatedPastExecutionTimeSeconds", 0) + seconds
        status["accumulatedPastExecutionTimeSeconds"] = total
        del status["admission"]
        self.condition(uid, "Admitted", "False", now)
        self._changed(uid, "MODIFIED")

    def reset(self, uid: str) -> None:
        """At its maximum execution time, Kueue clears the field while the Workload is admitted."""
        self.workloads[uid]["status"].pop("accumulatedPastExecutionTimeSeconds", None)
        self._changed(uid, "MODIFIED")

    def finish(self, uid: str, now: int) -> None:
        if uid in self.since:
            self._ended(uid, now)
        self.condition(uid, "Finished", "True", now)
        self._changed(uid, "MODIFIED")

    def delete(self, uid: str, now: int) -> None:
        if uid in self.since:
            self._ended(uid, now)
        self.workloads[uid]["metadata"]["deletionTimestamp"] = clock(now)
        self._changed(uid, "DELETED")
        del self.workloads[uid]

    def truth(self, month: str) -> dict[str, dict[str, int]]:
        """Accelerator-seconds of a month by namespace and flavor, second by second of each interval."""
        first = calendar.timegm(time.strptime(month, "%Y-%m"))
        after = month_of(first)[1]
        totals: dict[str, dict[str, int]] = {}
        for namespace, flavor, gpus, start, end in self.intervals:
            if seconds := max(0, min(end, after) - max(start, first)):
                by_flavor = totals.setdefault(namespace, {})
                by_flavor[flavor] = by_flavor.get(flavor, 0) + gpus * seconds
        return totals


def reading(stored: Object) -> Ledger:
    """A run that begins with what another one wrote."""
    return Ledger(json.loads(json.dumps(stored)), [NVIDIA_GPU])


def history(chance: random.Random, steps: int) -> tuple[Cluster, int]:
    """A cluster after random admissions, evictions, ends and deletions, from November to January."""
    cluster, now = Cluster(), BEGIN
    for step in range(steps):
        now += chance.randrange(0, 2 * 60 * 86400 // steps)
        uid = f"uid-{chance.randrange(step + 1)}"
        if uid not in cluster.workloads:
            cluster.create(uid, chance.choice(["research", "vision"]), now)
            continue
        finished = any(item["type"] == "Finished" for item in cluster.workloads[uid]["status"].get("conditions", []))
        if finished or chance.random() < 0.1:
            cluster.delete(uid, now)
        elif uid not in cluster.since:
            cluster.admit(uid, chance.choice(["l4", "h100"]), chance.randrange(1, 17), now)
        else:
            match chance.randrange(3):
                case 0:
                    cluster.reset(uid)
                case 1:
                    cluster.evict(uid, now)
                case _:
                    cluster.finish(uid, now)
    for uid in list(cluster.since):
        cluster.finish(uid, now)
    return cluster, now


@pytest.mark.parametrize("seed", range(20))
def test_runs_that_are_killed_anywhere_count_each_interval_once_to_the_second(seed: int) -> None:
    chance = random.Random(seed)
    cluster, now = history(chance, 400)
    stored = Ledger({}, [NVIDIA_GPU]).stored()
    position, kills = 0, 0
    while position < len(cluster.changes):
        run = reading(stored)
        for change in cluster.changes[position : position + chance.randrange(1, 30)]:
            run.change(change, now)
        if chance.random() < 0.5:  # killed before it saved: the next one reads the same changes again
            kills += 1
            continue
        stored = run.stored()
        position = int(stored["version"])
    assert kills > 10
    for month in ("2026-11", "2026-12", "2027-01"):
        assert stored["months"].get(month, {}) == cluster.truth(month), month
    assert stored["unknown"] == {}


@pytest.mark.parametrize("seed", range(10))
def test_after_a_break_the_status_fields_say_what_was_missed_and_the_same_list_adds_nothing(seed: int) -> None:
    """Without deletions, and with at most one flavor and no cleared field between two readings."""
    chance, cluster, now = random.Random(seed), Cluster(), BEGIN
    stored = Ledger({}, [NVIDIA_GPU]).stored()
    for step in range(60):
        now += chance.randrange(1, 40000)
        uid = f"uid-{chance.randrange(5)}-{step // 20}"
        if uid not in cluster.workloads:
            cluster.create(uid, "research", now)
            cluster.admit(uid, "l4", 8, now)
        elif uid in cluster.since:
            cluster.evict(uid, now)
        else:
            cluster.admit(uid, "l4", 8, now)
        if step % 7 == 0:
            for _ in range(2):
                run = reading(stored)
                run.catch_up(cluster.workloads.values(), now)
                stored = run.stored()
    for uid in cluster.workloads:
        if uid not in cluster.since:
            cluster.admit(uid, "l4", 8, now + 1)  # only an admission says how many accelerators the time before it had
        cluster.finish(uid, now + 5)
    run = reading(stored)
    run.catch_up(cluster.workloads.values(), now + 10)
    totals = [sum(by_flavor["l4"] for by_flavor in month.values()) for month in run.months.values()]
    assert sum(totals) == sum(gpus * (end - start) for *_, gpus, start, end in cluster.intervals)


def test_time_of_a_workload_deleted_in_a_break_counts_until_the_last_reading_and_the_rest_is_stated() -> None:
    cluster = Cluster()
    cluster.create("a", "research", BEGIN)
    cluster.admit("a", "l4", 8, BEGIN)
    run = reading({})
    run.catch_up(cluster.workloads.values(), BEGIN + 100)
    run.at = BEGIN + 100
    cluster.delete("a", BEGIN + 150)
    later = reading(run.stored())
    later.catch_up([], BEGIN + 400)
    assert later.months == {"2026-11": {"research": {"l4": 800}}}
    assert later.unknown == {"2026-11": {"research": {"l4": 2400}}}


def test_run_that_got_another_flavor_within_a_break_has_each_in_its_own_time() -> None:
    cluster = Cluster()
    cluster.create("a", "research", BEGIN)
    cluster.admit("a", "l4", 2, BEGIN)
    run = reading({})
    run.catch_up(cluster.workloads.values(), BEGIN + 10)
    cluster.evict("a", BEGIN + 100)
    cluster.admit("a", "h100", 8, BEGIN + 200)
    run = reading(run.stored())
    run.catch_up(cluster.workloads.values(), BEGIN + 300)
    assert run.months == {"2026-11": {"research": {"l4": 200}}}
    assert run.used("research", BEGIN + 300) == {"l4": 200, "h100": 800}


def test_an_interval_over_midnight_of_the_first_is_split() -> None:
    cluster = Cluster()
    cluster.create("a", "research", NEW_YEAR - 100)
    cluster.admit("a", "l4", 2, NEW_YEAR - 60)
    run = reading({})
    run.catch_up(cluster.workloads.values(), NEW_YEAR - 30)
    assert run.used("research", NEW_YEAR - 30) == {"l4": 60}
    assert run.used("research", NEW_YEAR + 10) == {"l4": 20}, "a new month begins with what runs"
    cluster.finish("a", NEW_YEAR + 40)
    run.change(cluster.changes[-1], NEW_YEAR + 50)
    assert run.months == {"2026-12": {"research": {"l4": 120}}, "2027-01": {"research": {"l4": 80}}}


def test_ledger_of_thousands_of_workloads_a_month_fits_a_config_map() -> None:
    cluster = Cluster()
    for index in range(8000):  # of which 5000 end in the last hour
        now = BEGIN + (index - 3000 if index >= 3000 else 0)
        cluster.create(f"{index:032x}-abcd", "research", now)
        cluster.admit(f"{index:032x}-abcd", "l4", 8, now)
        if index < 5000:
            cluster.finish(f"{index:032x}-abcd", now + 3600)
    run = reading({})
    for change in cluster.changes:
        run.change(change, BEGIN + 7200)
    stored = run.stored()
    # https://kubernetes.io/docs/concepts/configuration/configmap/#motivation
    assert len(json.dumps(stored)) < 2**20
    again = reading(stored)
    again.forgotten = BEGIN + 10**6
    again.finished = {}
    months = copy.deepcopy(again.months)
    again.catch_up(cluster.workloads.values(), BEGIN + 7200)
    assert again.months == months, "a finished Workload that is forgotten by name is not counted again"


HOUR = 3600
BUDGET: Object = {"acceleratorHours": 500, "amount": None, "warnAt": 0.8, "rates": {}, "currency": "", "date": ""}
START = calendar.timegm((2026, 11, 1, 0, 0, 0))


@pytest.mark.parametrize(
    ("hours", "days", "text", "exhausted"),
    [
        (0, 10, "used 0 of 500 accelerator-hours; at this rate it lasts for the month", False),
        (100, 10, "used 100 of 500 accelerator-hours; at this rate it lasts for the month", False),
        (250, 10, "used 250 of 500 accelerator-hours; at this rate exhausted on 21 November", False),
        (412, 15, "warning: used 412 of 500 accelerator-hours; at this rate exhausted on 19 November", False),
        (500, 20, "used 500 of 500 accelerator-hours; new work waits until 1 December", True),
        (640, 20, "used 640 of 500 accelerator-hours; new work waits until 1 December", True),
    ],
)
def test_budget_says_what_is_used_and_when_it_ends_before_it_ends(
    hours: int, days: int, text: str, exhausted: bool
) -> None:
    assert judge(BUDGET, {"l4": hours * HOUR}, START, START + days * 24 * HOUR) == (text, exhausted)


def test_budget_with_money_counts_each_flavor_at_its_price_and_the_first_limit_holds() -> None:
    prices = {"rates": {"l4": 0.7, "h100": 10.0}, "currency": "USD", "date": "2026-11-20"}
    budget = {**BUDGET, "amount": 2000, **prices}
    text, exhausted = judge(budget, {"l4": 100 * HOUR, "h100": 192 * HOUR}, START, START + 86400)
    used = "used 292 of 500 accelerator-hours and used 1,990 of 2,000 USD at prices of 2026-11-20"
    assert (text, exhausted) == (f"warning: {used}; at this rate exhausted on 2 November", False)
    assert judge(budget, {"l4": 100 * HOUR, "h100": 193 * HOUR}, START, START + 86400)[1]


def test_rate_of_a_ledger_that_began_within_the_month_is_that_since_it_began() -> None:
    began = START + 10 * 86400
    assert "exhausted on 16 November" in judge(BUDGET, {"l4": 100 * HOUR}, began, began + 86400)[0]


NIGHT = [{"days": ["mon", "tue", "fri"], "start": "20:00", "end": "06:00"}]


@pytest.mark.parametrize(
    ("local", "begin"),
    [
        ("2026-11-02 19:59", "Monday 20:00 (Europe/Berlin)"),
        ("2026-11-02 20:00", None),
        ("2026-11-03 05:59", None),
        ("2026-11-03 06:00", "Tuesday 20:00 (Europe/Berlin)"),
        ("2026-11-04 03:00", None),
        ("2026-11-04 06:00", "Friday 20:00 (Europe/Berlin)"),
        ("2026-11-07 12:00", "Monday 20:00 (Europe/Berlin)"),
    ],
)
def test_hours_over_midnight_belong_to_the_day_on_which_they_begin(local: str, begin: str | None) -> None:
    moment = calendar.timegm(time.strptime(local, "%Y-%m-%d %H:%M")) - 3600  # Berlin in November
    assert opens(NIGHT, "Europe/Berlin", moment) == begin


def test_hours_follow_the_clock_of_the_zone_also_in_summer() -> None:
    july = calendar.timegm((2026, 7, 6, 18, 30, 0))  # Monday, 20:30 in Berlin
    assert opens(NIGHT, "Europe/Berlin", july) is None
    assert opens(NIGHT, "UTC", july) == "Monday 20:00 (UTC)"


@pytest.mark.parametrize("minute", range(0, 7 * 24 * 60, 97))
def test_program_and_rules_agree_on_the_minutes_of_the_week(minute: int) -> None:
    hours = Hours(days=["mon", "sun"], start="21:30", end="04:15")
    is_open = opens([hours.model_dump()], "UTC", BEGIN + minute * 60) is None
    assert is_open == (minute in hours.minutes())


def test_program_has_the_names_of_the_catalog() -> None:
    assert (ledger.CONFIG_MAP, ledger.KEY) == (names.LEDGER, names.KEY)
    assert (ledger.BUDGET, ledger.HELD) == (names.BUDGET, names.HELD)
    assert ledger.KUEUE.removeprefix("/apis/") == KUEUE_API
    assert ledger.MANAGER == names.NAMESPACE
