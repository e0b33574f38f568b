"""Mistakes with TPU slices: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from gke_ai.settings import load
from tests.mistakes import PROJECT, Configuration, good, problems_of

SLICE = {"version": "v6e", "topology": "4x4"}


def tpus() -> Configuration:
    """A small stack with a pool of every kind, and nothing wrong."""
    return {
        "cluster": {"name": "llm-cluster", "mode": "standard", "location": "us-east5"},
        "tpuPools": [
            {"name": "hosts", "version": "v6e", "topology": "2x2", "zones": ["us-east5-a"], "nodesPerZone": 2},
            {"name": "slice", **SLICE, "zones": ["us-east5-b"]},
            {"name": "flex", **SLICE, "zones": ["us-east5-b"], "capacity": {"mode": "flexStart"}},
        ],
        "queues": {
            "flavors": [{"name": "v6e", "pools": ["slice"]}],
            "clusterQueues": [{"name": "tpus", "flavors": [{"flavor": "v6e", "quota": "derive"}]}],
            "localQueues": [{"name": "lq", "namespace": "team", "clusterQueue": "tpus"}],
        },
        "training": [
            {"name": "train", "kind": "multislice", "namespace": "team", "queue": "lq", "slices": 1, "pools": ["slice"]}
        ],
        "batch": [
            {"name": "one", "namespace": "team", "pool": "hosts"},
            {"name": "all", "namespace": "team", "pool": "flex"},
        ],
    }


def tpus_on_autopilot() -> Configuration:
    """The same where Google has the nodes."""
    return {
        "cluster": {"name": "llm-cluster", "mode": "autopilot", "location": "us-east5"},
        "queues": {
            "flavors": [{"name": "v6e", "tpu": dict(SLICE)}],
            "clusterQueues": [{"name": "tpus", "flavors": [{"flavor": "v6e", "quota": {"google.com/tpu": 16}}]}],
            "localQueues": [{"name": "lq", "namespace": "team", "clusterQueue": "tpus"}],
        },
        "training": [
            {
                "name": "train",
                "kind": "multislice",
                "namespace": "team",
                "queue": "lq",
                "slices": 1,
                "tpu": dict(SLICE),
            }
        ],
        "batch": [{"name": "one", "namespace": "team", "tpu": {"version": "v6e", "topology": "2x2"}}],
    }


def ironwood() -> Configuration:
    """A multi-host slice that a policy places."""
    pool = {
        "name": "cube",
        "version": "tpu7x",
        "topology": "2x2x2",
        "zones": ["us-central1-c"],
        "workloadPolicy": "cube",
    }
    return {"cluster": {"mode": "standard", "location": "us-central1"}, "tpuPools": [pool]}


@pytest.mark.parametrize("base", [tpus, tpus_on_autopilot, ironwood], ids=lambda base: base.__name__)
def test_base_configuration_has_no_mistake(base: Any) -> None:
    load(base(), PROJECT)


def test_reference_to_a_pool_with_an_unknown_slice_is_not_reported() -> None:
    values = tpus()
    values["tpuPools"][0]["topology"] = "3x3"
    values["tpuPools"][1]["zones"] = ["us-west4-a"]
    values["tpuPools"][2]["version"] = 6
    assert [problem.path for problem in problems_of(values)] == [
        "gke-ai:tpuPools[2].version",
        "gke-ai:tpuPools[0].topology",
        "gke-ai:tpuPools[1].zones[0]",
    ]


def test_reference_to_a_pool_without_a_name_is_not_reported() -> None:
    values = tpus()
    del values["tpuPools"][1]["name"]
    assert [problem.path for problem in problems_of(values)] == ["gke-ai:tpuPools[1].name"]


def test_reference_to_a_flavor_with_an_unknown_slice_is_not_reported() -> None:
    values = tpus_on_autopilot()
    values["queues"]["flavors"][0]["tpu"]["version"] = "v2"
    values["training"][0]["tpu"]["topology"] = "4x"
    values["batch"][0]["tpu"]["topology"] = ""
    assert {problem.path for problem in problems_of(values)} == {
        "gke-ai:queues.flavors[0].tpu.version",
        "gke-ai:training[0].tpu.topology",
        "gke-ai:batch[0].tpu.topology",
    }


def test_pools_of_gpus_and_of_tpus_go_together() -> None:
    values = good()
    values["tpuPools"] = [{"name": "slice", "version": "v5p", "topology": "2x2x2", "zones": ["us-central1-a"]}]
    assert problems_of(values) == []


@pytest.mark.parametrize("mode", ["flexStart", "queuedFlexStart"])
def test_flex_start_of_tpu7x_is_left_to_google(mode: str) -> None:
    """Google documents no zones for it: https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/5111"""
    values = ironwood()
    values["tpuPools"][0]["capacity"] = {"mode": mode}
    assert problems_of(values) == []
