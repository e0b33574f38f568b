"""Creates clusters, networks, service accounts and secrets outside any stack, as a colleague would with gcloud.

    emulator/run existing create NAME [--mode standard|autopilot] [--location us-central1] [--project P]
    emulator/run existing delete NAME [--location us-central1] [--project P]
    emulator/run existing pool NAME --cluster C [--machine-type e2-standard-4] [--location us-central1] [--project P]
    emulator/run existing network NAME [--location us-central1] [--project P]     a VPC with a subnetwork of its name
    emulator/run existing account EMAIL     a Google service account, for nodes
    emulator/run existing secret NAME [--project P]     a secret of Secret Manager with the emulator's dummy token
    emulator/run existing forget NAME [--project P]     deletes the secret

A pool has one node, access to every API, the metadata server of GKE, and the default driver for GPUs.
A standard cluster has Workload Identity, the regular channel and a default pool of one e2-standard-4 node per zone.
With --secret-sync, a cluster of either mode synchronizes secrets of Secret Manager. With --dataplane-v2, it enforces
NetworkPolicies. With --gateway-api, it runs GKE's Gateway controller. A network's subnetwork has the ranges `pods` and
`services`.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from emulator.cloud.store import Store
from emulator.google.clusters import LocalClusters
from emulator.google.containers import Cluster, NodePool
from emulator.google.iam import ServiceAccount, account_parts, require_account
from emulator.google.network import Network, Subnetwork
from emulator.google.resource import Cloud, Properties
from emulator.google.secrets import create_secret, delete_secret
from emulator.pulumi.plugin import Refused
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.machines.zones import region_of
from gke_ai.catalog.project.identities import pool_name
from gke_ai.workspace.emulation import COMMAND

# Keys that a configuration may leave to its user. On the emulator any value works.
DEFAULTS = {"gcp:project": "emulator-project", "gcp:region": "us-central1"}


def main() -> None:
    """Runs one command."""
    parser = argparse.ArgumentParser(
        prog="emulator/run existing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("create", "delete", "pool", "network", "account", "secret", "forget"))
    parser.add_argument("name")
    parser.add_argument("--mode", choices=("standard", "autopilot"), default="standard")
    parser.add_argument("--location", default=DEFAULTS["gcp:region"], help="region or zone")
    parser.add_argument("--project", default=DEFAULTS["gcp:project"])
    parser.add_argument("--cluster", default="", help="cluster of a pool")
    parser.add_argument("--machine-type", default="e2-standard-4", help="machine type of a pool")
    parser.add_argument("--secret-sync", action="store_true", help="synchronize secrets of Secret Manager")
    parser.add_argument("--gateway-api", action="store_true", help="run GKE's Gateway controller, as Autopilot does")
    parser.add_argument("--dataplane-v2", action="store_true", help="enforce NetworkPolicies, as Autopilot always does")
    options = parser.parse_args()
    try:
        if options.command == "secret":
            print(create_secret(Store(), options.project, options.name))
        elif options.command == "pool":
            print(_pool(Cloud(Store(), LocalClusters(), options.project), options))
        elif options.command == "network":
            print(_network(Cloud(Store(), LocalClusters(), options.project), options.name, options.location))
        elif options.command == "account":
            print(_account(Cloud(Store(), LocalClusters()), options.name))
        elif options.command == "forget":
            delete_secret(Store(), options.project, options.name)
        else:
            _cluster(options)
    except Refused as refused:
        sys.exit(str(refused))


def _pool(cloud: Cloud, options: argparse.Namespace) -> str:
    place = {"name": options.name, "cluster": options.cluster, "location": options.location}
    machine = MACHINES.get(options.machine_type)
    driver = {"gpuDriverVersion": "DEFAULT"}
    config: Properties = {
        "machineType": options.machine_type,
        "oauthScopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "workloadMetadataConfig": {"mode": "GKE_METADATA"},
    }
    if machine and machine.gpu:
        gpu = {"type": machine.gpu, "count": machine.gpus, "gpuDriverInstallationConfig": driver}
        config["guestAccelerators"] = [gpu]
    inputs = {**place, "initialNodeCount": 1, "nodeConfig": config}
    resource = NodePool(cloud)
    if problems := [*resource.problems(inputs), *resource.creation_problems(inputs)]:
        raise Refused("\n".join(text for _, text in problems))
    return resource.create(inputs).identity


def _network(cloud: Cloud, name: str, location: str) -> str:
    Network(cloud).create({"name": name, "autoCreateSubnetworks": False})
    ranges = [
        {"rangeName": "pods", "ipCidrRange": "10.4.0.0/14"},
        {"rangeName": "services", "ipCidrRange": "10.8.0.0/20"},
    ]
    place = {"name": name, "region": region_of(location), "network": name}
    return Subnetwork(cloud).create({**place, "ipCidrRange": "10.0.0.0/20", "secondaryIpRanges": ranges}).identity


def _account(cloud: Cloud, email: str) -> str:
    name, project = account_parts(email)
    return ServiceAccount(cloud).create({"accountId": name, "project": project}).identity


def _cluster(options: argparse.Namespace) -> None:
    resource = Cluster(Cloud(Store(), LocalClusters(), options.project))
    inputs = _inputs(options.name, options.mode, options.location, options.project)
    if options.dataplane_v2:
        inputs["datapathProvider"] = "ADVANCED_DATAPATH"
    if options.gateway_api:
        inputs["gatewayApiConfig"] = {"channel": "CHANNEL_STANDARD"}
    if options.secret_sync:
        inputs["secretSyncConfig"] = {"enabled": True}
    if options.command == "delete":
        resource.delete(resource.identity(inputs), inputs)
    elif problems := list(resource.problems(inputs)):
        sys.exit("\n".join(text for _, text in problems))
    else:
        print(resource.create(inputs).identity)


def missing(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """What the configuration expects and the emulator lacks, and the command that creates it; else None."""
    if command := _missing_cluster(config):
        return "The configuration sets `mode: existing`, and the emulator has no such cluster", command
    if command := _missing_network(config):
        return "The configuration names a network that the emulator doesn't have", command
    if command := _missing_account(config):
        return "The configuration names a service account that the emulator doesn't have", command
    if command := _missing_secret(config):
        return "The configuration names a secret of Secret Manager that the emulator doesn't have", command
    return None


def _missing_network(config: Mapping[str, Any]) -> str | None:
    cluster, project = config.get("gke-ai:cluster"), str(config.get("gcp:project", DEFAULTS["gcp:project"]))
    network = cluster.get("network") if isinstance(cluster, Mapping) and cluster.get("mode") != "existing" else None
    match = re.fullmatch(r"(?:projects/([^/]+)/global/networks/)?([a-z][-a-z0-9]*)", str(network or ""))
    if not isinstance(cluster, Mapping) or match is None or match[2] == "default":
        return None
    project = match[1] or project
    if Store().get(f"projects/{project}/global/networks/{match[2]}"):
        return None
    return _command("network", match[2], project, "--location", str(cluster.get("location", DEFAULTS["gcp:region"])))


def _missing_account(config: Mapping[str, Any]) -> str | None:
    cluster = config.get("gke-ai:cluster")
    email = str(cluster.get("nodeServiceAccount")) if isinstance(cluster, Mapping) else ""
    try:
        require_account(Store(), email)
    except Refused:
        return shlex.join([COMMAND, "existing", "account", email])
    return None


def _missing_secret(config: Mapping[str, Any]) -> str | None:
    secret, project = config.get("gke-ai:hfTokenSecret"), str(config.get("gcp:project", DEFAULTS["gcp:project"]))
    match = re.fullmatch(r"(?:projects/([^/]+)/secrets/)?([A-Za-z0-9_-]+)", str(secret or ""))
    if match is None:
        return None  # no secret, or a malformed name, which the program reports
    project = (match[1] or project).replace("{project}", project)
    if Store().get(f"projects/{project}/secrets/{match[2]}"):
        return None
    return _command("secret", match[2], project)


def _command(verb: str, name: str, project: str, *options: str) -> str:
    in_project = ["--project", project] if project != DEFAULTS["gcp:project"] else []
    return shlex.join([COMMAND, "existing", verb, name, *options, *in_project])


def _missing_cluster(config: Mapping[str, Any]) -> str | None:
    cluster, project = config.get("gke-ai:cluster"), config.get("gcp:project", DEFAULTS["gcp:project"])
    if not isinstance(cluster, Mapping) or cluster.get("mode") != "existing":
        return None
    name, location = cluster.get("name"), cluster.get("location")
    if not name or not location:
        return None  # the settings have defaults, and the program reports a missing key
    if Store().get(Cluster(Cloud(Store(), LocalClusters(), project)).identity({"name": name, "location": location})):
        return None
    options = ["--mode", cluster.get("existingMode", "standard"), "--location", location]
    if config.get("gke-ai:hfTokenSecret"):
        options.append("--secret-sync")
    if config.get("gke-ai:gateway") and cluster.get("existingMode", "standard") == "standard":
        options.append("--gateway-api")
    if config.get("gke-ai:tenants") and cluster.get("existingMode", "standard") == "standard":
        options.append("--dataplane-v2")
    return _command("create", str(name), str(project), *map(str, options))


def _inputs(name: str, mode: str, location: str, project: str) -> Properties:
    common = {"name": name, "location": location, "project": project, "deletionProtection": False}
    if mode == "autopilot":
        return common | {"enableAutopilot": True}
    return common | {
        "initialNodeCount": 1,
        "nodeConfig": {"machineType": "e2-standard-4"},
        "workloadIdentityConfig": {"workloadPool": pool_name(project)},
        "addonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": True}},
    }


if __name__ == "__main__":
    main()
