"""The token from Secret Manager: how GKE syncs it, who may read it, and that the program never sees it."""

from __future__ import annotations

from typing import Any

import pytest

from gke_ai.catalog.project.identities import principal
from gke_ai.components import ClusterConnection
from gke_ai.components.arguments import Refused
from gke_ai.components.queues.namespace import TOKEN_SYNC, SecretManager, WorkloadNamespace
from gke_ai.settings import load, model
from tests.support import recorder
from tests.support.mistakes import good, problems_of
from tests.support.recorder import PROJECT_NUMBER, TOKEN, record, run_program, strings
from tests.support.recorder import Record as Recorded

PROJECT = recorder.PROJECT
SECRET = f"projects/{PROJECT}/secrets/hf-token"


@pytest.mark.parametrize("named", ["hf-token", SECRET, "projects/123/secrets/hf_token", "projects/{project}/secrets/a"])
def test_no_token_is_needed_with_a_secret_of_secret_manager(named: str) -> None:
    assert problems_of({**good(), "hfTokenSecret": named}, token_given=False) == []


def program(monkeypatch: pytest.MonkeyPatch, preview: bool = False, **changes: Any) -> Recorded:
    sections = {**good(), **changes}
    load(sections, PROJECT)
    return run_program({f"gke-ai:{key}": value for key, value in sections.items()}, preview, monkeypatch)


def test_token_in_the_environment_is_unused_with_a_secret_of_secret_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    built = program(monkeypatch, hfTokenSecret="hf-token")
    assert built.all("Secret") == []
    assert not [text for resource in built.resources.values() for text in strings(resource.inputs) if TOKEN in text]


def test_secret_and_key_are_those_that_the_workloads_read(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = [{**good()["serving"][0], "tokenSecret": {"name": "other", "key": "one"}}]
    serving.append({**good()["serving"][0], "name": "gemma-2", "tokenSecret": {"name": "third", "key": "two"}})
    built = program(monkeypatch, hfTokenSecret="hf-token", serving=serving)
    read = set()
    for workload in (*built.all("Deployment"), *built.all("Job")):
        for container in workload.inputs["spec"]["template"]["spec"]["containers"]:
            references = [
                variable["valueFrom"]["secretKeyRef"] for variable in container["env"] if "valueFrom" in variable
            ]
            read |= {
                (workload.inputs["metadata"]["namespace"], reference["name"], reference["key"])
                for reference in references
                if "key" in reference
            }
    synced = {
        (sync.inputs["metadata"]["namespace"], sync.object_name, item["targetKey"])
        for sync in built.all("SecretSync")
        for item in sync.inputs["spec"]["secretObject"]["data"]
    }
    assert synced == read == {("llm", "other", "one"), ("llm", "third", "two"), ("llm", "hf-secret", "hf_api_token")}


@pytest.mark.parametrize("secret", ["hf-token", "projects/vault/secrets/hf-token"])
def test_only_the_account_that_syncs_may_read_that_one_secret(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = program(monkeypatch, hfTokenSecret=secret)
    grant = built.one("SecretIamMember", f"hf-token/llm/{TOKEN_SYNC}")
    owner = "vault" if "/" in secret else PROJECT
    assert (grant.inputs["project"], grant.inputs["secretId"]) == (owner, "hf-token")
    assert grant.inputs["role"] == "roles/secretmanager.secretAccessor"
    assert grant.inputs["member"] == principal(PROJECT_NUMBER, PROJECT, "llm", TOKEN_SYNC)
    accounts = {
        workload.inputs["spec"]["template"]["spec"].get("serviceAccountName")
        for workload in (*built.all("Deployment"), *built.all("Job"))
    }
    assert TOKEN_SYNC not in accounts
    (source,) = built.all("SecretProviderClass")
    assert f"projects/{owner}/secrets/hf-token/versions/latest" in source.inputs["spec"]["parameters"]["secrets"]


def test_namespace_needs_exactly_one_token_source(monkeypatch: pytest.MonkeyPatch) -> None:
    token_from = SecretManager(SECRET, PROJECT, f"{PROJECT}.svc.id.goog")

    def both_given() -> None:
        secrets = [model.TokenSecret(name="hf-secret", key="k")]
        cluster = ClusterConnection("theirs", kubeconfig="kubeconfig")
        WorkloadNamespace("llm", cluster=cluster, hf_token="hf_x", hf_token_from=token_from, token_secrets=secrets)

    with pytest.raises(Refused, match="needs either hf_token or hf_token_from, and both are set"):
        record(both_given, False, monkeypatch)
