"""Only here: components in a program of somebody else, in a cluster and a namespace that other hands made."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from emulator.tests.harness import Project
from gke_ai.catalog.versions import JOBSET_CHART, JOBSET_CRD, JOBSET_VERSION
from tests.support.repository import ROOT

if TYPE_CHECKING:
    from emulator.tests.kubernetes_fixtures import Cluster

pytest_plugins = ("emulator.tests.kubernetes_fixtures",)
SERVER = """
name = pulumi.Config().get("scaled") == "true"
labels = {"change": pulumi.Config().get("change") or "none"}
VllmServer(
    "server", opts=options, name="s", namespace="theirs", model="google/gemma-2-9b-it", accelerator="nvidia-h100-80gb",
    replicas=3, labels=labels, probes=False, autoscaled=name
)
"""
RUN = """
FinetuneJob(
    "run", opts=options, name="r", namespace="theirs", accelerator="nvidia-l4", volume={"bucket": "b"},
    image="i:" + pulumi.Config().require("tag")
)
"""
QUEUES = 'KueueStack("queues", opts=options, install=False, jobset=True, kubeconfig=open("kubeconfig").read())'


@pytest.fixture
def program(cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    """A project with the components of the test, in a namespace `theirs` that exists."""
    shutil.rmtree(cluster.emulator.state / "backend")
    project = Project.create(tmp_path / "sample", cluster.emulator.state)
    kubeconfig = project.folder / "kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig)
    project.write(
        "__main__.py",
        f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import pulumi
import pulumi_kubernetes as k8s
from gke_ai.components import FinetuneJob, KueueStack, VllmServer

provider = k8s.Provider("theirs", kubeconfig=open("kubeconfig").read(), cluster_identifier="theirs")
options = pulumi.ResourceOptions(providers=[provider])
{request.param}""",
    )
    cluster.kubectl("create", "namespace", "theirs")
    yield project
    cluster.kubectl("delete", "namespace", "theirs")


def run(project: Project, *command: str, **config: str) -> None:
    for key, value in config.items():
        project.pulumi("config", "set", key, value)
    status, output = project.pulumi(*command, "--yes", "--skip-preview")
    assert status == 0, output


def names(cluster: Cluster, kinds: str) -> set[str]:
    found = json.loads(cluster.kubectl("get", kinds, "-n", "theirs", "-o", "json"))["items"]
    return {f"{item['kind']} {item['metadata']['name']}" for item in found} - {"ConfigMap kube-root-ca.crt"}


@pytest.mark.parametrize("program", [SERVER], indirect=True, ids=["server"])
def test_turning_autoscaling_on_or_off_changes_no_replica(program: Project, cluster: Cluster) -> None:
    replicas = partial(cluster.kubectl, "get", "deployment/s", "-n", "theirs", "-o", "jsonpath={.spec.replicas}")
    for scaled in ("false", "true", "false", "true"):
        run(program, "up", scaled=scaled)
        assert replicas() == "3"
    cluster.kubectl("scale", "deployment/s", "-n", "theirs", "--replicas=5")  # through the subresource, as an HPA does
    run(program, "up", change="another")
    assert replicas() == "5", "the autoscaler owns them"
    run(program, "refresh")
    run(program, "up", change="third")
    assert replicas() == "5", "and a refresh takes them from it neither"


@pytest.mark.parametrize("program", [RUN], indirect=True, ids=["run"])
def test_a_plain_destroy_ends_the_run_and_those_that_it_replaced(program: Project, cluster: Cluster) -> None:
    run(program, "up", tag="1")
    (first,) = names(cluster, "jobs")
    run(program, "up", tag="2")
    assert len(names(cluster, "jobs")) == 2, "a run that a newer one replaces goes on"
    assert first in names(cluster, "jobs")
    run(program, "destroy")
    assert names(cluster, "jobs,services,configmaps,pods") == set()


@pytest.mark.parametrize("program", [QUEUES], indirect=True, ids=["queues"])
def test_a_plain_up_upgrades_the_crd_of_an_earlier_jobset(program: Project, cluster: Cluster, tmp_path: Path) -> None:
    """Helm would not. What JobSet 0.12 accepts and 0.11 does not is an action of a failed child Job."""
    action, earlier = '"RestartJobAndIgnoreMaxRestarts"', tmp_path / "crd.json"
    (file,) = Path(cluster.emulator.run("chart", JOBSET_CHART, JOBSET_VERSION).strip(), "crds").glob("*jobsets.yaml")
    crd = json.dumps(yaml.load(file.read_text(), yaml.CSafeLoader))
    earlier.write_text(re.sub(f"{action}, |, {action}", "", crd))
    cluster.kubectl("create", "-f", str(earlier))
    run(program, "up")
    assert action in cluster.kubectl("get", "crd", JOBSET_CRD, "-o", "json")
    run(program, "destroy")
    cluster.kubectl("delete", "crd", JOBSET_CRD)  # which Helm keeps
