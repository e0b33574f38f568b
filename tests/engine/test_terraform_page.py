"""The page for Terraform: its Pulumi commands write a configuration that loads, its outputs are in the contract."""

import os
import re
import subprocess
from pathlib import Path

import yaml

from gke_ai import settings
from gke_ai.settings.resolved import needs
from gke_ai_outputs.model import Contract, Identity, keys_of
from tests.support.repository import ROOT

PAGE = (ROOT / "docs" / "terraform.md").read_text()
# Stands for Terraform: prints a value for each output that the page names.
PLACE = {"project_id": "my-project", "cluster_name": "shared", "region": "us-west4"}
OUTPUTS = {**PLACE, "local_queue": "team", "namespace": "research", "cluster_queue": "research"}
TERRAFORM = "#!/bin/sh\n[ \"$1 $2\" = 'output -raw' ] || exit 1\ncase $3 in\n{}\n*) exit 1 ;;\nesac\n"


def test_its_commands_write_a_configuration_that_loads(tmp_path: Path) -> None:
    (block,) = (text for text in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) if "config set" in text)
    terraform, project = tmp_path / "bin" / "terraform", tmp_path / "project"
    terraform.parent.mkdir()
    project.mkdir()
    terraform.write_text(TERRAFORM.format("\n".join(f"{name}) printf {value} ;;" for name, value in OUTPUTS.items())))
    terraform.chmod(0o755)
    (project / "Pulumi.yaml").write_text("name: page\nruntime: yaml\n")
    environment = {
        **os.environ,
        "PATH": f"{terraform.parent}:{os.environ['PATH']}",
        "PULUMI_BACKEND_URL": f"file://{tmp_path}",
        "PULUMI_CONFIG_PASSPHRASE": "not-a-secret",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }
    for command in ("pulumi stack init prod --non-interactive", f"set -e\n{block}"):
        subprocess.run(["sh", "-c", command], cwd=project, env=environment, check=True, capture_output=True)
    config = yaml.safe_load((project / "Pulumi.prod.yaml").read_text())["config"]
    assert config["gcp:project"] == "my-project"
    values = {key.removeprefix("gke-ai:"): value for key, value in config.items() if key.startswith("gke-ai:")}
    stack = settings.load(values, "my-project")
    expected = needs.of_cluster(stack)
    (queue,) = expected.local_queues
    assert (queue.namespace, queue.name, queue.cluster_queue) == ("research", "team", "research")
    assert (stack.own_namespaces, expected.kueue is not None) == ([], True)


def test_the_outputs_that_it_reads_are_in_the_contract() -> None:
    named = set(re.findall(r"local\.platform\.(\w+)", PAGE))
    assert named == {"identities"}
    assert named <= {description.key for description in keys_of(Contract)}
    fields = set(re.findall(r"(?:identity|each\.value)\.(\w+)", PAGE))
    assert fields == {"namespace", "serviceAccount", "principal"}
    assert fields <= {description.key for description in keys_of(Identity)}
