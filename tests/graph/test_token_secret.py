"""The token from Secret Manager: how GKE syncs it, who may read it, and that the program never sees it."""

from collections.abc import Iterator
from typing import Any

import pytest

from gke_ai.catalog.project.identities import principal
from gke_ai.components import ClusterConnection
from gke_ai.components.arguments import Refused
from gke_ai.components.queues.namespace import TOKEN_SYNC, SecretManager, WorkloadNamespace
from gke_ai.settings import model
from tests.support.mistakes import good, problems_of
from tests.support.recorder import PROJECT, PROJECT_NUMBER, TOKEN, Record, record, shared_record, strings

SECRET = f"projects/{PROJECT}/secrets/hf-token"


@pytest.mark.parametrize("named", ["hf-token", SECRET, "projects/123/secrets/hf_token", "projects/{project}/secrets/a"])
def test_no_token_is_needed_with_a_secret_of_secret_manager(named: str) -> None:
    assert problems_of({**good(), "hfTokenSecret": named}, token_given=False) == []


def program(**changes: Any) -> Record:
    return shared_record({f"gke-ai:{key}": value for key, value in {**good(), **changes}.items()})


def pods(built: Record) -> Iterator[tuple[str, dict[str, Any]]]:
    """The namespace and the spec of the pods of each workload."""
    for workload in (*built.all("Deployment"), *built.all("Job")):
        yield workload.inputs["metadata"]["namespace"], workload.inputs["spec"]["template"]["spec"]


def test_token_in_the_environment_is_unused_with_a_secret_of_secret_manager() -> None:
    built = program(hfTokenSecret="hf-token")
    assert built.all("Secret") == []
    assert not [text for resource in built.resources.values() for text in strings(resource.inputs) if TOKEN in text]


def test_secret_and_key_are_those_that_the_workloads_read() -> None:
    server = good()["serving"][0]
    other, third = {"name": "other", "key": "one"}, {"name": "third", "key": "two"}
    serving = [{**server, "tokenSecret": other}, {**server, "name": "gemma-2", "tokenSecret": third}]
    built = program(hfTokenSecret="hf-token", serving=serving)
    references = [
        (namespace, variable.get("valueFrom", {}).get("secretKeyRef", {}))
        for namespace, spec in pods(built)
        for container in spec["containers"]
        for variable in container["env"]
    ]
    read = {(namespace, key["name"], key["key"]) for namespace, key in references if "key" in key}
    synced = {
        (sync.inputs["metadata"]["namespace"], sync.object_name, item["targetKey"])
        for sync in built.all("SecretSync")
        for item in sync.inputs["spec"]["secretObject"]["data"]
    }
    assert synced == read == {("llm", "other", "one"), ("llm", "third", "two"), ("llm", "hf-secret", "hf_api_token")}


@pytest.mark.parametrize("secret", ["hf-token", "projects/vault/secrets/hf-token"])
def test_only_the_account_that_syncs_may_read_that_one_secret(secret: str) -> None:
    built = program(hfTokenSecret=secret)
    grant = built.one("SecretIamMember", f"hf-token/llm/{TOKEN_SYNC}").inputs
    owner = "vault" if "/" in secret else PROJECT
    assert (grant["project"], grant["secretId"]) == (owner, "hf-token")
    assert grant["role"] == "roles/secretmanager.secretAccessor"
    assert grant["member"] == principal(PROJECT_NUMBER, PROJECT, "llm", TOKEN_SYNC)
    assert TOKEN_SYNC not in {spec.get("serviceAccountName") for _, spec in pods(built)}
    source = built.one("SecretProviderClass").inputs["spec"]["parameters"]["secrets"]
    assert f"projects/{owner}/secrets/hf-token/versions/latest" in source


def test_namespace_needs_exactly_one_token_source(monkeypatch: pytest.MonkeyPatch) -> None:
    token_from = SecretManager(SECRET, PROJECT, f"{PROJECT}.svc.id.goog")

    def both_given() -> None:
        secrets = [model.TokenSecret(name="hf-secret", key="k")]
        cluster = ClusterConnection("theirs", kubeconfig="kubeconfig")
        WorkloadNamespace("llm", cluster=cluster, hf_token="hf_x", hf_token_from=token_from, token_secrets=secrets)

    with pytest.raises(Refused, match="needs either hf_token or hf_token_from, and both are set"):
        record(both_given, False, monkeypatch)
