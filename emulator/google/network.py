"""Networks of Compute Engine: VPCs, subnetworks, routers and Cloud NAT.

No packet passes through any of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import combinations
from typing import Any

from emulator.cloud.store import Record, Store
from emulator.google import rest
from emulator.google.diff import Change
from emulator.google.refusals import Problem, bad_request
from emulator.google.resource import Properties, Resource, match, merged, now
from emulator.pulumi.plugin import Refused

NETWORK = "gcp:compute/network:Network"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
ROUTER = "gcp:compute/router:Router"
FIREWALL = "gcp:compute/firewall:Firewall"
ROUTER_NAT = "gcp:compute/routerNat:RouterNat"
DEFAULT = "default"
"""Name of the network that every project has, and of its subnetwork in each region."""
# Purpose of the subnetwork of load balancers: https://cloud.google.com/load-balancing/docs/proxy-only-subnets
PROXIES = "REGIONAL_MANAGED_PROXY"
_ROOT = "https://www.googleapis.com/compute/v1/"
# https://cloud.google.com/compute/docs/naming-resources
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def network_of(reference: str, project: str) -> str:
    """The identity of a network, from its name, its path or its link."""
    path = reference.removeprefix(_ROOT)
    return path if "/" in path else f"projects/{project}/global/networks/{path}"


def subnetwork_of(reference: str, project: str, region: str) -> str:
    """The identity of a subnetwork, from its name, its path or its link."""
    path = reference.removeprefix(_ROOT)
    return path if "/" in path else f"projects/{project}/regions/{region}/subnetworks/{path}"


def names_same(identity: str, reference: object) -> bool:
    """Whether the provider takes a reference for this network or subnetwork. It compares a name with the last part."""
    text = str(reference).removeprefix(_ROOT)
    return text in (identity, identity.rpartition("/")[2])


def is_default(identity: str) -> bool:
    """Whether this is the default network or its subnetwork in a region."""
    return identity.endswith(("/networks/default", "/subnetworks/default"))


def not_found(identity: str) -> Refused:
    """Compute Engine's error for a resource that doesn't exist."""
    return Refused(f"googleapi: Error 404: The resource '{identity}' was not found, notFound")


def in_use(identity: str, by: str) -> Refused:
    """Compute Engine's error for the deletion of a resource that another one uses."""
    resource = {"networks": "network", "subnetworks": "subnetwork"}[identity.split("/")[-2]]
    return Refused(
        f"googleapi: Error 400: The {resource} resource '{identity}' is already being used by '{by}', "
        "resourceInUseByAnotherResource"
    )


def _name_problems(inputs: Properties, resource_type: str) -> Iterator[Problem]:
    if not _NAME.fullmatch(inputs.get("name", "")):
        text = f"Invalid value for field 'resource.name': '{inputs.get('name')}'. Must be a match of regex "
        yield (
            "name",
            f"googleapi: Error 400: {text}'(?:[a-z](?:[-a-z0-9]{{0,61}}[a-z0-9])?)' ({resource_type}), invalid",
        )


def _conflict(identity: str) -> Refused:
    return Refused(f"googleapi: Error 409: The resource '{identity}' already exists, alreadyExists")


class ComputeResource(Resource):
    """A resource of Compute Engine, which has a path and a link.

    - `collection` is its part of the path, such as `networks`, and `noun` its name in errors.
    - `is_global` says that it belongs to no region.
    """

    type: str
    collection: str
    noun: str
    is_global = False

    def identity(self, inputs: Properties) -> str:
        place = "global" if self.is_global else f"regions/{self.region(inputs)}"
        return f"projects/{self.owner(inputs)}/{place}/{self.collection}/{inputs['name']}"

    def imported(self, id: str) -> str:
        place, short = ("global/", "") if self.is_global else ("regions/(?P<region>[^/]+)/", "(?P<region>[^/]+)/")
        forms = (
            f"projects/(?P<project>[^/]+)/{place}{self.collection}/(?P<name>[^/]+)",
            f"(?P<project>[^/]+)/{short}(?P<name>[^/]+)",
        )
        return self.identity(match(forms, id, self.noun))

    def body(self, inputs: Properties) -> rest.Body:
        return rest.compute(self.type, inputs)

    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        return list(_name_problems(inputs, self.type))

    def normal(self, inputs: Properties) -> Properties:
        """The network by its path: the provider compares it with a link to the same network as equal."""
        reference = inputs.get("network")
        return inputs | {"network": network_of(reference, self.owner(inputs))} if isinstance(reference, str) else inputs

    def may_create(self, record: Record) -> None:
        if self.store.get(record.identity) is not None or is_default(record.identity):
            raise _conflict(record.identity)

    def facts(self, inputs: Properties) -> dict[str, Any]:
        return {"created": now()}

    def region(self, inputs: Properties) -> str:
        """The resource's own region, else the provider's."""
        return self.cloud.location_of({"location": inputs.get("region")})

    def require_network(self, record: Record) -> None:
        """Refuses the resource if its network doesn't exist."""
        network = network_of(record.inputs["network"], record.project)
        if not is_default(network) and self.store.get(network) is None:
            raise not_found(network)

    def shown(self, record: Record, further: Properties) -> Properties:
        """The outputs: the inputs, the outputs of all Compute Engine resources, and the `further` ones."""
        decided = {"creationTimestamp": record.facts["created"], "project": record.project, **further}
        outputs: Properties = merged(record.inputs, {**decided, "selfLink": f"{_ROOT}{record.identity}"})
        return outputs


