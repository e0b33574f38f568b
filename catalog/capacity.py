"""The ways to get capacity, and what each means for the nodes of a pool.

Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms,
https://cloud.google.com/kubernetes-engine/docs/concepts/dws,
https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Taint:
    """A node taint in Kubernetes' own words (`effect` is NoSchedule, PreferNoSchedule or NoExecute)."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True)
class CapacityMode:
    """One way to get capacity.

    `provisioning` is the value of the label `cloud.google.com/gke-provisioning`; `labels` and `taints` come on top of
    those of every node; `elastic` says that such a pool starts at zero nodes and is sized by the autoscaler alone.
    `surge` is the number of nodes that GKE adds while it upgrades such a pool: 0 if none may be available.
    https://cloud.google.com/kubernetes-engine/docs/concepts/node-pool-upgrade-strategies
    """

    name: str
    provisioning: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    elastic: bool = False
    surge: int = 1


_FLEX_START = MappingProxyType({"cloud.google.com/gke-flex-start": "true"})

MODES: Mapping[str, CapacityMode] = MappingProxyType(
    {
        mode.name: mode
        for mode in (
            CapacityMode("onDemand", "standard", MappingProxyType({})),
            CapacityMode("spot", "spot", MappingProxyType({"cloud.google.com/gke-spot": "true"})),
            CapacityMode("reservation", "standard", MappingProxyType({}), surge=0),
            CapacityMode("flexStart", "flex-start", _FLEX_START, elastic=True, surge=0),
            CapacityMode(
                "queuedFlexStart",
                "flex-start",
                _FLEX_START,
                # autoscaling.gke.io/provisioning-request=NAME is also set, per request, once one is provisioned.
                (Taint("cloud.google.com/gke-queued", "true", "NoSchedule"),),
                elastic=True,
                surge=0,
            ),
        )
    }
)

# Bounds of a flex-start run, in seconds (10 minutes to 7 days); the longest is the default.
MIN_RUN_SECONDS, MAX_RUN_SECONDS = 600, 604800


def mode_of(*, queued: object, flex_start: object, spot: object, reservation: object) -> str:
    """The mode of a node pool, from whether each of these is on in its fields.

    `queued` is queued provisioning, which flex-start nodes have too; `reservation` a specific one. What is not true,
    such as a value that isn't known yet, counts as off.
    """
    on = {"queuedFlexStart": queued, "flexStart": flex_start, "spot": spot, "reservation": reservation}
    return next((mode for mode, stated in on.items() if stated is True), "onDemand")
