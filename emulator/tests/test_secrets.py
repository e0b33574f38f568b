"""Secret Manager, and the add-on that synchronizes its secrets into a cluster."""

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulator.cloud.folder import Folder
from emulator.cloud.records import ClusterRecord
from emulator.cloud.store import Record, Store, project_number
from emulator.google.schema import schema_of
from emulator.google.secrets import SECRET_IAM_MEMBER, create_secret
from emulator.pods import secret_sync
from emulator.pods.secret_sync import SecretSyncs
from emulator.pulumi.plugin import Refused
from emulator.tests import gcp_engine
from emulator.tests.gcp_engine import AUTOPILOT, PROJECT, Engine
from gke_ai.catalog.project.identities import SECRET_ACCESSOR, principal

SECRET = f"projects/{PROJECT}/secrets/hf-token"
TOKEN_SYNC = "hf-token-sync"  # a service account that reads it
GRANT = {"project": PROJECT, "secretId": "hf-token", "role": SECRET_ACCESSOR, "member": gcp_engine.principal()}


def test_role_on_a_secret_needs_the_secret_and_the_identity_pool(cloud: Engine) -> None:
    with pytest.raises(Refused, match=r"Error 404: Secret \[projects/\d{12}/secrets/hf-token\] not found"):
        cloud.create(SECRET_IAM_MEMBER, GRANT)
    create_secret(cloud.store, PROJECT, "hf-token")
    with pytest.raises(Refused, match="Identity Pool does not exist"):
        cloud.create(SECRET_IAM_MEMBER, GRANT)
    cloud.create(gcp_engine.CLUSTER, AUTOPILOT)
    id, outputs = cloud.create(SECRET_IAM_MEMBER, GRANT)
    assert id == f"{SECRET}/{SECRET_ACCESSOR}/{GRANT['member']}"
    assert outputs["project"] == PROJECT
    assert cloud.create(SECRET_IAM_MEMBER, {**GRANT, "secretId": SECRET})[0] == id, "named in full, it is the same"


def test_secret_is_looked_up_without_its_value(cloud: Engine) -> None:
    get = "gcp:secretmanager/getSecret:getSecret"
    with pytest.raises(Refused, match="Error 404"):
        cloud.invoke(get, secretId="hf-token")
    create_secret(cloud.store, PROJECT, "hf-token")
    assert cloud.invoke(get, secretId="hf-token")["name"] == SECRET
    assert secret_sync.DUMMY_TOKEN not in json.dumps([record.inputs | record.facts for record in cloud.store.all()])
    with pytest.raises(Refused, match="not an id of a secret"):
        create_secret(cloud.store, PROJECT, "hf token")


def test_every_change_of_a_role_on_a_secret_replaces_it() -> None:
    paths = ("secretId", "project", "role", "member", "condition", "condition.expression")
    assert all(schema_of(SECRET_IAM_MEMBER).at(path).force_new for path in paths)


def test_existing_cluster_gets_and_loses_the_setting(cloud: Engine) -> None:
    on, off = ({**AUTOPILOT, "secretSyncConfig": {"enabled": enabled}} for enabled in (True, False))
    id, _ = cloud.create(gcp_engine.CLUSTER, off)
    for old, new, enabled in ((off, off, False), (off, on, True), (on, off, False)):
        cloud.update(gcp_engine.CLUSTER, id, old, new)
        assert cloud.clusters.clusters["llm-cluster"].secret_sync is enabled


SYNC: dict[str, Any] = {
    "metadata": {"namespace": "llm", "name": "hf-secret", "uid": "u1"},
    "spec": {
        "serviceAccountName": TOKEN_SYNC,
        "secretProviderClassName": TOKEN_SYNC,
        "secretObject": {"type": "Opaque", "data": [{"sourcePath": "token", "targetKey": "hf_api_token"}]},
    },
}


def source(secret: str, path: str = "token") -> dict[str, Any]:
    """A SecretProviderClass that names one secret."""
    return {"spec": {"parameters": {"secrets": f"- {{resourceName: {secret}/versions/latest, path: {path}}}"}}}


SOURCE = source(SECRET)


