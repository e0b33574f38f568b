"""`gke-ai status --shares`: who is starved, who borrows, from which queue, and what can be reclaimed."""

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest
from rich.console import Console

from gke_ai.kube.cohorts import NOBODY, UNLIMITED, loans, trees
from gke_ai.ops.status.shares import Row, Sharing, as_objects, report

GPU, FLAVOR = "nvidia.com/gpu", "h100"
SINCE, NOW = "2026-11-29T08:00:00+00:00", datetime(2026, 11, 29, 10, tzinfo=UTC)
Item = dict[str, Any]


def groups(flavor: str = FLAVOR, resource: str = GPU, **amounts: str) -> list[Item]:
    return [{"flavors": [{"name": flavor, "resources": [{"name": resource, **amounts}]}]}]


def queue(
    name: str,
    quota: str,
    used: str,
    cohort: str = "team",
    *,
    reclaim: str = "Any",
    weight: str | None = None,
    share: object = None,
    flavor: str = FLAVOR,
    resource: str = GPU,
    **limits: str,
) -> Item:
    """A ClusterQueue. `limits` are lendingLimit and borrowingLimit. With a share, fair sharing is on."""
    spec: Item = {"resourceGroups": groups(flavor, resource, nominalQuota=quota, **limits)}
    spec |= {"cohortName": cohort} if cohort else {}
    spec |= {"preemption": {"reclaimWithinCohort": reclaim}} if reclaim else {}
    spec |= {"fairSharing": {"weight": weight}} if weight is not None else {}
    status: Item = {"flavorsReservation": groups(flavor, resource, total=used)[0]["flavors"]}
    status |= {"fairSharing": {"weightedShare": share}} if share is not None else {}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def cohort(name: str, quota: str = "0", parent: str = "", weight: str | None = None, **limits: str) -> Item:
    spec: Item = {"resourceGroups": groups(nominalQuota=quota, **limits)} | ({"parentName": parent} if parent else {})
    spec |= {"fairSharing": {"weight": weight}} if weight is not None else {}
    return {"metadata": {"name": name}, "spec": spec}


