"""A cluster that exists before any stack: made beside Pulumi, as a colleague would with gcloud.

    local/run existing create NAME [--mode standard|autopilot] [--location us-central1] [--project P]
    local/run existing delete NAME [--location us-central1] [--project P]

A standard one has a default pool of one e2-standard-4 node in each zone, Workload Identity and the regular channel.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from catalog.workload_identity import pool_name
from local.gcp_plugin.clusters import LocalClusters
from local.gcp_plugin.containers import Cluster
from local.gcp_plugin.resource import Cloud, Properties
from local.gcp_plugin.store import Store
from local.plugin import Refused

# What a configuration leaves to its user, and any value serves for here.
DEFAULTS = {"gcp:project": "stand-in-project", "gcp:region": "us-central1"}


def main() -> None:
    """Runs one command."""
    parser = argparse.ArgumentParser(
        prog="local/run existing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("create", "delete"))
    parser.add_argument("name")
    parser.add_argument("--mode", choices=("standard", "autopilot"), default="standard")
    parser.add_argument("--location", default=DEFAULTS["gcp:region"], help="region or zone")
    parser.add_argument("--project", default=DEFAULTS["gcp:project"])
    options = parser.parse_args()

    resource = Cluster(Cloud(Store(), LocalClusters(), options.project))
    inputs = _inputs(options.name, options.mode, options.location, options.project)
    try:
        if options.command == "delete":
            resource.delete(resource.identity(inputs), inputs)
        elif problems := list(resource.problems(inputs)):
            sys.exit("\n".join(text for _, text in problems))
        else:
            print(resource.create(inputs).identity)
    except Refused as refused:
        sys.exit(str(refused))


def missing(config: Mapping[str, Any]) -> str | None:
    """The command that makes the cluster which a configuration counts on; None where it is there, or none is named."""
    cluster, project = config.get("gke-ai:cluster"), config.get("gcp:project", DEFAULTS["gcp:project"])
    if not isinstance(cluster, Mapping) or cluster.get("mode") != "existing":
        return None
    name, location = cluster.get("name"), cluster.get("location")
    if not name or not location:
        return None  # the settings have defaults, and the program says what is not there
    if Store().get(Cluster(Cloud(Store(), LocalClusters(), project)).identity({"name": name, "location": location})):
        return None
    command = ["local/run", "existing", "create", name, "--mode", cluster.get("existingMode", "standard")]
    command += ["--location", location]
    if project != DEFAULTS["gcp:project"]:
        command += ["--project", project]
    return shlex.join(map(str, command))


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
