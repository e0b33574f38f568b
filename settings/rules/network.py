"""Rules of the cluster's network: its addresses, the ways to its control plane, and whom its nodes run as."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from ipaddress import IPv4Network
from itertools import combinations

from catalog.addresses import (
    LONGEST_PREFIX,
    MAX_AUTHORIZED_NETWORKS,
    SERVICES_PREFIXES,
    can_be_had,
    nodes_by_addresses,
    nodes_by_pods,
)
from catalog.identities import is_account_email, is_account_id
from catalog.zones import region_of
from settings.model import Cluster, Settings
from settings.plan import internet, is_autopilot, max_stack_nodes
from settings.problems import Problem
from settings.rules.common import Rule, join_names, needs

# Names in Compute Engine: https://cloud.google.com/compute/docs/naming-resources
_NAME = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_NETWORK = re.compile(rf"(projects/[^/]+/global/networks/)?{_NAME}")
_SUBNETWORK = re.compile(rf"(projects/[^/]+/regions/(?P<region>[^/]+)/subnetworks/)?{_NAME}")
_RANGES = ("nodesCidr", "podsCidr", "servicesCidr")


def of_new_clusters(rule: Rule) -> Rule:
    """A rule of what only a new cluster is given; an existing one is looked up, and another rule refuses all that."""

    @functools.wraps(rule)
    def guarded(settings: Settings) -> Iterator[Problem]:
        if settings.cluster.mode != "existing":
            yield from rule(settings)

    return needs("gke-ai:cluster")(guarded)


def _cidrs(cluster: Cluster) -> list[tuple[str, str]]:
    """Each range of the cluster's own network, by its key."""
    own = cluster.vpc
    return list(zip(_RANGES, (own.nodes_cidr, own.pods_cidr, own.services_cidr), strict=True)) if own else []


@of_new_clusters
def network_is_made_or_named(settings: Settings) -> Iterator[Problem]:
    """A cluster has a network of its own or one that is there."""
    cluster = settings.cluster
    named = [
        type(cluster).model_fields[field].alias or field
        for field in ("network", "subnetwork", "pods_range", "services_range")
        if getattr(cluster, field) is not None
    ]
    if cluster.vpc is not None and named:
        yield Problem(
            cluster.at("vpc"),
            f"vpc makes a network, and {join_names(named)} {'names' if len(named) == 1 else 'name'} what is in one "
            "that is there — a cluster can't be in both",
            f"Leave vpc out, or {join_names(named)}",
        )


@of_new_clusters
def network_names_are_of_compute_engine(settings: Settings) -> Iterator[Problem]:
    """Network, subnetwork and ranges are named as Compute Engine names them, and are in the cluster's region."""
    cluster = settings.cluster
    forms = {"network": _NETWORK, "subnetwork": _SUBNETWORK, "podsRange": re.compile(_NAME)}
    forms["servicesRange"] = forms["podsRange"]
    values = (cluster.network, cluster.subnetwork, cluster.pods_range, cluster.services_range)
    for (key, form), value in zip(forms.items(), values, strict=True):
        if value is not None and not form.fullmatch(value):
            yield Problem(
                cluster.at(key),
                f'"{value}" is no name of Compute Engine — GKE would not find it',
                "Write its name: small letters, digits and '-', up to 63, beginning with a letter"
                + ("; or its path from projects/ on" if key.endswith("etwork") else ""),
            )
    region = region_of(cluster.location)
    found = _SUBNETWORK.fullmatch(cluster.subnetwork or "")
    if found and found["region"] not in (None, region):
        yield Problem(
            cluster.at("subnetwork"),
            f"the subnetwork is in {found['region']}, and the cluster is in {region} — GKE would refuse the cluster",
            f"Name a subnetwork of {region}, or move the cluster",
        )


@of_new_clusters
def ranges_are_of_a_subnetwork(settings: Settings) -> Iterator[Problem]:
    """Ranges of pods and Services are two of a named subnetwork."""
    cluster = settings.cluster
    for key, value in (("podsRange", cluster.pods_range), ("servicesRange", cluster.services_range)):
        if value is not None and cluster.subnetwork is None and cluster.vpc is None:
            yield Problem(
                cluster.at(key),
                f"{value} is a range of a subnetwork, and none is named — GKE would look for it in the default one",
                "Name the subnetwork, and its network, beside it",
            )
    if cluster.pods_range is not None and cluster.pods_range == cluster.services_range:
        yield Problem(
            cluster.at("servicesRange"),
            f"pods and Services both get their addresses of {cluster.pods_range} — GKE would refuse the cluster",
            "Name another range of the subnetwork for one of them",
        )


