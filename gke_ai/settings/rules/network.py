"""Rules of the cluster's network: address ranges, control plane access and the nodes' service account."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import combinations

from gke_ai.catalog.machines.zones import node_zones, region_of
from gke_ai.catalog.project import addresses
from gke_ai.catalog.project.identities import is_account_email, is_account_id
from gke_ai.settings.model import Cluster, Gateway
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.resolved.needs import external_hosts
from gke_ai.settings.rules.common import OfStack, Rule, join_names, needs, of_the_cluster

# Names in Compute Engine: https://cloud.google.com/compute/docs/naming-resources
_NAME = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_NETWORK = re.compile(rf"(projects/[^/]+/global/networks/)?{_NAME}")
_SUBNETWORK = re.compile(rf"(projects/[^/]+/regions/(?P<region>[^/]+)/subnetworks/)?{_NAME}")
_RANGES = ("nodesCidr", "podsCidr", "servicesCidr", "proxyCidr")


def of_new_clusters(rule: OfStack | Rule) -> Rule:
    """Decorates a rule of keys for new clusters. Another rule refuses such keys for an existing cluster."""
    return replace(needs("gke-ai:cluster")(rule), skips=lambda stack: stack.cluster.mode == "existing")


def _cidrs(cluster: Cluster, gateway: Gateway | None) -> list[tuple[str, str]]:
    """Key and range of each CIDR of the cluster's own VPC. The range of proxies is used only with a gateway."""
    own = cluster.vpc
    if own is None:
        return []
    ranges = list(zip(_RANGES, (own.nodes_cidr, own.pods_cidr, own.services_cidr, own.proxy_cidr), strict=True))
    return ranges if gateway is not None else ranges[:-1]


@of_new_clusters
@of_the_cluster
def network_is_created_or_named(cluster: Cluster) -> Iterator[Problem]:
    """A cluster has a VPC of its own, or names an existing network."""
    named = [
        type(cluster).model_fields[field].alias or field
        for field in ("network", "subnetwork", "pods_range", "services_range")
        if getattr(cluster, field) is not None
    ]
    if cluster.vpc is not None and named:
        cause = f"vpc creates a network, and {join_names(named)} {'refers' if len(named) == 1 else 'refer'} to an "
        cause += "existing one. A cluster cannot be in both"
        yield Problem(cluster.at("vpc"), cause, f"Remove vpc, or {join_names(named)}")


@of_new_clusters
@of_the_cluster
def network_names_are_of_compute_engine(cluster: Cluster) -> Iterator[Problem]:
    """Names of networks and ranges are valid in Compute Engine, and the subnetwork is in the cluster's region."""
    forms = {"network": _NETWORK, "subnetwork": _SUBNETWORK, "podsRange": re.compile(_NAME)}
    forms["servicesRange"] = forms["podsRange"]
    values = (cluster.network, cluster.subnetwork, cluster.pods_range, cluster.services_range)
    for (key, form), value in zip(forms.items(), values, strict=True):
        if value is not None and not form.fullmatch(value):
            yield Problem(
                cluster.at(key),
                f'"{value}" is not a valid Compute Engine name. GKE would not find it',
                "Use up to 63 lowercase letters, digits and '-', and begin with a letter"
                + (", or write the path from projects/" if key.endswith("etwork") else ""),
            )
    region = region_of(cluster.location)
    found = _SUBNETWORK.fullmatch(cluster.subnetwork or "")
    if found and found["region"] not in (None, region):
        cause = f"the subnetwork is in {found['region']}, and the cluster is in {region}. GKE would refuse the cluster"
        yield Problem(cluster.at("subnetwork"), cause, f"Name a subnetwork in {region}, or move the cluster")


@of_new_clusters
@of_the_cluster
def ranges_are_of_a_subnetwork(cluster: Cluster) -> Iterator[Problem]:
    """Ranges of pods and Services are two different ranges of a named subnetwork."""
    for key, value in (("podsRange", cluster.pods_range), ("servicesRange", cluster.services_range)):
        if value is not None and cluster.subnetwork is None and cluster.vpc is None:
            cause = f"{value} is a range of a subnetwork, and no subnetwork is set. GKE would look in the default one"
            yield Problem(cluster.at(key), cause, "Set subnetwork and network too")
    if cluster.pods_range is not None and cluster.pods_range == cluster.services_range:
        cause = f"pods and Services would both use range {cluster.pods_range}. GKE would refuse the cluster"
        yield Problem(cluster.at("servicesRange"), cause, "Name another range of the subnetwork for one of them")


