"""How queues share quota: weights, cohorts, past usage, and which flavor a workload tries next."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gke_ai.settings.model.base import DnsLabel, Quantity, Section

# Admission mode of a cluster queue that orders by past usage, as Kueue calls it.
USAGE_BASED: Literal["UsageBasedAdmissionFairSharing"] = "UsageBasedAdmissionFairSharing"
Strategy = Literal["LessThanInitialShare", "LessThanOrEqualToFinalShare"]


class Weight(Section):
    """The share of a queue or cohort, beside the others with the same parent."""

    noun: ClassVar[str] = "a weight"

    weight: Quantity = Field(default="1", examples=["3"])
    """Share of the quota that the siblings lend. Twice the weight is twice the share. 0 needs `onlyIdle`."""
    only_idle: bool = False
    """With weight 0: what it borrows is only what nobody else wants. It never preempts while it borrows, and everybody
    who has a share takes it back first."""


class FairSharing(Section):
    """Fair sharing: who borrows, and who gives back, follows the weights."""

    noun: ClassVar[str] = "fair sharing"

    preemption_strategies: list[Strategy] = Field(
        default=["LessThanInitialShare"], min_length=1, examples=[["LessThanInitialShare"]]
    )
    """What a preemption must improve. LessThanInitialShare: the queue of the preemptor has, with its workload, less
    than the queue of the victim has without preemption; takes workloads of low priority first, then the newest.
    LessThanOrEqualToFinalShare: it has at most what that queue has after it; takes small workloads, whatever their
    priority. Both together may preempt forever (kubernetes-sigs/kueue#14543), and are refused. Cluster queues then need
    `withinClusterQueue: Never`, for the same reason."""


class AdmissionFairSharing(Section):
    """Order of admission by past usage of the local queues of a cluster queue."""

    noun: ClassVar[str] = "admission fair sharing"

    usage_half_life_seconds: int = Field(default=604800, ge=1, examples=[604800])
    """Time after which usage counts half, in seconds."""
    usage_sampling_seconds: int = Field(default=300, ge=1, examples=[300])
    """Interval in which Kueue samples usage, in seconds. A workload that starts counts as if it had run for one."""
    resource_weights: dict[str, float] = Field(default={}, examples=[{"nvidia.com/gpu": 1.0, "cpu": 0.0}])
    """Weight of each resource in the usage. Default: 1 for accelerators, 0 for the others."""


class FlavorFungibility(Section):
    """Whether a workload tries the next flavor before it borrows or preempts."""

    noun: ClassVar[str] = "flavor fungibility"

    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor"] = "MayStopSearch"
    """MayStopSearch: use the flavor if it can be borrowed. TryNextFlavor: first look for one without borrowing."""
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = "TryNextFlavor"
    """MayStopSearch: use the flavor if preemption makes room. TryNextFlavor: first look for one without preemption."""
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = Field(
        default=None, examples=["PreemptionOverBorrowing"]
    )
    """What is better if every flavor needs one of them. Default: Kueue's, BorrowingOverPreemption."""


class BorrowWithinCohort(Section):
    """Whether a workload may preempt others in order to borrow."""

    noun: ClassVar[str] = "preemption in order to borrow"

    policy: Literal["Never", "LowerPriority"] = "LowerPriority"
    """LowerPriority: a workload that borrows may evict workloads of the cohort that have a lower priority."""
    max_priority_threshold: int | None = Field(default=None, examples=[10])
    """Highest priority that such a victim may have. Default: any below its own."""


class CohortQuota(Section):
    """Quota of a cohort for one flavor, beside that of its queues."""

    noun: ClassVar[str] = "the quota of a cohort"

    flavor: str
    """Name of the flavor."""
    quota: dict[str, Quantity]
    """Quota by resource, added to what the queues of the cohort lend."""
    borrowing_limit: dict[str, Quantity] = Field(default={}, examples=[{"nvidia.com/gpu": "4"}])
    """Maximum that the cohort may borrow from its parent, by resource. Default: all that the parent has."""
    lending_limit: dict[str, Quantity] = Field(default={}, examples=[{"nvidia.com/gpu": "2"}])
    """Maximum that the cohort lends to its parent, by resource. Default: all that it has."""


class Cohort(Section):
    """A Kueue Cohort: cluster queues and cohorts that lend each other unused quota."""

    noun: ClassVar[str] = "a cohort"

    name: DnsLabel
    """Name of the cohort. Cluster queues join it with `cohort`."""
    parent: DnsLabel | None = Field(default=None, examples=["company"])
    """Cohort from which it borrows and to which it lends. Default: none, so it is the root of a tree."""
    flavors: list[CohortQuota] = Field(default=[])
    """Quota of the cohort itself. Default: none; then it has what its queues and cohorts lend."""
    fair_sharing: Weight | None = None
    """Its share beside the other members of the parent. Default: weight 1."""
