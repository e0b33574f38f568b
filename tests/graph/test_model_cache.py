"""Servers whose model, and LoRA adapters, come from a bucket: the Jobs that fill it and the pods that read it."""

import asyncio
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pulumi
import pytest
from kubernetes import client

from gke_ai.catalog.engines.model_cache import FILL_IMAGE, release_of
from gke_ai.catalog.engines.model_memory import adapters_bytes
from gke_ai.catalog.engines.models import find_model
from gke_ai.components.serving import model_download
from gke_ai.components.serving.model_download import JobClient, wait_for
from gke_ai.components.support.polling import Pauses
from gke_ai.ops.status.downloads import download_rows
from gke_ai.settings.estimates import model_memory
from gke_ai.settings.resolved import Download
from gke_ai.settings.resolved.needs import external_hosts
from programs import fill_bucket
from tests.support.examples import cache_example, container_of, pod_of
from tests.support.recorder import PROJECT, Record, load_stack, run_program, shared_record

BUCKET = f"models-{PROJECT}"
COMMIT = "299a8560bedf22ed1c72a8a11e7dce4a7f9f51f8"
FOLDER = f"google/gemma-2-2b-it/{COMMIT}"


def recorded(cache: Mapping[str, Any] | None = None, preview: bool = False, **server: Any) -> Record:
    return shared_record(cache_example(cache, **server), preview)