@of_new_clusters
@of_the_cluster
def vpc_is_not_called_default(cluster: Cluster) -> Iterator[Problem]:
    """A new VPC is not called default, as a project already has a network of this name."""
    if cluster.vpc is not None and (cluster.vpc.name or cluster.name) == "default":
        key = "vpc.name" if cluster.vpc.name else "name"
        cause = "the project already has a network called default. The VPC could not be created"
        yield Problem(cluster.at(key), cause, "Set another vpc.name, or remove vpc to use the default network")


@of_new_clusters
def ranges_are_usable(stack: ResolvedStack) -> Iterator[Problem]:
    """No range contains addresses that are reserved by Google or by the Internet Protocol."""
    gateway = stack.settings.gateway
    for key, cidr in _cidrs(stack.cluster, gateway):
        if not addresses.is_allowed(cidr):
            cause = f"{cidr} contains addresses that no subnetwork can use. Google Cloud would refuse it"
            remedy = "Use a private range in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
            yield Problem(stack.cluster.at(f"vpc.{key}"), cause, remedy)


@of_new_clusters
def ranges_are_apart(stack: ResolvedStack) -> Iterator[Problem]:
    """The ranges of nodes, pods, Services and proxies do not overlap."""
    gateway = stack.settings.gateway
    for (key, cidr), (other, taken) in combinations(_cidrs(stack.cluster, gateway), 2):
        if IPv4Network(cidr).overlaps(IPv4Network(taken)):
            cause = f"{taken} overlaps with {key}, {cidr}. Google Cloud would refuse the subnetwork"
            remedy = "Move one of the ranges, for example next to the other"
            yield Problem(stack.cluster.at(f"vpc.{other}"), cause, remedy)


@of_new_clusters
def ranges_hold_the_stack(stack: ResolvedStack) -> Iterator[Problem]:
    """The ranges have addresses for all nodes and pods with every pool at its maximum size."""
    cluster, own = stack.cluster, stack.cluster.vpc
    if own is None:
        return
    min_prefix, max_prefix = addresses.SERVICES_PREFIXES
    if not min_prefix <= IPv4Network(own.services_cidr).prefixlen <= max_prefix:
        cause = f"{own.services_cidr} does not suit Services, "
        cause += f"whose range has a prefix from /{min_prefix} to /{max_prefix}"
        yield Problem(cluster.at("vpc.servicesCidr"), f"{cause}. GKE would refuse the cluster", "Write a /20")
    if IPv4Network(own.nodes_cidr).prefixlen > addresses.LONGEST_PREFIX:
        cause = f"{own.nodes_cidr} is smaller than the smallest subnetwork, a /{addresses.LONGEST_PREFIX}"
        yield Problem(cluster.at("vpc.nodesCidr"), f"{cause}. Google Cloud would refuse it", "Write a /20")
        return
    if any(stack.unresolved.overlaps(f"gke-ai:{key}") for key in ("gpuPools", "tpuPools")):
        return
    nodes, autopilot = _max_nodes(stack), cluster.is_autopilot
    for key, cidr, room in (
        ("nodesCidr", own.nodes_cidr, addresses.nodes_by_addresses(own.nodes_cidr)),
        ("podsCidr", own.pods_cidr, addresses.nodes_by_pods(own.pods_cidr, autopilot)),
    ):
        if room < nodes:
            noun = "addresses for" if key == "nodesCidr" else "addresses for the pods of"
            cause = f"{cidr} has {noun} {room} nodes, and the stack has up to {nodes} nodes. The others could not "
            cause += "start, and a range cannot be changed later"
            remedy = "Write a shorter prefix. Each step holds twice as many nodes" if room else "Write a shorter prefix"
            yield Problem(cluster.at(f"vpc.{key}"), cause, remedy)


def _max_nodes(stack: ResolvedStack) -> int:
    """Nodes of the stack with every pool at its maximum, without nodes that GKE creates itself."""
    cluster, system = stack.cluster, stack.cluster.system_pool
    zones = len(system.zones or node_zones(cluster.location)) if cluster.mode == "standard" else 0
    return system.nodes_per_zone * zones + sum(pool.max_nodes for pool in stack.node_pools)


