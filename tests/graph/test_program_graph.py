"""Dependencies between resources, and that a bad configuration creates nothing."""

from collections.abc import Sequence
from typing import Any

import pulumi
import pytest
from pulumi.runtime.mocks import MockResourceArgs

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
    assert other not in record.waits_for(record.one(free, "gpupool" if free == "NodePool" else None))


def copies(names: Sequence[str], queues: Sequence[str]) -> list[dict[str, Any]]:
    """Copies of the run, each with its name and its queue."""
    (run,) = configuration(STANDARD)["gke-ai:training"]
    named = [{**run, "name": name, "service": name, "modelPath": f"/model-data/{name}"} for name in names]
    return [{**run, "queue": queue} for run, queue in zip(named, queues, strict=True)]


@both
def test_jobs_are_created_in_the_order_of_the_list(preview: bool) -> None:
    record = recorded(STANDARD, preview, training=copies(["third", "first", "second"], ["lq"] * 3))
    assert "Job third" in record.waits_for(record.one("Job", "first"))
    assert "Job first" in record.waits_for(record.one("Job", "second"))
    assert not {"Job first", "Job second"} & record.waits_for(record.one("Job", "third"))


@both
def test_runs_of_one_queue_do_not_delay_those_of_another(preview: bool) -> None:
    queues = configuration(STANDARD)["gke-ai:queues"]
    (queue,), (local,) = queues["clusterQueues"], queues["localQueues"]
    queues["clusterQueues"].append({**queue, "name": "other"})
    queues["localQueues"].append({**local, "name": "lq2", "clusterQueue": "other"})
    record = recorded(STANDARD, preview, queues=queues, training=copies("abc", ["lq", "lq2", "lq"]))
    assert not {"Job a", "Job c"} & record.waits_for(record.one("Job", "b"))
    assert "Job a" in record.waits_for(record.one("Job", "c"))


@both
@pytest.mark.parametrize("path", ENVIRONMENTS)
def test_every_object_is_registered_before_a_cluster_exists_with_its_provider(path: str, preview: bool) -> None:
    record = recorded(path, preview)
    kinds = {resource.type.rpartition(":")[2].rpartition("/")[2] for resource in record.resources.values()}
    cloud, kueue = ("Cluster", "Bucket", "BucketIAMMember"), ("ResourceFlavor", "ClusterQueue", "LocalQueue")
    workloads = ("Namespace", "Secret", "Release", "PriorityClass", "Deployment", "Service", "Job")
    assert kinds >= {*cloud, *kueue, *workloads}
    objects = [resource for resource in record.resources.values() if resource.type.startswith("kubernetes:")]
    assert [item.name for item in objects if record.one("kubernetes").urn not in item.dependencies] == []


@pytest.mark.parametrize("path", [STANDARD, AUTOPILOT])
def test_objects_under_kueue_are_retried_while_kueue_does_not_answer(path: str) -> None:
    record, kinds = recorded(path, False), ("ResourceFlavor", "ClusterQueue", "LocalQueue", "Deployment", "Job")
    assert [kind for kind in kinds if not record.one(kind).hooked] == []


@pytest.mark.parametrize("change", [{"location": "us-central1-a"}, {"network": "research"}, {"name": "other"}])
def test_replacement_changes_the_cluster_identifier(change: dict[str, Any]) -> None:
    section = configuration(STANDARD)["gke-ai:cluster"]
    records = recorded(STANDARD, True), recorded(STANDARD, True, cluster={**section, **change})
    assert len({record.one("kubernetes").inputs["clusterIdentifier"] for record in records}) == 2


@both
@pytest.mark.parametrize("given", ["stack", "variable"])
def test_token_is_a_secret_in_every_resource(given: str, preview: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    section, token = configuration(STANDARD), TOKEN if given == "variable" else None
    if given == "stack":
        section["gke-ai:hfToken"] = TOKEN
    record = run_program(section, preview, monkeypatch, token, secret_keys=("gke-ai:hfToken",))
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


def test_mistakes_are_reported_together_without_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(STANDARD)
    config["gke-ai:gpuPools"][0]["machineTyp"] = "g2-standard-24"
    config["gke-ai:trainin"] = config.pop("gke-ai:training")
    config |= {"gcp:project": "acme", "gcp:region": "us-central1-a", "gke-ai:hfToken": TOKEN}
    message = refused(config, monkeypatch, token=None)
    assert "5 problems" in message
    for key in ("gcp:project", "gcp:region", "gke-ai:hfToken", "gke-ai:gpuPools[0].machineTyp", "gke-ai:trainin"):
        assert f"- {key}: " in message
    for part in ("Did you mean machineType", "mean training", "pulumi config set --secret gke-ai:hfToken"):
        assert part in message
    assert TOKEN not in message


def test_missing_existing_cluster_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cloud, "call", lambda *_: ({}, [("name", "clusters/theirs not found")]))
    cluster = {"name": "theirs", "location": "us-central1", "mode": "existing"}
    message = refused({"gke-ai:cluster": cluster}, monkeypatch)
    assert "not found" in message
    assert "There must be a cluster theirs in us-central1" in message


def test_missing_project_is_reported_and_an_example_states_none(monkeypatch: pytest.MonkeyPatch) -> None:
    example = configuration(STANDARD)
    assert "gcp:project" not in example
    assert PROJECT not in str(example)
    assert "pulumi config set gcp:project" in refused({**example, "gcp:project": ""}, monkeypatch)
