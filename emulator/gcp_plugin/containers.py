"""Clusters and node pools of GKE: Kubernetes clusters on this machine, with simulated nodes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

from catalog import zones
from catalog.capacity import mode_of
from catalog.machines import boot_disk_type
from catalog.workload_identity import pool_name
from emulator.cluster.records import ClusterRecord, PoolRecord
from emulator.gcp_plugin import rest, rules
from emulator.gcp_plugin.iam import require_account
from emulator.gcp_plugin.network import CLUSTER, must_hold
from emulator.gcp_plugin.resource import Properties, Resource, match, merged, now
from emulator.gcp_plugin.store import RUNNING, Record
from emulator.plugin import UNKNOWN, Refused, Secret, has_unknown

NODE_POOL = "gcp:container/nodePool:NodePool"
DEFAULT_POOL = "default-pool"


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

    def rules(self, inputs: Properties, body: Properties) -> Iterable[rules.Problem]:
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

    def may_create(self, record: Record) -> None:
        super().may_create(record)
        name = record.inputs["name"]
        for other in self.store.all(CLUSTER):
            if other.inputs["name"] == name:
                raise Refused(
                    f"{other.identity} has the same name. Google Cloud would allow it; this emulator knows its "
                    "clusters by name alone. Give one another name, or another GKE_AI_STATE"
                )
        must_hold(self.store, record)
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
            self.store.make_identity_pool(record.project)
        # Google's is gke-ID-NUMBER.REGION.gke.goog; this one leads to this machine.
        name = f"localhost:{endpoint.host.rpartition(':')[2]}"
        return {"endpoint": endpoint.host, "caCertificate": endpoint.ca_certificate, "dnsEndpoint": name}

    def apply(self, record: Record, inputs: Properties) -> None:
        wanted = cluster_record(record, inputs)
        if wanted.secret_sync != cluster_record(record, record.inputs).secret_sync:
            self.cloud.clusters.create(inputs["name"], wanted)  # which is there, and recorded anew
        self._default_pool(record, inputs)
        if workload_pool(replace(record, inputs=inputs)) is not None:
            self.store.make_identity_pool(record.project)

    def _default_pool(self, record: Record, inputs: Properties) -> None:
        """Google makes a pool with every Standard cluster; the provider removes it again where it is told to."""
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
        there = self.store.get(pool.identity)
        wanted = not is_autopilot(inputs) and not inputs.get("removeDefaultNodePool")
        if wanted and (there is None or (there.facts.get("ofCluster") and there.inputs != pool.inputs)):
            self.cloud.clusters.set_pool(inputs["name"], pool_record(record, pool.inputs))
            self.store.put(pool)
        elif not wanted and there is not None and there.facts.get("ofCluster"):
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
        """As the API reads back a cluster that was created with nothing but a name."""
        return {
            # https://github.com/hashicorp/terraform-provider-google/blob/main/google/services/container/resource_container_cluster_test.go
            "authenticatorGroupsConfig": {"securityGroup": ""},
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

    def outputs(self, record: Record) -> Properties:
        facts, pool = record.facts, workload_pool(record)
        zonal = zones.is_zone(facts["location"])
        decided = {
            "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": facts["dnsEndpoint"]}},
            "endpoint": facts["endpoint"],
            "location": facts["location"],
            "masterAuth": {
                "clientCertificate": "",
                "clientCertificateConfig": {"issueClientCertificate": False},
                "clientKey": Secret(""),  # the provider has it as sensitive, which makes all of masterAuth a secret
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


def cluster_record(record: Record, inputs: Properties) -> ClusterRecord:
    """A cluster as `emulator.cluster` makes it."""
    mode: Literal["standard", "autopilot"] = "autopilot" if is_autopilot(inputs) else "standard"
    return ClusterRecord(
        name=inputs["name"],
        project=record.project,
        location=record.facts["location"],
        mode=mode,
        zones=record.facts["zones"],
        version=record.facts["version"],
        labels=inputs.get("resourceLabels") or {},
        secret_sync=bool((inputs.get("secretSyncConfig") or {}).get("enabled")),
    )


def accounts(inputs: Properties) -> list[str]:
    """Service accounts that nodes of a cluster or of a pool run as."""
    scaling = (inputs.get("clusterAutoscaling") or {}).get("autoProvisioningDefaults") or {}
    named = [(inputs.get("nodeConfig") or {}).get("serviceAccount"), scaling.get("serviceAccount")]
    return [one for one in named if one]


def is_autopilot(inputs: Properties) -> bool:
    """Whether a cluster of these inputs is an Autopilot cluster."""
    return bool(inputs.get("enableAutopilot"))


def workload_pool(record: Record) -> str | None:
    """A cluster's identity pool; an Autopilot cluster always has one."""
    if is_autopilot(record.inputs):
        return pool_name(record.project)
    pool: str | None = (record.inputs.get("workloadIdentityConfig") or {}).get("workloadPool")
    return pool


