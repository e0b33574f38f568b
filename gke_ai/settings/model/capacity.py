"""Capacity modes of a node pool."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from gke_ai.catalog.machines.capacity import MAX_RUN_SECONDS, MIN_RUN_SECONDS, MODES, until_label
from gke_ai.settings.model.base import Moment, Section


class CapacityMode(Section):
    """Base of the capacity modes."""

    if TYPE_CHECKING:
        mode: str  # each mode has its own key, with one value

    @property
    def elastic(self) -> bool:
        """Whether nodes start from zero, and only the autoscaler sizes the pool."""
        return MODES[self.mode].elastic

    @property
    def queued_seconds(self) -> int | None:
        """Maximum lifetime of a node with queued provisioning, in seconds; None for other modes."""
        return None

    @property
    def reservation_name(self) -> str | None:
        """Name of the reservation; None for other modes."""
        return None

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the nodes that only this capacity has."""
        return {}


class OnDemand(CapacityMode):
    """Standard capacity: nodes stay until they are deleted."""

    noun: ClassVar[str] = "onDemand capacity"

    mode: Literal["onDemand"] = "onDemand"
    """Standard capacity."""


class Spot(CapacityMode):
    """Spot capacity: cheap, and Google takes it back with 30 seconds' notice."""

    noun: ClassVar[str] = "spot capacity"

    mode: Literal["spot"]
    """Spot capacity."""


class Reservation(CapacityMode):
    """Capacity of a reservation."""

    noun: ClassVar[str] = "reservation capacity"

    mode: Literal["reservation"]
    """Capacity of a reservation."""
    reservation: str = Field(examples=["h100-march"])
    """Name of the reservation, or projects/PROJECT/reservations/NAME for a shared one. For one block of it, or one
    sub-block, append /reservationBlocks/BLOCK and /reservationSubBlocks/SUBBLOCK."""

    @property
    def reservation_name(self) -> str | None:
        return self.reservation


class PoolReservation(Reservation):
    """Capacity of a reservation, for a node pool."""

    noun: ClassVar[str] = "the reservation of a pool"

    until: Moment | None = Field(default=None, examples=["2027-03-14T00:00:00Z"])
    """End of the reservation, in UTC, if it was made with Calendar mode: Google then deletes it with its machines.
    Default: no end is known."""

    @property
    def labels(self) -> Mapping[str, str]:
        try:
            return until_label(datetime.fromisoformat(self.until)) if self.until else {}
        except ValueError:  # no day of the calendar; `gke_ai.settings.rules` refuses it
            return {}


class FlexStart(CapacityMode):
    """Flex-start of Dynamic Workload Scheduler: nodes start when capacity is free, for a limited time."""

    noun: ClassVar[str] = "flexStart capacity"

    mode: Literal["flexStart"]
    """Flex-start capacity: nodes start when capacity is free."""
    max_run_duration_seconds: int = Field(default=MAX_RUN_SECONDS, ge=MIN_RUN_SECONDS, le=MAX_RUN_SECONDS)
    """Maximum lifetime of a node, in seconds."""


class QueuedFlexStart(CapacityMode):
    """Flex-start with queued provisioning: all nodes of a request start together, through Kueue."""

    noun: ClassVar[str] = "queuedFlexStart capacity"

    mode: Literal["queuedFlexStart"]
    """Queued provisioning: all nodes of a request start together."""
    max_run_duration_seconds: int = Field(default=MAX_RUN_SECONDS, ge=MIN_RUN_SECONDS, le=MAX_RUN_SECONDS)
    """Maximum lifetime of a node, in seconds."""

    @property
    def queued_seconds(self) -> int | None:
        return self.max_run_duration_seconds


Capacity = Annotated[OnDemand | Spot | PoolReservation | FlexStart | QueuedFlexStart, Field(discriminator="mode")]


class Autoscaling(Section):
    """Minimum and maximum size of an autoscaled pool."""

    noun: ClassVar[str] = "the autoscaling of a pool"

    min_nodes: int = Field(default=0, ge=0)
    """Minimum number of nodes, in all zones together."""
    max_nodes: int = Field(ge=1)
    """Maximum number of nodes, in all zones together."""
