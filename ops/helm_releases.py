"""Helm's own records of a stack's releases, and what is done about those that a killed update left unfinished.

Helm keeps each revision of a release as a Secret in the release's namespace and refuses to install or upgrade over one
that is pending. Records are changed here, objects of a release never: so nothing runs `helm uninstall`, which for Kueue
would delete every queue and workload of the cluster, and nothing needs a `helm` on this machine.
https://helm.sh/docs/topics/advanced/#storage-backends
"""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ops.stack import Object, list_objects

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

# https://github.com/helm/helm, pkg/release/status.go
PENDING = ("pending-install", "pending-upgrade", "pending-rollback")
COMPLETED = ("deployed", "superseded")
# The official plugin outlives its engine and may still be at work on a release; ours does not.
STILL_AT_WORK_SECONDS = 15
# How Pulumi writes a secret into a state (sdk/go/common/resource: SigKey, SecretSig); imports encrypt the plain text.
SIGNATURE, SECRET = "4dabf18193072939515e22adb298388d", "1b47061264138c4ac30d75fd1eb44270"

Outcome = Literal["absent", "adopt", "discard", "foreign", "whole", "unfinished"]


@dataclass(frozen=True)
class Revision:
    """One revision of a release, as Helm stores it."""

    secret: Object

    @property
    def number(self) -> int:
        """Its number; the first install is 1."""
        return int(self.secret["metadata"]["labels"]["version"])

    @property
    def status(self) -> str:
        """Helm's word for its state, such as deployed or pending-install."""
        return str(self.secret["metadata"]["labels"]["status"])

    @property
    def release(self) -> dict[str, Any]:
        """The release: JSON that Helm compresses and encodes before the API encodes it again."""
        stored = base64.b64decode(base64.b64decode(self.secret["data"]["release"]))
        found: dict[str, Any] = json.loads(gzip.decompress(stored))
        return found

    def failed(self) -> dict[str, Any]:
        """The change of the Secret that makes this a failed revision, which Helm upgrades and uninstalls."""
        release = self.release
        release["info"] |= {"status": "failed", "description": "Interrupted, and recovered"}
        stored = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
        return {"metadata": {"labels": {"status": "failed"}}, "data": {"release": stored}}


@dataclass(frozen=True)
class Plan:
    """What becomes of a release, and which of Helm's records are deleted or marked as failed for it."""

    outcome: Outcome
    delete: Sequence[Revision] = field(default=())
    fail: Sequence[Revision] = field(default=())


def plan_unrecorded(revisions: Sequence[Revision], inputs: Mapping[str, Any]) -> Plan:
    """What to do about a release that was being created and is in no state; `revisions` from the oldest."""
    if not revisions:
        return Plan("absent")
    if any(revision.status in COMPLETED for revision in revisions):
        newest = revisions[-1]
        same = newest.status == "deployed" and len(revisions) == 1 and is_same(newest.release, inputs)
        return Plan("adopt" if same else "foreign")
    # It never became deployed: the next install takes its objects over, which carry the release's name.
    return Plan("discard", delete=revisions)


def plan_recorded(revisions: Sequence[Revision]) -> Plan:
    """What to do about a release that is in the state; `revisions` from the oldest."""
    if not revisions:
        return Plan("absent")
    newest = revisions[-1]
    if newest.status == "deployed":
        return Plan("whole")
    if newest.status in PENDING and len(revisions) > 1:
        return Plan("unfinished", delete=[newest])  # Helm compares the next upgrade with the one before
    if newest.status in (*PENDING, "uninstalling"):
        return Plan("unfinished", fail=[newest])
    return Plan("unfinished")


def is_same(release: Mapping[str, Any], inputs: Mapping[str, Any]) -> bool:
    """Whether an installed release has the chart, the version and the values of a Release's inputs."""
    chart = release["chart"]["metadata"]
    version = str(inputs.get("version") or chart["version"]).removeprefix("v")
    return (
        chart["name"] == str(inputs["chart"]).rpartition("/")[2]
        and str(chart["version"]).removeprefix("v") == version
        and (release.get("config") or {}) == (inputs.get("values") or {})
    )


def adopted(resource: Mapping[str, Any], release: Mapping[str, Any]) -> dict[str, Any]:
    """A Release of the state, of the inputs that it was created with and of what is installed.

    `__inputs` is what the kubernetes plugin compares the next inputs with; it wants them as a secret.
    """
    inputs, chart = resource["inputs"], release["chart"]["metadata"]
    status = {
        "name": release["name"],
        "namespace": release["namespace"],
        "revision": release["version"],
        "status": release["info"]["status"],
        "chart": chart["name"],
        "version": chart["version"],
        "appVersion": chart.get("appVersion") or "",
    }
    kept = {SIGNATURE: SECRET, "plaintext": json.dumps(inputs)}
    outputs = {**inputs, "status": status, "resourceNames": {}, "__inputs": kept}
    return {**resource, "id": f"{release['namespace']}/{release['name']}", "outputs": outputs}


def revisions_of(api: ApiClient, inputs: Mapping[str, Any]) -> list[Revision]:
    """The revisions of a release from the oldest, once no helm is at work on it any more."""
    path = f"/api/v1/namespaces/{inputs['namespace']}/secrets"
    selector = f"owner=helm,name={inputs['name']}"
    deadline = time.monotonic() + STILL_AT_WORK_SECONDS
    while True:
        found = [Revision(secret) for secret in list_objects(api, path, labelSelector=selector)]
        found.sort(key=lambda revision: revision.number)
        if not found or found[-1].status not in PENDING or time.monotonic() > deadline:
            return found
        time.sleep(1)


def carry_out(api: ApiClient, plan: Plan) -> None:
    """Deletes and changes Helm's records."""
    from kubernetes.client import CoreV1Api

    secrets = CoreV1Api(api)
    for revision in plan.delete:
        metadata = revision.secret["metadata"]
        secrets.delete_namespaced_secret(metadata["name"], metadata["namespace"])
    for revision in plan.fail:
        metadata = revision.secret["metadata"]
        secrets.patch_namespaced_secret(metadata["name"], metadata["namespace"], revision.failed())
