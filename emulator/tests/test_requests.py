"""The nodes of a ProvisioningRequest, and the conditions that it goes through."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from emulator.cloud.records import PoolRecord
from emulator.nodes import objects as nodes
from emulator.nodes import requests
from emulator.tests.pods import GPU_POOL, MULTI_HOST, QUEUED, STANDARD, ZONES, l4_pod, nodes_of, tpu_pod
from gke_ai.catalog.nodes.shape import GKE_NODEPOOL, ZONE

Object = dict[str, Any]

START = datetime(2026, 1, 1, tzinfo=UTC)
QUEUED_SLICE = replace(MULTI_HOST, capacity="queuedFlexStart")
TEMPLATES = {
    "t": {"template": {"spec": l4_pod("p")["spec"]}},
    "slice": {"template": {"spec": tpu_pod("p", "4x4")["spec"]}},
}


def request(*counts: int, template: str = "t", name: str = "r", **parameters: str) -> Object:
    """A request with a pod set for each count."""
    sets = [{"count": count, "podTemplateRef": {"name": template}} for count in counts]
    metadata = {"name": name, "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"podSets": sets, "parameters": parameters}}


def provision(of: Object, pools: list[PoolRecord], *, present: tuple[Object, ...] = (), **spec: Any) -> list[Object]:
    templates = {name: {"template": {"spec": made["template"]["spec"] | spec}} for name, made in TEMPLATES.items()}
    return requests.new_nodes(STANDARD, pools, present, of, templates)


def zones(created: list[Object]) -> set[str]:
    return {nodes.label(node, ZONE) for node in created}


def test_all_pod_sets_get_new_nodes_of_one_zone_of_one_pool_as_their_pods_select() -> None:
    created = provision(request(2, 1), [GPU_POOL, QUEUED])
    assert [nodes.pool_of(node) for node in created] == ["queued"] * 3
    assert len(zones(created)) == 1
    for zone in ZONES:
        assert zones(provision(request(1), [QUEUED], nodeSelector={ZONE: zone})) == {zone}


def test_nodes_are_labeled_with_a_name_that_fits_a_label_and_no_other_request_has() -> None:
    long, twin = request(1, name="a" * 200), request(1, name="a" * 199 + "b")
    (node,) = provision(long, [QUEUED])
    label = nodes.label(node, requests.PROVISIONING_REQUEST)
    assert label == requests.resize_request(long)
    assert label.startswith(f"gke-team-{'a' * 20}-")
    assert len(label) <= 63
    assert label != requests.resize_request(twin)
    twin["metadata"]["namespace"] = "other"
    assert len({requests.resize_request(each) for each in (long, twin, request(1))}) == 3


@pytest.mark.parametrize("count", [1, 4])
def test_a_request_on_a_slice_gets_the_whole_slice(count: int) -> None:
    created = provision(request(count, template="slice"), [QUEUED_SLICE])
    assert (len(created), len(zones(created))) == (4, 1)
    labels = {nodes.label(node, requests.PROVISIONING_REQUEST) for node in created}
    assert labels == {requests.resize_request(request(1))}


SIZE, ONE_NODE = "NodepoolSizeReached", tuple(nodes_of(QUEUED, 1))
SECOND = replace(QUEUED, name="second")
TOO_LARGE = "{}: it has {} of at most {} nodes, and the request needs {} more".format
NO_POOL = "the cluster has no node pool with queued provisioning"
ELSEWHERE = {"nodeSelector": {GKE_NODEPOOL: "gpu"}}
NOT_SELECTED = f"queued: it has no label {GKE_NODEPOOL}=gpu"


@pytest.mark.parametrize(
    ("wanted", "pools", "options", "reason", "text"),
    [
        (request(4), [QUEUED], {}, SIZE, TOO_LARGE("queued", 0, 3, 4)),
        (request(3), [QUEUED], {"present": ONE_NODE}, SIZE, TOO_LARGE("queued", 1, 3, 3)),
        (request(2, 2), [QUEUED, SECOND], {}, SIZE, TOO_LARGE("second", 0, 3, 4)),
        (request(5, template="slice"), [QUEUED_SLICE], {}, SIZE, TOO_LARGE("multi", 0, 4, 5)),
        (request(1), [GPU_POOL], {}, "NoQueuedNodepoolAvailable", NO_POOL),
        (request(1), [QUEUED], ELSEWHERE, "ProvisioningRequestNotSchedulableInNodepool", NOT_SELECTED),
    ],
    ids=["too large", "existing nodes count", "two pools", "too large for a slice", "no queued pool", "not selected"],
)
def test_a_request_that_no_node_group_can_serve_gets_the_reason(
    wanted: Object, pools: list[PoolRecord], options: Object, reason: str, text: str
) -> None:
    with pytest.raises(requests.NotServed) as refused:
        provision(wanted, pools, **options)
    assert (refused.value.reason, str(refused.value)) == (reason, text)


def test_a_request_that_fits_a_pool_waits_for_capacity() -> None:
    with pytest.raises(requests.NoCapacity, match="queued: no queuedFlexStart capacity"):
        requests.new_nodes(STANDARD, [QUEUED], [], request(1), TEMPLATES, ["queuedFlexStart"])


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def become(of: Object, conditions: list[Object]) -> list[str]:
    """Writes conditions into a request. Returns them in short."""
    if (all_conditions := requests.changed(of, conditions)) is not None:
        of["status"] = {"conditions": all_conditions}
    return [f"{each['type']}={each['status']} {each['reason']}" for each in conditions]


def refuse(of: Object, seconds: float) -> list[str]:
    return become(of, requests.not_served(of, REFUSAL, at(seconds), 120, START))


REFUSAL = requests.NotServed("NodepoolSizeReached", "too large")


def pass_time(of: Object, seconds: float, began: datetime = START) -> list[str]:
    return become(of, requests.due(of, at(seconds), 600, began))


def test_a_request_that_no_pool_can_serve_fails_after_two_minutes_for_good() -> None:
    of = request(4)
    assert refuse(of, 1) == refuse(of, 119) == ["Accepted=False NodepoolSizeReached"]
    assert requests.is_open(of)
    assert refuse(of, 120) == ["Failed=True NodepoolSizeReached"]
    assert not requests.is_open(of)
    assert pass_time(of, 10**7) == []


def test_a_request_that_waits_for_capacity_stays_accepted_until_it_is_no_longer_valid() -> None:
    of = request(1, ValidUntilSeconds="3600")
    become(of, requests.accepted(False, "ResourcePoolExhausted", "no capacity", at(1)))
    assert refuse(of, 60) == [], "its place in the queue stays"
    assert pass_time(of, 3600) == []
    assert pass_time(of, 3601) == ["Failed=True WaitTimeExceeded"]


@pytest.mark.parametrize("valid", ["soon", "0", "-5", "9" * 30])
def test_a_malformed_time_of_validity_counts_as_none(valid: str) -> None:
    assert pass_time(request(1, ValidUntilSeconds=valid), 10**6) == []


def test_the_booking_expires_and_the_nodes_are_reclaimed_at_the_end_of_the_run() -> None:
    of = request(1, maxRunDurationSeconds="7200")
    assert not requests.is_booked(of)
    assert become(of, requests.accepted(True, "Provisioned", "there", at(10))) == [
        "Accepted=True SuccessfullyQueued",
        "Provisioned=True Provisioned",
    ]
    assert requests.is_booked(of)
    assert pass_time(of, 609) == []
    assert pass_time(of, 610) == ["BookingExpired=True BookingExpired"]
    assert not requests.is_booked(of)
    assert pass_time(of, 7209) == []
    assert pass_time(of, 7210) == ["CapacityRevoked=True CapacityRevoked"]
    assert pass_time(of, 10**6) == []


def test_nodes_without_a_duration_are_reclaimed_after_seven_days() -> None:
    of = provisioned()
    assert pass_time(of, 604799) == ["BookingExpired=True BookingExpired"]
    assert pass_time(of, 604800) == ["CapacityRevoked=True CapacityRevoked"]


def test_a_copy_of_a_cluster_counts_times_from_its_start() -> None:
    of = provisioned(maxRunDurationSeconds="7200")
    assert pass_time(of, 10**6, began=at(10**6 - 7199)) == ["BookingExpired=True BookingExpired"]
    assert pass_time(of, 10**6, began=at(10**6 - 7200)) == ["CapacityRevoked=True CapacityRevoked"]


def provisioned(**parameters: str) -> Object:
    of = request(1, **parameters)
    become(of, requests.accepted(True, "Provisioned", "there", START))
    return of


def test_an_unchanged_condition_is_not_written_again() -> None:
    of = request(4)
    refuse(of, 1)
    assert requests.changed(of, requests.accepted(True, "Provisioned", "there", at(2)))
    assert requests.changed(of, requests.not_served(of, REFUSAL, at(2), 120, START)) is None
