"""IP address ranges of a cluster's network: their sizes, and the ranges that Google reserves.

Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips, https://cloud.google.com/vpc/docs/subnets,
https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr
"""

from __future__ import annotations

from ipaddress import IPv4Network

# GKE's discovery document: "up to 50 external networks".
MAX_AUTHORIZED_NETWORKS = 50
# Google reserves the first two and the last two addresses of a subnetwork's primary range. The smallest range is a /29.
# https://cloud.google.com/vpc/docs/subnets#unusable-ip-addresses-in-every-subnet
_RESERVED_ADDRESSES, LONGEST_PREFIX = 4, 29
# Services: https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips#cluster_sizing_secondary_range_svcs
SERVICES_PREFIXES = (16, 28)
# Pod addresses of a node: a Standard node has 110 pods and a /24, an Autopilot node 32 pods and a /26.
# https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr#cidr_ranges_for_clusters
NODE_PREFIX, AUTOPILOT_NODE_PREFIX = 24, 26

# https://cloud.google.com/vpc/docs/subnets#restricted-ranges: this network, loopback, link-local, multicast, broadcast,
# and the addresses of Private Google Access.
_RESTRICTED = tuple(
    map(
        IPv4Network,
        (
            *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32"),
            *("199.36.153.4/30", "199.36.153.8/30"),
        ),
    )
)


def is_allowed(cidr: str) -> bool:
    """Whether a subnetwork can have this range."""
    return not any(IPv4Network(cidr).overlaps(restricted) for restricted in _RESTRICTED)


def nodes_by_addresses(cidr: str) -> int:
    """Returns the maximum number of nodes in the primary range of a subnetwork."""
    return max(IPv4Network(cidr).num_addresses - _RESERVED_ADDRESSES, 0)


def nodes_by_pods(cidr: str, autopilot: bool) -> int:
    """Returns the maximum number of nodes that a range has pod addresses for."""
    prefix = AUTOPILOT_NODE_PREFIX if autopilot else NODE_PREFIX
    return int(2 ** (prefix - IPv4Network(cidr).prefixlen)) if IPv4Network(cidr).prefixlen <= prefix else 0