def env_of(container: Mapping[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in container["env"]}


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_server_waits_for_the_job_and_the_job_for_the_bucket(preview: bool) -> None:
    record = recorded(preview=preview)
    job = record.one("Job")
    assert f"Job {job.object_name}" in record.waits_for(record.one("Deployment"))
    before = record.waits_for(job)
    assert {f"Bucket {BUCKET}", "Namespace model-cache", "Secret hf-secret", "ServiceAccount model-download"} <= before
    assert f"BucketIAMMember {BUCKET}/model-cache/model-download/storage.objectUser" in before
    assert not any(resource.startswith("NodePool l4") for resource in before), "the download needs no GPU"


def test_public_model_needs_no_token() -> None:
    config = cache_example(tokenSecret=None)
    assert load_stack(config, token_given=False)
    record = shared_record(config)
    assert record.all("Secret") == []
    assert "HF_TOKEN" not in env_of(container_of(record, "Job"))


def test_server_reads_the_folder_of_the_model_under_the_name_that_clients_know() -> None:
    record = recorded()
    server = container_of(record)
    assert server["args"][0] == f"/models/{FOLDER}"
    assert "--served-model-name=google/gemma-2-2b-it" in server["args"]
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in server["volumeMounts"]
    assert record.outputs["servers"][0]["model"] == "google/gemma-2-2b-it"
    # The mount has a cache that holds the model and is never out of date.
    (volume,) = (volume for volume in pod_of(record)["spec"]["volumes"] if volume["name"] == "models")
    options = {*volume["csi"]["volumeAttributes"]["mountOptions"].split(",")}
    cache = {"implicit-dirs", "file-cache:enable-parallel-downloads:true", "file-cache:max-size-mb:6144"}
    assert {*cache, "metadata-cache:ttl-secs:-1"} <= options


def test_job_writes_and_the_server_only_reads() -> None:
    members = {
        (member.inputs["member"].partition("/subject/")[2].rpartition("ns/")[2], member.inputs["role"])
        for member in recorded().all("BucketIAMMember")
    }
    job, server = "model-cache/sa/model-download", "llm/sa/default"
    assert members == {(job, "roles/storage.objectUser"), (server, "roles/storage.objectViewer")}


def test_compiled_code_is_kept_in_a_folder_that_only_its_server_writes() -> None:
    record = recorded({"compileCache": True}, serviceAccount="gemma")
    members = [member for member in record.all("BucketIAMMember") if "/ns/llm/" in member.inputs["member"]]
    grants = {member.inputs["role"]: member for member in members}
    assert {grant.inputs["member"].rpartition("/sa/")[2] for grant in grants.values()} == {"gemma"}
    assert "condition" not in grants["roles/storage.objectViewer"].inputs
    folder = f"resource.name.startsWith('projects/_/buckets/{BUCKET}/objects/compiled/llm/gemma/')"
    assert grants["roles/storage.objectUser"].inputs["condition"]["expression"] == folder
    container = container_of(record)
    assert env_of(container)["VLLM_CACHE_ROOT"] == "/compiled"
    assert {"name": "compiled", "mountPath": "/compiled"} in container["volumeMounts"]
    (volume,) = (volume for volume in pod_of(record)["spec"]["volumes"] if volume["name"] == "compiled")
    assert volume["csi"]["readOnly"] is False
    attributes = volume["csi"]["volumeAttributes"]
    assert attributes == {"bucketName": BUCKET, "mountOptions": "implicit-dirs,only-dir=compiled/llm/gemma"}


def test_a_role_that_the_account_has_already_does_not_replace_that_on_its_folder() -> None:
    config = cache_example({"compileCache": True}, serviceAccount="gemma")
    viewer = "roles/storage.objectViewer"
    config["gke-ai:buckets"][0]["grants"] = [{"namespace": "llm", "serviceAccount": "gemma", "role": viewer}]
    (bucket,) = load_stack(config).granted_buckets
    assert [grant.role for grant in bucket.grants if grant.namespace == "llm"] == [viewer, "roles/storage.objectUser"]


def test_account_with_a_role_gets_no_other() -> None:
    config = cache_example()
    config["gke-ai:buckets"][0]["grants"] = [{"namespace": "llm", "role": "roles/storage.objectAdmin"}]
    (bucket,) = load_stack(config).granted_buckets
    roles = {(grant.namespace, grant.role) for grant in bucket.grants}
    assert roles == {("llm", "roles/storage.objectAdmin"), ("model-cache", "roles/storage.objectUser")}


def test_job_runs_the_program_of_its_config_map_on_a_node_without_accelerators() -> None:
    record = recorded()
    container, template = container_of(record, "Job"), pod_of(record, "Job")
    assert container["image"] == FILL_IMAGE
    assert "@sha256:" in container["image"]
    program = next(volume["configMap"] for volume in template["spec"]["volumes"] if "configMap" in volume)
    config_map = record.one("ConfigMap", program["name"])
    assert {item["key"] for item in program["items"]} == config_map.inputs["data"].keys()
    assert container["command"] == ["python3", "-m", "programs.fill_bucket"]
    assert env_of(container)["MODEL_DIRECTORY"] == f"/models/{FOLDER}"
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert not {"nodeSelector", "tolerations"} & template["spec"].keys()
    refused = record.one("Job").inputs["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]
    assert refused["values"] == [fill_bucket.EXIT_REFUSED]


def test_two_servers_of_one_model_share_a_job_and_another_revision_is_another_job() -> None:
    config = cache_example()
    (server,) = config["gke-ai:serving"]
    cache = server["modelCache"]
    config["gke-ai:gpuPools"][0]["nodesPerZone"] = 3
    config["gke-ai:serving"] = [
        {**server, "name": "a", "tokenSecret": None},
        {**server, "name": "b", "namespace": "other", "modelCache": {**cache, "timeoutSeconds": 7200}},
        {**server, "name": "c", "modelCache": {"bucket": cache["bucket"]}},
    ]
    first, second = load_stack(config).downloads
    assert (first.revision, first.timeout_seconds, second.revision) == (COMMIT, 7200, "main")
    assert first.token, "one of its servers has a token"
    assert first.name != second.name
    # The name of the Job follows only from what it downloads.
    before = recorded().one("Job")
    assert recorded({"timeoutSeconds": 60}, maxModelLen=4096).one("Job").object_name == before.object_name
    assert recorded({"revision": "main"}).one("Job").object_name != before.object_name
    assert before.ignored == ("spec",), "another release must not repeat the download"


def test_pods_of_a_cluster_need_hugging_face_and_docker_hub_only_for_the_job() -> None:
    stack = load_stack(cache_example(image="us-docker.pkg.dev/my-project/images/vllm:1"))
    (download,) = stack.downloads
    assert external_hosts(stack) == {"docker.io": download.name, "huggingface.co": download.name}


def test_request_on_the_node_includes_the_cache_and_so_does_that_in_the_queue() -> None:
    (server,) = load_stack(cache_example()).servers
    assert server.node_request["ephemeral-storage"] == (20 + 5 + 6) * 2**30
    assert server.node_request["cpu"] == 6 + 2
    assert server.queued_request == server.node_request, "Kueue sees the pods with their sidecars"
    assert not [*model_memory.unchecked([server])], "the model's memory is checked as without a bucket"


def test_release_is_read_from_the_tag() -> None:
    releases = {"vllm/vllm-openai:v0.11.0@sha256:0": (0, 11, 0), "registry:5000/team/vllm:0.12.3-patched": (0, 12, 3)}
    unknown = dict.fromkeys(("vllm/vllm-openai:latest", "vllm/vllm-openai"))
    assert {image: release_of(image) for image in (*releases, *unknown)} == {**releases, **unknown}


# -------------------------------------------------------------------------------------------------------- LoRA adapters
ADAPTERS = [
    {"name": "sql", "source": "my-team/gemma-2-sql", "revision": "v2", "rank": 8},
    {"name": "support", "source": "my-team/gemma-2-support", "rank": 33},
    {"name": "local", "source": f"gs://{BUCKET}/runs/local/"},
]


def adapted(preview: bool = False, **server: Any) -> Record:
    """The example with adapters and other keys of the server."""
    config = cache_example(loraAdapters=ADAPTERS)
    config["gke-ai:serving"][0] |= server
    return shared_record(config, preview)


def flags(record: Record) -> list[str]:
    """The arguments from the adapters on."""
    words: list[str] = container_of(record)["args"]
    return words[words.index("--lora-modules") :]


def test_vllm_reads_adapters_from_the_folders_of_the_bucket() -> None:
    record = adapted()
    assert flags(record)[:8] == [
        "--lora-modules",
        "sql=/models/my-team/gemma-2-sql/v2",
        "support=/models/my-team/gemma-2-support/main",
        "local=/models/runs/local",
        *("--enable-lora", "--max-lora-rank=64", "--max-loras=3", "--max-cpu-loras=3"),
    ]
    assert record.outputs["servers"][0]["adapters"] == ["sql", "support", "local"]
    # Fewer adapters at once reserve less, and all stay in memory.
    assert {"--max-loras=2", "--max-cpu-loras=3"} <= {*flags(adapted(maxLoras=2))}


def test_vllm_downloads_adapters_itself_without_a_bucket_and_a_server_without_adapters_has_no_flag() -> None:
    record = adapted(modelCache=None, loraAdapters=[{"name": "sql", "source": "my-team/gemma-2-sql"}])
    assert flags(record)[:2] == ["--lora-modules", "sql=my-team/gemma-2-sql"]
    assert record.all("Job") == []
    without = adapted(loraAdapters=[])
    assert not [word for word in container_of(without)["args"] if "lora" in word]
    assert without.outputs["servers"][0]["adapters"] == []


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_server_waits_for_a_job_per_adapter_on_hugging_face(preview: bool) -> None:
    record = adapted(preview)
    jobs = record.all("Job")
    downloaded = set()
    for job in jobs:
        variables = job.inputs["spec"]["template"]["spec"]["containers"][0]["env"]
        values = {variable["name"]: variable.get("value") for variable in variables}
        downloaded.add((values["MODEL"], values["MODEL_DIRECTORY"]))
    adapters = ("my-team/gemma-2-sql/v2", "my-team/gemma-2-support/main")
    assert {(adapter.rpartition("/")[0], f"/models/{adapter}") for adapter in adapters} < downloaded
    assert len(downloaded) == len(jobs) == 3, "the model, and no Job for the adapter that is in the bucket"
    assert {f"Job {job.object_name}" for job in jobs} <= record.waits_for(record.one("Deployment"))


@pytest.mark.parametrize(
    ("name", "width", "query", "key", "feed_forward"),
    [
        ("meta-llama/Llama-3.1-8B", 4096, 4096, 1024, 14336),
        ("google/gemma-2-9b-it", 3584, 4096, 2048, 14336),
        ("google/gemma-3-27b-it", 5376, 4096, 2048, 21504),
    ],
)
def test_memory_of_adapters_is_what_vllm_reserves(
    name: str, width: int, query: int, key: int, feed_forward: int
) -> None:
    model, latent = find_model(name), find_model("deepseek-ai/DeepSeek-V3")
    assert model is not None
    assert latent is not None
    embeddings = 2 * (128_256 + width) if "llama" in name else 0
    for shards in (1, 4):
        divided = (2 * query + 2 * key + 3 * feed_forward) / shards
        reserved = (model.layers * (7 * width + divided) + embeddings) * 64 * 3 * 2
        assert adapters_bytes(model, shards, slots=3, rank=64) == pytest.approx(reserved, rel=0.03)
    assert adapters_bytes(latent, 8, slots=1, rank=16) == 0, "unknown for latent attention"


# ------------------------------------------------------------------------------------------------------------- the wait
RUNNING: dict[str, Any] = {"status": {"active": 1}}
DONE: dict[str, Any] = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
FAILED: dict[str, Any] = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}


def pod(**state: Any) -> dict[str, Any]:
    return {"status": {"containerStatuses": [{"state": state}]}}


def cluster_of(*answers: Any) -> mock.Mock:
    """A cluster that answers with these states in turn."""
    return mock.Mock(title="model-cache/gemma", **{"look.side_effect": answers})


def watch(monkeypatch: pytest.MonkeyPatch, cluster: Any, seconds: int = 60) -> list[str]:
    """What an update logs while it waits."""
    logged: list[str] = []
    monkeypatch.setattr(model_download, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(model_download, "PAUSES", Pauses(0.001))
    monkeypatch.setattr(pulumi.log, "info", lambda text, **_: logged.append(text))
    resource: Any = SimpleNamespace()
    asyncio.run(wait_for(Download(BUCKET, "google/gemma-2-2b-it", "main", None, seconds), cluster, resource))
    return logged


def test_update_logs_the_progress_and_ends_with_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        (RUNNING, [], ""),
        (RUNNING, [{"status": {}}], ""),
        (RUNNING, [pod(waiting={"reason": "ContainerCreating"})], ""),
        (RUNNING, [pod(running={})], "40 % of 5.2 GB"),
        (DONE, [pod(terminated={})], "complete"),
    ]
    assert watch(monkeypatch, cluster_of(*answers)) == [
        "model-cache/gemma waits for its pod to be created",
        "model-cache/gemma waits for a node",
        "model-cache/gemma waits for its container to start: ContainerCreating",
        "model-cache/gemma waits for the download: 40 % of 5.2 GB",
    ]


class NotFound(Exception):
    status = 404


SAID = r"could not fill bucket .*: The model may be gated\.\n.*Run up again"
LATE = r"after 0 s: it waits for the download: 3 %\.\n.*timeoutSeconds"
GATED = (FAILED, [pod(terminated={})], "error: The model may be gated.")


@pytest.mark.parametrize(
    ("answers", "seconds", "message"),
    [
        pytest.param([(RUNNING, [], ""), GATED], 60, SAID, id="the Job fails"),
        pytest.param([NotFound()], 60, r"was deleted\. Run refresh, then up", id="the Job is deleted"),
        pytest.param([(RUNNING, [pod(running={})], "3 %")], 0, LATE, id="the Job takes too long"),
    ],
)
def test_update_stops_with_the_cause_and_the_remedy(
    answers: list[Any], seconds: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = cluster_of(*answers)
    with pytest.raises(pulumi.RunError, match=message):
        watch(monkeypatch, cluster, seconds)
    assert cluster.repeat.call_count == 0


def test_job_that_failed_in_an_earlier_update_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of((FAILED, [], "error: gated"), (RUNNING, [], ""), (DONE, [], ""))
    watch(monkeypatch, cluster)
    assert cluster.repeat.call_count == 1


def test_repeated_job_has_the_name_of_the_failed_one_and_the_spec_of_this_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A deleted Job is gone only after a second.
    batch = mock.Mock(**{"create_namespaced_job.side_effect": [client.ApiException(status=409), None]})
    connection = SimpleNamespace(call=lambda request: request(object()))
    monkeypatch.setattr(model_download, "connection", lambda _: connection)
    monkeypatch.setattr(client, "BatchV1Api", lambda _: batch)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    kept = {"name": "gemma", "namespace": "model-cache", "annotations": {"a": "b"}, "labels": {}}
    old_spec = {"selector": {}, "template": {"spec": {"volumes": [{"configMap": {"name": "deleted"}}]}}}
    spec = {"template": {"spec": {"volumes": [{"configMap": {"name": "gemma-1"}}]}}}
    JobClient("", "model-cache", "gemma", spec).repeat({"metadata": {**kept, "uid": "1"}, "spec": old_spec, **FAILED})
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": kept, "spec": spec}
    create = mock.call.create_namespaced_job("model-cache", body)
    delete = mock.call.delete_namespaced_job("gemma", "model-cache", propagation_policy="Background")
    assert batch.mock_calls == [delete, create, create]


def test_cluster_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = watch(monkeypatch, cluster_of(ConnectionError("refused"), (DONE, [], "")))
    assert logged == ["model-cache/gemma waits for the cluster to answer: refused"]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        *((DONE["status"], "complete"), (FAILED["status"], "failed: kubectl -n model-cache logs job/")),
        *((RUNNING["status"], "downloads"), ({}, "waits")),
    ],
)
def test_status_shows_each_model_with_its_folder(status: dict[str, Any], state: str) -> None:
    job = {**recorded().one("Job").inputs, "status": status}
    other = {**job, "metadata": {"name": "finetune", "namespace": "llm"}}
    ((name, folder, shown),) = download_rows([job, other])
    assert (name, folder) == (recorded().one("Job").object_name, f"gs://{BUCKET}/{FOLDER}")
    assert shown.startswith(state)


def test_preview_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*waiting: object) -> None:
        assert not waiting, "a preview has no cluster to look at"

    monkeypatch.setattr("tests.support.recorder.ready_at_once", never)
    assert run_program(cache_example(), True, monkeypatch).one("Job")
