"""The VPC network of a cluster."""

import pulumi
import pulumi_gcp as gcp

from gke_ai.catalog.engines.gateways import PROXY_PURPOSE, PROXY_ROLE
from gke_ai.components.arguments import Arguments, Input, project_of, takes
from gke_ai.components.base import Component
from gke_ai.settings.model import Vpc

# Names of the subnetwork's secondary ranges.
PODS_RANGE, SERVICES_RANGE = "pods", "services"


class ClusterNetworkArguments(Arguments, Vpc):
    project: Input[str] | None = None
    """Id of the Google Cloud project. Default: that of the provider."""
    region: str
    """Region of the cluster."""
    proxy_subnetwork: bool = False
    """Create the proxy-only subnetwork that gateways need."""


class ClusterNetwork(Component):
    """A VPC network with one subnetwork for a VPC-native cluster, and Cloud NAT.

    The subnetwork has secondary ranges for pods and for Services, and Private Google Access, through which nodes
    without external addresses reach Google's APIs and registries. They reach the rest of the Internet (models on
    Hugging Face, images of ghcr.io, Docker Hub and Kueue) through Cloud NAT.

    With `proxy_subnetwork`, a second subnetwork has the addresses of the proxies of regional load balancers.

    A range lives as long as its cluster. A changed range replaces subnetwork and cluster, because Google removes no
    range from a cluster that uses it. The component creates no firewall rules: GKE creates those of its nodes, and the
    control plane of a new cluster reaches webhooks through Konnectivity, on any port.

    Refused: by Google, and earlier by `gke_ai.settings.rules`, ranges that
    overlap or are too small.

    Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips,
    https://cloud.google.com/vpc/docs/subnets#manually_created_subnet_ip_ranges,
    https://cloud.google.com/vpc/docs/private-google-access, https://cloud.google.com/nat/docs/gke-example,
    https://cloud.google.com/kubernetes-engine/docs/concepts/firewall-rules,
    https://cloud.google.com/load-balancing/docs/proxy-only-subnets

    Example:
        network = ClusterNetwork("net", region="us-central1")
        GkeCluster("inside", location="us-central1", network=network.network, subnetwork=network.subnetwork)
    """

    network: pulumi.Output[str]
    """`projects/…/global/networks/…`"""
    subnetwork: pulumi.Output[str]
    """`projects/…/regions/…/subnetworks/…`"""

    @takes(ClusterNetworkArguments)
    def __init__(self, name: str, args: ClusterNetworkArguments) -> None:
        super().__init__(name, args)
        project, region = project_of(args.project, f"ClusterNetwork {name}"), args.region
        network_name = args.name or name.rpartition("/")[2]
        # Names are taken until what has them is deleted.
        network = gcp.compute.Network(
            *self.main_child(network_name, delete_before_replace=True),
            name=network_name,
            project=project,
            auto_create_subnetworks=False,
        )
        subnetwork = gcp.compute.Subnetwork(
            *self.child(
                network_name,
                delete_before_replace=True,  # its name and ranges are taken until it is deleted
                # The provider would change them in place, which Google refuses while a cluster uses them.
                replace_on_changes=["ipCidrRange", "secondaryIpRanges"],
            ),
            name=network_name,
            project=project,
            region=region,
            network=network.id,
            ip_cidr_range=args.nodes_cidr,
            private_ip_google_access=True,
            secondary_ip_ranges=[
                {"range_name": PODS_RANGE, "ip_cidr_range": args.pods_cidr},
                {"range_name": SERVICES_RANGE, "ip_cidr_range": args.services_cidr},
            ],
        )
        if args.proxy_subnetwork:
            gcp.compute.Subnetwork(
                *self.child(
                    f"{network_name}-proxies",
                    delete_before_replace=True,  # a network has one in each region
                    # The provider would change it in place, which Google refuses while a gateway uses it.
                    replace_on_changes=["ipCidrRange"],
                ),
                name=f"{network_name}-proxies",
                project=project,
                region=region,
                network=network.id,
                ip_cidr_range=args.proxy_cidr,
                purpose=PROXY_PURPOSE,
                role=PROXY_ROLE,
            )
        if args.nat:
            router = gcp.compute.Router(
                *self.child(network_name, delete_before_replace=True),
                name=network_name,
                project=project,
                region=region,
                network=network.id,
            )
            gcp.compute.RouterNat(
                *self.child(network_name, delete_before_replace=True),
                # Unlike the others, a NAT needs a name of two characters or more.
                name=network_name if len(network_name) > 1 else f"{network_name}-nat",
                project=project,
                region=region,
                router=router.name,
                nat_ip_allocate_option="AUTO_ONLY",
                source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
                # The default of 64 ports per machine is too low for many parallel downloads.
                enable_dynamic_port_allocation=True,
                log_config={"enable": True, "filter": "ERRORS_ONLY"},
            )
        self.network = network.id
        self.subnetwork = subnetwork.id
        self.register_outputs({"network": self.network, "subnetwork": self.subnetwork})
