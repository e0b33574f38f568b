"""Helm's records of a stack's releases, and the repair of records that a killed update left unfinished.

Helm keeps each revision of a release as a Secret in the release's namespace. It refuses to install or upgrade a release
with a pending revision. This module changes records only, never the objects of a release. It never runs
`helm uninstall`, which for Kueue would delete every queue and workload of the cluster, and needs no `helm` command.
https://helm.sh/docs/topics/advanced/#storage-backends
"""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gke_ai.kube.client import ApiClient, list_objects
from gke_ai.kube.objects import Object

# https://github.com/helm/helm, pkg/release/status.go
PENDING = ("pending-install", "pending-upgrade", "pending-rollback")
COMPLETED = ("deployed", "superseded")
# The official plugin outlives its engine and may still install a release; the emulator's plugin does not.
MAX_PLUGIN_SECONDS = 15
# The form of a secret in Pulumi's state (sdk/go/common/resource: SigKey, SecretSig). An import encrypts the plain text.
SIGNATURE, SECRET = "4dabf18193072939515e22adb298388d", "1b47061264138c4ac30d75fd1eb44270"

Outcome = Literal["absent", "adopt", "discard", "foreign", "whole", "unfinished"]


@dataclass(frozen=True)
class Revision:
    """One revision of a release, as Helm stores it."""

    secret: Object

    @property
    def number(self) -> int:
        """Number of the revision; the first install is 1."""
        return int(self.secret["metadata"]["labels"]["version"])

    @property
    def status(self) -> str:
        """State of the revision in Helm's words, such as deployed or pending-install."""
        return str(self.secret["metadata"]["labels"]["status"])

    @property
    def release(self) -> dict[str, Any]:
        """The release. Helm compresses and encodes its JSON, and the API encodes it again."""
        stored = base64.b64decode(base64.b64decode(self.secret["data"]["release"]))
        release: dict[str, Any] = json.loads(gzip.decompress(stored))
        return release

    def failed(self) -> dict[str, Any]:
        """Returns a patch of the Secret that marks the revision as failed, so that Helm can upgrade or uninstall it."""
        release = self.release
        release["info"] |= {"status": "failed", "description": "Interrupted, and recovered"}
        stored = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
        return {"metadata": {"labels": {"status": "failed"}}, "data": {"release": stored}}


@dataclass(frozen=True)
class Repair:
    """The decision about a release, with the records of Helm to delete or to mark as failed."""

    outcome: Outcome
    delete: Sequence[Revision] = field(default=())
    fail: Sequence[Revision] = field(default=())


def plan_unrecorded(revisions: Sequence[Revision], inputs: Mapping[str, Any]) -> Repair:
    """Plans for a release whose creation was interrupted and that is not in the state; oldest revision first."""
    if not revisions:
        return Repair("absent")
    if any(revision.status in COMPLETED for revision in revisions):
        newest = revisions[-1]
        same = newest.status == "deployed" and len(revisions) == 1 and is_same(newest.release, inputs)
        return Repair("adopt" if same else "foreign")
    # It was never deployed. The next install adopts its objects, because they carry the name of the release.
    return Repair("discard", delete=revisions)


def plan_recorded(revisions: Sequence[Revision]) -> Repair:
    """Plans for a release that is in the state; oldest revision first."""
    if not revisions:
        return Repair("absent")
    newest = revisions[-1]
    if newest.status == "deployed":
        return Repair("whole")
    if newest.status in PENDING and len(revisions) > 1:
        return Repair("unfinished", delete=[newest])  # Helm compares the next upgrade with the previous revision
    if newest.status in (*PENDING, "uninstalling"):
        return Repair("unfinished", fail=[newest])
    return Repair("unfinished")


def is_same(release: Mapping[str, Any], inputs: Mapping[str, Any]) -> bool:
    """Whether an installed release has the chart, version and values of the inputs."""
    chart = release["chart"]["metadata"]
    version = str(inputs.get("version") or chart["version"]).removeprefix("v")
    return (
        chart["name"] == str(inputs["chart"]).rpartition("/")[2]
        and str(chart["version"]).removeprefix("v") == version
        and (release.get("config") or {}) == (inputs.get("values") or {})
    )


def adopted(resource: Mapping[str, Any], release: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state of a Release resource from its inputs and the installed release.

    The kubernetes plugin compares the next inputs with `__inputs`, which must be a secret.
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
    """Waits until no plugin works on a release, and returns its revisions, oldest first."""
    path = f"/api/v1/namespaces/{inputs['namespace']}/secrets"
    selector = f"owner=helm,name={inputs['name']}"
    deadline = time.monotonic() + MAX_PLUGIN_SECONDS
    while True:
        revisions = [Revision(secret) for secret in list_objects(api, path, labelSelector=selector)]
        revisions.sort(key=lambda revision: revision.number)
        if not revisions or revisions[-1].status not in PENDING or time.monotonic() > deadline:
            return revisions
        time.sleep(1)


def carry_out(api: ApiClient, plan: Repair) -> None:
    """Deletes and patches Helm's records as planned."""
    from kubernetes.client import CoreV1Api

    secrets = CoreV1Api(api)
    for revision in plan.delete:
        metadata = revision.secret["metadata"]
        secrets.delete_namespaced_secret(metadata["name"], metadata["namespace"])
    for revision in plan.fail:
        metadata = revision.secret["metadata"]
        secrets.patch_namespaced_secret(metadata["name"], metadata["namespace"], revision.failed())