@of_new_clusters
def own_network_is_not_the_default_one(settings: Settings) -> Iterator[Problem]:
    """A project has a network called default."""
    cluster = settings.cluster
    if cluster.vpc is not None and (cluster.vpc.name or cluster.name) == "default":
        key = "vpc.name" if cluster.vpc.name else "name"
        cause = "default is the network that a project comes with — the name is taken"
        yield Problem(cluster.at(key), cause, "Give vpc another name, or leave vpc out to be in that network")


@of_new_clusters
def ranges_are_addresses_of_networks(settings: Settings) -> Iterator[Problem]:
    """No range has addresses that Google or IP keep for something else."""
    for key, cidr in _cidrs(settings.cluster):
        if not can_be_had(cidr):
            cause = f"{cidr} has addresses that no subnetwork can have — Google Cloud would refuse it"
            remedy = "Take a private range: of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
            yield Problem(settings.cluster.at(f"vpc.{key}"), cause, remedy)


@of_new_clusters
def ranges_are_apart(settings: Settings) -> Iterator[Problem]:
    """Nodes, pods and Services have addresses of their own."""
    for (key, cidr), (other, taken) in combinations(_cidrs(settings.cluster), 2):
        if IPv4Network(cidr).overlaps(IPv4Network(taken)):
            yield Problem(
                settings.cluster.at(f"vpc.{other}"),
                f"{taken} overlaps with {key}, {cidr} — an address would be of two things, and Google Cloud refuses "
                "the subnetwork",
                "Move one of them, for example next to the other",
            )


@of_new_clusters
def ranges_hold_the_stack(settings: Settings) -> Iterator[Problem]:
    """Nodes and their pods have addresses when every pool of the stack is at its largest."""
    cluster, own = settings.cluster, settings.cluster.vpc
    if own is None:
        return
    min_prefix, max_prefix = SERVICES_PREFIXES
    if not min_prefix <= IPv4Network(own.services_cidr).prefixlen <= max_prefix:
        cause = f"{own.services_cidr} is no range for Services, which has a prefix from /{min_prefix} to /{max_prefix}"
        yield Problem(cluster.at("vpc.servicesCidr"), f"{cause} — GKE would refuse the cluster", "Write a /20")
    if IPv4Network(own.nodes_cidr).prefixlen > LONGEST_PREFIX:
        cause = f"{own.nodes_cidr} is smaller than a subnetwork can be, a /{LONGEST_PREFIX}"
        yield Problem(cluster.at("vpc.nodesCidr"), f"{cause} — Google Cloud would refuse it", "Write a /20")
        return
    if any(settings.unparsed.overlaps(f"gke-ai:{key}") for key in ("gpuPools", "tpuPools")):
        return
    nodes, autopilot = max_stack_nodes(settings), is_autopilot(cluster)
    for key, cidr, room in (
        ("nodesCidr", own.nodes_cidr, nodes_by_addresses(own.nodes_cidr)),
        ("podsCidr", own.pods_cidr, nodes_by_pods(own.pods_cidr, autopilot)),
    ):
        if room < nodes:
            what = "addresses for" if key == "nodesCidr" else "addresses for the pods of"
            yield Problem(
                cluster.at(f"vpc.{key}"),
                f"{cidr} has {what} {room} nodes, and the stack has {nodes} with each pool at its largest — the others "
                "would never come, and a range can't be changed later",
                "Write a shorter prefix: each one less holds twice as many" if room else "Write a shorter prefix",
            )


@of_new_clusters
def private_nodes_reach_what_they_need(settings: Settings) -> Iterator[Problem]:
    """Without NAT private nodes reach Google's own registries and nothing else."""
    cluster = settings.cluster
    if not cluster.private_nodes or cluster.vpc is None or cluster.vpc.nat:
        return
    if any(settings.unparsed.overlaps(f"gke-ai:{key}") for key in ("serving", "training", "batch", "queues")):
        return
    needed = internet(settings)
    if needed:
        hosts = join_names(f"{host} ({whose})" for host, whose in needed.items())
        yield Problem(
            cluster.at("vpc.nat"),
            f"private nodes reach the Internet by NAT alone, and the stack needs {hosts} — its pods would wait in "
            "ImagePullBackOff, or fail to get their model",
            "Leave nat out, or take images of Artifact Registry",
        )


