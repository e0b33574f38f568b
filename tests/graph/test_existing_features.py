"""Features that a stack needs of a cluster that exists: a preview and the doctor find the same ones missing."""

import copy
from dataclasses import asdict
from typing import Any

import pulumi
import pytest
import yaml

from emulator.google import rest
from gke_ai.catalog.project.cluster_features import FEATURES, ClusterFeatures
from gke_ai.kube.client import Answer
from gke_ai.ops.doctor.cluster import ClusterChecks
from gke_ai.settings import load
from gke_ai.settings.resolved import needs
from tests.support.mistakes import base, changed_by
from tests.support.recorder import PROJECT, ROOT, Cloud, configuration, load_stack, run_program

STACK = "examples/mixed-training-inference.yaml"
GROUP = "gke-security-groups@example.com"
EVERY = ClusterFeatures("existing", True, GROUP, True, True, True, True, True, True, True, True, True)
TABLE: dict[str, Any] = yaml.load((ROOT / "tests/data/expected/cluster_features.yaml").read_text(), yaml.CSafeLoader)
PROVIDED, RETURNED, CHANGED = TABLE["provided"], TABLE["returned"], TABLE["changed"]


CONFIG = configuration(STACK)
CONFIG["gke-ai:cluster"] = {"name": "shared", "mode": "existing", "location": "us-central1", "dnsEndpoint": True}


def previewed(provided: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines with which a preview refuses the cluster; none if it does not."""
    monkeypatch.setattr(Cloud, "further", {**PROVIDED, **provided})
    try:
        run_program(CONFIG, True, monkeypatch)
    except pulumi.RunError as refused:
        return str(refused).splitlines()
    return []


def examined(returned: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Subject, text and command of what the doctor finds missing."""
    cluster = {**copy.deepcopy(RETURNED), **returned}
    checks = ClusterChecks("prod", PROJECT, load_stack(CONFIG), True, lambda *_: Answer(200, cluster), True)
    return [(finding.subject, finding.text, finding.command) for finding in checks.cluster_features()]


@pytest.mark.parametrize("names", CHANGED)
def test_a_preview_and_the_doctor_report_the_same_missing_features(names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "cluster_features", lambda _: EVERY)
    monkeypatch.setattr("gke_ai.ops.doctor.cluster.cluster_features", lambda _: EVERY)
    lines, findings = previewed(CHANGED[names]["provided"], monkeypatch), examined(CHANGED[names]["returned"])
    assert [subject for subject, _, _ in findings] == (names.split(", ") if names else [])
    for line, (_, cause, command) in zip(lines, findings, strict=True):
        assert line.startswith(f"{cause}. ")
        in_stack = command.startswith("pulumi config set --stack prod --path")
        assert line.endswith(command.partition("  # ")[0]) or in_stack


@pytest.mark.parametrize("row", TABLE["needed"], ids=str)
def test_a_stack_needs_the_features_of_its_sections(row: dict[str, Any]) -> None:
    values = base(*row["stack"].split("."))
    changed_by(row)(values)
    for key in ("vpc", "shieldedNodes", "multiNetworking"):
        values["cluster"].pop(key, None)
    values["cluster"] |= {"name": "shared", "mode": "existing"}
    features = asdict(needs.cluster_features(load(values, PROJECT)))
    assert {name: value for name, value in features.items() if value} == row["features"]


def test_the_clusters_above_lack_every_feature_and_have_the_form_of_google_s_description() -> None:
    assert {name for names in CHANGED for name in names.split(", ")} - {""} == {feature.name for feature in FEATURES}
    for names, changed in CHANGED.items():
        body = rest.Body(rest.api("container.v1"), "Cluster", {**RETURNED, **changed["returned"]}, {})
        problems = [text for _, text in body.problems("cluster") if "is output-only: Google sets it" not in text]
        assert problems == [], names


def test_a_feature_that_nothing_needs_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gke_ai.ops.doctor.cluster.cluster_features", lambda _: ClusterFeatures())
    assert [examined(changed["returned"]) for changed in CHANGED.values()] == [[]] * len(CHANGED)


def test_a_preview_reports_two_missing_features_and_an_old_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "cluster_features", lambda _: EVERY)
    lacking = {"gatewayApiConfigs": [], "secretSyncConfigs": [], "masterVersion": "1.33.1-gke.1"}
    gateway, secrets, version = previewed(lacking, monkeypatch)
    assert gateway == (
        "Cluster shared does not have the Gateway API. Its API server would refuse the gateway. Remove gke-ai:gateway, "
        f"or run: gcloud container clusters update shared --location us-central1 --project {PROJECT} "
        "--gateway-api=standard"
    )
    assert "does not sync secrets of Secret Manager" in secrets
    assert version.startswith("Cluster shared has GKE 1.33.1-gke.1")
