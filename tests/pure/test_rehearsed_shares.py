"""A rehearsal says each queue's share before and after, what it lends and owes, and what is over quota in a tree."""

import json

import pytest

from gke_ai.forecast.outcome.outcome import outcome
from gke_ai.forecast.render import rehearsal
from gke_ai.forecast.result.forecast import OverQuota, Share, parse
from gke_ai.kube.cohorts import UNLIMITED
from tests.support.timelines import Item, Observed, cluster_queue, cohort, timeline


def queue(name: str, quota: str, used: str, parent: str = "all", *, at: float = -1, **fair: object) -> Observed:
    """A cluster queue. `fair` are its weight, and the share that Kueue states where fair sharing is on."""
    return at, "queue", weighted(cluster_queue(name, quota, used, parent), **fair)


def group(name: str, quota: str = "0", parent: str = "", *, at: float = -1, **more: object) -> Observed:
    limits = {key: str(more.pop(key)) for key in ("borrowingLimit", "lendingLimit") if key in more}
    return at, "cohort", weighted(cohort(name, quota, parent, **limits), **more)


def weighted(item: Item, weight: object = None, share: object = None) -> Item:
    item["spec"] |= {"fairSharing": {"weight": weight}} if weight is not None else {}
    fair = {"fairSharing": {"weightedShare": share}} if share is not None else {}
    return item | {"status": {**item.get("status", {}), **fair}}


def over(queues: str, used: str, quota: str, before: bool = False) -> OverQuota:
    return OverQuota(queues, "l4", "nvidia.com/gpu", used, quota, before=before)


GONE = group("all", "8")[1:]
OVER: dict[str, tuple[list[Observed], list[OverQuota]]] = {
    "a cohort's quota is gone at the end": (
        [queue("a", "2", "6"), (-1, *GONE), (2, *GONE, "gone")],
        [over("a", "6", "2")],
    ),
    "a cohort's quota is lowered": (
        [queue("a", "2", "6"), group("all", "8"), group("all", "3", at=2)],
        [over("a", "6", "5")],
    ),
    "a cohort moves from under its parent": (
        [queue("a", "2", "6", "team"), group("team", parent="all"), group("all", "8"), group("team", at=2)],
        [over("a", "6", "2")],
    ),
    "a limit of a cohort in the middle": (
        [
            queue("a", "0", "6", "team"),
            group("team", parent="org", borrowingLimit="4"),
            group("org", parent="all"),
            group("all", "9"),
        ],
        [over("a", "6", "4", before=True)],
    ),
    "weight 0 changes no quota": ([queue("a", "0", "6", weight="0", share=UNLIMITED), group("all", "6")], []),
}


@pytest.mark.parametrize("case", OVER)
def test_what_is_over_quota_counts_the_tree_at_the_end(case: str) -> None:
    observed, expected = OVER[case]
    assert outcome(timeline(*observed)).over_quota == tuple(expected)


FAIR = timeline(
    queue("a", "4", "8", weight="1", share=400),
    queue("b", "4", "0", weight="1", share=0),
    queue("a", "4", "6", at=2, weight="1", share=200),
    queue("b", "4", "2", at=2, weight="3", share=0),
    queue("alone", "4", "2", "", share=0),
    group("all", "2"),
)


def test_shares_have_weights_and_figures_before_and_after_and_what_each_lends_and_owes() -> None:
    lends = "1 nvidia.com/gpu of l4"
    assert outcome(FAIR).shares == (
        Share("a", "1", "1", "400", "200", "", "2 nvidia.com/gpu of l4"),
        Share("b", "1", "3", "0", "0", lends, ""),
    )
    (table,) = (rows for title, _, rows in rehearsal.tables(outcome(FAIR)) if title == "Shares")
    assert table == [("a", "1", "400 → 200", "–", "2 nvidia.com/gpu of l4"), ("b", "1 → 3", "0", lends, "–")]


def test_a_change_that_turns_fair_sharing_on_has_shares_only_afterwards() -> None:
    on = timeline(queue("a", "4", "8"), queue("b", "9", "0"), queue("a", "4", "8", at=2, weight="0", share=UNLIMITED))
    (share,) = outcome(on).shares
    assert (share.name, share.share_before, share.share_after) == ("a", "", "unlimited")
    (table,) = (rows for title, _, rows in rehearsal.tables(outcome(on)) if title == "Shares")
    assert table == [("a", "1 → 0", "– → unlimited", "–", "4 nvidia.com/gpu of l4")]


def test_without_fair_sharing_a_rehearsal_has_no_shares() -> None:
    assert outcome(timeline(queue("a", "4", "8"), queue("b", "4", "0"))).shares == ()


def test_the_result_file_has_the_shares_and_an_older_one_has_none() -> None:
    written = outcome(FAIR).written()
    assert parse(written).shares == outcome(FAIR).shares
    older = json.loads(written)
    del older["shares"]
    assert parse(json.dumps(older)).shares == ()
