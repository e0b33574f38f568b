"""Mistakes in a cluster's network: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.test_bad_configuration import (
    Configuration,
    Mistake,
    both,
    drop,
    is_reported_alone,
    on_autopilot,
    problems_of,
    put,
)
from tests.test_bad_configuration import good as standard

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
    # Ranges
    Mistake(
        "a range that is no range",
        put("cluster.vpc.nodesCidr", "10.0.0.1/20"),
        f"{PATH}.vpc.nodesCidr",
        '"10.0.0.1/20" is not an IPv4 range. Google Cloud would refuse it',
        "Write for example 10.0.0.0/20, with no bit set after the prefix",
        good,
    ),
    Mistake(
        "a range of version 6",
        put("cluster.vpc.podsCidr", "fd00::/56"),
        f"{PATH}.vpc.podsCidr",
        '"fd00::/56" is not an IPv4 range. Google Cloud would refuse it',
        "10.0.0.0/20",
        good,
    ),
    Mistake(
        "pods in the range of nodes",
        put("cluster.vpc.podsCidr", "10.0.0.0/16"),
        f"{PATH}.vpc.podsCidr",
        "10.0.0.0/16 overlaps with nodesCidr, 10.0.0.0/24",
        "Move one",
        good,
    ),
    Mistake(
        "Services in the range of pods",
        put("cluster.vpc.servicesCidr", "10.4.8.0/22"),
        f"{PATH}.vpc.servicesCidr",
        "overlaps with podsCidr, 10.4.0.0/20",
        "Move one",
        good,
    ),
    Mistake(
        "addresses that no subnetwork can have",
        put("cluster.vpc.servicesCidr", "169.254.0.0/20"),
        f"{PATH}.vpc.servicesCidr",
        "169.254.0.0/20 contains addresses that no subnetwork can use. Google Cloud would refuse it",
        "192.168.0.0/16",
        good,
    ),
    Mistake(
        "fewer addresses than nodes",
        put("cluster.vpc.nodesCidr", "10.0.0.0/29"),
        f"{PATH}.vpc.nodesCidr",
        "10.0.0.0/29 has addresses for 4 nodes, and the stack has up to 6 nodes",
        "shorter prefix",
        good,
    ),
    Mistake(
        "a subnetwork of two addresses",
        put("cluster.vpc.nodesCidr", "10.0.0.0/31"),
        f"{PATH}.vpc.nodesCidr",
        "10.0.0.0/31 is smaller than the smallest subnetwork, a /29. Google Cloud would refuse it",
        "Write a /20",
        good,
    ),
    Mistake(
        "pods of more nodes than their range holds",
        put("cluster.vpc.podsCidr", "10.4.0.0/22"),
        f"{PATH}.vpc.podsCidr",
        "10.4.0.0/22 has addresses for the pods of 4 nodes, and the stack has up to 6 nodes",
        "Write a shorter prefix. Each step holds twice as many nodes",
        good,
    ),
    Mistake(
        "a range for pods that is full with half a node",
        put("cluster.vpc.podsCidr", "10.4.0.0/25"),
        f"{PATH}.vpc.podsCidr",
        "addresses for the pods of 0 nodes",
        "shorter prefix",
        good,
    ),
    Mistake(
        "a pool that may grow past the pods' range",
        both(
            drop("gpuPools.0.nodesPerZone"),
            put("gpuPools.0.autoscaling", {"minNodes": 3, "maxNodes": 14}),
        ),
        f"{PATH}.vpc.podsCidr",
        "10.4.0.0/20 has addresses for the pods of 16 nodes, and the stack has up to 17 nodes",
        "shorter prefix",
        good,
    ),
    Mistake(
        "more addresses for Services than GKE takes",
        put("cluster.vpc.servicesCidr", "172.16.0.0/12"),
        f"{PATH}.vpc.servicesCidr",
        "172.16.0.0/12 does not suit Services, whose range has a prefix from /16 to /28",
        "Write a /20",
        good,
    ),
    # One network
    Mistake(
        "a network of its own and another one",
        put("cluster.network", "shared"),
        f"{PATH}.vpc",
        "vpc creates a network, and network refers to an existing one. A cluster cannot be in both",
        "Remove vpc, or network",
        good,
    ),
    Mistake(
        "a network of its own with the ranges of another",
        both(put("cluster.subnetwork", "ai"), put("cluster.podsRange", "pods")),
        f"{PATH}.vpc",
        "vpc creates a network, and subnetwork, podsRange refer to an existing one",
        "Remove vpc, or subnetwork, podsRange",
        good,
    ),
    Mistake(
        "the name of the network that every project has",
        put("cluster.vpc.name", "default"),
        f"{PATH}.vpc.name",
        "the project already has a network called default. The VPC could not be created",
        "Set another vpc.name, or remove vpc to use the default network",
        good,
    ),
    Mistake(
        "a network by a name that none has",
        put("cluster.network", "Shared_VPC"),
        f"{PATH}.network",
        '"Shared_VPC" is not a valid Compute Engine name. GKE would not find it',
        "Use up to 63 lowercase letters, digits and '-', and begin with a letter, or write the path from projects/",
        shared,
    ),
    Mistake(
        "a subnetwork of another region",
        put("cluster.subnetwork", "projects/host/regions/us-east1/subnetworks/ai"),
        f"{PATH}.subnetwork",
        "the subnetwork is in us-east1, and the cluster is in us-central1",
        "Name a subnetwork in us-central1, or move the cluster",
        shared,
    ),
    Mistake(
        "addresses where the name of a range belongs",
        put("cluster.podsRange", "10.4.0.0/14"),
        f"{PATH}.podsRange",
        '"10.4.0.0/14" is not a valid Compute Engine name. GKE would not find it',
        "lowercase letters",
        shared,
    ),
    Mistake(
        "one range for pods and Services",
        put("cluster.servicesRange", "ai-pods"),
        f"{PATH}.servicesRange",
        "pods and Services would both use range ai-pods. GKE would refuse the cluster",
        "another range",
        shared,
    ),
    Mistake(
        "a range of no subnetwork",
        both(drop("cluster.subnetwork"), drop("cluster.servicesRange")),
        f"{PATH}.podsRange",
        "ai-pods is a range of a subnetwork, and no subnetwork is set",
        "Set subnetwork and network too",
        shared,
    ),
    # What a cluster that is there cannot be given
    Mistake(
        "a network for a cluster that has one",
        put("cluster.vpc", {}),
        f"{PATH}.vpc",
        "vpc cannot be set on an existing cluster",
        "Remove vpc, or let the stack create the cluster with mode: standard or autopilot",
        existing,
    ),
    Mistake(
        "private nodes of a cluster that is there",
        put("cluster.privateNodes", True),
        f"{PATH}.privateNodes",
        "privateNodes cannot be set on an existing cluster",
        "Remove privateNodes, or let the stack create the cluster with mode: standard or autopilot",
        existing,
    ),
    Mistake(
        "another way to a cluster that is there",
        put("cluster.publicEndpoint", False),
        f"{PATH}.publicEndpoint",
        "publicEndpoint cannot be set on an existing cluster",
        "Remove publicEndpoint, or let the stack create the cluster with mode: standard or autopilot",
        existing,
    ),
    # Ways out, and in
    Mistake(
        "private nodes without a way to the registries",
        put("cluster.vpc.nat", False),
        f"{PATH}.vpc.nat",
        "the stack needs registry.k8s.io (Kueue), docker.io (gemma), huggingface.co (gemma)",
        "Remove nat: false, or use images in Artifact Registry",
        good,
    ),
    Mistake(
        "no way to the control plane",
        drop("cluster.dnsEndpoint"),
        f"{PATH}.publicEndpoint",
        "the control plane would have neither an IP address on the Internet nor a DNS name",
        "Set dnsEndpoint: true",
        good,
    ),
    Mistake(
        "a list for an address that isn't there",
        put("cluster.authorizedNetworks", ["8.8.8.0/24"]),
        f"{PATH}.authorizedNetworks",
        "authorizedNetworks restricts access to the public IP address, and publicEndpoint is false. It "
        "would have no effect",
        "Remove authorizedNetworks, as IAM decides about the DNS name, or set publicEndpoint: true",
        good,
    ),
    Mistake(
        "everyone on the list",
        put("cluster.authorizedNetworks.+", "0.0.0.0/0"),
        f"{PATH}.authorizedNetworks[1]",
        "is the whole Internet",
        "List the networks of the people and systems that deploy, or remove the list",
        public,
    ),
    Mistake(
        "an office's inner addresses",
        put("cluster.authorizedNetworks.+", "192.168.0.0/24"),
        f"{PATH}.authorizedNetworks[1]",
        "192.168.0.0/24 is a private range, and no client on the Internet has such an address",
        "List the clients' public addresses, for example those of their NAT",
        public,
    ),
    Mistake(
        "the same network twice",
        put("cluster.authorizedNetworks.+", "8.8.8.0/24"),
        f"{PATH}.authorizedNetworks[1]",
        "8.8.8.0/24 is listed twice",
        "Remove one of them",
        public,
    ),
    Mistake(
        "more networks than GKE takes",
        put("cluster.authorizedNetworks", [f"8.8.{index}.0/24" for index in range(51)]),
        f"{PATH}.authorizedNetworks",
        "there are 51 networks, and GKE allows 50. GKE would refuse the cluster",
        "dnsEndpoint",
        public,
    ),
    # Accounts
    Mistake(
        "an account with too short a name",
        put("cluster.nodeServiceAccount", "nodes"),
        f"{PATH}.nodeServiceAccount",
        '"nodes" is not a valid service account name. Google Cloud would refuse it',
        "6 to 30 lowercase letters",
        good,
    ),
    Mistake(
        "an account with too long a name",
        put("cluster.nodeServiceAccount", "nodes-of-the-training-clusters1"),
        f"{PATH}.nodeServiceAccount",
        '"nodes-of-the-training-clusters1" is not a valid service account name',
        "6 to 30 lowercase letters",
        good,
    ),
    Mistake(
        "a person as the nodes' account",
        put("cluster.nodeServiceAccount", "someone@example.com"),
        f"{PATH}.nodeServiceAccount",
        "someone@example.com is not a service account. Nodes cannot run as a person or a group",
        "NAME@PROJECT.iam.gserviceaccount.com",
        good,
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake_is_reported_once_with_path_cause_and_remedy(mistake: Mistake) -> None:
    is_reported_alone(mistake, mistake.base())


def test_names_of_the_mistakes_are_unique() -> None:
    assert len({mistake.id for mistake in MISTAKES}) == len(MISTAKES) >= 20


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
