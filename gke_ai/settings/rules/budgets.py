"""Rules of budgets of tenants, and of hours of local queues."""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import ZoneInfo

from gke_ai.settings.model import LocalQueue
from gke_ai.settings.model.budgets import WEEK_MINUTES
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules.common import each, needs, rule


@needs("gke-ai:queues.localQueues")
@rule
def budgets_can_be_kept(stack: ResolvedStack) -> Iterator[Problem]:
    """A budget has a limit and a queue to hold."""
    for space in stack.spaces:
        if space.section.budget and not space.queues:
            cause = f"namespace {space.section.name} has no local queue. The ledger would have nothing to hold"
            yield Problem(space.section.at("budget"), cause, "Add one to gke-ai:queues.localQueues, or remove budget")
        budget = space.section.budget
        if budget and budget.amount is None and budget.accelerator_hours is None:
            cause = "neither acceleratorHours nor amount is set. The budget would limit nothing"
            yield Problem(space.section.at("budget"), cause, "Set one of them")


@rule
def time_zone_exists(stack: ResolvedStack) -> Iterator[Problem]:
    """Hours are in a zone of the IANA database, as the ledger knows it."""
    try:
        ZoneInfo(stack.queues.time_zone)
    except (KeyError, ValueError, OSError):
        cause = f"{stack.queues.time_zone} is no time zone. The ledger would fail, and hold and release nothing"
        yield Problem(stack.queues.at("timeZone"), cause, "Write a name such as Europe/Berlin")


@each(lambda stack: stack.queues.local_queues)
def hours_are_apart(queue: LocalQueue) -> Iterator[Problem]:
    """Hours of a local queue of the stack begin and end, do not overlap, and leave some of the week out."""
    if queue.hours and queue.mode == "existing":
        cause = f"the stack changes nothing of {queue.name}, which exists. The ledger would hold it"
        yield Problem(queue.at("hours"), cause, "Remove hours, or let the stack create the queue")
    known: set[int] = set()
    for index, hours in enumerate(queue.hours):
        minutes = hours.minutes()
        if not minutes:
            cause = f"start and end are both {hours.start}. The queue would never open"
            yield Problem(queue.at(f"hours[{index}]"), cause, "Write 00:00 and 24:00 for a whole day")
        if minutes & known:
            cause = "these hours overlap with others of the queue. One of them may be a mistake"
            yield Problem(queue.at(f"hours[{index}]"), cause, "Write each hour once")
        known |= minutes
    if len(known) == WEEK_MINUTES:
        yield Problem(queue.at("hours"), "these hours are the whole week. They have no effect", "Remove hours")
