"""The token from Secret Manager: what makes GKE bring it in, who may read it, and that it never passes through here."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pulumi
import pytest

from catalog.workload_identity import SECRET_ACCESSOR, principal
from components.namespace import TOKEN_SYNC, WorkloadNamespace, WorkloadNamespaceArgs
from emulator.cluster import secret_sync
from emulator.cluster.folder import Folder
from emulator.cluster.records import ClusterRecord
from emulator.cluster.secret_sync import SecretSyncs
from emulator.gcp_plugin.schema import schema_of
from emulator.gcp_plugin.secrets import SECRET_IAM_MEMBER, make_secret
from emulator.gcp_plugin.store import Record, Store, project_number
from emulator.plugin import Refused
from settings import load
from tests import recorder, test_gcp_plugin
from tests.recorder import PROJECT_NUMBER, TOKEN, record, run_program, strings
from tests.recorder import Record as Recorded
from tests.test_bad_configuration import Mistake, both, good, is_told_alone, problems_of, put
from tests.test_gcp_plugin import AUTOPILOT, Engine

PROJECT = recorder.PROJECT
SECRET = f"projects/{PROJECT}/secrets/hf-token"

MISTAKES = [
    Mistake(
        "a token in the configuration and one in Secret Manager",
        both(put("hfTokenSecret", "hf-token"), put("hfToken", "whatever")),
        "gke-ai:hfTokenSecret",
        "hfToken is given too, and a Secret holds one token",
        "pulumi config rm gke-ai:hfToken",
    ),
    Mistake(
        "the token in place of the secret's name",
        put("hfTokenSecret", "hf_" + "NotARealTokenButShapedLikeOne"),
        "gke-ai:hfTokenSecret",
        "this is a token, and everyone who can read the configuration has it",
        "Revoke it",
    ),
    Mistake(
        "a version of the secret",
        put("hfTokenSecret", f"{SECRET}/versions/3"),
        "gke-ai:hfTokenSecret",
        "names a version — the latest is what GKE brings in",
        f"Write {SECRET}",
    ),
    Mistake(
        "a name that no secret can have",
        put("hfTokenSecret", "the token"),
        "gke-ai:hfTokenSecret",
        "'the token' is no name of a secret",
        "or projects/PROJECT/secrets/ID",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake_is_told_once_with_path_cause_and_way_out(mistake: Mistake) -> None:
    is_told_alone(mistake, good())


@pytest.mark.parametrize("named", ["hf-token", SECRET, "projects/123/secrets/hf_token", "projects/{project}/secrets/a"])
def test_no_token_need_be_given_where_a_secret_is_named(named: str) -> None:
    assert problems_of({**good(), "hfTokenSecret": named}, token_given=False) == []


# --------------------------------------------------------------------------------------------------------- the program
def program(monkeypatch: pytest.MonkeyPatch, preview: bool = False, **changes: Any) -> Recorded:
    sections = {**good(), **changes}
    load(sections, PROJECT)
    return run_program({f"gke-ai:{key}": value for key, value in sections.items()}, preview, monkeypatch)


def test_token_in_the_environment_goes_nowhere_when_a_secret_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made = program(monkeypatch, hfTokenSecret="hf-token")
    assert made.all("Secret") == []
    assert not [text for one in made.resources.values() for text in strings(one.inputs) if TOKEN in text]


def test_secret_and_key_are_those_that_the_workloads_read(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = [{**good()["serving"][0], "tokenSecret": {"name": "other", "key": "one"}}]
    serving.append({**good()["serving"][0], "name": "gemma-2", "tokenSecret": {"name": "third", "key": "two"}})
    made = program(monkeypatch, hfTokenSecret="hf-token", serving=serving)
    read = set()
    for workload in (*made.all("Deployment"), *made.all("Job")):
        for container in workload.inputs["spec"]["template"]["spec"]["containers"]:
            found = [one["valueFrom"]["secretKeyRef"] for one in container["env"] if "valueFrom" in one]
            read |= {
                (workload.inputs["metadata"]["namespace"], one["name"], one["key"]) for one in found if "key" in one
            }
    synced = {
        (one.inputs["metadata"]["namespace"], one.object_name, item["targetKey"])
        for one in made.all("SecretSync")
        for item in one.inputs["spec"]["secretObject"]["data"]
    }
    assert synced == read == {("llm", "other", "one"), ("llm", "third", "two"), ("llm", "hf-secret", "hf_api_token")}


@pytest.mark.parametrize("mode", ["standard", "autopilot"])
def test_cluster_brings_secrets_in_only_where_one_is_named(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sections: dict[str, Any] = {"cluster": {"name": "c", "mode": mode}}
    with_secret = {f"gke-ai:{key}": value for key, value in {**sections, "hfTokenSecret": "hf"}.items()}
    without = {f"gke-ai:{key}": value for key, value in sections.items()}
    enabled = {"enabled": True, "rotationConfig": {"enabled": True}}
    made = run_program(with_secret, False, monkeypatch).one("Cluster")
    assert made.inputs["secretSyncConfig"] == enabled
    assert "secretSyncConfig" not in run_program(without, False, monkeypatch).one("Cluster").inputs


@pytest.mark.parametrize("secret", ["hf-token", "projects/vault/secrets/hf-token"])
def test_only_the_account_that_syncs_may_read_that_one_secret(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = program(monkeypatch, hfTokenSecret=secret)
    grant = made.one("SecretIamMember", f"hf-token/llm/{TOKEN_SYNC}")
    owner = "vault" if "/" in secret else PROJECT
    assert (grant.inputs["project"], grant.inputs["secretId"]) == (owner, "hf-token")
    assert grant.inputs["role"] == "roles/secretmanager.secretAccessor"
    assert grant.inputs["member"] == principal(PROJECT_NUMBER, PROJECT, "llm", TOKEN_SYNC)
    accounts = {
        workload.inputs["spec"]["template"]["spec"].get("serviceAccountName")
        for workload in (*made.all("Deployment"), *made.all("Job"))
    }
    assert TOKEN_SYNC not in accounts
    (source,) = made.all("SecretProviderClass")
    assert f"projects/{owner}/secrets/hf-token/versions/latest" in source.inputs["spec"]["parameters"]["secrets"]


def test_secret_is_asked_for_once_its_reader_may_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = program(monkeypatch, hfTokenSecret="hf-token")
    waits = made.waits_for(made.one("SecretSync"))
    assert {f"SecretIamMember hf-token/llm/{TOKEN_SYNC}", f"ServiceAccount {TOKEN_SYNC}", "Namespace llm"} <= waits
    assert "Cluster llm-cluster" in made.waits_for(made.one("SecretIamMember"))
    assert all(one.hooked for one in (*made.all("SecretSync"), *made.all("SecretProviderClass")))


def test_preview_before_the_cluster_shows_every_object(monkeypatch: pytest.MonkeyPatch) -> None:
    made = program(monkeypatch, preview=True, hfTokenSecret="hf-token")
    for kind in ("SecretSync", "SecretProviderClass", "SecretIamMember"):
        assert len(made.all(kind)) == 1, kind


def test_existing_cluster_without_the_feature_is_refused_with_the_command_that_turns_it_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = {"name": "team", "mode": "existing", "existingMode": "standard", "location": "us-central1"}
    with pytest.raises(pulumi.RunError, match=r"clusters update team .*--enable-secret-sync "):
        program(monkeypatch, hfTokenSecret="hf-token", cluster=cluster)


def test_namespace_takes_one_token_or_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    token_from: Any = {"secret": SECRET, "project": PROJECT, "workload_pool": f"{PROJECT}.svc.id.goog"}
    both_given: WorkloadNamespaceArgs = {
        "name": "llm",
        "token": "hf_x",
        "token_from": token_from,
        "token_secrets": [{"name": "hf-secret", "key": "k"}],
    }
    with pytest.raises(ValueError, match="there are two tokens"):
        record(lambda: WorkloadNamespace("llm", both_given), False, monkeypatch)
    nothing_to_hold: WorkloadNamespaceArgs = {"name": "llm", "token_from": token_from}
    made = record(lambda: WorkloadNamespace("llm", nothing_to_hold), False, monkeypatch)
    assert {one.type for one in made.resources.values()} == {
        "gke-ai:index:WorkloadNamespace",
        "kubernetes:core/v1:Namespace",
    }


# --------------------------------------------------------------------------------------------------------- the emulator
GRANT = {"project": PROJECT, "secretId": "hf-token", "role": SECRET_ACCESSOR, "member": test_gcp_plugin.principal()}


@pytest.fixture
def cloud(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def test_role_on_a_secret_needs_the_secret_and_the_identity_pool(cloud: Engine) -> None:
    with pytest.raises(Refused, match=r"Error 404: Secret \[projects/\d{12}/secrets/hf-token\] not found"):
        cloud.create(SECRET_IAM_MEMBER, GRANT)
    make_secret(cloud.store, PROJECT, "hf-token")
    with pytest.raises(Refused, match="Identity Pool does not exist"):
        cloud.create(SECRET_IAM_MEMBER, GRANT)
    cloud.create(test_gcp_plugin.CLUSTER, AUTOPILOT)
    id, outputs = cloud.create(SECRET_IAM_MEMBER, GRANT)
    assert id == f"{SECRET}/{SECRET_ACCESSOR}/{GRANT['member']}"
    assert outputs["project"] == PROJECT
    assert cloud.create(SECRET_IAM_MEMBER, {**GRANT, "secretId": SECRET})[0] == id, "named in full, it is the same"


def test_secret_is_looked_up_without_its_value(cloud: Engine) -> None:
    get = "gcp:secretmanager/getSecret:getSecret"
    with pytest.raises(Refused, match="Error 404"):
        cloud.invoke(get, secretId="hf-token")
    make_secret(cloud.store, PROJECT, "hf-token")
    assert cloud.invoke(get, secretId="hf-token")["name"] == SECRET
    assert secret_sync.DUMMY_TOKEN not in json.dumps([record.inputs | record.facts for record in cloud.store.all()])
    with pytest.raises(Refused, match="no id of a secret"):
        make_secret(cloud.store, PROJECT, "hf token")


def test_every_change_of_a_role_on_a_secret_replaces_it() -> None:
    schema = schema_of(SECRET_IAM_MEMBER)
    for path in ("secretId", "project", "role", "member", "condition", "condition.expression"):
        assert schema.at(path).force_new, path


@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False)])
def test_cluster_that_is_there_takes_up_the_setting(before: bool, after: bool, cloud: Engine) -> None:
    def inputs(enabled: bool) -> dict[str, Any]:
        return {**AUTOPILOT, "secretSyncConfig": {"enabled": enabled}}

    id, _ = cloud.create(test_gcp_plugin.CLUSTER, inputs(before))
    assert cloud.clusters.clusters["llm-cluster"].secret_sync is before
    cloud.update(test_gcp_plugin.CLUSTER, id, inputs(before), inputs(after))
    assert cloud.clusters.clusters["llm-cluster"].secret_sync is after


SYNC: dict[str, Any] = {
    "metadata": {"namespace": "llm", "name": "hf-secret", "uid": "u1"},
    "spec": {
        "serviceAccountName": TOKEN_SYNC,
        "secretProviderClassName": TOKEN_SYNC,
        "secretObject": {"type": "Opaque", "data": [{"sourcePath": "token", "targetKey": "hf_api_token"}]},
    },
}
SOURCE = {"spec": {"parameters": {"secrets": f"- {{resourceName: {SECRET}/versions/latest, path: token}}"}}}


class Api:
    """A cluster's API server with these objects in it, by path."""

    def __init__(self, **objects: dict[str, Any]) -> None:
        self.objects: dict[str, dict[str, Any]] = {
            f"/api/v1/namespaces/llm/{kind.replace('__', '/')}": content for kind, content in objects.items()
        }
        self.said: dict[str, Any] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if request.method == "GET":
            found = self.objects.get(path)
            return httpx.Response(200, json=found) if found is not None else httpx.Response(404, json={"message": "no"})
        content = json.loads(request.content)
        if path.endswith("/status"):
            self.said = content["status"]
        else:
            self.objects[f"{path}/{content['metadata']['name']}" if request.method == "POST" else path] = content
        return httpx.Response(200, json=content)