def waiting(name: str, gpus: str, priority: int = 0, at: str = SINCE, **spec: Any) -> Item:
    """A Workload that waits for quota. Its local queue and namespace have the name of the cluster queue."""
    requests = [{"name": "main", "resources": {GPU: gpus}}]
    reserved = [{"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "insufficient"}]
    return {
        "metadata": {"name": f"waits-{name}", "namespace": name, "creationTimestamp": at},
        "spec": {"queueName": name, "priority": priority, **spec},
        "status": {"conditions": reserved, "resourceRequests": requests},
    }


def running(name: str, gpus: str, priority: int = 0) -> Item:
    assigned = {"name": "main", "count": 1, "flavors": {GPU: FLAVOR}, "resourceUsage": {GPU: gpus}}
    return {
        "metadata": {"name": f"runs-{name}-{priority}", "namespace": name},
        "spec": {"queueName": name, "priority": priority},
        "status": {
            "conditions": [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")],
            "admission": {"clusterQueue": name, "podSetAssignments": [assigned]},
        },
    }


def rows(queues: Sequence[Item], *workloads: Item, cohorts: Sequence[Item] = ()) -> Mapping[str, Sequence[Row]]:
    names = [item["metadata"]["name"] for item in queues]
    local = [{"metadata": {"name": name, "namespace": name}, "spec": {"clusterQueue": name}} for name in names]
    return Sharing(queues, cohorts, local, workloads).rows()


def borrowed(queues: Sequence[Item], cohorts: Sequence[Item] = ()) -> list[tuple[str, str, int]]:
    return [(loan.borrower, loan.lender, int(loan.amount)) for loan in loans(trees(queues, cohorts))]


# ------------------------------------------------------------------------------------ who borrows, from which queue
TREE = [cohort("left", parent="all"), cohort("right", parent="all"), cohort("all")]
BORROWED: dict[str, tuple[list[Item], list[Item], list[tuple[str, str, int]]]] = {
    "one lender": ([queue("a", "4", "6"), queue("b", "4", "1")], [], [("a", "b", 2)]),
    "lenders share by what they do not use, in whole GPUs": (
        [queue("a", "0", "5"), queue("b", "4", "0"), queue("c", "2", "0")],
        [],
        [("a", "b", 3), ("a", "c", 2)],
    ),
    "two borrowers share two lenders": (
        [queue("a", "0", "3"), queue("b", "0", "3"), queue("c", "4", "0"), queue("d", "4", "2")],
        [],
        [("a", "c", 2), ("a", "d", 1), ("b", "c", 2), ("b", "d", 1)],
    ),
    "a lending limit keeps the rest": (
        [queue("a", "0", "3"), queue("b", "8", "0", lendingLimit="1"), queue("c", "8", "0", lendingLimit="2")],
        [],
        [("a", "b", 1), ("a", "c", 2)],
    ),
    "its own use first takes what it does not lend": (
        [queue("a", "0", "4"), queue("b", "8", "4", lendingLimit="4"), queue("c", "0", "0")],
        [],
        [("a", "b", 4)],
    ),
    "the quota of a cohort": ([queue("a", "0", "3")], [cohort("team", "8")], [("a", "cohort team", 3)]),
    "three levels: first its own cohort, then the one above": (
        [queue("a", "2", "8", "left"), queue("b", "2", "0", "left"), queue("c", "8", "4", "right")],
        TREE,
        [("a", "b", 2), ("a", "c", 4)],
    ),
    "three levels: a cohort in between lends only to its limit": (
        [queue("a", "2", "7", "left"), queue("b", "8", "0", "right"), queue("c", "8", "0", "all")],
        [cohort("left", parent="all"), cohort("right", parent="all", lendingLimit="2"), cohort("all")],
        [("a", "b", 1), ("a", "c", 4)],
    ),
    "more than there is": ([queue("a", "4", "9"), queue("b", "4", "1")], [], [("a", "b", 3), ("a", NOBODY, 2)]),
    "without a cohort it is over quota and borrows nothing": (
        [queue("a", "4", "9", ""), queue("b", "4", "0", "")],
        [],
        [],
    ),
    "a flavor that others have does not help": ([queue("a", "4", "4"), queue("b", "4", "0", flavor="l4")], [], []),
}


@pytest.mark.parametrize("case", BORROWED)
def test_a_borrower_has_its_lenders(case: str) -> None:
    queues, cohorts, expected = BORROWED[case]
    assert borrowed(queues, cohorts) == sorted(expected)


def test_what_all_borrow_is_what_kueue_counts_in_every_tree() -> None:
    """Kueue's own `borrowed` of a queue is what it uses beyond its quota. No lender lends more than it has unused."""
    for seed in range(300):
        digits = [(seed * 7919 + step * 104729) % 97 for step in range(24)]
        quotas, used = digits[:6], [digits[6 + index] % 23 for index in range(6)]
        limits = [{"lendingLimit": str(quotas[i] // 2)} if digits[12 + i] % 3 == 0 else {} for i in range(6)]
        queues = [
            queue(f"q{i}", str(quotas[i]), str(used[i]), ("left", "right", "all")[digits[18 + i] % 3], **limits[i])
            for i in range(6)
        ]
        found = loans(trees(queues, TREE))
        for i in range(6):
            owed = sum(loan.amount for loan in found if loan.borrower == f"q{i}")
            assert owed == max(0, used[i] - quotas[i]), (seed, i)
            lent = sum(loan.amount for loan in found if loan.lender == f"q{i}")
            most = min(max(0, quotas[i] - used[i]), int(limits[i].get("lendingLimit", quotas[i])))
            assert lent in range(most + 1), (seed, i)


def test_amounts_that_are_not_whole_add_up_exactly() -> None:
    queues = [
        queue("a", "0", "1", resource="cpu"),
        *(queue(name, "500m", "0", resource="cpu") for name in ("b", "c", "d")),
    ]
    assert [loan.amount for loan in loans(trees(queues, []))] == [Fraction(1, 3)] * 3


# ------------------------------------------------------------------------------------------------------ who is starved
def test_a_queue_is_starved_while_others_borrow_what_its_workloads_wait_for() -> None:
    found = rows(
        [queue("a", "4", "1"), queue("b", "4", "7")], waiting("a", "2"), waiting("a", "4", at="2026-11-29T09:00:00Z")
    )
    assert found["starved"] == [("a", FLAVOR, GPU, "1", "4", "3", SINCE, "lent to b")]
    assert found["borrowed"] == [("b", "a", FLAVOR, GPU, "3")]


@pytest.mark.parametrize(
    ("queues", "workloads"),
    [
        pytest.param([queue("a", "4", "1"), queue("b", "4", "7")], [], id="nothing waits"),
        pytest.param([queue("a", "4", "4"), queue("b", "4", "4")], [waiting("a", "2")], id="it uses all of its own"),
        pytest.param([queue("a", "4", "1"), queue("b", "4", "6")], [waiting("a", "1")], id="there is room"),
        pytest.param([queue("a", "4", "1", ""), queue("b", "4", "7", "")], [waiting("a", "4")], id="no cohort"),
        pytest.param(
            [queue("a", "4", "1"), queue("b", "4", "7")], [waiting("a", "2", active=False)], id="it is deactivated"
        ),
        pytest.param(
            [queue("a", "4", "1"), queue("b", "4", "7")], [waiting("other", "2")], id="its local queue does not exist"
        ),
        pytest.param(
            [queue("a", "4", "1", lendingLimit="0"), queue("b", "4", "4")], [waiting("a", "5")], id="lends nothing"
        ),
    ],
)
def test_a_queue_that_waits_for_something_else_is_not_starved(queues: list[Item], workloads: list[Item]) -> None:
    assert rows(queues, *workloads)["starved"] == []


def weighted(*uses: int, weights: Sequence[str] = ("3", "2", "1")) -> list[Item]:
    """Queues without quota of their own, which share what `pool` lends by weight."""
    uses_of = zip("abc", uses, weights, strict=True)
    return [
        *(queue(name, "0", str(used), weight=weight, share=used * 100) for name, used, weight in uses_of),
        queue("pool", "12", "0", share=0),
    ]


def test_with_fair_sharing_a_queue_is_starved_below_its_part_by_weight() -> None:
    found = rows(weighted(2, 6, 4), waiting("a", "1"))
    why = "members of cohort team borrow 12, its part by weight is 6"
    assert found["starved"] == [("a", FLAVOR, GPU, "2", "0", "4", SINCE, why)]
    how = "fair sharing, reclaimWithinCohort is Any: all workloads"
    assert ("a", "b and c", FLAVOR, GPU, "4", how) in found["reclaimable"]
    assert rows(weighted(6, 4, 2), waiting("a", "1"))["starved"] == [], "each has its part"
    assert [row[5] for row in rows(weighted(2, 10, 0), waiting("a", "1"))["starved"]] == ["5"], "of those who want it"


def test_without_fair_sharing_weights_do_not_count() -> None:
    queues = weighted(2, 6, 4)
    for item in queues:
        del item["status"]["fairSharing"]
    assert rows(queues, waiting("a", "1"))["starved"] == []


def test_weight_zero_is_never_starved_and_has_no_part() -> None:
    found = rows(weighted(0, 6, 6, weights=("0", "2", "1")), waiting("a", "1"))
    assert [row[0] for row in found["starved"]] == []
    assert {row[0]: (row[2], row[3]) for row in found["shares"]}["a"] == ("0", "0%")
    nothing = rows(weighted(0, 12, 0, weights=("1", "0", "0")), waiting("a", "1"))
    assert [row[5] for row in nothing["starved"]] == ["12"], "the other borrows only what nobody wants"


def test_a_cohort_below_its_part_starves_its_queues() -> None:
    """In a tree of three levels the weights of the cohorts count, where those in a cohort borrow nothing."""
    queues = [
        queue("a", "0", "0", "left", share=0),
        queue("b", "0", "8", "right", share=500),
        queue("c", "8", "0", "all"),
    ]
    (row,) = rows(queues, waiting("a", "2"), cohorts=TREE)["starved"]
    assert row[5:] == ("4", SINCE, "members of cohort all borrow 8, its part by weight is 4")


# ------------------------------------------------------------------------------------------------ what can be reclaimed
def reclaimed(reclaim: str, *workloads: Item) -> list[tuple[str, str]]:
    found = rows([queue("a", "4", "0", reclaim=reclaim), queue("b", "4", "8")], *workloads)
    assert {row[:4] for row in found["reclaimable"]} == {("a", "b", FLAVOR, GPU)}
    return [row[4:] for row in found["reclaimable"]]  # type: ignore[misc]


def test_the_policy_of_the_lender_says_what_it_can_take_back() -> None:
    assert reclaimed("Any") == [("4", "reclaimWithinCohort is Any: all workloads")]
    never = "reclaimWithinCohort is Never: it waits until workloads of b end"
    assert reclaimed("Never") == reclaimed("") == [("0", never)]
    lower = "reclaimWithinCohort is LowerPriority: workloads of a lower priority than its own"
    assert reclaimed("LowerPriority") == [("4", lower)]


def test_a_workload_that_waits_takes_back_only_from_lower_priorities() -> None:
    others = (running("b", "3", 5), running("b", "5", 50))
    below = "reclaimWithinCohort is LowerPriority: workloads of a priority below "
    assert reclaimed("LowerPriority", waiting("a", "2", 10), *others) == [("3", f"{below}10")]
    assert reclaimed("LowerPriority", waiting("a", "2", 5), *others) == [("0", f"{below}5")]
    assert reclaimed("LowerPriority", waiting("a", "2", 90), *others) == [("4", f"{below}90")]


def test_the_queues_of_a_cohort_take_back_its_own_quota() -> None:
    queues = [
        queue("a", "0", "0", "left"),
        queue("b", "0", "4", "right"),
        queue("off", "0", "0", "left", reclaim="Never"),
    ]
    cohorts = [cohort("left", "4", "all"), cohort("right", parent="all"), cohort("all")]
    found = rows(queues, cohorts=cohorts)
    assert found["borrowed"] == [("b", "cohort left", FLAVOR, GPU, "4")]
    assert [row[:5] for row in found["reclaimable"]] == [("a", "b", FLAVOR, GPU, "4"), ("off", "b", FLAVOR, GPU, "0")]
    within = rows([queue("a", "0", "0", "left"), queue("b", "0", "4", "left")], cohorts=[cohort("left", "4")])
    assert within["reclaimable"] == [], "both are of the cohort, so neither has more right to its quota"


# ----------------------------------------------------------------------------------------------- what Kueue itself says
@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0, "0"),
        (250, "250"),
        (10**12, "1000000000000"),
        (UNLIMITED, "unlimited"),
        (10**18, "unknown"),
        (-(2**63), "unknown"),
        ("NaN", "unknown"),
        (None, ""),
    ],
)
def test_an_overflow_of_a_share_is_never_shown_as_one(share: object, shown: str) -> None:
    assert rows([queue("a", "1", "0", share=share), queue("b", "1", "0")])["shares"][0][4] == shown


def test_the_shares_list_the_tree_with_weights_and_parts() -> None:
    queues = [queue("a", "0", "0", "left", weight="3"), queue("b", "0", "0", "left"), queue("alone", "1", "0", "")]
    cohorts = [
        cohort("left", parent="all", weight="1500m"),
        cohort("all"),
        cohort("right", parent="all", weight="500m"),
    ]
    assert [row[:4] for row in rows(queues, cohorts=cohorts)["shares"]] == [
        ("cohort left", "cohort all", "1.5", "75%"),
        ("a", "cohort left", "3", "75%"),
        ("b", "cohort left", "1", "25%"),
        ("cohort right", "cohort all", "0.5", "25%"),
    ]


def test_past_usage_is_that_of_kueue_with_its_time() -> None:
    status = {"consumedResources": {GPU: "1234567890n", "cpu": "12"}, "lastUpdate": SINCE}
    local = {
        "metadata": {"name": "lq", "namespace": "llm"},
        "spec": {"clusterQueue": "a", "fairSharing": {"weight": "2"}},
        "status": {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": status}},
    }
    without = {"metadata": {"name": "other", "namespace": "llm"}, "spec": {"clusterQueue": "a"}}
    found = Sharing([queue("a", "1", "0")], [], [local, without], []).rows()["past_usage"]
    assert found == [("llm/lq", "a", "2", f"1.23 {GPU}, 12 cpu", SINCE)]


def test_missing_and_hostile_objects_have_no_effect_on_the_others() -> None:
    bad = {
        "metadata": {"name": "bad"},
        "spec": {"cohortName": "team", "fairSharing": {"weight": "many"}, "resourceGroups": 7},
    }
    bad["status"] = {"flavorsReservation": "x", "fairSharing": "y"}
    cycle = [
        {"metadata": {"name": "x"}, "spec": {"parentName": "y"}},
        {"metadata": {"name": "y"}, "spec": {"parentName": "x"}},
    ]
    found = rows(
        [queue("a", "4", "6"), queue("b", "4", "1"), {"metadata": {"name": "empty"}, "spec": {}}, bad],
        {"metadata": {"name": "w", "namespace": "a"}, "spec": {"queueName": "a"}},
        cohorts=[*cycle, {"metadata": {"name": "none"}}],
    )
    assert found["borrowed"] == [("a", "b", FLAVOR, GPU, "2")]
    assert ("bad", "cohort team", "1", "33%", "") in found["shares"]


def test_a_cluster_without_cohorts_says_so() -> None:
    printed = shown(rows([queue("a", "4", "1", "")], waiting("a", "9")))
    assert printed == "No queue is starved.\nNo queue borrows.\nNo queue has a cohort, so none shares quota.\n"


def shown(found: Mapping[str, Sequence[Row]]) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(*report(found, NOW), sep="\n")
    return out.getvalue()


def test_the_tables_answer_the_three_questions_and_the_file_has_the_same() -> None:
    found = rows([queue("a", "4", "1", share=0), queue("b", "4", "7", share=750)], waiting("a", "2"))
    text = shown(found)
    for line in ("Starved", "lent to b", "Borrowed (computed", "Reclaimable", "weighted share", "2 h"):
        assert line in text
    (row,) = as_objects(found)["starved"]
    assert (row["cluster_queue"], row["lacks"], row["since"]) == ("a", "3", SINCE)
    assert as_objects(found)["shares"][1]["weighted_share"] == "750"
