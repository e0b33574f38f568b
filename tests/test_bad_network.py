"""Mistakes in a cluster's network: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mistakes import Configuration, Mistake, both, problems_of, put
from tests.mistakes import good as standard
from tests.test_bad_configuration import on_autopilot

PATH = "gke-ai:cluster"


def good() -> Configuration:
    """A private cluster on a network of its own, reached by its DNS name alone; nothing is wrong."""
    values = standard()
    values["cluster"] |= {
        "vpc": {"nodesCidr": "10.0.0.0/24", "podsCidr": "10.4.0.0/20", "servicesCidr": "10.8.0.0/22"},
        "privateNodes": True,
        "publicEndpoint": False,
        "dnsEndpoint": True,
        "nodeServiceAccount": "gke-nodes",
    }
    return values


def public() -> Configuration:
    """The same with an address on the Internet, for those who are named."""
    values = good()
    values["cluster"] |= {"publicEndpoint": True, "authorizedNetworks": ["8.8.8.0/24"]}
    return values


def shared() -> Configuration:
    """The same in a network that is there."""
    values = good()
    del values["cluster"]["vpc"]
    values["cluster"] |= {
        "network": "projects/host/global/networks/shared",
        "subnetwork": "projects/host/regions/us-central1/subnetworks/ai",
        "podsRange": "ai-pods",
        "servicesRange": "ai-services",
    }
    return values


def existing() -> Configuration:
    """The same workloads in a cluster that is there."""
    values = standard()
    values["cluster"] = {"name": "llm-cluster", "mode": "existing", "location": "us-central1"}
    return values


MISTAKES = [
    Mistake(
        "more networks than GKE takes",
        put("cluster.authorizedNetworks", [f"8.8.{index}.0/24" for index in range(51)]),
        f"{PATH}.authorizedNetworks",
        "there are 51 networks, and GKE allows 50. GKE would refuse the cluster",
        "dnsEndpoint",
        public,
    ),
]


@pytest.mark.parametrize("base", [good, public, shared])
def test_good_configuration_has_no_problem(base: Any) -> None:
    assert problems_of(base()) == []


def test_account_of_an_existing_autopilot_clusters_nodes_is_refused() -> None:
    values = on_autopilot()
    values["cluster"] = {
        "name": "c",
        "mode": "existing",
        "existingMode": "autopilot",
        "nodeServiceAccount": "gke-nodes",
    }
    (problem,) = problems_of(values)
    assert problem.path == f"{PATH}.nodeServiceAccount"
    assert "GKE creates the nodes of an existing Autopilot cluster" in problem.cause


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("pools of an existing cluster run as their own account", put("cluster.nodeServiceAccount", "gke-nodes")),
        ("an account that is there", put("cluster.nodeServiceAccount", "nodes@other.iam.gserviceaccount.com")),
        (
            "Compute Engine's own account",
            put("cluster.nodeServiceAccount", "123456789012-compute@developer.gserviceaccount.com"),
        ),
        ("an existing cluster by its DNS name", put("cluster.dnsEndpoint", True)),
    ],
)
def test_valid_settings_of_an_existing_cluster_are_no_mistake(what: str, change: Any) -> None:
    values = existing()
    change(values)
    assert problems_of(values) == [], what


@pytest.mark.parametrize(
    ("what", "change"),
    [
        (
            "without NAT, but with addresses outside",
            both(put("cluster.privateNodes", False), put("cluster.vpc.nat", False)),
        ),
        ("as many nodes as there are addresses", put("cluster.vpc.nodesCidr", "10.0.0.0/28")),
        ("as many pods as there are addresses", put("cluster.vpc.podsCidr", "10.4.0.0/21")),
        ("next to each other", put("cluster.vpc.servicesCidr", "10.0.1.0/24")),
    ],
)
def test_valid_settings_are_no_mistake(what: str, change: Any) -> None:
    values = good()
    change(values)
    assert problems_of(values) == [], what


def test_without_nat_private_nodes_may_run_images_of_googles_registries() -> None:
    values = {
        "cluster": {
            "name": "tpus",
            "mode": "standard",
            "location": "us-east5",
            "vpc": {"nat": False},
            "privateNodes": True,
        },
        "tpuPools": [
            {"name": "v6e", "version": "v6e", "topology": "2x2", "zones": ["us-east5-b"], "nodesPerZone": 1},
        ],
        "batch": [{"name": "job", "pool": "v6e", "command": ["python3", "-c", "print()"]}],
    }
    assert problems_of(values) == []
    values["batch"][0]["image"] = "python:3.12"  # type: ignore[index]
    (problem,) = problems_of(values)
    assert "docker.io (job)" in problem.cause


def test_a_pool_that_can_not_be_read_blames_no_range() -> None:
    values = good()
    values["cluster"]["vpc"]["podsCidr"] = "10.4.0.0/22"
    values["gpuPools"][0]["nodesPerZone"] = "three"
    assert [problem.path for problem in problems_of(values)] == ["gke-ai:gpuPools[0].nodesPerZone"]