@of_new_clusters
def private_nodes_reach_what_they_need(stack: ResolvedStack) -> Iterator[Problem]:
    """Without NAT, private nodes reach only Google's registries."""
    cluster = stack.cluster
    if not cluster.private_nodes or cluster.vpc is None or cluster.vpc.nat:
        return
    if any(stack.unresolved.overlaps(f"gke-ai:{key}") for key in ("serving", "training", "batch", "queues")):
        return
    needed = external_hosts(stack)
    if needed:
        hosts = join_names(f"{host} ({user})" for host, user in needed.items())
        cause = f"private nodes reach the Internet only through NAT, and the stack needs {hosts}. Its pods would wait "
        cause += "in ImagePullBackOff, or fail to download their model"
        yield Problem(cluster.at("vpc.nat"), cause, "Remove nat: false, or use images in Artifact Registry")


@of_new_clusters
@of_the_cluster
def control_plane_can_be_reached(cluster: Cluster) -> Iterator[Problem]:
    """The control plane has an IP address or a DNS name by which this program reaches it."""
    if not cluster.public_endpoint and not cluster.dns_endpoint:
        cause = "the control plane would have neither an IP address on the Internet nor a DNS name. This program could "
        cause += "create nothing in the cluster"
        remedy = "Set dnsEndpoint: true. IAM then decides who can reach it, from inside and outside the VPC"
        yield Problem(cluster.at("publicEndpoint"), cause, remedy)


@of_new_clusters
@of_the_cluster
def authorized_networks_are_on_the_internet(cluster: Cluster) -> Iterator[Problem]:
    """Authorized networks are public ranges, and restrict a public endpoint."""
    if not cluster.authorized_networks:
        return
    if not cluster.public_endpoint:
        cause = "authorizedNetworks restricts access to the public IP address, and publicEndpoint is false. It would "
        cause += "have no effect"
        remedy = "Remove authorizedNetworks, as IAM decides about the DNS name, or set publicEndpoint: true"
        yield Problem(cluster.at("authorizedNetworks"), cause, remedy)
        return
    if len(cluster.authorized_networks) > addresses.MAX_AUTHORIZED_NETWORKS:
        cause = f"there are {len(cluster.authorized_networks)} networks, and GKE allows "
        cause += f"{addresses.MAX_AUTHORIZED_NETWORKS}"
        remedy = "Merge adjacent networks into shorter prefixes, or use dnsEndpoint with IAM"
        yield Problem(cluster.at("authorizedNetworks"), f"{cause}. GKE would refuse the cluster", remedy)
    for index, cidr in enumerate(cluster.authorized_networks):
        path, network = cluster.at(f"authorizedNetworks[{index}]"), IPv4Network(cidr)
        if network.prefixlen == 0:
            cause = f"{cidr} is the whole Internet. The list would restrict nobody"
            yield Problem(path, cause, "List the networks of the people and systems that deploy, or remove the list")
        elif network.is_private:
            cause = f"{cidr} is a private range, and no client on the Internet has such an address. "
            cause += "It would admit nobody"
            yield Problem(path, cause, "List the clients' public addresses, for example those of their NAT")
        elif cidr in cluster.authorized_networks[:index]:
            yield Problem(path, f"{cidr} is listed twice. GKE would refuse the cluster", "Remove one of them")


@needs("gke-ai:cluster")
@of_the_cluster
def nodes_run_as_a_service_account(cluster: Cluster) -> Iterator[Problem]:
    """The nodes' service account is a valid account name, or the e-mail address of an account."""
    account = cluster.node_service_account
    if account is None:
        return
    path = cluster.at("nodeServiceAccount")
    if cluster.mode == "existing" and cluster.is_autopilot:
        cause = "GKE creates the nodes of an existing Autopilot cluster. nodeServiceAccount would have no effect"
        yield Problem(path, cause, "Remove nodeServiceAccount")
    elif "@" in account and not is_account_email(account):
        cause = f"{account} is not a service account. Nodes cannot run as a person or a group"
        remedy = "Write NAME@PROJECT.iam.gserviceaccount.com, or only a name for an account that the stack creates"
        yield Problem(path, cause, remedy)
    elif "@" not in account and not is_account_id(account):
        cause = f'"{account}" is not a valid service account name. Google Cloud would refuse it'
        remedy = "Use 6 to 30 lowercase letters, digits and '-'. Begin with a letter, and do not end with '-'"
        yield Problem(path, cause, remedy)
