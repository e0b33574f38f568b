"""The plan of a pool's upgrade: which nodes are replaced together, by GKE's published rules."""

from typing import Any

import pytest

from emulator.nodes.upgrades import Window, batches, replacement, soaks, windows
from gke_ai.catalog.nodes.shape import ZONE
from gke_ai.catalog.nodes.upgrades import BadUpgradeSettings, UpgradeSettings, flat, read_settings, settings

BLUE_GREEN = "BLUE_GREEN"


def node(name: str, zone: str = "a", **labels: str) -> dict[str, Any]:
    """A node in a zone."""
    return {"metadata": {"name": name, "labels": {ZONE: zone, **labels}}, "spec": {}, "status": {}}


FIVE = [node(f"n{number}") for number in range(5)]


def shape(nodes: list[dict[str, Any]], **stated: Any) -> list[tuple[list[str], int, int]]:
    """The windows of a surge upgrade: names, surge nodes, and nodes replaced in place at a time."""
    return [
        ([node["metadata"]["name"] for node in window.nodes], window.surge, window.in_place)
        for window in windows(nodes, UpgradeSettings(**stated))
    ]


def test_a_surge_upgrade_replaces_nodes_zone_by_zone_and_at_most_20_at_a_time() -> None:
    # Google's own example: two surge nodes, and one existing node disrupted.
    assert shape(FIVE, max_surge=2, max_unavailable=1) == [(["n0", "n1", "n2", "n3", "n4"], 2, 1)]
    nodes = [node("b1", "b"), node("a1"), node("a2"), node("b2", "b"), node("b3", "b")]
    assert shape(nodes, max_surge=1, max_unavailable=2) == [(["a1", "a2"], 1, 1), (["b1", "b2", "b3"], 1, 2)]
    assert shape([node(f"n{number:02}") for number in range(30)], max_surge=15, max_unavailable=10)[0][1:] == (15, 5)


def test_a_multi_host_slice_is_recreated_at_once_whatever_the_settings_say() -> None:
    """https://docs.cloud.google.com/kubernetes-engine/docs/how-to/gpus, Upgrade node pools using accelerators."""
    topology = {"cloud.google.com/gke-tpu-topology": "4x4", "cloud.google.com/gke-accelerator-count": "4"}
    nodes = [node(f"n{number}", **topology) for number in range(4)]
    assert windows(nodes, UpgradeSettings(max_surge=1)) == [Window(tuple(nodes), 0, 4, together=True)]


def test_batches_have_a_number_or_share_of_nodes_and_soak_for_seven_days_at_most() -> None:
    def sizes(**stated: Any) -> list[int]:
        return [len(batch) for batch in batches(FIVE, UpgradeSettings(BLUE_GREEN, **stated))]

    assert sizes(batch_nodes=2) == sizes(batch_share=0.5) == [2, 2, 1]
    assert sizes(batch_share=0.1) == [1] * 5, "one at least"
    assert sizes(batch_nodes=9) == [5]
    day = 86_400
    assert soaks(2, UpgradeSettings(BLUE_GREEN, batch_soak=60, pool_soak=3600)) == [60, 60, 3600]
    assert soaks(2, UpgradeSettings(BLUE_GREEN, batch_soak=3 * day, pool_soak=7 * day)) == [3 * day, 3 * day, day]
    assert soaks(3, UpgradeSettings(BLUE_GREEN, batch_soak=3 * day, pool_soak=day)) == [3 * day, 3 * day, day, 0]


def test_settings_are_keys_of_the_api_with_gke_s_defaults() -> None:
    assert settings({}) == UpgradeSettings("SURGE", 1, 0)
    assert settings(flat({"maxSurge": 0, "maxUnavailable": 1})) == UpgradeSettings("SURGE", 0, 1)
    body = {"batchPercentage": 0.25, "batchSoakDuration": "60s"}
    nested = {"strategy": BLUE_GREEN, "blueGreenSettings": {"standardRolloutPolicy": body}}
    assert settings(flat(nested)) == UpgradeSettings(BLUE_GREEN, batch_share=0.25, batch_soak=60, pool_soak=3600)
    assert read_settings("") == {}
    assert settings(read_settings("maxSurge=2,maxUnavailable=1")) == UpgradeSettings("SURGE", 2, 1)
    assert settings(read_settings("batchNodeCount=3,nodePoolSoakDuration=0s")).strategy == BLUE_GREEN
    body = {"strategy": BLUE_GREEN, "blueGreenSettings": {"autoscaledRolloutPolicy": {}}}
    with pytest.raises(BadUpgradeSettings, match="autoscaled blue-green is not simulated"):
        settings(flat(body))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("surge=2", "surge=2 is no upgrade setting. Keys: maxSurge"),
        ("maxSurge=-1", "maxSurge=-1 is no upgrade setting"),
        ("maxSurge=", "maxSurge= is no upgrade setting"),
        ("batchPercentage=2", "batchPercentage=2 is no upgrade setting"),
        ("maxSurge=1,batchNodeCount=1", "belong to a surge upgrade"),
        ("batchPercentage=0.5,batchNodeCount=1", "not both"),
        ("maxSurge=0", "could upgrade no node"),
    ],
)
def test_settings_that_gke_does_not_know_are_refused(text: str, words: str) -> None:
    with pytest.raises(BadUpgradeSettings, match=words):
        settings(read_settings(text))


def test_a_replacement_is_the_same_machine_with_a_name_of_its_own_and_not_ready() -> None:
    old = node("gke-ai-gpu-0123abcd-w8x2", **{"kubernetes.io/hostname": "gke-ai-gpu-0123abcd-w8x2", "team": "red"})
    old["metadata"] |= {"uid": "1", "annotations": {"emulator.gke-ai/foreign-pool": "x", "node.alpha/ttl": "0"}}
    own = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    taints = [own, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    old["spec"] = {"unschedulable": True, "taints": taints, "providerID": "gce://p/a/gke-ai-gpu-0123abcd-w8x2"}
    old["status"] = {"allocatable": {"nvidia.com/gpu": "2"}, "conditions": [{"type": "Ready", "status": "True"}]}
    new = replacement(old)
    name = new["metadata"]["name"]
    assert name.startswith("gke-ai-gpu-0123abcd-")
    assert name != old["metadata"]["name"]
    assert new["metadata"]["labels"] == {ZONE: "a", "kubernetes.io/hostname": name, "team": "red"}
    assert new["spec"] == {"taints": [own], "providerID": f"gce://p/a/{name}"}
    assert new["status"]["allocatable"] == {"nvidia.com/gpu": "2"}
    assert [condition["status"] for condition in new["status"]["conditions"]] == ["False"]
    assert new["metadata"]["annotations"].keys() == {"emulator.gke-ai/foreign-pool", "emulator.gke-ai/upgraded"}
