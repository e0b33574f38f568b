"""`recover` repairs Helm releases that a killed update left pending, failed, partly deleted or unrecorded."""

import base64
import gzip
import json
from typing import Any

import pytest

from gke_ai.ops.lifecycle import helm_releases, recover
from gke_ai.ops.lifecycle.helm_releases import Repair, Revision, plan_recorded, plan_unrecorded
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


DEPLOYED, SUPERSEDED, INSTALLING = (revision(1, status) for status in ("deployed", "superseded", "pending-install"))


def later(status: str) -> list[Revision]:
    """A history of which the newest revision has this status."""
    return [SUPERSEDED, revision(2, status)]


# By what a release is like: its revisions, and what is decided.
UNRECORDED: dict[str, tuple[list[Revision], Any]] = {
    "one of which Helm knows nothing is created by the next up": ([], "absent"),
    "an installed one of the same chart, version and values is adopted": ([DEPLOYED], "adopt"),
    "one of another chart is left alone": ([revision(1, "deployed", chart="other")], "foreign"),
    "one of another version is left alone": ([revision(1, "deployed", version="0.11.0")], "foreign"),
    "one of other values is left alone": ([revision(1, "deployed", values={"image": {"tag": "v0.11.0"}})], "foreign"),
    "one of another status is left alone": ([SUPERSEDED], "foreign"),
    "one that is being installed loses its record": ([INSTALLING], "discard"),
    "one that failed at once loses its record": ([revision(1, "failed")], "discard"),
    "one that is half deleted loses its record": ([revision(1, "uninstalling")], "discard"),
    "an upgraded one was not being created": (later("deployed"), "foreign"),
    "one that is being upgraded was not being created": (later("pending-upgrade"), "foreign"),
    "one that was rolled back was not being created": (later("pending-rollback"), "foreign"),
    "one that failed later was not being created": (later("failed"), "foreign"),
    "one that was deleted later was not being created": (later("uninstalling"), "foreign"),
}
# And what happens to its newest revision.
RECORDED: dict[str, tuple[list[Revision], Any, str]] = {
    "a missing one is left to the refresh": ([], "absent", ""),
    "an installed one is left to the refresh": ([DEPLOYED], "whole", ""),
    "an upgraded one is left to the refresh": (later("deployed"), "whole", ""),
    "a pending upgrade is deleted": (later("pending-upgrade"), "unfinished", "delete"),
    "a pending rollback is deleted": (later("pending-rollback"), "unfinished", "delete"),
    "a pending installation is marked as failed": ([INSTALLING], "unfinished", "fail"),
    "a half deleted one is marked as failed": ([revision(1, "uninstalling")], "unfinished", "fail"),
    "a failed one is completed by the next up": (later("failed"), "unfinished", ""),
}


@pytest.mark.parametrize(("revisions", "outcome"), UNRECORDED.values(), ids=UNRECORDED)
def test_repair_of_a_release_that_is_in_no_state(revisions: list[Revision], outcome: Any) -> None:
    assert plan_unrecorded(revisions, INPUTS) == Repair(outcome, delete=revisions if outcome == "discard" else ())


@pytest.mark.parametrize(("revisions", "outcome", "newest"), RECORDED.values(), ids=RECORDED)
def test_repair_of_a_release_that_is_recorded(revisions: list[Revision], outcome: Any, newest: str) -> None:
    assert plan_recorded(revisions) == Repair(outcome, **({newest: revisions[-1:]} if newest else {}))


def test_a_revision_that_is_marked_as_failed_is_so_in_label_and_content_and_else_the_same() -> None:
    before = revision(3, "uninstalling")
    change = before.failed()
    assert change["metadata"]["labels"] == {"status": "failed"}
    after = Revision({"metadata": before.secret["metadata"], "data": change["data"]}).release
    assert after.pop("info")["status"] == "failed"
    assert after == {key: value for key, value in before.release.items() if key != "info"}


def settle(monkeypatch: pytest.MonkeyPatch, *revisions: Revision, recorded: bool) -> tuple[Any, Any, Any, Repair]:
    """Settles a release of which Helm has these revisions: the state, installed and unfinished ones, the repair."""

    def list_objects(_: object, path: str, labelSelector: str) -> list[Any]:
        assert path == "/api/v1/namespaces/jobset-system/secrets"
        assert labelSelector == "owner=helm,name=jobset"
        return [revision.secret for revision in revisions]

    repairs: list[Repair] = []
    monkeypatch.setattr(helm_releases, "list_objects", list_objects)
    monkeypatch.setattr(recover, "carry_out", lambda _, plan: repairs.append(plan))
    monkeypatch.setattr(helm_releases, "MAX_PLUGIN_SECONDS", 0)
    monkeypatch.setattr(Stack, "api", lambda _: object())
    resource = {"urn": URN, "type": RELEASE, "custom": True, "inputs": INPUTS, "parent": "p"}
    known = [{**resource, "id": "jobset-system/jobset"}] if recorded else []
    pending = [] if recorded else [{"resource": resource, "type": "creating"}]
    state: dict[str, Any] = {"resources": known, "pending_operations": pending}
    installed, unfinished = recover.settle_releases(Stack("dev"), state)
    (repair,) = repairs
    return state, installed, unfinished, repair


def test_an_installed_release_is_in_the_state_as_its_plugin_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    state, installed, unfinished, _ = settle(monkeypatch, DEPLOYED, recorded=False)
    (resource,) = state["resources"]
    assert (resource["id"], resource["inputs"], resource["parent"]) == ("jobset-system/jobset", INPUTS, "p")
    assert resource["outputs"]["status"]["status"] == "deployed"
    assert resource["outputs"]["__inputs"].keys() == {helm_releases.SIGNATURE, "plaintext"}
    assert json.loads(resource["outputs"]["__inputs"]["plaintext"]) == INPUTS
    assert (installed, unfinished) == ([URN], [])
    assert recover.adopt_pending(state) == ([], [], []), "it is not created a second time"
    assert len(state["resources"]) == 1


def test_a_release_that_was_never_deployed_is_forgotten_with_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    state, installed, unfinished, repair = settle(monkeypatch, INSTALLING, recorded=False)
    assert repair == Repair("discard", delete=[INSTALLING])
    assert (installed, unfinished) == ([], [])
    assert recover.adopt_pending(state) == ([], [URN], [])


def test_a_recorded_release_that_is_unfinished_is_updated_by_the_next_up(monkeypatch: pytest.MonkeyPatch) -> None:
    revisions = later("pending-upgrade")
    state, _, unfinished, repair = settle(monkeypatch, *revisions, recorded=True)
    assert (repair, unfinished) == (Repair("unfinished", delete=revisions[1:]), [URN])
    written: list[Any] = []
    monkeypatch.setattr(Stack, "read", lambda *_: {"deployment": state})
    monkeypatch.setattr(recover, "write", lambda _, exported: written.append(exported))
    recover.require_update(Stack("dev"), unfinished)
    (exported,) = written
    assert exported["deployment"]["resources"][0]["initErrors"]


def test_recovery_waits_for_a_plugin_that_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [[INSTALLING.secret], [DEPLOYED.secret]]
    monkeypatch.setattr(helm_releases, "list_objects", lambda *_, **__: looks.pop(0))
    monkeypatch.setattr("time.sleep", lambda _: None)
    (only,) = helm_releases.revisions_of(object(), INPUTS)  # type: ignore[arg-type]
    assert only.status == "deployed"


def test_a_stack_without_releases_calls_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stack, "api", lambda _: pytest.fail("nothing to ask"))
    assert recover.settle_releases(Stack("dev"), {"resources": []}) == ([], [])
