"""Dependencies between resources, and that a bad configuration creates nothing."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest
from pulumi.runtime.mocks import MockCallArgs, MockResourceArgs

from tests.support.recorder import PROJECT, TOKEN, Cloud, Record, configuration, run_program, shared_record, strings

STANDARD = "examples/mixed-training-inference.yaml"
AUTOPILOT = "examples/mixed-training-inference-autopilot.yaml"
ENVIRONMENTS = [STANDARD, AUTOPILOT, "Pulumi.dev.yaml", "Pulumi.prod.yaml"]

both = pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])


def recorded(path: str, preview: bool, **sections: Any) -> Record:
    """The record of a configuration with some sections replaced."""
    config = configuration(path) | {f"gke-ai:{name}": value for name, value in sections.items()}
    return shared_record(config, preview)


@both
@pytest.mark.parametrize(
    ("waiting", "first"),
    [
        # The project's identity pool comes with its first cluster.
        ("BucketIAMMember", "Cluster llm-cluster"),
        # Kueue's manager runs there.
        ("Release", "NodePool default-pool"),
        ("Release", "Namespace kueue-system"),
        # Their CRDs and webhooks are Kueue's.
        ("ResourceFlavor", "Release kueue"),
        ("ClusterQueue", "Release kueue"),
        ("ClusterQueue", "ResourceFlavor default-flavor"),
        ("LocalQueue", "ClusterQueue cluster-queue"),
        ("LocalQueue", "Namespace llm"),
        # A workload without its queue is refused, or started past it.
        ("Deployment", "LocalQueue lq"),
        ("Job", "LocalQueue lq"),
        ("Deployment", "PriorityClass high-priority-preempting"),
        ("Job", "PriorityClass low-priority-preempting"),
        ("Deployment", "Secret hf-secret"),
        ("Job", "Secret hf-secret"),
        ("Job", "Service headless-svc-l4"),
        # What mounts the bucket.
        ("Job", "BucketIAMMember model-bucket-my-project/llm/default/storage.objectAdmin"),
        # Deleted first, a pool would drain its pods for up to an hour.
        ("Deployment", "NodePool gpupool"),
        ("Job", "NodePool gpupool"),
    ],
)
def test_resources_wait_for_their_dependencies(waiting: str, first: str, preview: bool) -> None:
    record = recorded(STANDARD, preview)
    assert first in record.waits_for(record.one(waiting))


@both
@pytest.mark.parametrize(
    ("free", "other"),
    [
        ("Bucket", "Cluster llm-cluster"),
        ("Release", "NodePool gpupool"),
        ("ClusterQueue", "NodePool gpupool"),
        ("Deployment", "Job finetune-gemma-l4"),
        ("Job", "Deployment tgi-gemma-deployment"),
        ("NodePool", "NodePool default-pool"),
    ],
)
def test_nothing_waits_without_a_reason(free: str, other: str, preview: bool) -> None:
    record = recorded(STANDARD, preview)
    name = "gpupool" if free == "NodePool" else None
    assert other not in record.waits_for(record.one(free, name))


@both
def test_jobs_are_created_in_the_order_of_the_list(preview: bool) -> None:
    (run,) = configuration(STANDARD)["gke-ai:training"]
    names = ["third", "first", "second"]
    record = recorded(
        STANDARD, preview, training=[{**run, "name": n, "service": n, "modelPath": f"/model-data/{n}"} for n in names]
    )
    assert "Job third" in record.waits_for(record.one("Job", "first"))
    assert "Job first" in record.waits_for(record.one("Job", "second"))
    assert not {"Job first", "Job second"} & record.waits_for(record.one("Job", "third"))


@both
def test_runs_of_one_queue_do_not_delay_those_of_another(preview: bool) -> None:
    config = configuration(STANDARD)
    (run,), queues = config["gke-ai:training"], config["gke-ai:queues"]
    (queue,), (local,) = queues["clusterQueues"], queues["localQueues"]
    queues["clusterQueues"].append({**queue, "name": "other"})
    queues["localQueues"].append({**local, "name": "lq2", "clusterQueue": "other"})
    names = (("a", "lq"), ("b", "lq2"), ("c", "lq"))
    runs = [{**run, "name": n, "service": n, "queue": q, "modelPath": f"/model-data/{n}"} for n, q in names]
    record = recorded(STANDARD, preview, queues=queues, training=runs)
    assert not {"Job a", "Job c"} & record.waits_for(record.one("Job", "b"))
    assert "Job a" in record.waits_for(record.one("Job", "c"))


@both
@pytest.mark.parametrize("path", ENVIRONMENTS)
def test_every_object_is_registered_before_a_cluster_exists(path: str, preview: bool) -> None:
    record = recorded(path, preview)
    kinds = {resource.type.rpartition(":")[2].rpartition("/")[2] for resource in record.resources.values()}
    assert kinds >= {
        *("Cluster", "Bucket", "BucketIAMMember", "Namespace", "Secret", "Release", "ResourceFlavor", "ClusterQueue"),
        *("LocalQueue", "PriorityClass", "Deployment", "Service", "Job"),
    }


@pytest.mark.parametrize("path", ENVIRONMENTS)
def test_every_kubernetes_object_uses_the_provider_of_the_cluster(path: str) -> None:
    record = recorded(path, False)
    provider = record.one("kubernetes")
    for resource in record.resources.values():
        if resource.type.startswith("kubernetes:"):
            assert provider.urn in resource.dependencies, resource.name


@pytest.mark.parametrize("path", [STANDARD, AUTOPILOT])
def test_objects_under_kueue_are_retried_while_kueue_does_not_answer(path: str) -> None:
    record = recorded(path, False)
    for kind in ("ResourceFlavor", "ClusterQueue", "LocalQueue", "Deployment", "Job"):
        assert record.one(kind).hooked, kind


@pytest.mark.parametrize("change", [{"location": "us-central1-a"}, {"network": "research"}, {"name": "other"}])
def test_replacement_changes_the_cluster_identifier(change: dict[str, Any]) -> None:
    section = configuration(STANDARD)["gke-ai:cluster"]
    before = recorded(STANDARD, True).one("kubernetes").inputs["clusterIdentifier"]
    after = recorded(STANDARD, True, cluster={**section, **change}).one("kubernetes")
    assert after.inputs["clusterIdentifier"] != before


@both
def test_no_output_is_masked(preview: bool) -> None:
    # Others read them through a StackReference; that the provider masks the cluster's certificate must not mask them.
    assert recorded(STANDARD, preview).secret_outputs == set()


@both
@pytest.mark.parametrize("given", ["stack", "variable"])
def test_token_is_a_secret_in_every_resource(given: str, preview: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    section = configuration(STANDARD)
    if given == "stack":
        section["gke-ai:hfToken"] = TOKEN
    record = run_program(
        section, preview, monkeypatch, token=None if given == "stack" else TOKEN, secret_keys=("gke-ai:hfToken",)
    )
    for resource in record.resources.values():
        inputs = dict(resource.inputs)
        if resource.type == "kubernetes:core/v1:Secret":
            wrapped = inputs.pop("stringData")
            assert wrapped.keys() != {"hf_api_token"}, "the secret's data is not wrapped as a Pulumi secret"
            assert wrapped["value"] == {"hf_api_token": TOKEN}
        assert not any(TOKEN in text for text in strings(inputs)), resource.name
    assert not any(TOKEN in text for text in strings(record.outputs))


def refused(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **how: Any) -> str:
    """The error for a refused configuration. Asserts that nothing was created."""
    created: list[str] = []

    def create(_: Cloud, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if args.custom:
            created.append(args.name)
        return "", {}

    monkeypatch.setattr(Cloud, "new_resource", create)
    with pytest.raises(pulumi.RunError) as refusal:
        run_program(given, False, monkeypatch, **how)
    assert created == []
    return str(refusal.value)


def test_mistakes_are_reported_together_and_nothing_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(STANDARD)
    config["gke-ai:gpuPools"][0]["machineTyp"] = "g2-standard-24"
    config["gke-ai:trainin"] = config.pop("gke-ai:training")
    message = refused(config, monkeypatch)
    for part in ("gke-ai:gpuPools[0].machineTyp", "Did you mean machineType", "gke-ai:trainin", "mean training"):
        assert part in message


def test_token_in_plain_text_is_refused_without_being_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    message = refused({**configuration(STANDARD), "gke-ai:hfToken": TOKEN}, monkeypatch, token=None)
    assert "pulumi config set --secret gke-ai:hfToken" in message
    assert TOKEN not in message


def test_missing_existing_cluster_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_there(_: Cloud, _args: MockCallArgs) -> Any:
        return {}, [("name", "clusters/theirs not found")]

    monkeypatch.setattr(Cloud, "call", nothing_there)
    cluster = {"name": "theirs", "location": "us-central1", "mode": "existing"}
    message = refused({"gke-ai:cluster": cluster}, monkeypatch)
    assert "not found" in message
    assert "There must be a cluster theirs in us-central1" in message


def test_missing_project_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    message = refused({**configuration(STANDARD), "gcp:project": ""}, monkeypatch)
    assert "pulumi config set gcp:project" in message


def test_example_needs_no_project_of_its_own() -> None:
    assert "gcp:project" not in configuration(STANDARD)
    assert PROJECT not in str(configuration(STANDARD))


def test_project_region_token_and_sections_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(STANDARD)
    config["gke-ai:gpuPools"][0]["machineTyp"] = "g2-standard-24"
    config |= {"gcp:project": "acme", "gcp:region": "us-central1-a", "gke-ai:hfToken": TOKEN}
    message = refused(config, monkeypatch)
    for path in ("gcp:project", "gcp:region", "gke-ai:hfToken", "gke-ai:gpuPools[0].machineTyp"):
        assert f"- {path}: " in message
    assert "4 problems" in message
    assert TOKEN not in message