class Network(ComputeResource):
    """A VPC network."""

    token = NETWORK
    type = "Network"
    collection = "networks"
    noun = "network"
    is_global = True
    arguments = ("pulumi_gcp.compute", "NetworkArgs")
    decided = ("gatewayIpv4", "networkId", "project", "selfLink")

    def may_delete(self, identity: str, state: Properties) -> None:
        for user in [*self.store.all(SUBNETWORK), *self.store.all(ROUTER), *self.store.all(FIREWALL)]:
            if network_of(user.inputs["network"], user.project) == identity:
                raise in_use(identity, user.identity)
        for cluster in clusters_in(self.store, identity):
            raise in_use(identity, cluster.identity)

    def outputs(self, record: Record) -> Properties:
        number = int(hashlib.sha256(record.identity.encode()).hexdigest()[:15], 16)
        return self.shown(
            record, {"autoCreateSubnetworks": True, "networkId": str(number), "routingMode": "REGIONAL", "mtu": 0}
        )


class Subnetwork(ComputeResource):
    """A subnetwork: a primary address range in a region, and named secondary ranges."""

    token = SUBNETWORK
    type = "Subnetwork"
    collection = "subnetworks"
    noun = "subnetwork"
    arguments = ("pulumi_gcp.compute", "SubnetworkArgs")
    decided = ("gatewayAddress", "project", "region", "selfLink", "subnetworkId")

    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        yield from super().rules(inputs, body)
        for path, name, cidr in _ranges(inputs):
            try:
                range_ = IPv4Network(cidr)
            except ValueError:
                text = f"Invalid value for field 'resource.{path}': '{cidr}'. Must be a CIDR address range"
                yield path, f"googleapi: Error 400: {text}, invalid"
                return
            longest = 26 if inputs.get("purpose") == PROXIES else 29
            if range_.prefixlen > longest:
                text = f"Invalid value for field 'resource.{path}': '{cidr}'. It has at most {longest} bits of prefix"
                yield path, f"googleapi: Error 400: {text}, invalid"
            if name is not None and not _NAME.fullmatch(name):
                yield path, f"googleapi: Error 400: Invalid value for field 'resource.{path}': '{name}', invalid"
        for (_, _, first), (path, _, second) in combinations(_ranges(inputs), 2):
            if IPv4Network(first).overlaps(IPv4Network(second)):
                text = f"{path} {second} overlaps with {first} of the same subnetwork"
                yield path, f"googleapi: Error 400: {text}, invalid"

    def changes(self, old: Properties, new: Properties, state: Properties) -> list[Change]:
        """Replaces the subnetwork unless its primary range grows: only this change depends on the values."""
        before, after = old.get("ipCidrRange"), new.get("ipCidrRange")
        try:
            grows = IPv4Network(str(before)).subnet_of(IPv4Network(str(after)))
        except ValueError:
            grows = False
        changes = super().changes(old, new, state)
        return [replace(change, replaces=not grows) if change.path == "ipCidrRange" else change for change in changes]

    def may_create(self, record: Record) -> None:
        super().may_create(record)
        self.require_network(record)
        self._require_free_ranges(record)
        self._require_only_proxies(record)

    def _require_only_proxies(self, record: Record) -> None:
        """Refuses a second proxy-only subnetwork of a network in a region."""
        ours = self._proxies_of(record)
        for other in self.store.all(SUBNETWORK):
            if ours is not None and self._proxies_of(other) == ours:
                text = f"The network already has the active proxy-only subnetwork '{other.identity}' in this region"
                raise Refused(f"googleapi: Error 400: Invalid value for field 'resource.purpose': {text}, invalid")

    def _proxies_of(self, record: Record) -> tuple[str, str] | None:
        """Network and region of a proxy-only subnetwork; None for others."""
        inputs = record.inputs
        if (inputs.get("purpose"), inputs.get("role")) != (PROXIES, "ACTIVE"):
            return None
        return network_of(inputs["network"], record.project), self.region(inputs)

    def _require_free_ranges(self, record: Record) -> None:
        network = network_of(record.inputs["network"], record.project)
        for other in self.store.all(SUBNETWORK):
            if other.identity == record.identity or network_of(other.inputs["network"], other.project) != network:
                continue
            for _, _, theirs in _ranges(other.inputs):
                for path, _, ours in _ranges(record.inputs):
                    if IPv4Network(theirs).overlaps(IPv4Network(ours)):
                        raise Refused(
                            f"googleapi: Error 400: Invalid IPCidrRange: {ours} ({path}) conflicts with existing "
                            f"subnetwork '{other.identity.rpartition('/')[2]}', invalid"
                        )

    def apply(self, record: Record, inputs: Properties) -> None:
        wanted = {name: cidr for _, name, cidr in _ranges(inputs) if name is not None}
        for cluster in clusters_in(self.store, record.identity):
            policy = cluster.inputs.get("ipAllocationPolicy") or {}
            for _, name, cidr in _ranges(record.inputs):
                if name is not None and name in policy.values() and wanted.get(name) != cidr:
                    raise Refused(
                        f"googleapi: Error 400: Secondary range '{name}' is in use by '{cluster.identity}' and can't "
                        "be removed or changed, invalid"
                    )

    def may_delete(self, identity: str, state: Properties) -> None:
        for cluster in clusters_in(self.store, identity):
            raise in_use(identity, cluster.identity)

    def outputs(self, record: Record) -> Properties:
        inputs = record.inputs
        gateway = str(next(IPv4Network(inputs["ipCidrRange"]).hosts()))
        further = {"gatewayAddress": gateway, "privateIpGoogleAccess": False, "purpose": "PRIVATE"}
        return self.shown(record, {**further, "region": self.region(inputs), "stackType": "IPV4_ONLY"})