class Api:
    """A cluster's API server with these objects, by path."""

    def __init__(self, **objects: dict[str, Any]) -> None:
        self.objects: dict[str, dict[str, Any]] = {
            f"/api/v1/namespaces/llm/{kind.replace('__', '/')}": content for kind, content in objects.items()
        }
        self.status: dict[str, Any] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if request.method == "GET":
            return httpx.Response(200 if path in self.objects else 404, json=self.objects.get(path, {"message": "no"}))
        content = json.loads(request.content)
        if path.endswith("/status"):
            self.status = content["status"]
        else:
            self.objects[f"{path}/{content['metadata']['name']}" if request.method == "POST" else path] = content
        return httpx.Response(200, json=content)


CLUSTER = ClusterRecord("it", PROJECT, "us-central1", "standard", ["us-central1-a"], "1.36", secret_sync=True)
ACCOUNT = f"serviceaccounts__{TOKEN_SYNC}"


def synchronize(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Api, cluster: ClusterRecord = CLUSTER, source: Any = SOURCE
) -> str:
    """Runs one round of the controller and returns the reason in the status."""
    monkeypatch.setattr(Folder, "record", cluster)

    async def once() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(api), base_url="http://cluster") as client:
            syncs = SecretSyncs(Folder("it"), client, Store(tmp_path))
            syncs.views[0].objects = {("llm", "hf-secret"): SYNC}
            syncs.views[1].objects = {("llm", TOKEN_SYNC): source} if source else {}
            await syncs._reconcile()

    asyncio.run(once())
    return str(api.status["conditions"][0]["reason"]) if api.status else ""


def granted(tmp_path: Path, account: str = TOKEN_SYNC) -> None:
    """A secret that the account can read."""
    store = Store(tmp_path)
    create_secret(store, PROJECT, "hf-token")
    member = principal(project_number(PROJECT), PROJECT, "llm", account)
    store.put(Record(f"{SECRET}/{SECRET_ACCESSOR}/{member}", SECRET_IAM_MEMBER, PROJECT, {}))


def test_secret_is_created_with_its_owner_and_the_dummy_token_if_the_cluster_has_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted(tmp_path)
    api = Api(**{ACCOUNT: {}})
    assert synchronize(tmp_path, monkeypatch, api, cluster=replace(CLUSTER, secret_sync=False)) == ""
    assert list(api.objects) == [f"/api/v1/namespaces/llm/serviceaccounts/{TOKEN_SYNC}"]
    assert synchronize(tmp_path, monkeypatch, api) == "CreateSuccessful"
    secret = api.objects["/api/v1/namespaces/llm/secrets/hf-secret"]
    assert base64.b64decode(secret["data"]["hf_api_token"]).decode() == secret_sync.DUMMY_TOKEN
    assert [reference["uid"] for reference in secret["metadata"]["ownerReferences"]] == ["u1"]
    assert api.status["lastSuccessfulSyncTime"]


@pytest.mark.parametrize(
    ("account", "objects", "source", "reason"),
    [
        ("default", {ACCOUNT: {}}, SOURCE, "ProviderError"),
        (TOKEN_SYNC, {}, SOURCE, "ControllerSyncError"),
        (TOKEN_SYNC, {ACCOUNT: {}}, None, "SecretProviderClassMisconfigured"),
        (TOKEN_SYNC, {ACCOUNT: {}}, source(f"{SECRET}-2"), "ProviderError"),
        (TOKEN_SYNC, {ACCOUNT: {}}, source(SECRET, "other"), "RemoteSecretStoreFetchFailed"),
        (TOKEN_SYNC, {ACCOUNT: {}, "secrets__hf-secret": {"metadata": {}}}, SOURCE, "ControllerPatchError"),
    ],
    ids=["another's grant", "no account", "no source", "no secret", "another path", "somebody else's Secret"],
)
def test_no_secret_is_created_if_gke_would_create_none(
    account: str, objects: dict[str, Any], source: Any, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted(tmp_path, account)
    api = Api(**objects)
    before = dict(api.objects)
    assert synchronize(tmp_path, monkeypatch, api, source=source) == reason
    assert api.objects == before
    assert "lastSuccessfulSyncTime" not in api.status
