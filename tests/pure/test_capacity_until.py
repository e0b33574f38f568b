"""The end of a reservation, in all that knows it: configuration, report, status, queue and forecasts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest

from gke_ai.catalog.machines.capacity import UNTIL, capacity_until, moment
from gke_ai.catalog.nodes.shape import GKE_NODEPOOL
from gke_ai.forecast.simulate import command as simulate
from gke_ai.forecast.simulate.replay import Replay
from gke_ai.forecast.when import command as when
from gke_ai.forecast.when.answer import Answer
from gke_ai.ops.status.command import ClusterObjects, next_steps, pool_rows
from gke_ai.ops.submit.checks import ending
from gke_ai.registered.types import NODE_POOL
from gke_ai.review.report.accelerators import ends
from gke_ai.review.report.changes import Resource
from gke_ai.settings import load
from gke_ai.settings.published import Published, publish, resolved
from gke_ai.settings.rules.warnings import ending_capacity
from gke_ai.workspace.stack import Stack
from tests.support.simulation.fake import FirstComeFirstServed
from tests.support.simulation.pools import configured, gpu_pool, plenty
from tests.support.simulation.theory import run
from tests.support.snapshots import TAKEN, snapshot

END = datetime(2027, 3, 14, tzinfo=UTC)
BEFORE, AFTER = END - timedelta(hours=5), END + timedelta(hours=5)
CALENDAR = {"mode": "reservation", "reservation": "march", "until": moment(END)}
LABELS = {UNTIL: "20270314T000000Z"}
Object = dict[str, Any]


def pool(name: str, capacity: Object | None = None, **more: Any) -> Object:
    kept = {"machineType": "g2-standard-24", "zones": ["us-central1-a"], "nodesPerZone": 2, **more}
    return {"name": name, **kept, **({"capacity": capacity} if capacity else {})}


def stack(*pools: Object, on: str = "march") -> Any:
    server = {"name": "chat", "model": "google/gemma-2-2b", "pool": on}
    return load({"cluster": {"mode": "standard"}, "gpuPools": list(pools), "serving": [server]}, "my-project")


def test_nodes_have_the_end_in_a_label() -> None:
    march, other = stack(pool("march", CALENDAR), pool("other")).pools
    assert march.node_labels.items() >= LABELS.items()
    assert UNTIL not in other.node_labels
    assert (capacity_until(march.node_labels), capacity_until(other.node_labels)) == (END, None)
    assert capacity_until({UNTIL: "tomorrow"}) is None


DELETES = "Google deletes the reservation and its machines at 2027-03-14T00:00:00Z. Pods of chat can be on them."
DELETED = "Google deleted the reservation and its machines at 2027-03-14T00:00:00Z."


@pytest.mark.parametrize(("now", "says"), [(END - timedelta(days=8), ""), (BEFORE, DELETES), (END, DELETED)])
def test_a_preview_warns_in_the_last_days_and_after_the_end(now: datetime, says: str) -> None:
    resolved = stack(pool("march", CALENDAR), pool("other"))
    found = ending_capacity(resolved.pools, resolved.placed, now)
    assert len(found) == bool(says)
    assert all(text.startswith("gke-ai:gpuPools[0].capacity.until: ") and says in text for text in found)
    assert all(("Name another reservation" in text) == (now == END) for text in found)
    unused = stack(pool("march", CALENDAR), pool("other"), on="other")
    assert not any("Pods of" in text for text in ending_capacity(unused.pools, unused.placed, BEFORE))


def test_the_report_names_the_end() -> None:
    inputs = {
        "a": {"name": "march", "nodeConfig": {"labels": LABELS}},
        "b": {"name": "other", "nodeConfig": {"labels": {"team": "a"}}},
    }
    (text,) = ends({name: Resource(name, NODE_POOL, inputs=values) for name, values in inputs.items()})
    assert text.startswith("The reservation of node pool march ends at 2027-03-14T00:00:00Z.")


def test_the_status_shows_the_end_of_a_pool_with_and_without_nodes() -> None:
    node = {"metadata": {"name": "n", "labels": {GKE_NODEPOOL: "here", UNTIL: "20200101T000000Z"}}, "status": {}}
    later = datetime.now(UTC) + timedelta(days=9, hours=1)
    empty = {"name": "empty", "nodeConfig": {"labels": {UNTIL: later.strftime("%Y%m%dT%H%M%SZ")}}}
    rows = [row[2] for row in pool_rows(ClusterObjects(nodes=[node], pools=[empty]))]
    assert rows == [f"reservation until {moment(later)} (in 9 d)", "reservation until 2020-01-01T00:00:00Z (ended)"]
    gone = {"name": "gone", "nodeConfig": {"labels": {UNTIL: "20200101T000000Z"}}}
    steps = next_steps(Stack("prod"), ClusterObjects(pools=[empty, gone]), shortened=False)
    (step,) = (step for step in steps if "reservation" in step)
    assert step.startswith("the reservation of pool gone has ended;")


def test_tenants_are_told_the_end() -> None:
    queues = {
        "flavors": [{"name": "f", "pools": ["march"]}],
        "clusterQueues": [{"name": "q", "flavors": [{"flavor": "f", "quota": "derive"}]}],
        "localQueues": [{"name": "lq", "namespace": "team-a", "clusterQueue": "q"}],
    }
    values = {"cluster": {"mode": "standard"}, "gpuPools": [pool("march", CALENDAR)], "queues": queues}
    own = load({**values, "tenants": [{"name": "team-a", "members": ["group:a@example.com"]}]}, "my-project")
    (found,) = resolved(Published.parse(publish(own, own.spaces[0], "my-project"))).pools
    assert capacity_until(found.node_labels) == END


def test_submit_refuses_a_run_whose_pools_have_all_ended_and_notes_those_that_will() -> None:
    march, other = stack(pool("march", CALENDAR), pool("other")).node_pools
    assert ending([march], BEFORE)[0] == ""
    (note,) = ending([march, other], BEFORE)[1]
    assert note.startswith("Google deletes the nodes of pool march at 2027-03-14T00:00:00Z, in 5 h. ")
    assert ending([march], AFTER) == ("the reservation of pool march has ended, and Google deleted its nodes", [])
    assert ending([march, other], AFTER) == ("", [])
    assert ending([], AFTER) == ("", [])


def day(trace: list[Any], begin: datetime | None, *pools: Object) -> Replay:
    capacity = plenty()
    capacity.begin = begin
    replay = Replay(FirstComeFirstServed(100, "one"), configured(8, gpuPools=list(pools)), tuple(trace), capacity)
    replay.run()
    return replay


FIXED = gpu_pool("march", nodes=(2, 2), capacity=CALENDAR)


def test_a_run_loses_its_nodes_at_the_end_and_gets_others_only_of_another_pool() -> None:
    first, second = day([run(0, 3000), run(10_000, 100)], END - timedelta(seconds=2000), FIXED).runs
    assert first.spans == [(0, 2000)]
    assert (first.expiries, first.ended, first.waited_for_nodes >= 0) == (1, False, True)
    assert (second.spans, second.holds_quota) == ([], True), "Kueue admits it, and no node comes"
    (moved,) = day([run(0, 3000, checkpoint=100)], END - timedelta(seconds=2000), FIXED, gpu_pool("other")).runs
    assert (moved.ended, moved.expiries, len(moved.spans)) == (True, 1, 2)


@pytest.mark.parametrize(("begin", "runs"), [(AFTER, False), (END, False), (None, True), (BEFORE, True)])
def test_a_day_after_the_end_has_no_such_nodes(begin: datetime | None, runs: bool) -> None:
    replay = day([run(0, 100)], begin, FIXED)
    assert replay.runs[0].ended == runs
    assert bool(replay.groups(1000)[0].units) == runs


def test_a_simulation_notes_the_hour_of_the_end() -> None:
    queues = configured(8, gpuPools=[FIXED, gpu_pool("other")])
    runs = day([run(0, 3000), run(10, 100)], END - timedelta(seconds=2000), FIXED).runs
    note, waiting = simulate.reservation_ends("a.yaml", queues, BEFORE, runs)
    assert note.startswith("a.yaml: the reservation of pool march ends at 2027-03-14T00:00:00Z, hour 5.0 of a day that")
    assert waiting == "a.yaml: of 2 runs, 1 have quota at the end, and wait for nodes that do not come."
    assert [*simulate.reservation_ends("a.yaml", configured(8, gpuPools=[gpu_pool()]), BEFORE, runs)] == []


def question(*nodes: Object, flavors: tuple[str, ...] = ()) -> tuple[Answer, list[str]]:
    flavor = {"metadata": {"name": "l4"}, "spec": {"nodeLabels": {GKE_NODEPOOL: "march"}}}
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "l4", "resources": []}]}
    others = {"coveredResources": ["example.com/license"], "flavors": [{"name": "any", "resources": []}]}
    queue = {"metadata": {"name": "training"}, "spec": {"resourceGroups": [others, group]}}
    state = snapshot(ResourceFlavor=[flavor], Node=list(nodes), ClusterQueue=[queue])
    container = {"resources": {"requests": {"nvidia.com/gpu": "1"}}}
    workload = {"spec": {"podSets": [{"template": {"spec": {"containers": [container]}}}]}}
    return when.with_end(Answer("r", "training", flavors=flavors, workload=workload), state)


def node(name: str, end: timedelta | None) -> Object:
    until = {UNTIL: (TAKEN + end).strftime("%Y%m%dT%H%M%SZ")} if end else {}
    return {"metadata": {"name": name, "labels": {GKE_NODEPOOL: "march", **until}}}


@pytest.mark.parametrize("flavors", [(), ("l4",)], ids=["waits", "starts"])
def test_an_answer_knows_when_the_nodes_of_its_flavor_are_deleted(flavors: tuple[str, ...]) -> None:
    found, notes = question(node("a", timedelta(hours=1)), node("b", timedelta(hours=2)), flavors=flavors)
    assert found.left == 7200
    assert "The nodes of flavor l4 are deleted at" in notes[0]
    assert "in 2.0 h" in notes[0]
    assert when.as_json(found)["nodesEndAfter"] == 7200
    assert question(node("a", timedelta(hours=1)), node("b", None), flavors=flavors)[0].left == inf
    assert question(flavors=flavors) == (replace(found, left=inf), [])


def test_an_answer_after_the_end_says_that_pods_would_wait_and_a_later_start_is_none() -> None:
    found, notes = question(node("a", -timedelta(hours=1)))
    assert found.left == -3600
    assert "were deleted at" in notes[0]
    waits = Answer("r", "training", waits=(600.0, inf, inf), left=7200.0)
    assert when.interval(waits).endswith("10.0 min to more than 2.0 h.")
    assert when.interval(replace(waits, waits=(inf,))) == "It starts in none of the replays within 2.0 h."
