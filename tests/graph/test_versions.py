"""Pinned versions of Kueue and JobSet, and the upgrade of JobSet's CRD."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest import mock

import pulumi
import pytest

from gke_ai.catalog.versions import JOBSET_VERSION, KUEUE_VERSION, PROJECT_VERSION
from gke_ai.components import KueueStack
from gke_ai.components.queues import crds
from gke_ai.components.queues.kueue import refuse_other_nodes
from tests.support.recorder import ROOT, Record

Build = Callable[..., Record]
# The CRDs that are applied to a cluster, and what is logged.
Seen = dict[str, list[str]]


def test_the_version_is_the_next_one_of_the_changelog() -> None:
    assert f"The next version is {PROJECT_VERSION}." in (ROOT / "CHANGELOG.md").read_text()


def images(build: Build, **versions: str) -> dict[str, tuple[str, str]]:
    """The version of each chart, and the tag of its manager's image."""
    releases = build(KueueStack, {"namespaces": ["llm"], "jobset": True}, **versions).all("Release")
    kueue, jobset = (next(item.inputs for item in releases if item.part == name) for name in ("kueue", "jobset"))
    assert len(releases) == 2
    return {
        "kueue": (kueue["version"], kueue["values"]["controllerManager"]["manager"]["image"]["tag"]),
        "jobset": (jobset["version"], jobset["values"]["image"]["tag"]),
    }


def test_charts_are_of_the_pinned_versions_unless_another_is_held(build: Build) -> None:
    pinned = {"kueue": (KUEUE_VERSION, f"v{KUEUE_VERSION}"), "jobset": (JOBSET_VERSION, f"v{JOBSET_VERSION}")}
    assert images(build) == pinned
    held = images(build, kueue_version="0.16.2", jobset_version="0.11.1")
    assert held == {"kueue": ("0.16.2", "v0.16.2"), "jobset": ("0.11.1", "v0.11.1")}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """A cluster with JobSet's CRD: the CRDs that are applied to it, and what is logged."""
    seen: Seen = {"applied": [], "said": []}
    of_chart = [{"name": "jobsets"}, {"name": "others"}]
    monkeypatch.setattr(crds, "crds_of", mock.AsyncMock(return_value=of_chart))
    monkeypatch.setattr(crds, "has", lambda _, crd: {"name": crd} in of_chart)
    monkeypatch.setattr(crds, "apply_crd", lambda _, crd: seen["applied"].append(crd["name"]))
    for level in ("info", "warn"):
        monkeypatch.setattr(pulumi.log, level, seen["said"].append)
    return seen


def change(before: str | None, after: str, crd: str = "jobsets", kubeconfig: str | None = "its") -> None:
    """Run what comes before the creation or the update of JobSet's release."""
    new = {"version": after, "chart": "oci://registry/jobset", "name": "jobset", "namespace": "jobset-system"}
    args = pulumi.ResourceHookArgs("", "", "", "", new, {"version": before} if before else None)
    asyncio.run(crds.update(args, None, "JobSet", crd, kubeconfig))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "crd", "applied"),
    [
        pytest.param("0.12.0", "jobsets", [], id="the version stays"),
        pytest.param("0.11.1", "jobsets", ["jobsets", "others"], id="a new version"),
        pytest.param(None, "absent", [], id="an installation"),
        pytest.param(None, "jobsets", ["jobsets", "others"], id="an installation where an earlier one left the CRD"),
    ],
)
def test_the_crds_of_a_new_chart_are_applied_before_it(
    before: str | None, crd: str, applied: list[str], cluster: Seen
) -> None:
    change(before, "0.12.0", crd)
    assert cluster == {"applied": applied, "said": []}


def test_a_preview_says_that_crds_come_first_and_applies_none(cluster: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: True)
    change(None, "0.12.0")
    change("0.12.0", "0.12.0")
    assert cluster["said"] == []
    change("0.11.1", "0.12.0")
    assert "JobSet changes from 0.11.1 to 0.12.0. The update first applies the CRDs" in cluster["said"][0]
    assert cluster["applied"] == []


def test_without_a_kubeconfig_an_upgrade_says_how_to_apply_the_crds(cluster: Seen) -> None:
    change(None, "0.12.0", kubeconfig=None)
    change("0.11.1", "0.12.0", kubeconfig=None)
    (said,) = cluster["said"]
    assert "Run: helm show crds oci://registry/jobset --version 0.12.0 | kubectl apply --server-side" in said
    assert cluster["applied"] == []


@pytest.mark.usefixtures("cluster")
def test_crds_that_can_not_be_applied_leave_the_release_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crds, "apply_crd", mock.Mock(side_effect=OSError("no route to the cluster")))
    says = r"JobSet 0.12.0 can't be applied, so its release was not changed: no route .*\nRun up again, or first: helm"
    with pytest.raises(pulumi.RunError, match=says):
        change("0.11.1", "0.12.0")


BLUE = {"nodeLabels": {"pool": "blue"}, "topologyName": "levels", "tolerations": [{"key": "gpu"}]}


def change_flavor(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Run what comes before the update of a flavor, in a preview and in an update."""
    new = {"metadata": {"name": "b200"}, "spec": after}
    refuse_other_nodes(pulumi.ResourceHookArgs("", "", "kueue/b200", "", new, {"spec": before}))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"nodeLabels": {"pool": "red"}}, "nodeLabels"),
        ({"tolerations": None}, "tolerations"),
        ({"topologyName": None, "tolerations": None}, "tolerations and topologyName"),
    ],
)
def test_a_change_of_the_nodes_of_a_flavor_with_topology_is_refused_before_the_update(changed: Any, named: str) -> None:
    after = {key: value for key, value in {**BLUE, **changed}.items() if value}
    with pytest.raises(pulumi.RunError, match=f"Flavor b200: {named} would change.* Give the flavor a new name"):
        change_flavor(BLUE, after)


def test_a_flavor_gets_a_topology_and_one_without_other_nodes() -> None:
    change_flavor(BLUE, BLUE)
    change_flavor({"nodeLabels": {"pool": "blue"}}, BLUE)
    change_flavor({"nodeLabels": {"pool": "blue"}}, {"nodeLabels": {"pool": "red"}})
