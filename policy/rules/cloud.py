"""Clusters and node pools: who reaches them, as whom their nodes act, and how they are kept."""

from __future__ import annotations

from collections.abc import Iterator

from policy.base import Policy, of_resources, of_stacks
from policy.resources import (
    CLUSTER,
    FIREWALL,
    NODE_POOL,
    Hidden,
    Resource,
    Stack,
    is_unset,
    items,
    list_at,
    mapping,
    value,
)

ANYWHERE = {"0.0.0.0/0", "::/0"}
DEFAULT_ACCOUNT = "-compute@developer.gserviceaccount.com"
# https://cloud.google.com/iam/docs/roles-overview#basic
BASIC_ROLES = {"roles/owner", "roles/editor"}


def autopilot(cluster: Resource) -> bool:
    """Whether this is an Autopilot cluster, where much is on that can't be turned off."""
    return value(cluster.props, "enableAutopilot") is True


@of_resources(
    "workload-identity",
    "Pods act as themselves, not as the node they are on",
    "Set workloadIdentityConfig.workloadPool (PROJECT.svc.id.goog) of the cluster, and "
    "nodeConfig.workloadMetadataConfig.mode: GKE_METADATA of its pools",
)
def workload_identity(resource: Resource) -> Iterator[str]:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity"""
    if resource.type == CLUSTER and not autopilot(resource):
        if is_unset(value(resource.props, "workloadIdentityConfig", "workloadPool")):
            yield "it has no workload pool — no grant to a pod's service account can work"
    elif resource.type == NODE_POOL:
        mode = value(resource.props, "nodeConfig", "workloadMetadataConfig", "mode")
        if mode not in ("GKE_METADATA", Hidden.UNKNOWN):
            yield "its pods see the node's metadata server — each of them has the rights of the node's account"


@of_resources(
    "nodes-have-an-account-of-their-own",
    "Nodes run as a service account that may do what nodes do, and no more",
    "Name an account with roles/container.defaultNodeServiceAccount (gke-ai: cluster.nodeServiceAccount)",
)
def nodes_have_an_account_of_their_own(resource: Resource) -> Iterator[str]:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster#use_least_privilege_sa"""
    if resource.type == NODE_POOL:
        account = value(resource.props, "nodeConfig", "serviceAccount")
    elif resource.type == CLUSTER and autopilot(resource):
        account = value(resource.props, "clusterAutoscaling", "autoProvisioningDefaults", "serviceAccount")
    else:
        return
    if is_unset(account) or account == "default" or (isinstance(account, str) and account.endswith(DEFAULT_ACCOUNT)):
        yield (
            "its nodes run as the default account of Compute Engine, which by default may edit the whole project — "
            "who takes over a node has that too"
        )


@of_resources(
    "release-channel",
    "Clusters are in a release channel",
    "Set releaseChannel.channel: RAPID, REGULAR or STABLE (gke-ai: cluster.releaseChannel)",
)
def release_channel(resource: Resource) -> Iterator[str]:
    """https://cloud.google.com/kubernetes-engine/docs/concepts/release-channels"""
    channel = value(resource.props, "releaseChannel", "channel")
    if resource.type == CLUSTER and not autopilot(resource) and (is_unset(channel) or channel == "UNSPECIFIED"):
        yield "it is in no release channel — its versions, and security patches, are nobody's work but yours"


@of_resources(
    "control-plane-is-not-open",
    "Not everyone on the Internet reaches the control plane",
    "Name who may reach it (masterAuthorizedNetworksConfig; gke-ai: cluster.authorizedNetworks), or give it no public "
    "address (gke-ai: cluster.publicEndpoint: false, with dnsEndpoint: true)",
)
def control_plane_is_not_open(resource: Resource) -> Iterator[str]:
    """https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation"""
    if resource.type != CLUSTER:
        return
    endpoints = mapping(resource.props, "controlPlaneEndpointsConfig", "ipEndpointsConfig")
    private = mapping(resource.props, "privateClusterConfig")
    if private.get("enablePrivateEndpoint") in (True, Hidden.UNKNOWN) or endpoints.get("enabled") is False:
        return
    networks = value(resource.props, "masterAuthorizedNetworksConfig")
    blocks = items(networks, "cidrBlocks")
    if networks is None:
        yield "its control plane answers everyone on the Internet — a flaw in it, or a leaked credential, is enough"
    for block in blocks:
        if block.get("cidrBlock") in ANYWHERE:
            yield f"{block['cidrBlock']} may reach its control plane — that is everyone on the Internet"


