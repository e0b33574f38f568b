"""What cases of Kueue's tables set in the configuration of its manager."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
# Kueue's default is true: pkg/features/kube_features.go.
ENABLED_BY_DEFAULT = (
    *("ElasticJobsViaWorkloadSlices", "PartialAdmission", "TASMultiLayerTopology", "TASProfileMixed"),
    "TASRecomputeAssignmentWithinSchedulingCycle",
)
# Of the gates that cases of topology turn off: pkg/features/kube_features.go.
DISABLED_BY_DEFAULT = ("TASBalancedPlacement",)
# Fields of the cases of Kueue 0.16 that turn gates off: pkg/scheduler/scheduler_test.go.
TURNED_OFF = {"disableLendingLimit": "LendingLimit", "disablePartialAdmission": "PartialAdmission"}
# The scheduler's own, which a cluster must name: parseStrategies in pkg/scheduler/preemption/preemption.go.
STRATEGIES = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
# The clock of TestScheduleForAFS stands still, with a half-life of 10 s and an interval of 1 s. With hours in their
# place, an admission counts as much, and the usage with which a case begins stays as it is.
BY_USAGE = {"usageHalfLifeTime": "10h", "usageSamplingInterval": "1h"}


@dataclass(frozen=True)
class Configuration:
    """What the cases of a group set in the configuration of Kueue's manager.

    Attributes:
        strategies: Preemption strategies of fair sharing. None: no fair sharing.
        gates: Feature gates.
        resources: How requests become resources with quota, as JSON.
        by_usage: Whether the past usage of local queues decides the order.
        further: Sections as they are.
    """

    strategies: tuple[str, ...] | None = None
    gates: tuple[tuple[str, bool], ...] = ()
    resources: str = ""
    by_usage: bool = False
    further: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def sections(self) -> Object:
        fair = {} if self.strategies is None else {"fairSharing": {"preemptionStrategies": [*self.strategies]}}
        gates = {"featureGates": dict(self.gates)} if self.gates else {}
        by_usage = {"admissionFairSharing": BY_USAGE} if self.by_usage else {}
        return {
            **self.further,
            **fair,
            **by_usage,
            **gates,
            **({"resources": json.loads(self.resources)} if self.resources else {}),
        }


def configuration(case: Mapping[str, Any], fair: bool, by_usage: bool = False) -> Configuration:
    """The configuration of a case, with the gates that differ from Kueue's defaults."""
    default = {True: ENABLED_BY_DEFAULT, False: DISABLED_BY_DEFAULT}
    off = {gate: False for key, gate in TURNED_OFF.items() if case.get(key)}
    stated = {**(case.get("featureGates") or {}), **off}.items()
    gates = tuple(sorted((gate, on) for gate, on in stated if gate not in default[on]))
    transformed = case.get("resourceTransformations")
    resources = json.dumps({"transformations": transformed}) if transformed else ""
    strategies = tuple(case.get("strategies") or STRATEGIES) if fair else None
    return Configuration(strategies, gates, resources, by_usage)
