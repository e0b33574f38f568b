"""Rules of maintenance windows and exclusions.

https://cloud.google.com/kubernetes-engine/docs/concepts/maintenance-windows-and-exclusions#limitations
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate, takewhile

from gke_ai.settings.model import Cluster, Maintenance, MaintenanceExclusion, MaintenanceWindow
from gke_ai.settings.problems import Problem
from gke_ai.settings.rules.common import needs, of_the_cluster, repeated

Period = tuple[datetime, datetime]

_SHORTEST_WINDOW, _LONGEST_EXCLUSION = timedelta(hours=4), timedelta(days=30)
_MAX_EXCLUSIONS, _MAX_OF_ALL_UPGRADES = 20, 3
# "maintenance policy would go longer than 32d without 48h maintenance availability" is GKE's refusal. Its page of 2026
# (docs/how-to/maintenance-window) says 92 days, since exclusions may last longer. So the window alone meets the shorter
# period, and the window with its exclusions the longer one.
_LEAST, _WINDOW_PERIOD, _EXCLUSION_PERIOD = timedelta(hours=48), timedelta(days=32), timedelta(days=92)
# The API does not support hourly recurrence and shorter: RecurringTimeWindow of
# https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters
_RULE = re.compile(r"FREQ=(DAILY|WEEKLY|MONTHLY|YEARLY)(;(?!INTERVAL=0)[A-Z]+=[-+,A-Z0-9]+)*")
# Parts of a rule with which it has at most one occurrence a day.
_COUNTABLE = re.compile(r"FREQ=[A-Z]+(;(INTERVAL|BYDAY|BYMONTH|BYMONTHDAY|BYSETPOS|WKST|COUNT)=[-+,A-Z0-9]+)*")
# The calendar repeats after 400 years. In its last years, a rule that never occurs is soon evaluated to the end.
_CYCLES, _LAST_YEAR = 19 * 400, 2300
_HORIZON = timedelta(days=2 * 365)


@needs("gke-ai:cluster")
@of_the_cluster
def maintenance_leaves_time_for_upgrades(cluster: Cluster) -> Iterator[Problem]:
    """Maintenance windows are long enough, and exclusions are few and short enough."""
    maintenance = cluster.maintenance
    if maintenance is None:
        return
    problems = [*_of_the_window(cluster, maintenance.window), *_of_exclusions(cluster, maintenance.exclusions)]
    yield from problems or _of_the_time_left(cluster, maintenance)


def _of_the_window(cluster: Cluster, window: MaintenanceWindow) -> Iterator[Problem]:
    at, refused = cluster.at, "GKE would refuse the cluster"
    length = _length(window)
    if length is None or length < _SHORTEST_WINDOW:
        cause = f"the window ends less than 4 hours after it starts. {refused}"
        yield Problem(at("maintenance.window.endTime"), cause, "Set it to 4 hours or more after startTime")
    if not _is_rule(window.recurrence):
        cause = f'"{window.recurrence}" is not a recurrence rule of RFC 5545 by days or longer periods. {refused}'
        yield Problem(at("maintenance.window.recurrence"), cause, "Write for example FREQ=WEEKLY;BYDAY=SA,SU")


def _of_exclusions(cluster: Cluster, exclusions: list[MaintenanceExclusion]) -> Iterator[Problem]:
    at, refused = cluster.at, "GKE would refuse the cluster"
    if len(exclusions) > _MAX_EXCLUSIONS:
        cause = f"the cluster has {len(exclusions)} exclusions, and the maximum is {_MAX_EXCLUSIONS}"
        remedy = f"Remove exclusions until {_MAX_EXCLUSIONS} are left"
        yield Problem(at("maintenance.exclusions"), f"{cause}. {refused}", remedy)
    elif (of_all := sum(exclusion.scope == "NO_UPGRADES" for exclusion in exclusions)) > _MAX_OF_ALL_UPGRADES:
        cause = f"{of_all} exclusions have scope NO_UPGRADES, and the maximum is {_MAX_OF_ALL_UPGRADES}. {refused}"
        yield Problem(at("maintenance.exclusions"), cause, "Remove some, or set scope: NO_MINOR_OR_NODE_UPGRADES")
    named = ((cluster, "maintenance.exclusions", exclusion.name) for exclusion in exclusions)
    yield from repeated(named, "exclusion", refused)
    for index, exclusion in enumerate(exclusions):
        path = at(f"maintenance.exclusions[{index}].endTime")
        length = _length(exclusion)
        if length is None or length <= timedelta():
            yield Problem(path, f"the exclusion ends before it starts. {refused}", "Set a later time")
        elif exclusion.scope == "NO_UPGRADES" and length > _LONGEST_EXCLUSION:
            cause = f"the exclusion of all upgrades lasts {length.days} days, and the maximum is 30. {refused}"
            yield Problem(path, cause, "Shorten it, or set scope: NO_MINOR_OR_NODE_UPGRADES")


def _of_the_time_left(cluster: Cluster, maintenance: Maintenance) -> Iterator[Problem]:
    """The window, and the window without its exclusions, leave GKE 48 hours in pieces of 4 hours or more."""
    start, end = _period(maintenance.window)
    if not _COUNTABLE.fullmatch(maintenance.window.recurrence) or max(start.year, end.year) > _LAST_YEAR:
        return
    windows = _windows(maintenance.window)
    left = _least(windows, start, _WINDOW_PERIOD)
    if left < _LEAST:
        cause = f"the window gives GKE {_hours(left)} hours in some 32 days, and the minimum is 48 hours"
        remedy = "Make it longer, or repeat it more often"
        yield Problem(cluster.at("maintenance.window"), f"{cause}. GKE would refuse the cluster", remedy)
        return
    excluded = [_period(exclusion) for exclusion in maintenance.exclusions if exclusion.scope == "NO_UPGRADES"]
    left = _least(_without(windows, excluded), start, _EXCLUSION_PERIOD)
    if left < _LEAST:
        cause = f"the exclusions leave GKE {_hours(left)} hours in some 92 days, and the minimum is 48 hours"
        remedy = "Shorten them, or make the window longer"
        yield Problem(cluster.at("maintenance.exclusions"), f"{cause}. GKE would refuse the cluster", remedy)


def _is_rule(text: str) -> bool:
    """Whether a text is a recurrence rule that GKE supports."""
    from dateutil.rrule import rrulestr

    try:
        return bool(_RULE.fullmatch(text) and rrulestr(text, dtstart=datetime.now(UTC)))
    except (ValueError, IndexError):
        return False


def _windows(window: MaintenanceWindow) -> list[Period]:
    """The windows of two years, from the first one on. Windows that touch are one."""
    from dateutil.rrule import rrulestr

    start, end = _period(window)
    later = start.replace(year=start.year + _CYCLES, tzinfo=None)
    try:
        starts = list(takewhile(lambda time: time < later + _HORIZON, rrulestr(window.recurrence, dtstart=later)))
    except (ValueError, IndexError):  # such as the ninth Sunday of a month
        starts = []
    windows: list[Period] = []
    for time in (start + (other - later) for other in starts):
        if windows and time <= windows[-1][1]:
            windows[-1] = windows[-1][0], max(windows[-1][1], time + (end - start))
        else:
            windows.append((time, time + (end - start)))
    return windows


def _without(windows: list[Period], excluded: list[Period]) -> list[Period]:
    """The parts of windows outside the exclusions."""
    for start, end in excluded:
        parts = [part for first, last in windows for part in ((first, min(last, start)), (max(first, end), last))]
        windows = [(first, last) for first, last in parts if first < last]
    return windows


def _least(windows: list[Period], start: datetime, period: timedelta) -> timedelta:
    """The least time that windows of 4 hours or more take in any period of this length."""
    long = [(first, last) for first, last in windows if last - first >= _SHORTEST_WINDOW]
    totals = list(accumulate((last - first for first, last in long), initial=timedelta()))

    def before(time: datetime) -> timedelta:
        number = bisect_right(long, (time, time))
        return totals[number] - (max(timedelta(), long[number - 1][1] - time) if number else timedelta())

    edges = [start, *(last for _, last in long), *(first - period for first, _ in long)]
    begins = [time for time in edges if start <= time <= start + _HORIZON - period]
    return min(before(time + period) - before(time) for time in begins)


def _hours(time: timedelta) -> int:
    return int(time / timedelta(hours=1))


def _period(times: MaintenanceWindow | MaintenanceExclusion) -> Period:
    return datetime.fromisoformat(times.start_time), datetime.fromisoformat(times.end_time)


def _length(times: MaintenanceWindow | MaintenanceExclusion) -> timedelta | None:
    """Duration from start to end, or None if one of the times does not exist in the calendar."""
    try:
        start, end = _period(times)
    except ValueError:
        return None
    return end - start
