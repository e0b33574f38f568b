"""Budgets of tenants and hours of local queues, which the ledger's CronJob keeps."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, StringConstraints

from gke_ai.settings.model.base import Section

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = get_args(Day)
DAY_MINUTES = 24 * 60
WEEK_MINUTES = 7 * DAY_MINUTES
Clock = Annotated[str, StringConstraints(pattern=r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$")]


class Budget(Section):
    """What a tenant may use in a calendar month (UTC). Afterwards its new work waits; what runs continues."""

    noun: ClassVar[str] = "a budget"

    accelerator_hours: float | None = Field(default=None, gt=0, examples=[500])
    """Accelerators times hours with quota, whether they compute or not. Default: no limit."""
    amount: float | None = Field(default=None, gt=0, examples=[2000])
    """Cost of these hours in the currency of `prices`. Default: no limit."""
    warn_at: float = Field(default=0.8, gt=0, le=1)
    """Part of the budget from which the ledger warns."""


class Hours(Section):
    """Hours of the week."""

    noun: ClassVar[str] = "hours of the week"

    days: list[Day] = Field(min_length=1, examples=[["mon", "tue"]])
    """Days on which the hours begin."""
    start: Clock = Field(default="00:00", examples=["20:00"])
    """Time of the day at which they begin."""
    end: Clock = Field(default="24:00", examples=["06:00"])
    """Time at which they end: on the next day if it is before `start`."""

    def minutes(self) -> set[int]:
        """Its minutes of the week, from Monday 00:00. Empty if it ends when it begins."""
        start, end = (int(clock[:2]) * 60 + int(clock[3:]) for clock in (self.start, self.end))
        length = (end - start) if start <= end else end - start + DAY_MINUTES
        begins = [DAYS.index(day) * DAY_MINUTES + start for day in self.days]
        return {(begin + minute) % WEEK_MINUTES for begin in begins for minute in range(length)}