@of_new_clusters
def control_plane_can_be_reached(settings: Settings) -> Iterator[Problem]:
    """There is a way to the control plane, for this program too."""
    cluster = settings.cluster
    if not cluster.public_endpoint and not cluster.dns_endpoint:
        yield Problem(
            cluster.at("publicEndpoint"),
            "the control plane would have neither an address on the Internet nor a DNS name — this program could make "
            "nothing in the cluster",
            "Set dnsEndpoint: true: IAM then says who gets in, from within the VPC and from elsewhere",
        )


@of_new_clusters
def authorized_networks_are_on_the_internet(settings: Settings) -> Iterator[Problem]:
    """Authorized networks say who on the Internet reaches a public address."""
    cluster = settings.cluster
    if not cluster.authorized_networks:
        return
    if not cluster.public_endpoint:
        yield Problem(
            cluster.at("authorizedNetworks"),
            "they say who reaches the control plane by its address, and publicEndpoint is false — nobody would be held "
            "to them",
            "Leave them out, where IAM decides alone, or set publicEndpoint: true",
        )
        return
    if len(cluster.authorized_networks) > MAX_AUTHORIZED_NETWORKS:
        cause = (
            f"{len(cluster.authorized_networks)} networks are more than the {MAX_AUTHORIZED_NETWORKS} that GKE takes"
        )
        remedy = "Join neighbours into shorter prefixes, or use dnsEndpoint, where IAM decides"
        yield Problem(cluster.at("authorizedNetworks"), f"{cause} — GKE would refuse the cluster", remedy)
    for index, cidr in enumerate(cluster.authorized_networks):
        path, network = cluster.at(f"authorizedNetworks[{index}]"), IPv4Network(cidr)
        if network.prefixlen == 0:
            cause = f"{cidr} is the whole Internet — the list would keep nobody out"
            yield Problem(path, cause, "Name the networks of those who deploy and operate, or leave the list out")
        elif network.is_private:
            cause = (
                f"{cidr} is a private range, and nobody on the Internet has such an address — nobody is let in by it"
            )
            yield Problem(path, cause, "Name the addresses that they have outside, such as those of their NAT")
        elif cidr in cluster.authorized_networks[:index]:
            yield Problem(path, f"{cidr} is there twice — GKE would refuse the cluster", "Leave one out")


@needs("gke-ai:cluster")
def nodes_run_as_a_service_account(settings: Settings) -> Iterator[Problem]:
    """The nodes' account is one that can be made, or the address of one."""
    cluster, account = settings.cluster, settings.cluster.node_service_account
    if account is None:
        return
    path = cluster.at("nodeServiceAccount")
    if cluster.mode == "existing" and is_autopilot(cluster):
        yield Problem(
            path,
            "Google makes the nodes of an Autopilot cluster, and this one is there already — nothing would run as it",
            "Leave nodeServiceAccount out",
        )
    elif "@" in account and not is_account_email(account):
        yield Problem(
            path,
            f"{account} is no service account — nodes can't run as a person or a group",
            "Write NAME@PROJECT.iam.gserviceaccount.com, or a name alone to have the account made",
        )
    elif "@" not in account and not is_account_id(account):
        yield Problem(
            path,
            f'"{account}" is no name of a service account — Google Cloud would refuse to make it',
            "Use 6 to 30 small letters, digits and '-', beginning with a letter, no '-' at the end",
        )


RULES: tuple[Rule, ...] = (
    network_is_made_or_named,
    network_names_are_of_compute_engine,
    ranges_are_of_a_subnetwork,
    own_network_is_not_the_default_one,
    ranges_are_addresses_of_networks,
    ranges_are_apart,
    ranges_hold_the_stack,
    private_nodes_reach_what_they_need,
    control_plane_can_be_reached,
    authorized_networks_are_on_the_internet,
    nodes_run_as_a_service_account,
)
