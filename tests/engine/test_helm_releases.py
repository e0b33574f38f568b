"""`recover` repairs Helm releases that a killed update left pending, failed, partly deleted or unrecorded."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from gke_ai.ops.lifecycle import helm_releases, recover
from gke_ai.ops.lifecycle.helm_releases import Revision, plan_recorded, plan_unrecorded
from gke_ai.registered.types import RELEASE
from gke_ai.workspace.stack import Stack

VALUES = {"image": {"tag": "v0.12.0"}}
INPUTS = {
    "name": "jobset",
    "namespace": "jobset-system",
    "chart": "oci://registry.k8s.io/jobset/charts/jobset",
    "version": "0.12.0",
    "values": VALUES,
    "skipAwait": True,
}
URN = f"urn:pulumi:dev::gke-ai::{RELEASE}::jobset"


def revision(number: int, status: str, chart: str = "jobset", version: str = "0.12.0", values: Any = None) -> Revision:
    """A revision of the release as Helm stores it."""
    release = {
        "name": "jobset",
        "namespace": "jobset-system",
        "version": number,
        "info": {"status": status},
        "chart": {"metadata": {"name": chart, "version": version, "appVersion": "v0.12.0"}},
        "config": VALUES if values is None else values,
        "manifest": "",
    }
    stored = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
    labels = {"owner": "helm", "name": "jobset", "version": str(number), "status": status}
    name = f"sh.helm.release.v1.jobset.v{number}"
    metadata = {"name": name, "namespace": "jobset-system", "labels": labels}
    return Revision({"metadata": metadata, "data": {"release": stored}})


DEPLOYED = revision(1, "deployed")
SUPERSEDED = revision(1, "superseded")


# -------------------------------------------------------------------------------------- being created, and in no state
def test_a_release_of_which_helm_knows_nothing_is_created_by_the_next_up() -> None:
    assert plan_unrecorded([], INPUTS) == helm_releases.Repair("absent")


def test_an_installed_release_of_the_same_chart_version_and_values_is_adopted() -> None:
    plan = plan_unrecorded([DEPLOYED], INPUTS)
    assert (plan.outcome, plan.delete, plan.fail) == ("adopt", (), ())


@pytest.mark.parametrize(
    "other",
    [
        revision(1, "deployed", chart="other"),
        revision(1, "deployed", version="0.11.0"),
        revision(1, "deployed", values={"image": {"tag": "v0.11.0"}}),
        revision(1, "superseded"),
    ],
    ids=["chart", "version", "values", "status"],
)
def test_another_release_of_that_name_is_left_alone(other: Revision) -> None:
    plan = plan_unrecorded([other], INPUTS)
    assert (plan.outcome, plan.delete, plan.fail) == ("foreign", (), ())


@pytest.mark.parametrize("status", ["pending-install", "failed", "uninstalling"])
def test_a_release_that_never_became_deployed_loses_helms_record(status: str) -> None:
    begun = revision(1, status)
    plan = plan_unrecorded([begun], INPUTS)
    assert (plan.outcome, plan.delete, plan.fail) == ("discard", [begun], ())


@pytest.mark.parametrize("status", ["pending-upgrade", "pending-rollback", "failed", "uninstalling"])
def test_a_release_with_a_history_is_not_one_that_was_being_created(status: str) -> None:
    plan = plan_unrecorded([SUPERSEDED, revision(2, status)], INPUTS)
    assert (plan.outcome, plan.delete, plan.fail) == ("foreign", (), ())


# ----------------------------------------------------------------------------------------------------------- recorded
@pytest.mark.parametrize(
    ("revisions", "outcome"),
    [([], "absent"), ([DEPLOYED], "whole"), ([SUPERSEDED, revision(2, "deployed")], "whole")],
    ids=["gone", "installed", "upgraded"],
)
def test_a_complete_or_missing_release_is_left_to_the_refresh(revisions: list[Revision], outcome: str) -> None:
    assert plan_recorded(revisions) == helm_releases.Repair(outcome)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", ["pending-upgrade", "pending-rollback"])
def test_a_pending_revision_is_deleted_and_the_next_up_upgrades_the_previous(status: str) -> None:
    pending = revision(2, status)
    plan = plan_recorded([DEPLOYED, pending])
    assert (plan.outcome, plan.delete, plan.fail) == ("unfinished", [pending], ())


@pytest.mark.parametrize("status", ["pending-install", "uninstalling"])
def test_a_release_without_a_whole_revision_is_marked_as_failed(status: str) -> None:
    newest = revision(1, status)
    plan = plan_recorded([newest])
    assert (plan.outcome, plan.delete, plan.fail) == ("unfinished", (), [newest])


def test_a_failed_release_is_completed_by_the_next_up() -> None:
    assert plan_recorded([SUPERSEDED, revision(2, "failed")]) == helm_releases.Repair("unfinished")


def test_a_revision_that_is_marked_as_failed_is_so_in_label_and_content_and_else_the_same() -> None:
    before = revision(3, "uninstalling")
    change = before.failed()
    assert change["metadata"]["labels"] == {"status": "failed"}
    after = Revision({"metadata": before.secret["metadata"], "data": change["data"]}).release
    assert after.pop("info")["status"] == "failed"
    assert after == {key: value for key, value in before.release.items() if key != "info"}


# -------------------------------------------------------------------------------------------------- the whole recovery
class Cluster:
    """Helm's records in a cluster, as `recover` lists, deletes and changes them."""

    def __init__(self, *revisions: Revision) -> None:
        self.revisions = list(revisions)
        self.deleted: list[str] = []
        self.failed: list[str] = []

    def list_objects(self, _api: object, path: str, labelSelector: str) -> list[Any]:
        assert path == "/api/v1/namespaces/jobset-system/secrets"
        assert labelSelector == "owner=helm,name=jobset"
        return [revision.secret for revision in self.revisions]

    def carry_out(self, _api: object, plan: helm_releases.Repair) -> None:
        self.deleted += [revision.secret["metadata"]["name"] for revision in plan.delete]
        self.failed += [revision.secret["metadata"]["name"] for revision in plan.fail]