class NodePool(Resource):
    """A node pool: simulated nodes in its cluster."""

    token = NODE_POOL
    arguments = ("pulumi_gcp.container", "NodePoolArgs")
    decided = ("instanceGroupUrls", "location", "managedInstanceGroupUrls", "nodeCount", "nodeLocations", "version")

    def body(self, inputs: Properties) -> rest.Body:
        return rest.node_pool(inputs)

    def rules(self, inputs: Properties, body: Properties) -> Iterable[rules.Problem]:
        if inputs["cluster"] is UNKNOWN and "location" not in inputs:
            return []
        return list(rules.node_pool(inputs, body, self._place(inputs)[1]))

    def _place(self, inputs: Properties) -> tuple[str, str, str]:
        """Project, location and name of the cluster, which is named alone or by its id."""
        form = r"projects/([^/]+)/(?:locations|zones)/([^/]+)/clusters/([^/]+)"
        if isinstance(inputs["cluster"], str) and (found := re.fullmatch(form, inputs["cluster"])):
            return found[1], found[2], found[3]
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
            raise Refused(rules.bad_request("Autopilot clusters do not support mutating node pools"))
        self._may_have(cluster, record.inputs)
        for account in accounts(record.inputs):
            require_account(self.store, account)
        super().may_create(record)

    def _may_have(self, cluster: Record, inputs: Properties) -> None:
        """https://cloud.google.com/kubernetes-engine/docs/concepts/release-channels"""
        channel = (cluster.inputs.get("releaseChannel") or {"channel": "REGULAR"})["channel"]
        if channel != "UNSPECIFIED" and (inputs.get("management") or {}).get("autoUpgrade") is False:
            raise Refused(rules.bad_request(f"Auto_upgrade must be true when release_channel {channel} is set."))

    def facts(self, inputs: Properties) -> dict[str, Any]:
        cluster = self._cluster(self.identity(inputs))
        return {"version": cluster.facts["version"], "zones": cluster.facts["zones"], "created": now()}

    def provision(self, record: Record) -> dict[str, Any]:
        cluster = self._cluster(record.identity)
        self.cloud.clusters.set_pool(cluster.inputs["name"], pool_record(cluster, record.inputs))
        return {}

    def apply(self, record: Record, inputs: Properties) -> None:
        cluster = self._cluster(record.identity)
        self._may_have(cluster, inputs)
        wanted = pool_record(cluster, inputs)
        if wanted != pool_record(cluster, record.inputs):
            self.cloud.clusters.set_pool(cluster.inputs["name"], wanted)

    def erase(self, record: Record) -> None:
        cluster = self.store.get(record.identity.rpartition("/nodePools/")[0])
        if cluster is not None:
            self.cloud.clusters.remove_pool(cluster.inputs["name"], record.inputs["name"])
        self.store.remove(record.identity)

    def defaults(self, inputs: Properties) -> Properties:
        """As the API reads back a pool that was created with a name, a cluster and a machine type."""
        machine = (inputs.get("nodeConfig") or {}).get("machineType", rules.DEFAULT_MACHINE)
        return {
            "management": {"autoRepair": True, "autoUpgrade": True},
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
        outputs: Properties = merged(merged(inputs, decided), self.defaults(inputs))
        return outputs

    def planned(self, inputs: Properties) -> Properties:
        project = {"project": self.cloud.project} if self.cloud.project else {}
        return project | super().planned(inputs)


def _parts(identity: str) -> tuple[str, str, str]:
    _, project, _, location, _, cluster, *_ = identity.split("/")
    return project, location, cluster


def pool_record(cluster: Record, inputs: Properties) -> PoolRecord:
    """A node pool as `emulator.cluster` makes it, read from the same body that Google would get."""
    body = rest.node_pool(inputs).content
    config, scaling = body.get("config", {}), body.get("autoscaling")
    there = body.get("locations") or cluster.facts["zones"]
    accelerator = (config.get("accelerators") or [{}])[0]
    # Since 1.30.1-gke.1156000 GKE installs the default driver where none is named:
    # https://cloud.google.com/kubernetes-engine/docs/how-to/gpus#create
    driver = accelerator.get("gpuDriverInstallationConfig", {}).get("gpuDriverVersion", "DEFAULT")
    drivers: dict[str, Literal["default", "latest", "disabled"]] = {
        "DEFAULT": "default",
        "LATEST": "latest",
        "INSTALLATION_DISABLED": "disabled",
    }
    effects = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
    fixed = scaling is None
    low = high = 0
    if scaling is not None:
        total = scaling["totalMaxNodeCount"]
        low = scaling["totalMinNodeCount"] if total else scaling["minNodeCount"] * len(there)
        high = total or scaling["maxNodeCount"] * len(there)
    metadata = config.get("workloadMetadataConfig", {}).get("mode", "GKE_METADATA")
    return PoolRecord(
        name=inputs["name"],
        machine_type=config.get("machineType", rules.DEFAULT_MACHINE),
        zones=list(there),
        gpu=accelerator.get("acceleratorType"),
        gpus=int(accelerator.get("acceleratorCount", 0)),
        driver=drivers.get(driver, "default"),
        capacity=_capacity(body),
        labels=dict(config.get("labels", {})),
        taints=[
            {"key": taint["key"], "value": taint.get("value", ""), "effect": effects[taint["effect"]]}
            for taint in config.get("taints", [])
        ],
        disk_gb=config.get("diskSizeGb", 100),
        # Not the first size, which the API keeps beside the present one.
        nodes_per_zone=inputs.get("nodeCount", body.get("initialNodeCount", 0)) if fixed else None,
        min_nodes=low,
        max_nodes=high,
        workload_identity=workload_pool(cluster) is not None and metadata == "GKE_METADATA",
        topology=body.get("placementPolicy", {}).get("tpuTopology"),
    )


def _capacity(body: Properties) -> str:
    config = body.get("config", {})
    affinity = config.get("reservationAffinity", {}).get("consumeReservationType")
    return mode_of(
        queued=body.get("queuedProvisioning", {}).get("enabled"),
        flex_start=config.get("flexStart"),
        spot=bool(config.get("spot") or config.get("preemptible")),
        reservation=affinity == "SPECIFIC_RESERVATION",
    )
