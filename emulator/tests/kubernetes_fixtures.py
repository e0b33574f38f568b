"""Fixtures for the tests of the Kubernetes plugin: a cluster of the emulator, and the plugin configured for it."""

import json
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emulator.tests import spares
from emulator.tests.harness import RUN, Emulator
from emulator.tests.kubernetes_engine import CHART, NAMESPACE, Created, Engine

MAKE = """
import emulator.cluster as cluster
zones = ["us-central1-a"]
cluster.create("rules", cluster.ClusterRecord("rules", "p", "us-central1", "standard", zones, "1.36.1-gke.1"))
cluster.set_pool("rules", cluster.PoolRecord("system", "e2-standard-32", zones, nodes_per_zone=1))
end = cluster.endpoint("rules")
print(end.host, end.ca_certificate)
"""


@dataclass(frozen=True)
class Cluster:
    """A running cluster. As in the program, its kubeconfig logs in with `gke-gcloud-auth-plugin`."""

    emulator: Emulator
    kubeconfig: str

    def plugin(self, **arguments: Any) -> Engine:
        """Starts the first `pulumi-resource-kubernetes` on the PATH of `emulator/run`: the official one or ours."""
        configuration = {"kubeconfig": self.kubeconfig, "clusterIdentifier": "rules", **arguments}
        return Engine([RUN, "pulumi-resource-kubernetes"], configuration, self.emulator.environment)

    def kubectl(self, *arguments: str, stdin: Any = None) -> str:
        """Acts as someone other than Pulumi."""
        path = self.emulator.state / "test-kubeconfig"
        path.write_text(self.kubeconfig)
        command = [RUN, "kubectl", "--kubeconfig", str(path), *arguments]
        text = None if stdin is None else json.dumps(stdin)
        done = subprocess.run(command, env=self.emulator.environment, input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A small cluster for all tests. Each test uses its own namespace."""
    emulator = Emulator(Path(tempfile.mkdtemp(prefix="gke-ai-")))
    spares.give(emulator.state)
    try:
        host, authority = emulator.run("python", "-c", MAKE).split()[-2:]
        login: dict[str, Any] = {
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "command": "gke-gcloud-auth-plugin",
        }
        login |= {"interactiveMode": "Never", "provideClusterInfo": True}
        server = {"server": f"https://{host}", "certificate-authority-data": authority}
        kubeconfig: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": "c"}
        kubeconfig["clusters"] = [{"name": "c", "cluster": server}]
        kubeconfig["users"] = [{"name": "u", "user": {"exec": login}}]
        kubeconfig["contexts"] = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
        yield Cluster(emulator, json.dumps(kubeconfig))
    finally:
        emulator.run("python", "-c", 'import emulator.cluster; emulator.cluster.delete("rules")')
        shutil.rmtree(emulator.state, ignore_errors=True)


@pytest.fixture(scope="session")
def plugin(cluster: Cluster) -> Iterator[Engine]:
    """One plugin process for all tests that don't end or cancel it."""
    with cluster.plugin() as engine:
        yield engine


@pytest.fixture
def namespace(plugin: Engine) -> str:
    """A new namespace, which is deleted with the cluster."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    created: Created = plugin.create(NAMESPACE, name, {"metadata": {"name": name}})
    return created.id


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a small chart."""
    folder = tmp_path_factory.mktemp("charts") / "app"
    (folder / "templates").mkdir(parents=True)
    for name, text in CHART.items():
        (folder / name).write_text(text)
    return str(folder)
