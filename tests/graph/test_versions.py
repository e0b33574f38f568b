"""Pinned versions of Kueue and JobSet, and the upgrade of JobSet's CRD."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest

from gke_ai.catalog.versions import JOBSET_VERSION, KUEUE_VERSION, PROJECT_VERSION
from gke_ai.components import KueueStack
from gke_ai.components.queues.kueue import refuse_other_nodes, warn_of_crd
from gke_ai.ops.lifecycle import crds
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack
from tests.support.recorder import Record

Build = Callable[..., Record]


CHANGELOG = Path(__file__).parent.parent.parent / "CHANGELOG.md"


def test_the_version_is_the_next_one_of_the_changelog() -> None:
    assert f"The next version is {PROJECT_VERSION}." in CHANGELOG.read_text()


def images(build: Build, **versions: str) -> dict[str, tuple[str, str]]:
    """The version of each chart, and the tag of its manager's image."""
    releases = build(KueueStack, {"namespaces": ["llm"], "jobset": True}, **versions).all("Release")
    values: dict[str, Any] = {release.part: release.inputs["values"] for release in releases}
    tags = {
        "kueue": values["kueue"]["controllerManager"]["manager"]["image"]["tag"],
        "jobset": values["jobset"]["image"]["tag"],
    }
    return {release.part: (release.inputs["version"], tags[release.part]) for release in releases}


def test_charts_are_of_the_pinned_versions_unless_another_is_held(build: Build) -> None:
    pinned = {"kueue": (KUEUE_VERSION, f"v{KUEUE_VERSION}"), "jobset": (JOBSET_VERSION, f"v{JOBSET_VERSION}")}
    assert images(build) == pinned
    held = images(build, kueue_version="0.16.2", jobset_version="0.11.1")
    assert held == {"kueue": ("0.16.2", "v0.16.2"), "jobset": ("0.11.1", "v0.11.1")}


def test_only_a_change_of_jobsets_version_warns_about_its_crd(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", messages.append)

    def change(before: str, after: str) -> None:
        warn_of_crd(pulumi.ResourceHookArgs("", "", "", "", {"version": after}, {"version": before}))

    change("0.12.0", "0.12.0")
    assert messages == []
    change("0.11.1", "0.12.0")
    assert "from 0.11.1 to 0.12.0" in messages[0]
    assert "gke-ai crds" in messages[0]


BLUE = {"nodeLabels": {"pool": "blue"}, "topologyName": "levels", "tolerations": [{"key": "gpu"}]}


def change_flavor(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Run what comes before the update of a flavor, in a preview and in an update."""
    refuse_other_nodes(
        pulumi.ResourceHookArgs(
            "", "", "kueue/b200", "", {"metadata": {"name": "b200"}, "spec": after}, {"spec": before}
        )
    )


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"nodeLabels": {"pool": "red"}}, "nodeLabels"),
        ({"tolerations": None}, "tolerations"),
        ({"topologyName": None, "tolerations": None}, "tolerations and topologyName"),
    ],
)
def test_a_change_of_the_nodes_of_a_flavor_with_topology_is_refused_before_the_update(
    changed: dict[str, Any], named: str
) -> None:
    after = {key: value for key, value in {**BLUE, **changed}.items() if value}
    with pytest.raises(pulumi.RunError, match=f"Flavor b200: {named} would change.* Give the flavor a new name"):
        change_flavor(BLUE, after)


def test_a_flavor_gets_a_topology_and_one_without_other_nodes() -> None:
    change_flavor(BLUE, BLUE)
    change_flavor({"nodeLabels": {"pool": "blue"}}, BLUE)
    change_flavor({"nodeLabels": {"pool": "blue"}}, {"nodeLabels": {"pool": "red"}})


@pytest.mark.parametrize(("queues", "version"), [({}, JOBSET_VERSION), ({"jobsetVersion": "0.11.1"}, "0.11.1")])
def test_crd_is_that_of_the_version_that_the_next_update_installs(
    queues: dict[str, str], version: str, tmp_path: Path
) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text(json.dumps({"config": {"gke-ai:queues": queues}}))
    assert crds.wanted(Stack("dev", tmp_path / "Pulumi.dev.yaml")) == version


def test_unreadable_chart_is_reported_with_helms_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Stop, match="Helm cannot read the chart"):
        crds.of_chart(str(tmp_path / "nothing"), "0.12.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Stop, match="is not on PATH"):
        crds.of_chart("oci://registry.k8s.io/jobset/charts/jobset", "0.12.0")
