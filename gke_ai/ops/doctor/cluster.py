"""Checks of the cluster: version, features, network, and the account of its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gke_ai.catalog.engines import advisories
from gke_ai.catalog.engines.gateways import PROXY_PURPOSE, PROXY_ROLE
from gke_ai.catalog.fabric.rdma import AGENT_ROLE, agent
from gke_ai.catalog.machines import features
from gke_ai.catalog.project.cluster_features import ClusterState, missing
from gke_ai.catalog.project.identities import ENOUGH_FOR_NODES, NODE_ROLE, REGISTRY_ROLE
from gke_ai.kube.existing import refusals
from gke_ai.kube.kubeconfig import kubeconfig
from gke_ai.ops.doctor import needs
from gke_ai.ops.doctor.visit import ADVICE, MISSING, Finding, NotCheckedError, Visit
from gke_ai.settings.resolved.needs import cluster_features, external_hosts, of_cluster, reads_registry
from gke_ai.terminal import Stop

DEFAULT_NETWORK = "default"


@dataclass
class ClusterChecks(Visit):
    """Checks of the cluster and its network."""

    def versions(self) -> Iterator[Finding]:
        """The version of GKE has all features that the stack uses."""
        cluster, wanted = self.settings.cluster, needs.gke_features(self.resolved)
        if cluster.mode == "existing":
            existing = self._existing_cluster()
            if existing is None:
                text = f"there is no cluster {cluster.name} in {cluster.location}, which the stack uses"
                yield Finding(MISSING, "cluster", text, f"gcloud container clusters list --project {self.project}")
                return
            current = str(existing["currentMasterVersion"])
            min_version = max((features.MINIMUM[feature] for feature in wanted), key=features.ordered, default="")
            command = (
                f"gcloud container clusters upgrade {cluster.name} --master --location {cluster.location} "
                f"--project {self.project} --cluster-version={min_version}"
            )
            yield from self._too_old(wanted, current, f"cluster {cluster.name} runs", command)
            yield from self._webhooks_reached(existing)
        elif wanted:
            channels = (self._in_location("serverConfig") or {}).get("channels", [])
            defaults = {channel["channel"].lower(): str(channel["defaultVersion"]) for channel in channels}
            if cluster.release_channel not in defaults:
                raise NotCheckedError(f"GKE reports no version for channel {cluster.release_channel}")
            current = defaults[cluster.release_channel]
            quicker = [name for name in ("regular", "rapid") if not self._lacking(wanted, defaults.get(name))]
            command = "remove the features from the configuration until a channel has the version"
            if quicker:
                command = self._config(f"--path gke-ai:cluster.releaseChannel {quicker[0]}")
            yield from self._too_old(wanted, current, f"channel {cluster.release_channel} has version", command)

    def _existing_cluster(self) -> Any:
        """Returns the existing cluster that the stack uses; None if it does not exist."""
        return self._in_location(f"clusters/{self.settings.cluster.name}")

    def _in_location(self, path: str) -> Any:
        """Returns the response of GKE's API for a path in the location of the cluster; None if there is nothing."""
        location = self.settings.cluster.location
        return self.google(f"container.googleapis.com/v1/projects/{self.project}/locations/{location}/{path}")

    def cluster_content(self) -> Iterator[Finding]:
        """An existing cluster has the controllers and objects that the stack uses and does not create."""
        expected, cluster = of_cluster(self.resolved), self.settings.cluster
        existing = self._existing_cluster() if expected and cluster.mode == "existing" else None
        if existing is None:
            return
        by_name = existing.get("controlPlaneEndpointsConfig", {}).get("dnsEndpointConfig", {}).get("endpoint")
        host = by_name if cluster.dns_endpoint else existing.get("endpoint")
        authority = None if cluster.dns_endpoint else existing.get("masterAuth", {}).get("clusterCaCertificate")
        try:
            content = self.content(kubeconfig(cluster.name, str(host), authority))
        except Stop as unanswered:
            raise NotCheckedError(str(unanswered)) from None
        for refusal in refusals(expected, content):
            yield Finding(MISSING, "cluster", f"{refusal.path}: {refusal.cause}", refusal.remedy)

    def cluster_features(self) -> Iterator[Finding]:
        """An existing cluster has the features that the stack needs of it, and nodes whose driver mounts buckets."""
        cluster = self.settings.cluster
        existing = self._existing_cluster() if cluster.mode == "existing" else None
        if existing is None:
            return
        state = ClusterState.of_rest(existing)
        for lacking in missing(cluster_features(self.resolved), state, cluster.name, cluster.location, self.project):
            another = self._config(f"--path gke-ai:cluster.name NAME  # of a cluster with {lacking.name}")
            command = f"{lacking.command}  # {lacking.note}" if lacking.note else lacking.command
            yield Finding(MISSING, lacking.name, lacking.cause, command or another)
        if not state.autopilot:
            yield from self._nodes_without_buckets(existing)

    def _nodes_without_buckets(self, existing: Mapping[str, Any]) -> Iterator[Finding]:
        """Yields the node pools on which the driver of Cloud Storage FUSE does not start, by GKE's advisory."""
        version, cluster = str(existing.get("currentMasterVersion", "")), self.settings.cluster
        users = [run.name for run, _ in self.resolved.bucket_mounts]
        mounting = ", ".join(users + [download.name for download in self.resolved.downloads])
        for pool in existing.get("nodePools", []) if mounting else ():
            nodes, image = str(pool.get("version", "")), str(pool.get("config", {}).get("imageType", ""))
            if advisories.mounts_no_bucket(version, nodes, image):
                text = (
                    f"nodes of {pool['name']} run {image} {nodes}, on which the Cloud Storage FUSE driver of control "
                    f"plane {version} does not start: pods of {mounting} would wait for their volume forever"
                )
                # A newer control plane, if the nodes have its version or no version of their image is right
                command = f"gcloud container clusters upgrade {cluster.name} --location {cluster.location} "
                command += f"--project {self.project} " + (
                    "--master" if image.startswith("UBUNTU") else f"--node-pool {pool['name']}"
                )
                yield Finding(ADVICE, "Cloud Storage FUSE", text, command)

    def networks_of_nodes(self) -> Iterator[Finding]:
        """A cluster that exists has what GKE needs to create the RDMA networks of pools and compute classes.

        `up` grants the role of GKE's service agent once, and does not notice if somebody removes it.
        """
        pools = [pool.section for pool in self.resolved.node_pools if pool.section.fabric.nics]
        users = [f"pool {pool.name}" for pool in pools]
        users += [f"compute class {own.name}" for own in self.settings.compute_classes if own.fabric.nics]
        existing = self._existing_cluster() if users else None
        if existing is None:
            return
        cluster, foreign = self.settings.cluster, self.settings.cluster.mode == "existing"
        if not foreign and not ClusterState.of_rest(existing).dataplane_v2:
            text = (
                f"cluster {cluster.name} has no Dataplane V2, which only a new cluster can get, and the RDMA network "
                f"of {users[0]} needs it: up would recreate the cluster"
            )
            command = f"gke-ai preview --stack {self.stack}  # lists what would be recreated"
            yield Finding(ADVICE, "Dataplane V2", text, command)
        zones = existing.get("locations", [])
        for pool in (pool for pool in pools if foreign and not pool.zones and len(zones) > 1):
            text = (
                f"the RDMA network of pool {pool.name} is in one zone, and nodes of cluster {cluster.name} are in "
                f"{', '.join(zones)}: GKE would refuse the pool"
            )
            yield Finding(MISSING, "zones", text, self._config(f"--path '{pool.at('zones')}[0]' {zones[0]}"))
        for created in existing.get("nodePools", []):
            if created.get("networkConfig", {}).get("acceleratorNetworkProfile"):
                yield from self._role_of_agent(created["name"])
                return

    def _role_of_agent(self, pool: str) -> Iterator[Finding]:
        """GKE's service agent may create the networks of a pool that exists."""
        member = agent(self.project_record.get("projectNumber", ""))
        if not self._roles(member) & {AGENT_ROLE, "roles/editor", "roles/owner"}:
            text = (
                f"GKE's service agent lacks {AGENT_ROLE} in {self.project}: it can neither create nor change the RDMA "
                f"networks of pools such as {pool}"
            )
            yield Finding(MISSING, "role of GKE's service agent", text, self.granting(member, AGENT_ROLE))

    def proxy_subnetwork(self) -> Iterator[Finding]:
        """The network of a gateway has a proxy-only subnetwork in the region, unless the stack creates it.

        https://cloud.google.com/load-balancing/docs/proxy-only-subnets
        """
        cluster = self.settings.cluster
        if self.settings.gateway is None or cluster.vpc is not None:
            return
        existing = (self._existing_cluster() or {}) if cluster.mode == "existing" else {}
        host, name, subnetworks = self._of_network("subnetworks", existing.get("networkConfig", {}).get("network"))
        region = cluster.region
        if not any(subnetwork.get("purpose") == PROXY_PURPOSE for subnetwork in subnetworks):
            text = f"network {name} has no proxy-only subnetwork in {region}: the gateway would get no address"
            command = (
                f"gcloud compute networks subnets create proxies --purpose={PROXY_PURPOSE} --role={PROXY_ROLE} "
                f"--region={region} --network={name} --range=10.129.0.0/23 --project {host}  # a range that is free"
            )
            yield Finding(MISSING, "proxy-only subnetwork", text, command)

    def _of_network(self, kind: str, stated: str | None = None) -> tuple[str, str, list[Mapping[str, Any]]]:
        """Returns project and name of the cluster's network, and what there is of a kind in it in the region."""
        cluster = self.settings.cluster
        network = stated or cluster.network or DEFAULT_NETWORK
        host = network.split("/")[1] if network.startswith("projects/") else self.project
        name = network.rpartition("/")[2]
        found = self.compute(f"/regions/{cluster.region}/{kind}", host).get("items", [])
        return host, name, [item for item in found if str(item.get("network", "")).endswith(f"/networks/{name}")]

    def _webhooks_reached(self, existing: Mapping[str, Any]) -> Iterator[Finding]:
        """In an older private cluster, a firewall rule lets the control plane reach webhooks on the nodes.

        It reaches nodes by VPC peering, on ports 443 and 10250 only. Newer clusters reach every port by Konnectivity.
        https://cloud.google.com/kubernetes-engine/docs/how-to/private-clusters#add_firewall_rules
        """
        private = existing.get("privateClusterConfig", {})
        ports = [*(["9443"] if self.settings.queues or self.resolved.jobsets else [])]
        ports += ["6443"] if any(autoscaler.adapter == "prometheus" for autoscaler in self.settings.autoscaling) else []
        if not private.get("peeringName") or not ports:
            return
        network = str(existing.get("network", "default"))
        command = (
            f"gcloud compute firewall-rules create {self.settings.cluster.name}-webhooks --project {self.project} "
            f"--network {network} --direction INGRESS --source-ranges {private.get('masterIpv4CidrBlock')} "
            f"--rules {','.join(f'tcp:{port}' for port in ports)}"
        )
        text = (
            "its control plane reaches nodes by VPC peering, on ports 443 and 10250 only: without a firewall rule it "
            f"cannot call webhooks and metrics adapters of this stack (ports {', '.join(ports)})"
        )
        yield Finding(ADVICE, "firewall", text, command)

    def _lacking(self, wanted: Sequence[str], current: str | None) -> list[str]:
        have = features.ordered(current or "")
        return [feature for feature in wanted if have < features.ordered(features.MINIMUM[feature])]

    def _too_old(self, wanted: Sequence[str], current: str, subject: str, command: str) -> Iterator[Finding]:
        lacking = self._lacking(wanted, current)
        if lacking:
            requirements = ", ".join(f"{feature} needs {features.MINIMUM[feature]}" for feature in lacking)
            yield Finding(MISSING, "GKE version", f"{subject} {current}, and {requirements}", command)

    def network(self) -> Iterator[Finding]:
        """The network of a new cluster exists: the configured one, else the default network of the project."""
        cluster = self.settings.cluster
        if cluster.vpc is not None or cluster.mode == "existing":
            return
        name = cluster.network or DEFAULT_NETWORK
        path = name if name.startswith("projects/") else f"projects/{self.project}/global/networks/{name}"
        if self.google(f"compute.googleapis.com/compute/v1/{path}") is None:
            command = f"gcloud compute networks list --project {self.project}"
            if cluster.network is None:
                # Many organizations forbid it: https://cloud.google.com/vpc/docs/vpc#default-network
                command = self._config("--path gke-ai:cluster.vpc.nat true  # a separate network for the cluster")
            yield Finding(MISSING, "network", f"there is no network {name}", command)

    def nat(self) -> Iterator[Finding]:
        """Private nodes in an existing network have Cloud NAT, if pods need the Internet."""
        cluster, needed = self.settings.cluster, external_hosts(self.resolved)
        if not cluster.private_nodes or cluster.vpc is not None or cluster.mode == "existing" or not needed:
            return
        host, name, routers = self._of_network("routers")
        region = cluster.region
        if not any(router.get("nats") for router in routers):
            hosts = ", ".join(f"{internet_host} ({user})" for internet_host, user in needed.items())
            text = f"nodes are private, network {name} has no Cloud NAT in {region}, and pods need {hosts}"
            command = (
                f"gcloud compute routers create nat --network={name} --region={region} --project {host} && "
                f"gcloud compute routers nats create nat --router=nat --region={region} --project {host} "
                "--auto-allocate-nat-external-ips --nat-all-subnet-ip-ranges"
            )
            yield Finding(MISSING, "Cloud NAT", text, command)

    def node_account(self) -> Iterator[Finding]:
        """The service account of nodes exists and is enabled, unless the stack creates it."""
        account = self.settings.cluster.node_service_account
        if account is None and self.settings.cluster.mode != "existing":
            yield from self._default_account()
        if account is None or "@" not in account:
            return
        if self.google(f"iam.googleapis.com/v1/projects/-/serviceAccounts/{account}") is None:
            command = f"gcloud iam service-accounts create {account.partition('@')[0]} --project {self.project}"
            yield Finding(MISSING, "node service account", f"there is no {account}", command)
        else:
            yield from self._roles_of_nodes(account)

    def _roles_of_nodes(self, account: str) -> Iterator[Finding]:
        """The account may write logs and metrics, and read images of the project's registry if the stack has some.

        The default account has no role if the organization enforces iam.automaticIamGrantsForDefaultServiceAccounts:
        https://cloud.google.com/kubernetes-engine/security/configure-node-service-accounts
        """
        member = f"serviceAccount:{account}"
        roles = self._roles(member)
        lacking = [] if any(enough <= roles for enough in ENOUGH_FOR_NODES) else [NODE_ROLE]
        if reads_registry(self.resolved, self.project) and not roles & {REGISTRY_ROLE, "roles/editor", "roles/owner"}:
            lacking.append(REGISTRY_ROLE)
        for role in lacking:
            without = "logs and metrics" if role == NODE_ROLE else "images of the project's registry"
            text = f"nodes run as {account}, which lacks {role} in {self.project}: they would have no {without}"
            yield Finding(MISSING, "roles of nodes", text, self.granting(member, role))

    def _roles(self, member: str) -> set[str]:
        """Returns the roles that a member has in the project."""
        url = f"cloudresourcemanager.googleapis.com/v1/projects/{self.project}:getIamPolicy"
        bindings = (self.google(url, {}) or {}).get("bindings", [])
        return {binding["role"] for binding in bindings if member in binding.get("members", [])}

    def _default_account(self) -> Iterator[Finding]:
        """Compute Engine's default account exists and is enabled. Nodes run as it by default.

        https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster#use_least_privilege_sa
        """
        account = f"{self.project_record.get('projectNumber')}-compute@developer.gserviceaccount.com"
        existing = self.google(f"iam.googleapis.com/v1/projects/-/serviceAccounts/{account}")
        if existing is None or existing.get("disabled"):
            state = "is disabled" if existing else "does not exist"
            text = f"nodes run as Compute Engine's default account, and {account} {state}"
            command = self._config("--path gke-ai:cluster.nodeServiceAccount gke-nodes  # a separate account for nodes")
            yield Finding(MISSING, "node service account", text, command)
        else:
            yield from self._roles_of_nodes(account)