CLUSTER = ClusterRecord("it", PROJECT, "us-central1", "standard", ["us-central1-a"], "1.35", secret_sync=True)
ACCOUNT = f"serviceaccounts__{TOKEN_SYNC}"


def synchronize(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Api, cluster: ClusterRecord = CLUSTER, source: Any = SOURCE
) -> str:
    """One round of the controller; gives the reason that it states."""
    monkeypatch.setattr(Folder, "record", cluster)

    async def once() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(api), base_url="http://cluster") as client:
            syncs = SecretSyncs(Folder("it"), client, Store(tmp_path))
            syncs.views[0].objects = {("llm", "hf-secret"): SYNC}
            syncs.views[1].objects = {("llm", TOKEN_SYNC): source} if source else {}
            await syncs._reconcile()

    asyncio.run(once())
    return str(api.said["conditions"][0]["reason"]) if api.said else ""


def granted(tmp_path: Path, account: str = TOKEN_SYNC) -> None:
    """A secret that the account may read."""
    store = Store(tmp_path)
    make_secret(store, PROJECT, "hf-token")
    member = principal(project_number(PROJECT), PROJECT, "llm", account)
    store.put(Record(f"{SECRET}/{SECRET_ACCESSOR}/{member}", SECRET_IAM_MEMBER, PROJECT, {}))


