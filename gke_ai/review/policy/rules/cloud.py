"""Clusters and node pools: network access, identities, versions and protection."""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.kube.values import Hidden, is_unset, items, list_at, mapping, value
from gke_ai.registered.pools import accelerators
from gke_ai.registered.registration import RegisteredStack, Resource
from gke_ai.registered.types import BUCKET, CLUSTER, FIREWALL, NODE_POOL
from gke_ai.review.policy.base import of_resources, of_stacks

ANYWHERE = {"0.0.0.0/0", "::/0"}
DEFAULT_ACCOUNT = "-compute@developer.gserviceaccount.com"
# https://cloud.google.com/iam/docs/roles-overview#basic
BASIC_ROLES = {"roles/owner", "roles/editor"}


def autopilot(cluster: Resource) -> bool:
    """Whether this is an Autopilot cluster, where GKE enforces many of these settings."""
    return value(cluster.props, "enableAutopilot") is True


@of_resources(
    "Set workloadIdentityConfig.workloadPool (PROJECT.svc.id.goog) on the cluster and "
    "nodeConfig.workloadMetadataConfig.mode: GKE_METADATA on its pools"
)
def workload_identity(resource: Resource) -> Iterator[str]:
    """Pods use their own identity, not the identity of their node.

    https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity
    """
    if resource.type == CLUSTER and not autopilot(resource):
        if is_unset(value(resource.props, "workloadIdentityConfig", "workloadPool")):
            yield "it has no workload pool. Grants to service accounts of pods have no effect"
    elif resource.type == NODE_POOL:
        mode = value(resource.props, "nodeConfig", "workloadMetadataConfig", "mode")
        if mode not in ("GKE_METADATA", Hidden.UNKNOWN):
            yield "its pods reach the node's metadata server. Each pod has the rights of the node's service account"


@of_resources(
    "Set a service account with roles/container.defaultNodeServiceAccount (gke-ai: cluster.nodeServiceAccount)"
)
def nodes_have_an_account_of_their_own(resource: Resource) -> Iterator[str]:
    """Nodes run as a service account that has only the rights that nodes need.

    https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster#use_least_privilege_sa
    """
    if resource.type == NODE_POOL:
        account = value(resource.props, "nodeConfig", "serviceAccount")
    elif resource.type == CLUSTER and autopilot(resource):
        account = value(resource.props, "clusterAutoscaling", "autoProvisioningDefaults", "serviceAccount")
    else:
        return
    if is_unset(account) or account == "default" or (isinstance(account, str) and account.endswith(DEFAULT_ACCOUNT)):
        yield (
            "its nodes run as Compute Engine's default account, which by default can edit the whole project. "
            "An attacker on a node has the same rights"
        )


@of_resources("Set releaseChannel.channel: RAPID, REGULAR or STABLE (gke-ai: cluster.releaseChannel)")
def release_channel(resource: Resource) -> Iterator[str]:
    """Clusters are enrolled in a release channel.

    https://cloud.google.com/kubernetes-engine/docs/concepts/release-channels
    """
    channel = value(resource.props, "releaseChannel", "channel")
    if resource.type == CLUSTER and not autopilot(resource) and (is_unset(channel) or channel == "UNSPECIFIED"):
        yield "it is in no release channel. You manage its versions and security patches yourself"


@of_resources(
    "Set the networks that may reach it (masterAuthorizedNetworksConfig; gke-ai: cluster.authorizedNetworks), or "
    "remove its public address (gke-ai: cluster.publicEndpoint: false with dnsEndpoint: true)"
)
def control_plane_is_not_open(resource: Resource) -> Iterator[str]:
    """The control plane is not open to the whole Internet.

    https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation
    """
    if resource.type != CLUSTER:
        return
    endpoints = mapping(resource.props, "controlPlaneEndpointsConfig", "ipEndpointsConfig")
    private = mapping(resource.props, "privateClusterConfig")
    if private.get("enablePrivateEndpoint") in (True, Hidden.UNKNOWN) or endpoints.get("enabled") is False:
        return
    networks = value(resource.props, "masterAuthorizedNetworksConfig")
    blocks = items(networks, "cidrBlocks")
    if networks is None:
        yield "its control plane is open to the whole Internet. A leaked credential is enough to use it"
    for block in blocks:
        if block.get("cidrBlock") in ANYWHERE:
            yield f"{block['cidrBlock']} may reach its control plane. This is the whole Internet"


