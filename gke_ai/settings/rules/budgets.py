"""Rules of budgets of tenants, and of hours of local queues."""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import ZoneInfo

from gke_ai.settings.model import LocalQueue
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules.common import each, hours_are_a_part_of_the_week, needs, rule


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
    yield from hours_are_a_part_of_the_week(queue.hours, queue.at("hours"), "queue", "open", "Remove hours")
