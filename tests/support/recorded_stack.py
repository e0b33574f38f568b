"""Creates a stack from a record: the configuration and the state that an earlier version left.

    emulator/run python -m tests.support.recorded_stack VERSION SYSTEM STACK [--unprepared]

The cloud is empty, except for the cluster of a configuration with `mode: existing`. A preview compares the program with
the recorded state, not with the cloud. The configuration is ready for the upgrade, unless `--unprepared`.
"""

import json
import sys
import tempfile
from pathlib import Path

import yaml

from emulator.cloud.store import Store
from emulator.cluster import ClusterRecord, Endpoint, PoolRecord
from emulator.google.containers import Cluster
from emulator.google.resource import Cloud
from emulator.google.secrets import create_secret
from emulator.machine import paths
from gke_ai.catalog.project.identities import pool_name
from gke_ai.ops.lifecycle import deploy
from gke_ai.workspace import emulated
from tests.support.recorded import CERTIFICATE, NOWHERE, read


class Nowhere:
    """Clusters without an API server."""

    def create(self, name: str, record: ClusterRecord) -> Endpoint:
        return Endpoint(NOWHERE, CERTIFICATE)

    def delete(self, name: str) -> None:
        return

    def set_pool(self, name: str, pool: PoolRecord) -> None:
        return

    def remove_pool(self, name: str, pool: str) -> None:
        return


def main() -> None:
    version, system, name, *options = sys.argv[1:]
    config, resources = read(version, system, name, prepared="--unprepared" not in options)
    source = paths.STATE / f"{name}.yaml"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(yaml.safe_dump({"config": config}, sort_keys=False))
    cluster = config.get("gke-ai:cluster", {})
    if cluster.get("mode") == "existing":
        project = config["gcp:project"]
        inputs = {"name": cluster["name"], "location": cluster["location"], "project": project}
        if cluster.get("existingMode") == "autopilot":
            inputs |= {"enableAutopilot": True}
        else:
            inputs |= {"initialNodeCount": 1, "workloadIdentityConfig": {"workloadPool": pool_name(project)}}
        Cluster(Cloud(Store(), Nowhere(), project)).create(inputs)
    if secret := config.get("gke-ai:hfTokenSecret"):
        create_secret(Store(), config["gcp:project"], secret)
    stack = emulated.prepare(name, source)
    deploy.ensure(stack)
    assert stack.config_file
    salt = yaml.safe_load(stack.config_file.read_text())["encryptionsalt"]
    secrets = {"type": "passphrase", "state": {"salt": salt}}
    deployment = {"manifest": {}, "secrets_providers": secrets, "resources": resources}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.json"
        file.write_text(json.dumps({"version": 3, "deployment": deployment}))
        done = stack.pulumi("stack", "import", "--file", str(file), quiet=True)
    if done.returncode:
        sys.exit(done.stderr)


if __name__ == "__main__":
    main()
