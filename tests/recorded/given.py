"""Makes a stack of what an earlier version left: its configuration, and its state as if this stack had been deployed.

    emulator/run python -m tests.recorded.given VERSION SYSTEM STACK

The cloud has the cluster where the configuration says that it exists already, and nothing else: a preview compares the
program with the recorded state, not with the cloud.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from catalog.workload_identity import pool_name
from emulator import paths
from emulator.cluster import ClusterRecord, Endpoint, PoolRecord
from emulator.gcp_plugin.containers import Cluster
from emulator.gcp_plugin.resource import Cloud
from emulator.gcp_plugin.store import Store
from ops import emulated
from tests.recorded import CERTIFICATE, NOWHERE, read


class Nowhere:
    """Clusters that are told of and that nothing answers for."""

    def create(self, name: str, record: ClusterRecord) -> Endpoint:
        return Endpoint(NOWHERE, CERTIFICATE)

    def delete(self, name: str) -> None:
        return

    def set_pool(self, name: str, pool: PoolRecord) -> None:
        return

    def remove_pool(self, name: str, pool: str) -> None:
        return


def main() -> None:
    """Makes the one stack that the arguments name."""
    version, system, name = sys.argv[1:]
    config, resources = read(version, system, name)
    source = paths.STATE / f"{name}.yaml"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(yaml.safe_dump({"config": config}, sort_keys=False))
    cluster = config.get("gke-ai:cluster", {})
    if cluster.get("mode") == "existing":
        project = config["gcp:project"]
        there = {"name": cluster["name"], "location": cluster["location"], "project": project}
        if cluster.get("existingMode") == "autopilot":
            there |= {"enableAutopilot": True}
        else:
            there |= {"initialNodeCount": 1, "workloadIdentityConfig": {"workloadPool": pool_name(project)}}
        Cluster(Cloud(Store(), Nowhere(), project)).create(there)
    made = emulated.prepare(name, source)
    emulated.ensure(made)
    assert made.config_file
    salt = yaml.safe_load(made.config_file.read_text())["encryptionsalt"]
    deployment: dict[str, Any] = {
        "manifest": {},
        "secrets_providers": {"type": "passphrase", "state": {"salt": salt}},
        "resources": resources,
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.json"
        file.write_text(json.dumps({"version": 3, "deployment": deployment}))
        done = made.pulumi("stack", "import", "--file", str(file), quiet=True)
    if done.returncode:
        sys.exit(done.stderr)


if __name__ == "__main__":
    main()