@of_resources(
    "Set privateClusterConfig.enablePrivateNodes or networkConfig.enablePrivateNodes (gke-ai: cluster.privateNodes), "
    "and add Cloud NAT for outgoing traffic"
)
def nodes_are_private(resource: Resource) -> Iterator[str]:
    """Nodes have no public IP address.

    https://cloud.google.com/kubernetes-engine/docs/how-to/latest/network-isolation
    """
    if resource.type != CLUSTER:
        return
    default = value(resource.props, "defaultEnablePrivateNodes")
    private = value(resource.props, "privateClusterConfig", "enablePrivateNodes")
    if True not in (default, private) and Hidden.UNKNOWN not in (default, private):
        yield "its nodes have public IP addresses. One firewall rule exposes every host port of their pods"


@of_resources("Remove enableLegacyAbac and masterAuth.clientCertificateConfig")
def no_legacy_authentication(resource: Resource) -> Iterator[str]:
    """Clusters authorize users by IAM and RBAC only.

    https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster
    """
    if resource.type != CLUSTER:
        return
    if value(resource.props, "enableLegacyAbac") is True:
        yield "legacy authorization is on. It gives every service account broad rights that RBAC cannot limit"
    if value(resource.props, "masterAuth", "clientCertificateConfig", "issueClientCertificate") is True:
        yield "it issues a client certificate. Nobody can revoke it, and audit logs do not name its user"


@of_stacks("Enable Dataplane V2 (datapathProvider: ADVANCED_DATAPATH) or networkPolicy.enabled")
def network_policies_are_enforced(stack: RegisteredStack) -> Iterator[tuple[Resource, str]]:
    """The cluster enforces the NetworkPolicies of the stack.

    https://cloud.google.com/kubernetes-engine/docs/how-to/network-policy
    """
    if not any(stack.of_kind("NetworkPolicy")):
        return
    for cluster in stack.of_type(CLUSTER):
        dataplane = value(cluster.props, "datapathProvider")
        enabled = value(cluster.props, "networkPolicy", "enabled")
        if not autopilot(cluster) and dataplane not in ("ADVANCED_DATAPATH", Hidden.UNKNOWN) and enabled is not True:
            cause = "the stack has NetworkPolicies, and nothing in this cluster enforces them"
            yield cluster, f"{cause}. All pods can reach each other"


@of_resources("Restrict sourceRanges to the networks that need access")
def firewalls_are_not_open(resource: Resource) -> Iterator[str]:
    """No firewall rule admits the whole Internet."""
    if resource.type != FIREWALL or value(resource.props, "direction") == "EGRESS":
        return
    sources = list_at(resource.props, "sourceRanges")
    open_to = ANYWHERE & {source for source in sources if isinstance(source, str)}
    if open_to and items(resource.props, "allows"):
        yield f"it admits traffic from {', '.join(sorted(open_to))}. This is the whole Internet"


@of_resources("Grant the predefined roles for the specific tasks")
def no_basic_roles(resource: Resource) -> Iterator[str]:
    """The program grants nobody the role of owner or editor of the project."""
    role = value(resource.props, "role") if resource.type.startswith("gcp:") else None
    if isinstance(role, str) and role in BASIC_ROLES:
        yield f"it grants {role}. This role covers nearly every resource of the project"


@of_resources(
    "Set protect, and deletionProtection on a cluster (gke-ai: protect: true). "
    "On a pool, set protect or createBeforeDelete",
    only_mandatory=True,
)
def clusters_and_buckets_are_protected(resource: Resource) -> Iterator[str]:
    """Clusters and buckets are protected from deletion, and pools are replaced without a gap."""
    if resource.type == CLUSTER:
        if not resource.protect:
            yield "Pulumi can delete it, with everything that runs in it. A changed name or mode is enough"
        if value(resource.props, "deletionProtection") is False:
            yield "Google Cloud can delete it. One command in a console is enough"
    elif resource.protect:
        return
    elif resource.type == BUCKET:
        yield "Pulumi can delete it, with its models and checkpoints. A changed name is enough"
    elif resource.type == NODE_POOL and resource.delete_before_replace and accelerators(resource.props):
        yield "Pulumi deletes it before it creates the replacement. Meanwhile its servers have no nodes"
