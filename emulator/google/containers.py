"""Clusters and node pools of GKE: Kubernetes clusters on this machine, with simulated nodes."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from emulator.cloud.store import RUNNING, Record, project_number
from emulator.google import rest, rules
from emulator.google.cluster_records import cluster_record, is_autopilot, pool_record, workload_pool
from emulator.google.diff import Change
from emulator.google.iam import require_account
from emulator.google.network import CLUSTER, check_network, names_same, network_and_subnetwork
from emulator.google.refusals import Problem, bad_request, value_at
from emulator.google.resource import Properties, Resource, match, merged, now
from emulator.pulumi.plugin import UNKNOWN, Refused, Secret, has_unknown
from gke_ai.catalog.machines import zones
from gke_ai.catalog.machines.disks import boot_disk_type
from gke_ai.catalog.machines.types import is_bare_metal

NODE_POOL = "gcp:container/nodePool:NodePool"
DEFAULT_POOL = "default-pool"
# https://cloud.google.com/kubernetes-engine/docs/concepts/node-pool-upgrade-strategies#surge
UPGRADES = {"maxSurge": 1, "maxUnavailable": 0, "strategy": "SURGE"}
SHORT_LIVED = {"strategy": "SHORT_LIVED"}
NETWORKS = ("network", "subnetwork")


class Cluster(Resource):
    """A GKE cluster: a Kubernetes cluster on this machine."""

    token = CLUSTER
    arguments = ("pulumi_gcp.container", "ClusterArgs")
    decided = (
        "controlPlaneEndpointsConfig.dnsEndpointConfig.endpoint",
        "endpoint",
        "location",
        "masterAuth.clusterCaCertificate",
        "masterVersion",
        "nodeLocations",
        "nodeVersion",
        "project",
        "releaseChannel",
        "selfLink",
        "workloadIdentityConfig",
    )

    def body(self, inputs: Properties) -> rest.Body:
        return rest.cluster(inputs)

    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        return list(rules.cluster(inputs, body, self.cloud.project_of(inputs), self.cloud.location_of(inputs)))

    def identity(self, inputs: Properties) -> str:
        project, location = self.cloud.project_of(inputs), self.cloud.location_of(inputs)
        return f"projects/{project}/locations/{location}/clusters/{inputs['name']}"

    def imported(self, id: str) -> str:
        forms = (
            r"projects/(?P<project>[^/]+)/locations/(?P<location>[^/]+)/clusters/(?P<name>[^/]+)",
            r"(?P<project>[^/]+)/(?P<location>[^/]+)/(?P<name>[^/]+)",
            r"(?P<location>[^/]+)/(?P<name>[^/]+)",
        )
        return self.identity(match(forms, id, "cluster"))

    def creation_problems(self, inputs: Properties) -> Iterable[Problem]:
        body = self.body(inputs).content
        yield from [] if has_unknown(body) else rules.new_cluster(inputs, body)
        # https://github.com/hashicorp/terraform-provider-google/issues/11144: expandAuthenticatorGroupsConfig
        if value_at(inputs, "authenticatorGroupsConfig.securityGroup") == "":
            yield (
                "authenticatorGroupsConfig.securityGroup",
                "the provider crashes if it creates a cluster with an empty group. Leave authenticatorGroupsConfig out",
            )

    def may_create(self, record: Record) -> None:
        super().may_create(record)
        name = record.inputs["name"]
        for other in self.store.all(CLUSTER):
            if other.inputs["name"] == name:
                raise Refused(
                    f"{other.identity} has the same name. Google Cloud allows this, but the emulator needs unique "
                    "cluster names. Rename one of the clusters, or use another GKE_AI_STATE"
                )
        check_network(self.store, record)
        for account in accounts(record.inputs):
            require_account(self.store, account)

    def facts(self, inputs: Properties) -> dict[str, Any]:
        location = self.cloud.location_of(inputs)
        own = [location] if zones.is_zone(location) else []
        return {
            "version": rules.GKE_VERSION,
            "zones": [*own, *inputs["nodeLocations"]] if inputs.get("nodeLocations") else [*zones.node_zones(location)],
            "location": location,
            "created": now(),
        }

    def provision(self, record: Record) -> dict[str, Any]:
        inputs = record.inputs
        endpoint = self.cloud.clusters.create(inputs["name"], cluster_record(record, inputs))
        self._default_pool(record, inputs)
        if workload_pool(record) is not None:
            self.store.create_identity_pool(record.project)
        return {"endpoint": endpoint.host, "caCertificate": endpoint.ca_certificate, "uid": uuid.uuid4().hex}

    def apply(self, record: Record, inputs: Properties) -> None:
        wanted, before = cluster_record(record, inputs), cluster_record(record, record.inputs)
        if (wanted.secret_sync, wanted.gateway_api) != (before.secret_sync, before.gateway_api):
            self.cloud.clusters.create(inputs["name"], wanted)  # the cluster exists: this updates its record
        self._default_pool(record, inputs)
        if workload_pool(replace(record, inputs=inputs)) is not None:
            self.store.create_identity_pool(record.project)

    def _default_pool(self, record: Record, inputs: Properties) -> None:
        """Creates the pool that every new Standard cluster has, or deletes it with `removeDefaultNodePool`."""
        pool = Record(
            identity=f"{record.identity}/nodePools/{DEFAULT_POOL}",
            kind=NODE_POOL,
            project=record.project,
            inputs={
                "name": DEFAULT_POOL,
                "cluster": inputs["name"],
                "location": record.facts["location"],
                "nodeCount": inputs.get("initialNodeCount"),
                "nodeConfig": inputs.get("nodeConfig") or {},
            },
            facts={"version": record.facts["version"], "zones": record.facts["zones"], "ofCluster": True},
            status=RUNNING,
        )
        existing = self.store.get(pool.identity)
        wanted = not is_autopilot(inputs) and not inputs.get("removeDefaultNodePool")
        if wanted and (existing is None or (existing.facts.get("ofCluster") and existing.inputs != pool.inputs)):
            self.cloud.clusters.set_pool(inputs["name"], pool_record(record, pool.inputs))
            self.store.put(pool)
        elif not wanted and existing is not None and existing.facts.get("ofCluster"):
            self.cloud.clusters.remove_pool(inputs["name"], DEFAULT_POOL)
            self.store.remove(pool.identity)

    def may_delete(self, identity: str, state: Properties) -> None:
        if state.get("deletionProtection", True) and self.store.get(identity) is not None:
            raise Refused(
                "Cannot destroy cluster because deletion_protection is set to true. "
                "Set it to false to proceed with cluster deletion."
            )

    def erase(self, record: Record) -> None:
        self.cloud.clusters.delete(record.inputs["name"])
        for pool in self.store.all(NODE_POOL, under=f"{record.identity}/nodePools/"):
            self.store.remove(pool.identity)
        self.store.remove(record.identity)

    def defaults(self, inputs: Properties) -> Properties:
        """The values that the API returns for a cluster that was created with only a name."""
        return {
            # https://github.com/hashicorp/terraform-provider-google/blob/main/google/services/container/resource_container_cluster_test.go
            "authenticatorGroupsConfig": {"securityGroup": ""},
            # GKE returns `rayOperatorConfig: {}`, and the provider reads it as disabled: flattenClusterAddonsConfig.
            "addonsConfig": {"rayOperatorConfigs": [{"enabled": False}]},
            "controlPlaneEndpointsConfig": {
                "dnsEndpointConfig": {"allowExternalTraffic": False},
                "ipEndpointsConfig": {"enabled": True},
            },
            "deletionProtection": True,
            # On in each new cluster: https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed
            "monitoringConfig": {"managedPrometheus": {"enabled": True}},
            "privateClusterConfig": {"enablePrivateNodes": False},
            "releaseChannel": {"channel": "REGULAR"},
        }

    def normal(self, inputs: Properties) -> Properties:
        """The inputs without blocks that are off: the provider compares them with absent ones as equal."""
        off = [name for name in ("networkPolicy", "secretSyncConfig") if value_at(inputs, f"{name}.enabled") is False]
        return {name: value for name, value in inputs.items() if name not in off}

    def changes(self, old: Properties, new: Properties, state: Properties) -> list[Change]:
        same: Properties = {}
        known = {name: old.get(name) or state.get(name) for name in NETWORKS}
        place = {"location": self.cloud.location_of(old)}
        for name, path in zip(NETWORKS, network_and_subnetwork(self.cloud.project_of(old), known, place), strict=True):
            if names_same(path, new.get(name)):
                same[name] = old.get(name)
        changes = super().changes(old, new | same, state)
        if state.get("maintenancePolicy") and not (old.get("maintenancePolicy") or new.get("maintenancePolicy")):
            # Exclusions that the cloud keeps: the provider plans to remove them with every update, and never does.
            changes.append(Change("maintenancePolicy", "DELETE", replaces=False))
        return changes

    def update(self, record: Record, inputs: Properties) -> Record:
        """The provider sends the cloud's own exclusions back if the maintenance policy is removed.

        https://github.com/hashicorp/terraform-provider-google-beta/blob/93c65b2d60fe/google-beta/services/container/resource_container_cluster.go#L6358
        """
        exclusions = value_at(record.inputs, "maintenancePolicy.maintenanceExclusions")
        if exclusions and not inputs.get("maintenancePolicy"):
            inputs = inputs | {"maintenancePolicy": {"maintenanceExclusions": exclusions}}
        for pool in self.store.all(NODE_POOL, under=f"{record.identity}/nodePools/"):
            require_features(inputs, pool.inputs)
        return super().update(record, inputs)

    def outputs(self, record: Record) -> Properties:
        facts, pool = record.facts, workload_pool(record)
        zonal = zones.is_zone(facts["location"])
        decided = {
            "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": dns_name(record)}},
            "endpoint": facts["endpoint"],
            "location": facts["location"],
            "masterAuth": {
                "clientCertificate": "",
                "clientCertificateConfig": {"issueClientCertificate": False},
                "clientKey": Secret(""),  # sensitive in the provider, which makes all of masterAuth a secret
                "clusterCaCertificate": facts["caCertificate"],
            },
            "masterVersion": facts["version"],
            "network": f"projects/{record.project}/global/networks/default",
            "nodeLocations": facts["zones"][1:] if zonal else facts["zones"],
            "nodeVersion": facts["version"],
            "project": record.project,
            "selfLink": f"https://container.googleapis.com/v1/{record.identity}",
            "workloadIdentityConfig": None if pool is None else {"workloadPool": pool},
        }
        outputs: Properties = merged(merged(record.inputs, decided), self.defaults(record.inputs))
        return outputs


def dns_name(record: Record) -> str:
    """DNS name of a control plane, as Google's. One that clients may use resolves to this machine, and has no id."""
    facts = record.facts
    if value_at(record.inputs, "controlPlaneEndpointsConfig.dnsEndpointConfig.allowExternalTraffic"):
        return f"localhost:{facts['endpoint'].rpartition(':')[2]}"
    return f"gke-{facts.get('uid', 0)}-{project_number(record.project)}.{zones.region_of(facts['location'])}.gke.goog"