class Router(ComputeResource):
    """A Cloud Router, which the emulator only uses for NATs."""

    token = ROUTER
    type = "Router"
    collection = "routers"
    noun = "router"
    arguments = ("pulumi_gcp.compute", "RouterArgs")
    decided = ("project", "region", "selfLink")

    def may_create(self, record: Record) -> None:
        super().may_create(record)
        self.require_network(record)

    def erase(self, record: Record) -> None:
        _, project, _, region, _, name = record.identity.split("/")
        for nat in self.store.all(ROUTER_NAT, under=f"{project}/{region}/{name}/"):
            self.store.remove(nat.identity)
        self.store.remove(record.identity)

    def outputs(self, record: Record) -> Properties:
        return self.shown(record, {"region": self.region(record.inputs)})


class RouterNat(ComputeResource):
    """A Cloud NAT, which is an entry of its router."""

    token = ROUTER_NAT
    type = "RouterNat"
    arguments = ("pulumi_gcp.compute", "RouterNatArgs")
    decided = ("project", "region")

    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        yield from super().rules(inputs, body)
        # https://github.com/hashicorp/terraform-provider-google-beta/blob/93c65b2d60fe/google-beta/services/compute/resource_compute_router_nat.go#L308
        if len(inputs["name"]) < 2:
            yield "name", f'"name" ("{inputs["name"]}") must be between 2 and 63 characters long'
        # https://cloud.google.com/nat/docs/ports-and-addresses#dynamic-port
        if inputs.get("enableDynamicPortAllocation") and inputs.get("enableEndpointIndependentMapping"):
            text = "Dynamic port allocation and endpoint-independent mapping can't be enabled together"
            yield "enableDynamicPortAllocation", f"googleapi: Error 400: {text}, invalid"

    def identity(self, inputs: Properties) -> str:
        router = inputs["router"].rpartition("/")[2]
        return f"{self.owner(inputs)}/{self.region(inputs)}/{router}/{inputs['name']}"

    def imported(self, id: str) -> str:
        forms = (
            r"projects/(?P<project>[^/]+)/regions/(?P<region>[^/]+)/routers/(?P<router>[^/]+)/(?P<name>[^/]+)",
            r"(?P<project>[^/]+)/(?P<region>[^/]+)/(?P<router>[^/]+)/(?P<name>[^/]+)",
        )
        return self.identity(match(forms, id, "router NAT"))

    def may_create(self, record: Record) -> None:
        super().may_create(record)
        project, region, router, _ = record.identity.split("/")
        identity = f"projects/{project}/regions/{region}/routers/{router}"
        if self.store.get(identity) is None:
            raise not_found(identity)

    def outputs(self, record: Record) -> Properties:
        region = self.region(record.inputs)
        outputs: Properties = merged(record.inputs, {"project": record.project, "region": region, "type": "PUBLIC"})
        return outputs