@of_resources(
    "nodes-are-private",
    "Nodes have no address on the Internet",
    "Set privateClusterConfig.enablePrivateNodes or networkConfig.enablePrivateNodes (gke-ai: cluster.privateNodes), "
    "and Cloud NAT for their way out",
)
def nodes_are_private(resource: Resource) -> Iterator[str]:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/latest/network-isolation"""
    if resource.type != CLUSTER:
        return
    default = value(resource.props, "defaultEnablePrivateNodes")
    private = value(resource.props, "privateClusterConfig", "enablePrivateNodes")
    if True not in (default, private) and Hidden.UNKNOWN not in (default, private):
        yield "its nodes have addresses on the Internet — a port that a pod opens on its node is one firewall rule away"


@of_resources(
    "no-legacy-authentication",
    "Clusters know their users by IAM and RBAC alone",
    "Leave enableLegacyAbac and masterAuth.clientCertificateConfig out",
)
def no_legacy_authentication(resource: Resource) -> Iterator[str]:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster"""
    if resource.type != CLUSTER:
        return
    if value(resource.props, "enableLegacyAbac") is True:
        yield "legacy authorization is on — every service account has wide rights, past RBAC"
    if value(resource.props, "masterAuth", "clientCertificateConfig", "issueClientCertificate") is True:
        yield "it issues a client certificate — that can't be revoked, and has no name in the audit log"


@of_stacks(
    "network-policies-are-enforced",
    "Where there are network policies, the cluster heeds them",
    "Turn on Dataplane V2 (datapathProvider: ADVANCED_DATAPATH), or networkPolicy.enabled",
)
def network_policies_are_enforced(stack: Stack) -> Iterator[tuple[Resource, str]]:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/network-policy"""
    if not any(stack.of_kind("NetworkPolicy")):
        return
    for cluster in stack.of_type(CLUSTER):
        dataplane = value(cluster.props, "datapathProvider")
        enabled = value(cluster.props, "networkPolicy", "enabled")
        if not autopilot(cluster) and dataplane not in ("ADVANCED_DATAPATH", Hidden.UNKNOWN) and enabled is not True:
            yield (
                cluster,
                "the stack has network policies, and nothing in this cluster enforces them — all pods reach all",
            )


@of_resources(
    "firewalls-are-not-open",
    "No firewall rule lets the whole Internet in",
    "Name who may come in (sourceRanges)",
)
def firewalls_are_not_open(resource: Resource) -> Iterator[str]:
    if resource.type != FIREWALL or value(resource.props, "direction") == "EGRESS":
        return
    open_to = ANYWHERE & {
        source_range for source_range in list_at(resource.props, "sourceRanges") if isinstance(source_range, str)
    }
    if open_to and items(resource.props, "allows"):
        yield f"it lets {', '.join(sorted(open_to))} in — that is everyone on the Internet"


@of_resources(
    "no-basic-roles",
    "Nobody is an owner or editor of the project by way of this program",
    "Grant the roles for what is to be done",
)
def no_basic_roles(resource: Resource) -> Iterator[str]:
    role = value(resource.props, "role") if resource.type.startswith("gcp:") else None
    if isinstance(role, str) and role in BASIC_ROLES:
        yield f"it grants {role} — that is every right there is, on all that the project has"


@of_resources(
    "what-matters-is-protected",
    "Clusters and buckets can't be deleted by mistake, and pools are replaced without a gap",
    "Set protect, and deletionProtection of a cluster (gke-ai: protect: true); "
    "of a pool, protect or createBeforeDelete",
    only_mandatory=True,
)
def what_matters_is_protected(resource: Resource) -> Iterator[str]:
    if resource.type == CLUSTER:
        if not resource.protect:
            yield "Pulumi would delete it — a changed name or mode is enough, and all that runs in it goes too"
        if value(resource.props, "deletionProtection") is False:
            yield "Google would delete it — one command in a console is enough"
    elif resource.type == "gcp:storage/bucket:Bucket":
        if not resource.protect:
            yield "Pulumi would delete it, with models and checkpoints — a changed name is enough"
    elif (
        resource.type == NODE_POOL and not resource.protect and resource.delete_before_replace and accelerated(resource)
    ):
        yield "what replaces it comes only after it has gone — a changed machine type leaves its servers without nodes"


def accelerated(pool: Resource) -> bool:
    """Whether a pool has GPUs or TPUs: what can't be had again at once."""
    machine = value(pool.props, "nodeConfig", "machineType")
    tpu = isinstance(machine, str) and machine.startswith(("ct", "tpu"))
    return tpu or bool(items(pool.props, "nodeConfig", "guestAccelerators"))


POLICIES: tuple[Policy, ...] = (
    workload_identity,
    nodes_have_an_account_of_their_own,
    release_channel,
    control_plane_is_not_open,
    nodes_are_private,
    no_legacy_authentication,
    network_policies_are_enforced,
    firewalls_are_not_open,
    no_basic_roles,
    what_matters_is_protected,
)
