"""Mistakes in a cluster's network: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from tests.support.mistakes import base, problems_of


def test_a_pool_that_can_not_be_read_blames_no_range() -> None:
    values = base("network")
    values["cluster"]["vpc"]["podsCidr"] = "10.4.0.0/22"
    values["gpuPools"][0]["nodesPerZone"] = "three"
    assert [problem.path for problem in problems_of(values)] == ["gke-ai:gpuPools[0].nodesPerZone"]