def settle(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> tuple[dict[str, Any], list[str], list[str]]:
    monkeypatch.setattr(helm_releases, "list_objects", cluster.list_objects)
    monkeypatch.setattr(recover, "carry_out", cluster.carry_out)
    monkeypatch.setattr(helm_releases, "MAX_PLUGIN_SECONDS", 0)
    monkeypatch.setattr(Stack, "api", lambda _: object())
    resource = {"urn": URN, "type": RELEASE, "custom": True, "inputs": INPUTS, "parent": "p"}
    state: dict[str, Any] = {"resources": [], "pending_operations": []}
    if recorded:
        state["resources"].append({**resource, "id": "jobset-system/jobset"})
    else:
        state["pending_operations"].append({"resource": resource, "type": "creating"})
    return state, *recover.settle_releases(Stack("dev"), state)


def test_an_installed_release_is_in_the_state_as_its_plugin_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    state, installed, unfinished = settle(Cluster(DEPLOYED), monkeypatch, recorded=False)
    (resource,) = state["resources"]
    assert resource["id"] == "jobset-system/jobset"
    assert resource["inputs"] == INPUTS
    assert resource["parent"] == "p"
    assert resource["outputs"]["status"]["status"] == "deployed"
    assert resource["outputs"]["__inputs"].keys() == {helm_releases.SIGNATURE, "plaintext"}
    assert json.loads(resource["outputs"]["__inputs"]["plaintext"]) == INPUTS
    assert (installed, unfinished) == ([URN], [])
    assert recover.adopt_pending(state) == ([], [], []), "it is not created a second time"
    assert len(state["resources"]) == 1


def test_a_release_that_was_never_deployed_is_forgotten_with_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(revision(1, "pending-install"))
    state, installed, unfinished = settle(cluster, monkeypatch, recorded=False)
    assert cluster.deleted == ["sh.helm.release.v1.jobset.v1"]
    assert (installed, unfinished) == ([], [])
    assert recover.adopt_pending(state) == ([], [URN], [])


def test_a_recorded_release_that_is_unfinished_is_updated_by_the_next_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(DEPLOYED, revision(2, "pending-upgrade"))
    state, _, unfinished = settle(cluster, monkeypatch, recorded=True)
    assert cluster.deleted == ["sh.helm.release.v1.jobset.v2"]
    assert unfinished == [URN]
    written: list[Any] = []
    monkeypatch.setattr(Stack, "read", lambda *_: {"deployment": state})
    monkeypatch.setattr(recover, "write", lambda _, exported: written.append(exported))
    recover.require_update(Stack("dev"), unfinished)
    (exported,) = written
    assert exported["deployment"]["resources"][0]["initErrors"]


def test_recovery_waits_for_a_plugin_that_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [[revision(1, "pending-install").secret], [DEPLOYED.secret]]
    monkeypatch.setattr(helm_releases, "list_objects", lambda *_, **__: looks.pop(0))
    monkeypatch.setattr("time.sleep", lambda _: None)
    (only,) = helm_releases.revisions_of(object(), INPUTS)  # type: ignore[arg-type]
    assert only.status == "deployed"


def test_a_stack_without_releases_calls_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stack, "api", lambda _: pytest.fail("nothing to ask"))
    assert recover.settle_releases(Stack("dev"), {"resources": []}) == ([], [])
