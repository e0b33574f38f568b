"""Mistakes with TPU slices: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from functools import partial

from tests.support.mistakes import base, problems_of

tpus = partial(base, "tpus", "tpus")
tpus_on_autopilot = partial(base, "tpus", "tpus_on_autopilot")


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