def _ranges(inputs: Properties) -> list[tuple[str, str | None, str]]:
    """Property, name (None for the primary range) and addresses of each range of a subnetwork."""
    secondary = [
        (f"secondaryIpRanges[{index}].ipCidrRange", range_.get("rangeName"), range_["ipCidrRange"])
        for index, range_ in enumerate(inputs.get("secondaryIpRanges") or [])
        if range_.get("ipCidrRange")
    ]
    primary: list[tuple[str, str | None, str]] = [("ipCidrRange", None, inputs["ipCidrRange"])]
    return [*(primary if inputs.get("ipCidrRange") else []), *secondary]


# ------------------------------------------------------------------------------------------------------------ clusters
CLUSTER = "gcp:container/cluster:Cluster"


def clusters_in(store: Store, identity: str) -> list[Record]:
    """The clusters whose nodes are in a network or a subnetwork."""
    return [
        cluster
        for cluster in store.all(CLUSTER)
        if identity in network_and_subnetwork(cluster.project, cluster.inputs, cluster.facts)
    ]


def network_and_subnetwork(project: str, inputs: Properties, facts: Properties) -> tuple[str, str]:
    """Network and subnetwork of a cluster."""
    location = facts["location"]
    region = location.rpartition("-")[0] if location.count("-") > 1 else location
    network = network_of(inputs.get("network") or DEFAULT, project)
    return network, subnetwork_of(inputs.get("subnetwork") or DEFAULT, project, region)


def check_network(store: Store, record: Record) -> None:
    """Refuses a cluster if its network, subnetwork or ranges don't exist or don't belong together."""
    network, subnetwork = network_and_subnetwork(record.project, record.inputs, record.facts)
    if not is_default(network) and store.get(network) is None:
        raise not_found(network)
    existing = store.get(subnetwork)
    if not is_default(subnetwork):
        if existing is None:
            raise not_found(subnetwork)
        if network_of(existing.inputs["network"], existing.project) != network:
            raise Refused(bad_request(f"Subnetwork {subnetwork} is not in network {network}."))
    elif not is_default(network):
        raise Refused(bad_request(f"Network {network} has no subnetwork {DEFAULT}: set subnetwork."))
    policy = record.inputs.get("ipAllocationPolicy") or {}
    names = [name for _, name, _ in _ranges(existing.inputs)] if existing else []
    for key, users in (("clusterSecondaryRangeName", "Pod"), ("servicesSecondaryRangeName", "Service")):
        if policy.get(key) is not None and policy[key] not in names:
            text = f'{users} secondary range "{policy[key]}" does not exist in subnetwork {subnetwork}.'
            raise Refused(bad_request(text))


class Firewall(ComputeResource):
    """A firewall rule, of one network. No packet passes through it."""

    token = FIREWALL
    type = "Firewall"
    collection = "firewalls"
    noun = "firewall"
    is_global = True
    arguments = ("pulumi_gcp.compute", "FirewallArgs")
    decided = ("creationTimestamp", "project", "selfLink")

    def may_create(self, record: Record) -> None:
        super().may_create(record)
        self.require_network(record)

    def outputs(self, record: Record) -> Properties:
        network = network_of(record.inputs["network"], record.project)
        return self.shown(record, {"direction": "INGRESS", "network": network})


class ResourcePolicy(ComputeResource):
    """A resource policy of a region, such as a workload policy. Nothing is placed by it."""

    token = "gcp:compute/resourcePolicy:ResourcePolicy"
    type = "ResourcePolicy"
    collection = "resourcePolicies"
    noun = "resource policy"
    arguments = ("pulumi_gcp.compute", "ResourcePolicyArgs")
    decided = ("project", "region", "selfLink")

    def outputs(self, record: Record) -> Properties:
        return self.shown(record, {"region": self.region(record.inputs)})
