"""Capacity modes, and what each means for the nodes of a pool.

Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms,
https://cloud.google.com/kubernetes-engine/docs/concepts/dws,
https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Taint:
    """A node taint. `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True)
class CapacityMode:
    """A capacity mode of a node pool.

    - `title` names the mode in reports.
    - `provisioning` is the value of the label `cloud.google.com/gke-provisioning`.
    - `labels` and `taints` are those that nodes of every mode lack.
    - `elastic` pools start at zero nodes, and only the autoscaler sizes them.
    - `surge` is the number of nodes that GKE adds during an upgrade; 0 if there may be no capacity for one.
      https://cloud.google.com/kubernetes-engine/docs/concepts/node-pool-upgrade-strategies
    """

    name: str
    title: str
    provisioning: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    elastic: bool = False
    surge: int = 1


_FLEX_START: Mapping[str, str] = {"cloud.google.com/gke-flex-start": "true"}

MODES: Mapping[str, CapacityMode] = {
    mode.name: mode
    for mode in (
        CapacityMode("onDemand", "on-demand", "standard", {}),
        CapacityMode("spot", "Spot", "spot", {"cloud.google.com/gke-spot": "true"}),
        CapacityMode("reservation", "reservation", "standard", {}, surge=0),
        CapacityMode("flexStart", "flex-start", "flex-start", _FLEX_START, elastic=True, surge=0),
        CapacityMode(
            "queuedFlexStart",
            "queued flex-start",
            "flex-start",
            _FLEX_START,
            # GKE also sets autoscaling.gke.io/provisioning-request=NAME when it provisions a request.
            (Taint("cloud.google.com/gke-queued", "true", "NoSchedule"),),
            elastic=True,
            surge=0,
        ),
    )
}

# Bounds of a flex-start run, in seconds (10 minutes to 7 days). The default is the maximum.
MIN_RUN_SECONDS, MAX_RUN_SECONDS = 600, 604800

# Seconds that pods have when Google takes back a Spot node. From GKE 1.35.0-gke.1171000 a Standard pool can allow up to
# 120 s for all pods together, critical ones included.
# https://docs.cloud.google.com/kubernetes-engine/docs/concepts/spot-vms#termination-graceful-shutdown-spot-vms
SPOT_SHUTDOWN_SECONDS = 15

# A label of this program on the nodes of a reservation with an end. Its value has no colons, as Kubernetes requires.
# Calendar mode deletes the reservation at its end, with the VMs that run on it:
# https://docs.cloud.google.com/python/docs/reference/compute/latest/google.cloud.compute_v1.types.FutureReservation.ReservationMode
# https://docs.cloud.google.com/compute/docs/instances/future-reservations-calendar-mode-overview
# Never run on Google Cloud: what GKE does with the nodes of such VMs.
UNTIL = "gke-ai/until"
_UNTIL_FORM = "%Y%m%dT%H%M%SZ"


class ReservedPart(NamedTuple):
    """The part of a reservation that nodes use. Empty: the project of the nodes, the whole reservation or block."""

    project: str
    name: str
    block: str
    sub_block: str


def reserved_part(reference: str) -> ReservedPart:
    """Returns what a reference to a reservation names: of pools, of compute classes and in Google's API."""
    path, _, rest = reference.partition("/reservationBlocks/")
    project, _, name = path.removeprefix("projects/").rpartition("/reservations/")
    block, _, sub_block = rest.partition("/reservationSubBlocks/")
    return ReservedPart(project, name, block, sub_block)


def until_label(end: datetime) -> dict[str, str]:
    """Returns the label of nodes whose capacity ends."""
    return {UNTIL: end.astimezone(UTC).strftime(_UNTIL_FORM)}


def capacity_until(labels: Mapping[str, object]) -> datetime | None:
    """Returns when the capacity of nodes ends, by their labels, if they state it."""
    try:
        return datetime.strptime(str(labels.get(UNTIL, "")), _UNTIL_FORM).replace(tzinfo=UTC)
    except ValueError:
        return None


def moment(time: datetime) -> str:
    """Formats a time as a configuration states it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def mode_of(*, queued: object, flex_start: object, spot: object, reservation: object) -> str:
    """Returns the capacity mode of a node pool from its fields.

    `queued` is queued provisioning, whose pools also have `flex_start`. `reservation` is a specific reservation. Any
    value but True counts as off, also a value that is not known yet.
    """
    on = {"queuedFlexStart": queued, "flexStart": flex_start, "spot": spot, "reservation": reservation}
    return next((mode for mode, stated in on.items() if stated is True), "onDemand")


def title_of(mode: str) -> str:
    """The name of a capacity mode in reports; other texts as they are."""
    return MODES[mode].title if mode in MODES else mode


def mode_of_priority(priority: Mapping[str, Any]) -> str:
    """Returns the capacity mode of one priority of a ComputeClass.

    https://cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass
    """
    flex_start, reservations = priority.get("flexStart"), priority.get("reservations")
    return mode_of(
        queued=False,
        flex_start=isinstance(flex_start, Mapping) and flex_start.get("enabled"),
        spot=priority.get("spot"),
        # With any other affinity, a reservation is only a preference.
        reservation=isinstance(reservations, Mapping) and reservations.get("affinity") == "Specific",
    )
