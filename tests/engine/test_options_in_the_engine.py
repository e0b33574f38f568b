"""Options of a component under the real engine: what mocks do not show."""

from pathlib import Path

import pytest

from emulator.tests.harness import Project
from tests.support.repository import ROOT

pytestmark = pytest.mark.engine

PROGRAM = f"""
import sys

sys.path.insert(0, {str(ROOT)!r})
import pulumi
from gke_ai.components import ModelBucket

if pulumi.Config().get_bool("kept") is not False:
    opts = pulumi.ResourceOptions(OPTIONS)
    ModelBucket(
        "models", opts=opts, project="my-project", name="my-models", location="us-central1", on_destroy="delete"
    )
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.create(tmp_path / "sample", tmp_path / "state")


LABEL = """
def labeled(args):
    if args.type_ == "gcp:storage/bucket:Bucket":
        return pulumi.ResourceTransformResult({**args.props, "labels": {"cost-center": "42"}}, args.opts)
"""


def deployed(project: Project, options: str) -> None:
    project.write("__main__.py", LABEL + PROGRAM.replace("OPTIONS", options))
    status, output = project.up()
    assert status == 0, output


def bucket_exists(project: Project) -> bool:
    return any("my-models" in file.read_text() for file in (project.state / "cloud").rglob("*.json"))


def test_protect_of_a_component_keeps_its_bucket_from_an_update_and_a_destroy(project: Project) -> None:
    deployed(project, "protect=True")
    project.pulumi("config", "set", "kept", "false")
    for command in ("up", "destroy"):
        status, output = project.pulumi(command, "--yes", "--skip-preview")
        assert status != 0
        assert "protect" in output
    assert bucket_exists(project)


def test_a_transform_sets_what_no_argument_does(project: Project) -> None:
    deployed(project, "transforms=[labeled]")
    assert "cost-center" in project.pulumi("stack", "export")[1]


@pytest.mark.parametrize(
    ("options", "kept"), [("retain_on_delete=True", True), ("", False)], ids=["retained", "neither"]
)
def test_retain_on_delete_of_a_component_keeps_its_bucket(project: Project, options: str, kept: bool) -> None:
    deployed(project, options)
    status, output = project.pulumi("destroy", "--yes", "--skip-preview")
    assert status == 0, output
    assert bucket_exists(project) == kept
