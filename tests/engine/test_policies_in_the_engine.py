"""The policy pack under the real engine, on a program of another project: mandatory violations stop an `up` before
anything is created, advisory ones are reported, and waivers are listed with their reason."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.tests.harness import Project
from gke_ai.ops.lifecycle import deploy
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack
from tests.support.repository import ROOT

TOKEN = "hf_" + "canary" * 5
# A bucket that two policies are against, and values that must not be shown: one a secret, one not.
PROGRAM = """
import pulumi, pulumi_gcp as gcp
token = pulumi.Config().get("token") or ""
gcp.storage.Bucket(
    "models",
    name="sample-models",
    location="US-CENTRAL1",
    public_access_prevention="enforced",
    labels={"hidden": pulumi.Output.secret("TOKEN"), **({"shown": token} if token else {})},
)
pulumi.ComponentResource("sample:index:Thing", "thing")
""".replace("TOKEN", TOKEN)
NOT_UNIFORM = "Bucket sample-models: access is not uniform"
OPEN = "buckets-are-private"


def violations(said: str, level: str) -> set[str]:
    """Names of the policies that Pulumi reports at this level."""
    return set(re.findall(rf"\[{level}\]\s+([a-z-]+)", said))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    created = Project.create(tmp_path / "sample", tmp_path / "state")
    created.write("__main__.py", PROGRAM)
    return created


def up(project: Project, **config: Any) -> tuple[int, str]:
    file = project.folder / "Pulumi.dev.yaml"
    content = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**content, "config": {"gcp:project": "my-project", **config}}))
    pack = str(ROOT / "policy")
    return project.pulumi("up", "--yes", "--color=never", "--suppress-outputs", "--policy-pack", pack)


def made(project: Project) -> list[str]:
    return [json.loads(file.read_text())["identity"] for file in (project.state / "cloud").glob("*.json")]


def test_mandatory_violation_stops_an_up_and_nothing_is_created(project: Project) -> None:
    status, output = up(project, **{"sample:policies": "mandatory"})
    assert status != 0
    assert NOT_UNIFORM in output
    assert violations(output, "mandatory") == {OPEN, "clusters-and-buckets-are-protected"}
    assert made(project) == []

    # Waived, each with its reason: it is made, and the exceptions are told.
    reason = "the research team answers for it"
    waiver = {"resource": "Bucket sample-*", "reason": reason}
    waivers = [{"policy": policy, **waiver} for policy in (OPEN, "clusters-and-buckets-are-protected")]
    status, output = up(project, **{"sample:policies": "mandatory", "sample:waivers": waivers})
    assert status == 0, output
    assert violations(output, "mandatory") == set()
    assert violations(output, "advisory") == {"waived"}
    assert f"Waived from {OPEN}: {reason}" in output
    assert len(made(project)) == 1


def test_advisory_violation_is_reported_and_stops_nothing(project: Project) -> None:
    unused = {"policy": OPEN, "resource": "Bucket other", "reason": "none"}
    status, output = up(project, **{"sample:token": TOKEN, "sample:waivers": [unused]})
    assert status == 0, output
    assert NOT_UNIFORM in output
    advisory = {OPEN, "no-plain-text-secrets", "no-secrets-in-configuration", "configuration-is-understood"}
    assert violations(output, "advisory") == advisory, output
    assert violations(output, "mandatory") == set()
    assert "Bucket sample-models: labels.shown looks like a token" in output
    assert "labels.hidden" not in output
    assert TOKEN not in output
    assert len(made(project)) == 1


def test_waiver_of_a_policy_of_the_whole_stack_is_used_before_waivers_are_judged(project: Project) -> None:
    policy, reason = "no-secrets-in-configuration", "a token of a test"
    waiver = {"policy": policy, "resource": "*", "reason": reason}
    status, output = up(project, **{"sample:token": TOKEN, "sample:waivers": [waiver]})
    assert status == 0, output
    assert f"Waived from {policy}: {reason}" in output
    assert not violations(output, "advisory") & {policy, "configuration-is-understood"}, output


@pytest.mark.parametrize("level", ["mandatory", "advisory"])
def test_make_up_runs_mandatory_policies_first(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments_seen: list[str] = []

    def refuse(_: Stack, *arguments: str, **_more: object) -> subprocess.CompletedProcess[str]:
        arguments_seen.extend(arguments)
        return subprocess.CompletedProcess(arguments, 1)

    monkeypatch.setattr(deploy, "exists", lambda _: True)
    monkeypatch.setattr(Stack, "pulumi", refuse)
    config = tmp_path / "Pulumi.mine.yaml"
    config.write_text(yaml.safe_dump({"config": {"gke-ai:policies": level}}))
    with pytest.raises(Stop):
        deploy.up(Stack("mine", config))
    assert ("--policy-pack" in arguments_seen) == (level == "mandatory")
    assert ("--skip-preview" in arguments_seen) == (level == "advisory"), "the preview asks before anything is made"
