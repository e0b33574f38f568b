"""The report says how the cohorts of a stack share quota, before and after its plan, without a cluster."""

from collections.abc import Mapping
from typing import Any

from gke_ai.review.report.changes import PlannedUpdate, Resource
from gke_ai.review.report.page import Options, page
from gke_ai.review.report.policies import Verdict
from gke_ai.review.report.shares import share_rows

GPU = "nvidia.com/gpu"


def registered(kind: str, name: str, quota: Mapping[str, str], limits: Mapping[str, str], **spec: Any) -> Resource:
    """A ClusterQueue or a Cohort as Pulumi registers it. Its limits are of GPUs."""
    amounts = [
        {"name": resource, "nominalQuota": amount, **(limits if resource == GPU else {})}
        for resource, amount in quota.items()
    ]
    flavors = {"flavors": [{"name": "h100", "resources": amounts}]}
    inputs = {"metadata": {"name": name}, "spec": {"resourceGroups": [flavors], **spec}}
    return Resource(f"urn:{kind}:{name}", f"kubernetes:kueue.x-k8s.io/v1beta2:{kind}", inputs=inputs)


def queue(name: str, gpus: str, cohort: str | None, weight: str | None = None, **limits: str) -> Resource:
    fair = {"fairSharing": {"weight": weight}} if weight else {}
    spec = fair | ({"cohortName": cohort} if cohort else {})
    return registered("ClusterQueue", name, {GPU: gpus, "cpu": "100"}, limits, **spec)


def cohort(name: str, gpus: str = "0", parent: str | None = None, weight: str | None = None, **limits: str) -> Resource:
    fair = {"fairSharing": {"weight": weight}} if weight else {}
    return registered("Cohort", name, {GPU: gpus}, limits, **fair, **({"parentName": parent} if parent else {}))


def plan(before: list[Resource], after: list[Resource]) -> PlannedUpdate:
    return PlannedUpdate("prod", {item.urn: item for item in before}, {item.urn: item for item in after}, ())


def gpus(count: int) -> str:
    return f"{count} nvidia.com/gpu of h100"


TREE = [
    cohort("company", "8"),
    cohort("research", parent="company", weight="3", borrowingLimit="4"),
    queue("vision", "4", "research", "2"),
    queue("speech", "4", "research", lendingLimit="1"),
    queue("serving", "6", "company", lendingLimit="0"),
    queue("alone", "2", None),
]


def test_a_tree_has_a_row_per_member_with_its_part_and_its_limits() -> None:
    assert share_rows(plan(TREE, TREE)) == [
        ("cohort company", "–", gpus(8), "–", "–", "–", "–"),
        ("cohort research", "cohort company", "–", "3", "75%", gpus(5), gpus(4)),
        ("speech", "cohort research", gpus(4), "1", "33%", gpus(1), gpus(8)),
        ("vision", "cohort research", gpus(4), "2", "67%", gpus(4), gpus(5)),
        ("serving", "cohort company", gpus(6), "1", "25%", "–", gpus(13)),
    ]


def test_a_plan_that_changes_weights_and_members_shows_both_sides() -> None:
    changed = [*TREE[:2], queue("vision", "4", "research", "1"), queue("audio", "0", "research"), *TREE[4:]]
    rows = {row[0]: row for row in share_rows(plan(TREE, changed))}
    assert rows["vision"][3:5] == ("2 → 1", "67% → 50%")
    assert rows["speech"][2:5] == (f"{gpus(4)} → –", "1 → –", "33% → –")
    assert rows["audio"][2:6] == ("–", "– → 1", "– → 50%", "–")


def test_flat_cohorts_need_no_object_and_stacks_without_cohorts_have_no_section() -> None:
    flat = [queue("a", "4", "team"), queue("b", "2", "team")]
    assert [row[0] for row in share_rows(plan([], flat))] == ["cohort team", "a", "b"]
    assert "## Shares" in page(plan([], flat), Verdict(), Options())
    assert "## Shares" not in page(plan([], [queue("a", "4", None)]), Verdict(), Options())


def test_where_no_accelerator_is_shared_other_resources_are_listed() -> None:
    cpus = [registered("ClusterQueue", name, {"cpu": "1500m"}, {}, cohortName="team") for name in ("a", "b")]
    assert share_rows(plan(cpus, cpus))[1][2] == "1500m cpu of h100"


def test_a_name_of_a_queue_cannot_become_anything_else_on_the_page() -> None:
    text = page(plan([], [queue("a|<b>@x", "4", "team"), queue("[x](y)", "4", "team")]), Verdict(), Options())
    assert "a\\|&lt;b>@\u200bx" in text
    assert "[x](y)" not in text
    nameless = Resource("urn:x", "kubernetes:kueue.x-k8s.io/v1beta2:Cohort", inputs={"metadata": "unknown"})
    assert share_rows(plan([nameless], [nameless])) == []