def accounts(inputs: Properties) -> list[str]:
    """Service accounts of the nodes of a cluster or a pool."""
    scaling = (inputs.get("clusterAutoscaling") or {}).get("autoProvisioningDefaults") or {}
    emails = [(inputs.get("nodeConfig") or {}).get("serviceAccount"), scaling.get("serviceAccount")]
    return [email for email in emails if email]


class NodePool(Resource):
    """A node pool: simulated nodes in its cluster."""

    token = NODE_POOL
    arguments = ("pulumi_gcp.container", "NodePoolArgs")
    decided = ("instanceGroupUrls", "location", "managedInstanceGroupUrls", "nodeCount", "nodeLocations", "version")

    def body(self, inputs: Properties) -> rest.Body:
        return rest.node_pool(inputs)

    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        if inputs["cluster"] is UNKNOWN and "location" not in inputs:
            return []
        return list(rules.node_pool(inputs, body, self._place(inputs)[1]))

    def creation_problems(self, inputs: Properties) -> Iterable[Problem]:
        body = self.body(inputs).content
        return [] if has_unknown(body) else rules.new_node_pool(inputs, body)

    def update_problems(self, old: Properties, new: Properties) -> Iterable[Problem]:
        return rules.changed_node_pool(old, self.kept(merged(old, self.defaults(old)), new))

    def _place(self, inputs: Properties) -> tuple[str, str, str]:
        """Project, location and name of the pool's cluster. `cluster` is a name or an id."""
        form = r"projects/([^/]+)/(?:locations|zones)/([^/]+)/clusters/([^/]+)"
        if isinstance(inputs["cluster"], str) and (parts := re.fullmatch(form, inputs["cluster"])):
            return parts[1], parts[2], parts[3]
        return self.cloud.project_of(inputs), self.cloud.location_of(inputs), inputs["cluster"]

    def owner(self, inputs: Properties) -> str:
        return self._place(inputs)[0]

    def identity(self, inputs: Properties) -> str:
        project, location, cluster = self._place(inputs)
        return f"projects/{project}/locations/{location}/clusters/{cluster}/nodePools/{inputs['name']}"

    def imported(self, id: str) -> str:
        forms = (
            r"projects/(?P<project>[^/]+)/locations/(?P<location>[^/]+)/clusters/(?P<cluster>[^/]+)/nodePools/(?P<name>[^/]+)",
            r"(?P<project>[^/]+)/(?P<location>[^/]+)/(?P<cluster>[^/]+)/(?P<name>[^/]+)",
            r"(?P<location>[^/]+)/(?P<cluster>[^/]+)/(?P<name>[^/]+)",
        )
        return self.identity(match(forms, id, "node pool"))

    def _cluster(self, identity: str) -> Record:
        parent = identity.rpartition("/nodePools/")[0]
        if (cluster := self.store.get(parent)) is None:
            raise Refused(f"googleapi: Error 404: Not found: {parent}., notFound")
        return cluster

    def may_create(self, record: Record) -> None:
        cluster = self._cluster(record.identity)
        if cluster.status != RUNNING:
            raise Refused(
                f"googleapi: Error 400: {cluster.identity} is being created. Try again later., failedPrecondition"
            )
        if is_autopilot(cluster.inputs):
            raise Refused(bad_request("Autopilot clusters do not support mutating node pools"))
        require_features(cluster.inputs, record.inputs)
        for account in accounts(record.inputs):
            require_account(self.store, account)
        super().may_create(record)

    def facts(self, inputs: Properties) -> dict[str, Any]:
        cluster = self._cluster(self.identity(inputs))
        return {"version": cluster.facts["version"], "zones": cluster.facts["zones"], "created": now()}

    def provision(self, record: Record) -> dict[str, Any]:
        cluster = self._cluster(record.identity)
        self.cloud.clusters.set_pool(cluster.inputs["name"], pool_record(cluster, record.inputs))
        return {}

    def apply(self, record: Record, inputs: Properties) -> None:
        cluster = self._cluster(record.identity)
        require_features(cluster.inputs, inputs)
        if (wanted := pool_record(cluster, inputs)) != pool_record(cluster, record.inputs):
            self.cloud.clusters.set_pool(cluster.inputs["name"], wanted)

    def erase(self, record: Record) -> None:
        cluster = self.store.get(record.identity.rpartition("/nodePools/")[0])
        if cluster is not None:
            self.cloud.clusters.remove_pool(cluster.inputs["name"], record.inputs["name"])
        self.store.remove(record.identity)

    def defaults(self, inputs: Properties) -> Properties:
        """The values that the API returns for a pool that was created with a name, a cluster and a machine type."""
        machine = (inputs.get("nodeConfig") or {}).get("machineType", rules.DEFAULT_MACHINE)
        return {
            "management": {"autoRepair": True, "autoUpgrade": True},
            "upgradeSettings": SHORT_LIVED if is_short_lived(inputs) else UPGRADES,
            "networkConfig": {"enablePrivateNodes": False},
            "nodeConfig": {"diskType": boot_disk_type(machine), "serviceAccount": "default"},
        }

    def outputs(self, record: Record) -> Properties:
        project, location, cluster = _parts(record.identity)
        inputs, nodes = record.inputs, record.inputs.get("nodeLocations") or record.facts["zones"]
        count = inputs.get("nodeCount", inputs.get("initialNodeCount", 0))

        def groups(collection: str) -> Any:
            if has_unknown(nodes):
                return UNKNOWN
            digest = hashlib.sha256(record.identity.encode()).hexdigest()[:8]
            name = f"gke-{cluster}-{inputs['name']}-{digest}-grp"
            root = f"https://www.googleapis.com/compute/v1/projects/{project}/zones"
            return [f"{root}/{zone}/{collection}/{name}" for zone in nodes]

        decided = {
            "instanceGroupUrls": groups("instanceGroupManagers"),
            "location": location,
            "managedInstanceGroupUrls": groups("instanceGroups"),
            "nodeCount": count,
            "nodeLocations": nodes,
            "project": project,
            "version": record.facts["version"],
        }
        if is_short_lived(inputs):
            inputs = inputs | {"upgradeSettings": None}
        outputs: Properties = merged(merged(inputs, decided), self.defaults(inputs))
        return outputs

    def changes(self, old: Properties, new: Properties, state: Properties) -> list[Change]:
        changes = super().changes(old, new, state)
        if is_short_lived(new) and new.get("upgradeSettings") and not any("upgrade" in each.path for each in changes):
            # GKE keeps its own strategy, and the provider plans SURGE, its default, with every update.
            changes.append(Change("upgradeSettings.strategy", "UPDATE", replaces=False))
        return changes

    def planned(self, inputs: Properties) -> Properties:
        project = {"project": self.cloud.project} if self.cloud.project else {}
        return project | super().planned(inputs)