def test_secret_is_made_with_its_owner_and_the_dummy_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    granted(tmp_path)
    api = Api(**{ACCOUNT: {}})
    assert synchronize(tmp_path, monkeypatch, api) == "CreateSuccessful"
    made = api.objects["/api/v1/namespaces/llm/secrets/hf-secret"]
    assert base64.b64decode(made["data"]["hf_api_token"]).decode() == secret_sync.DUMMY_TOKEN
    assert [one["uid"] for one in made["metadata"]["ownerReferences"]] == ["u1"]
    assert api.said["lastSuccessfulSyncTime"]


@pytest.mark.parametrize(
    ("account", "objects", "source", "reason"),
    [
        ("default", {ACCOUNT: {}}, SOURCE, "ProviderError"),
        (TOKEN_SYNC, {}, SOURCE, "ControllerSyncError"),
        (TOKEN_SYNC, {ACCOUNT: {}}, None, "SecretProviderClassMisconfigured"),
        (
            TOKEN_SYNC,
            {ACCOUNT: {}},
            {"spec": {"parameters": {"secrets": f"- {{resourceName: {SECRET}-2/versions/latest, path: token}}"}}},
            "ProviderError",
        ),
        (
            TOKEN_SYNC,
            {ACCOUNT: {}},
            {"spec": {"parameters": {"secrets": f"- {{resourceName: {SECRET}/versions/latest, path: other}}"}}},
            "RemoteSecretStoreFetchFailed",
        ),
        (TOKEN_SYNC, {ACCOUNT: {}, "secrets__hf-secret": {"metadata": {}}}, SOURCE, "ControllerPatchError"),
    ],
    ids=["another's grant", "no account", "no source", "no secret", "another path", "somebody else's Secret"],
)
def test_nothing_is_made_where_gke_would_make_nothing(
    account: str, objects: dict[str, Any], source: Any, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted(tmp_path, account)
    api = Api(**objects)
    before = dict(api.objects)
    assert synchronize(tmp_path, monkeypatch, api, source=source) == reason
    assert api.objects == before
    assert "lastSuccessfulSyncTime" not in api.said


def test_cluster_without_the_setting_brings_nothing_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    granted(tmp_path)
    api = Api(**{ACCOUNT: {}})
    assert synchronize(tmp_path, monkeypatch, api, cluster=replace(CLUSTER, secret_sync=False)) == ""
    assert list(api.objects) == [f"/api/v1/namespaces/llm/serviceaccounts/{TOKEN_SYNC}"]