def require_features(cluster: Properties, inputs: Properties) -> None:
    """Refuses a pool in a cluster without what it needs, and its loss, which GKE may allow.

    https://cloud.google.com/kubernetes-engine/docs/concepts/release-channels
    """
    profile = value_at(inputs, "networkConfig.acceleratorNetworkProfile")
    if profile and not rules.has_networks(cluster):
        raise Refused(bad_request("Accelerator network profile requires a cluster with Dataplane V2."))
    name = value_at(inputs, "nodeConfig.machineType")
    if is_bare_metal(str(name)) and cluster.get("enableShieldedNodes") is not False:
        raise Refused(bad_request(f"Machine type {name} requires a cluster without shielded nodes."))
    further = value_at(inputs, "networkConfig.additionalNodeNetworkConfigs")
    if further and not cluster.get("enableMultiNetworking"):
        raise Refused(bad_request("Additional node networks require a cluster with multi-networking."))
    channel = (cluster.get("releaseChannel") or {"channel": "REGULAR"})["channel"]
    if channel != "UNSPECIFIED" and (inputs.get("management") or {}).get("autoUpgrade") is False:
        raise Refused(bad_request(f"Auto_upgrade must be true when release_channel {channel} is set."))


def is_short_lived(inputs: Properties) -> bool:
    """Whether a pool has the upgrade strategy of Dynamic Workload Scheduler.

    https://github.com/GoogleCloudPlatform/cluster-autoscaler/blob/7d250507339b/pkg/autoprovisioning/injection.go#L1651
    """
    return any(value_at(inputs, path) is True for path in ("nodeConfig.flexStart", "queuedProvisioning.enabled"))


def _parts(identity: str) -> tuple[str, str, str]:
    parts = identity.split("/")
    return parts[1], parts[3], parts[5]
