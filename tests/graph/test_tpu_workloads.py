"""Batch Jobs and Multislice runs: where their pods run, how slices form one run, and queued provisioning."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pulumi
import pytest

from gke_ai.components import KueueStack, MultisliceJob, TpuBatchJob
from gke_ai.components.runs import job
from gke_ai.components.runs.job import explained
from gke_ai.settings import ResolvedStack, load, model
from gke_ai.settings.model import Multislice, TpuBatch
from gke_ai.settings.resolved.needs import external_hosts
from tests.support.mistakes import base
from tests.support.recorder import PROJECT, Record, construct, failed, record, run_program

slices = partial(base, "tpu_workloads", "slices")
queued = partial(base, "tpu_workloads", "queued")
growing = partial(base, "tpu_workloads", "growing")
on_autopilot = partial(base, "tpu_workloads", "on_autopilot")
with_bucket = partial(base, "tpu_workloads", "with_bucket")

QUEUED = {"key": "cloud.google.com/gke-queued", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
POOL = "cloud.google.com/gke-nodepool"
# Of the runs of `slices()`, as 0.3.0 gave them.
NAMES = {"train-3-ea02fd", "train-1-515c5f", "train-2-89a9c9", "host-ef0e85", "hosts-93db4e"}
JOB: dict[str, Any] = {"name": "j", "namespace": "team", "pool": "p", "hosts": 4, "chips_per_host": 4}
SET: dict[str, Any] = {
    "name": "s",
    "namespace": "team",
    "queue": "lq",
    "kind": "multislice",
    "slices": 2,
    "pools": ["a", "b"],
    "hosts": 2,
    "chips_per_host": 4,
    "node_selector": {"cloud.google.com/gke-tpu-topology": "2x4"},
}
Build = Callable[..., Record]


@pytest.fixture
def deploy(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], Record]:
    def run(values: dict[str, Any]) -> Record:
        config = {f"gke-ai:{key}": value for key, value in values.items()}
        return run_program(config, False, monkeypatch)

    return run


def loaded(values: dict[str, Any]) -> ResolvedStack:
    return load(values, PROJECT, token_given=False)


def pod(record: Record, index: int = 0) -> dict[str, Any]:
    """Spec of the pods of a JobSet's replicated Job."""
    job = record.one("JobSet").inputs["spec"]["replicatedJobs"][index]
    spec: dict[str, Any] = job["template"]["spec"]["template"]["spec"]
    return spec


# --- plan -------------------------------------------------------------------------------------------------------------


def test_runs_are_kept_off_pools_that_only_look_alike() -> None:
    stack = loaded(slices())
    three, *_ = stack.of(Multislice)
    # A single-host pool of 8-chip machines has the same labels of accelerator and topology.
    assert three.only_pools == ["one", "two", "three"]
    values = slices()
    del values["tpuPools"][3], values["batch"][0]
    alone = loaded(values)
    assert alone.of(Multislice)[0].only_pools == []


def test_only_slices_that_grow_have_their_pool_by_name() -> None:
    fixed, elastic, without = loaded(slices()), loaded(growing()), loaded(on_autopilot())
    pools = [[run.pool_of_slice for run in stack.of(Multislice)] for stack in (fixed, elastic, without)]
    assert pools == [[[], [], []], [["one"], ["one", "two"]], [[], [], []]]


def test_bound_of_a_queued_run_is_its_own_or_its_pools() -> None:
    stack = loaded(queued())
    (train,), (batch,) = stack.of(Multislice), stack.of(TpuBatch)
    assert batch.queued_seconds == 3600
    assert train.queued_seconds == 7200
    assert loaded(slices()).of(TpuBatch)[1].queued_seconds is None


def test_name_of_a_run_follows_from_its_content() -> None:
    first, second = (
        model.TpuBatch.model_validate({"name": "j", "pool": "p", "args": [text]}) for text in ("3600s", "60s")
    )
    assert first.object_name != second.object_name
    assert first.model_copy(update={"fixed_name": True}).object_name == "j"


# --- a Job on one slice -----------------------------------------------------------------------------------------------


def test_job_of_a_multi_host_slice_has_a_pod_on_each_machine_and_a_service_to_meet_by(build: Build) -> None:
    built = build(TpuBatchJob, JOB)
    job, service = built.one("Job"), built.one("Service")
    assert job.inputs["spec"].items() >= {"completions": 4, "parallelism": 4, "backoffLimit": 16}.items()
    assert job.inputs["spec"]["completionMode"] == "Indexed"
    pod = job.inputs["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["subdomain"] == service.object_name
    assert service.inputs["spec"] == {"clusterIP": "None", "selector": {"job-name": job.object_name}}
    assert job.inputs["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"


def test_job_of_a_single_host_slice_is_a_plain_one(build: Build) -> None:
    built = build(TpuBatchJob, JOB, hosts=1, resources={"cpu": "8"}, env={"A": "b"}, priority_class="low")
    spec = built.one("Job").inputs["spec"]
    assert spec.keys() == {"template", "podFailurePolicy"}
    (container,) = spec["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "8", "google.com/tpu": "4"}
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert spec["template"]["spec"]["priorityClassName"] == "low"
    assert not built.all("Service")


def test_failed_pods_that_are_allowed_are_those_stated(build: Build) -> None:
    assert build(TpuBatchJob, JOB, backoff_limit=2).one("Job").inputs["spec"]["backoffLimit"] == 2
    assert build(TpuBatchJob, JOB, backoff_limit=0).one("Job").inputs["spec"]["backoffLimit"] == 0


DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]


@pytest.mark.parametrize("hosts", [1, 4])
def test_disruption_of_a_pod_is_no_failure_of_its_job(hosts: int, build: Build) -> None:
    spec = build(TpuBatchJob, JOB, hosts=hosts).one("Job").inputs["spec"]
    assert spec["podFailurePolicy"] == {"rules": [{"action": "Ignore", "onPodConditions": DISRUPTED}]}
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "the API takes a pod failure policy with no other"
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 60
    counted = build(TpuBatchJob, JOB, hosts=hosts, ignore_disruptions=False).one("Job").inputs["spec"]
    assert "podFailurePolicy" not in counted


def test_job_of_a_fixed_name_stays_as_an_earlier_version_created_it(build: Build) -> None:
    """The spec of a Job is immutable, so any difference would fail the first `up` after an upgrade."""
    single_host = build(TpuBatchJob, JOB, hosts=1, fixed_name=True).one("Job").inputs["spec"]
    assert single_host.keys() == {"template"}
    assert single_host["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert "terminationGracePeriodSeconds" not in single_host["template"]["spec"]
    several = build(TpuBatchJob, JOB, fixed_name=True).one("Job").inputs["spec"]
    assert several["backoffLimit"] == 0
    assert "podFailurePolicy" not in several
    stated = {"ignore_disruptions": True, "termination_grace_period_seconds": 300}
    explicit = build(TpuBatchJob, JOB, hosts=1, fixed_name=True, **stated).one("Job").inputs["spec"]
    assert "podFailurePolicy" in explicit
    assert explicit["template"]["spec"]["terminationGracePeriodSeconds"] == 300


def test_changed_job_is_a_new_one_beside_the_old(build: Build) -> None:
    first, changed = build(TpuBatchJob, JOB), build(TpuBatchJob, JOB, args=["60s"])
    assert first.one("Job").urn != changed.one("Job").urn
    assert first.one("Service").object_name != changed.one("Service").object_name
    for built in (first, changed):
        assert built.one("Job").retained
        assert built.one("Service").retained
        assert built.one("Job").ignored == ("spec",)
        assert built.one("Job").delete_before_replace is False


def test_job_in_the_default_namespace_is_deleted_with_its_stack(build: Build) -> None:
    built = build(TpuBatchJob, JOB, namespace="default", fixed_name=True)
    assert not built.one("Job").retained
    assert not built.one("Service").retained


@pytest.mark.parametrize(
    ("run", "error"),
    [
        (model.TpuBatch(name="r", pool="p", fixed_name=True), 'jobs.batch "r" already exists'),
        (
            model.Multislice(name="r", kind="multislice", slices=1, fixed_name=True),
            "spec.replicatedJobs: Invalid value: field is immutable",
        ),
    ],
    ids=["Job", "JobSet"],
)
def test_refused_change_of_a_fixed_name_is_explained(run: Any, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    bound: list[Callable[[pulumi.ErrorHookArgs], Any]] = []
    monkeypatch.setattr(pulumi.log, "error", messages.append)
    monkeypatch.setattr(pulumi, "ErrorHook", lambda _, call: bound.append(call))
    explained(run, "x")
    assert bound[0](failed(error)) is False
    assert bound[0](failed("forbidden")) is False
    (text,) = messages
    assert "change its `name`" in text
    kind = "jobset" if isinstance(run, model.Multislice) else "job"
    assert f"delete --ignore-not-found {kind}/r" in text


# --- bucket, shared memory and token ----------------------------------------------------------------------------------

WITH_BUCKET = {
    "volume": {"bucket": "data", "sidecar_memory_limit": "20Gi"},
    "shared_memory": "16Gi",
    "token_secret": {"name": "hf", "key": "token"},
}


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_run_mounts_its_bucket_and_shared_memory_and_reads_the_token(kind: str, build: Build) -> None:
    if kind == "Job":
        template = build(TpuBatchJob, JOB, labels={"a": "b"}, **WITH_BUCKET).one("Job").inputs["spec"]["template"]
    else:
        jobset = build(MultisliceJob, SET, labels={"a": "b"}, **WITH_BUCKET).one("JobSet")
        template = jobset.inputs["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["metadata"]["labels"] == {"a": "b"}
    assert template["metadata"]["annotations"] == {"gke-gcsfuse/volumes": "true", "gke-gcsfuse/memory-limit": "20Gi"}
    (container,) = template["spec"]["containers"]
    assert container["env"] == [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}]
    assert container["volumeMounts"] == [
        {"name": "dshm", "mountPath": "/dev/shm"},
        {"name": "gcs-fuse-csi-ephemeral", "mountPath": "/model-data", "readOnly": False},
    ]
    shared, bucket = template["spec"]["volumes"]
    assert shared == {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}
    assert bucket["name"] == "gcs-fuse-csi-ephemeral"
    assert bucket["csi"]["driver"] == "gcsfuse.csi.storage.gke.io"
    assert bucket["csi"]["volumeAttributes"]["bucketName"] == "data"


def test_run_that_sets_nothing_of_it_has_nothing_of_it(build: Build) -> None:
    template = build(TpuBatchJob, JOB).one("Job").inputs["spec"]["template"]
    assert template.keys() == {"spec"}
    assert "volumes" not in template["spec"]
    assert not template["spec"]["containers"][0].keys() & {"volumeMounts", "env"}
    assert "volumes" not in pod(build(MultisliceJob, SET))


def test_namespace_of_a_run_gets_the_secret_that_it_reads(deploy: Callable[[dict[str, Any]], Record]) -> None:
    values = with_bucket()
    del values["hfTokenSecret"]
    built = deploy(values)
    (secret,) = built.all("Secret")
    assert (secret.inputs["metadata"]["namespace"], secret.object_name) == ("team", "hf-secret")
    (job,) = [job for job in built.all("Job") if job.object_name.startswith("host-")]
    (container,) = job.inputs["spec"]["template"]["spec"]["containers"]
    key = {"name": "hf-secret", "key": "hf_api_token"}
    assert container["env"] == [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": key}}]


def test_sidecar_of_a_run_takes_its_share_of_the_node() -> None:
    stack = loaded(with_bucket())
    job, without = stack.of(TpuBatch)
    assert job.node_request["memory"] == 35 * 2**30
    assert "memory" not in without.node_request


def test_hugging_face_is_reached_by_a_run_that_reads_the_token() -> None:
    assert external_hosts(loaded(with_bucket()))["huggingface.co"] == "train-3"
    assert "huggingface.co" not in external_hosts(loaded(slices()))


def test_new_keys_that_are_not_set_change_no_name() -> None:
    before = loaded(slices())
    assert {run.object_name for run in before.runs} == NAMES
    after = loaded(with_bucket())
    changed = {run.object_name for run in after.runs} - NAMES
    assert {name.rpartition("-")[0] for name in changed} == {"train-3", "host"}


# --- a JobSet over several --------------------------------------------------------------------------------------------


def test_each_slice_is_a_child_job_with_a_pool_to_itself(build: Build) -> None:
    built = build(MultisliceJob, SET, max_restarts=3, labels={"team": "research"})
    jobset = built.one("JobSet")
    assert jobset.inputs["metadata"]["annotations"] == {EXCLUSIVE: POOL}
    assert jobset.inputs["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "lq"}
    assert jobset.inputs["spec"]["failurePolicy"]["maxRestarts"] == 3
    (job,) = jobset.inputs["spec"]["replicatedJobs"]
    assert (job["name"], job["replicas"]) == ("slice", 2)
    assert job["template"]["spec"]["template"]["metadata"] == {"labels": {"team": "research"}}
    assert "affinity" not in pod(built)
    assert jobset.hooked, "its webhook, and Kueue's, may not answer yet"


def test_slices_that_grow_from_zero_are_put_on_their_pools_by_name(build: Build) -> None:
    built = build(MultisliceJob, SET, pool_of_slice=["a", "b"])
    assert "annotations" not in built.one("JobSet").inputs["metadata"], "exclusive placement would wait for ever"
    jobs = built.one("JobSet").inputs["spec"]["replicatedJobs"]
    assert [(job["name"], job["replicas"]) for job in jobs] == [("slice-0", 1), ("slice-1", 1)]
    assert [pod(built, index)["nodeSelector"][POOL] for index in (0, 1)] == ["a", "b"]
    assert pod(built)["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "2x4"


def test_slices_that_are_put_by_name_are_one_run(build: Build) -> None:
    """The variables count all slices of the JobSet. Counted by replicated Job, each slice would be a run by itself."""
    built = build(MultisliceJob, SET, pool_of_slice=["a", "b"], env={"A": "b"})
    name = built.one("JobSet").object_name
    for index in (0, 1):
        variables = {variable["name"]: variable for variable in pod(built, index)["containers"][0]["env"]}
        label = "metadata.labels['jobset.sigs.k8s.io/{}']".format
        read = {
            key: variable["valueFrom"]["fieldRef"]["fieldPath"]
            for key, variable in variables.items()
            if "valueFrom" in variable
        }
        assert read == {
            "MEGASCALE_NUM_SLICES": label("global-replicas"),
            "MEGASCALE_SLICE_ID": label("job-global-index"),
        }
        assert variables["MEGASCALE_COORDINATOR_ADDRESS"]["value"] == f"{name}-slice-0-0-0.{name}"
        assert variables["A"]["value"] == "b"
    assert "env" not in pod(build(MultisliceJob, SET))["containers"][0], "GKE tells the Jobs of one replicated Job"


def test_disruption_of_a_slice_uses_up_no_restart(build: Build) -> None:
    spec = build(MultisliceJob, SET).one("JobSet").inputs["spec"]
    (job,) = spec["replicatedJobs"]
    assert job["template"]["spec"]["podFailurePolicy"] == {
        "rules": [{"action": "FailJob", "onPodConditions": DISRUPTED}]
    }
    assert job["template"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    (rule,) = spec["failurePolicy"]["rules"]
    assert rule["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy"]
    for change in ({"fixed_name": True}, {"ignore_disruptions": False}):
        counted = build(MultisliceJob, SET, **change).one("JobSet").inputs["spec"]
        assert counted["failurePolicy"] == {"maxRestarts": 4}
        assert "podFailurePolicy" not in counted["replicatedJobs"][0]["template"]["spec"]
        assert "restartPolicy" not in counted["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


def test_pods_stay_on_the_pools_of_their_run(build: Build) -> None:
    affinity = pod(build(MultisliceJob, SET, only_pools=["a", "b"]))["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": POOL, "operator": "In", "values": ["a", "b"]}]


def test_jobset_is_one_run(build: Build) -> None:
    hashed, fixed = build(MultisliceJob, SET).one("JobSet"), build(MultisliceJob, SET, fixed_name=True).one("JobSet")
    assert hashed.ignored == ("spec",)
    assert fixed.object_name == "s"
    inside = "spec.replicatedJobs[*].template.spec.template.spec"
    assert fixed.ignored == ("spec.suspend", f"{inside}.nodeSelector", f"{inside}.tolerations")
    # Its deletion is awaited, which the note that Jobs carry would skip.
    assert "pulumi.com/skipAwait" not in fixed.inputs["metadata"].get("annotations", {})


# --- JobSet and queued provisioning in KueueStack ---------------------------------------------------------------------


def test_jobset_is_installed_before_kueue_and_deleted_after_it(build: Build) -> None:
    built = build(KueueStack, {"namespaces": []}, jobset=True)
    assert {"Release jobset", "Namespace jobset-system"} <= built.waits_for(built.one("Release", "kueue"))
    image = built.one("Release", "jobset").inputs["values"]["image"]
    assert "staging" not in image["repository"]
    assert [release.object_name for release in build(KueueStack, {"namespaces": []}).all("Release")] == ["kueue"]


def test_jobset_is_installed_for_a_run_under_no_queue(deploy: Callable[[dict[str, Any]], Record]) -> None:
    values = slices()
    del values["queues"]
    for run in values["training"]:
        del run["queue"]
    built = deploy(values)
    assert "Release jobset" in built.waits_for(built.all("JobSet")[0])


def test_order_of_a_queue_is_set_if_it_is_configured(build: Build) -> None:
    queue: dict[str, Any] = {"name": "q", "flavors": [{"flavor": "f", "quota": {"cpu": "1"}}]}
    base = {"namespaces": [], "flavors": [{"name": "f"}]}
    spec = build(KueueStack, base, cluster_queues=[queue]).one("ClusterQueue").inputs["spec"]
    assert "queueingStrategy" not in spec
    assert "admissionChecksStrategy" not in spec
    strict = build(KueueStack, base, cluster_queues=[{**queue, "queueing_strategy": "StrictFIFO"}])
    assert strict.one("ClusterQueue").inputs["spec"]["queueingStrategy"] == "StrictFIFO"


def test_kueue_requests_queued_provisioning(deploy: Callable[[dict[str, Any]], Record]) -> None:
    built = deploy(queued())
    configuration, check = built.one("ProvisioningRequestConfig"), built.one("AdmissionCheck")
    assert configuration.inputs["spec"]["provisioningClassName"] == "queued-provisioning.gke.io"
    assert configuration.inputs["spec"]["managedResources"] == ["google.com/tpu"]
    topology = built.one("ResourceFlavor").inputs["spec"]["nodeLabels"]["cloud.google.com/gke-tpu-topology"]
    assert configuration.inputs["spec"]["parameters"] == {"tpu-topology": topology}
    assert check.inputs["spec"] == {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {
            "apiGroup": "kueue.x-k8s.io",
            "kind": "ProvisioningRequestConfig",
            "name": configuration.object_name,
        },
    }
    # Kueue's request for nodes passes no admission that would give its pods this.
    assert built.one("ResourceFlavor").inputs["spec"]["tolerations"] == [
        {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    queue = built.one("ClusterQueue")
    assert queue.inputs["spec"]["admissionChecksStrategy"] == {
        "admissionChecks": [{"name": check.object_name, "onFlavors": ["dws"]}]
    }
    assert "AdmissionCheck dws" in built.waits_for(queue)

    (job,), (jobset,) = built.all("Job"), built.all("JobSet")
    bound = "provreq.kueue.x-k8s.io/maxRunDurationSeconds"
    assert job.inputs["metadata"]["annotations"][bound] == "3600"
    assert jobset.inputs["metadata"]["annotations"][bound] == "7200"
    assert job.inputs["spec"]["template"]["spec"]["tolerations"] == [QUEUED]
    assert pod(built)["tolerations"] == [QUEUED]
    assert job.inputs["spec"]["suspend"] is True


# --- places in line ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("last", "pause"), [(False, [1]), (True, [])])
@pytest.mark.parametrize("after", [0, 3])
def test_creation_of_a_queued_run_ends_when_kueue_knows_it_and_a_second_later_unless_it_is_the_last(
    after: int, last: bool, pause: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[Callable[[pulumi.ResourceHookArgs], Any]] = []
    paused: list[float] = []
    answers = [False] * after + [True]

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(pulumi, "ResourceHook", lambda _, call: bound.append(call))
    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(job, "has_workload", lambda *_: answers.pop(0))
    job.wait_for_workload("j", "team", "kubeconfig", last)
    arguments = pulumi.ResourceHookArgs("urn", "id", "j", "t", new_outputs={"metadata": {"uid": "1"}})
    asyncio.run(bound[0](arguments))
    assert paused == [job.PAUSE_SECONDS] * after + pause
    assert not answers


def test_run_without_a_workload_in_time_continues_without_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[Callable[[pulumi.ResourceHookArgs], Any]] = []
    warnings: list[str] = []
    monkeypatch.setattr(pulumi, "ResourceHook", lambda _, call: bound.append(call))
    monkeypatch.setattr(pulumi.log, "warn", warnings.append)
    monkeypatch.setattr(job, "PATIENCE_SECONDS", -1)
    monkeypatch.setattr(job, "has_workload", lambda *_: False)
    job.wait_for_workload("j", "team", "kubeconfig")
    asyncio.run(bound[0](pulumi.ResourceHookArgs("urn", "id", "j", "t", new_outputs={"metadata": {"uid": "1"}})))
    assert "may be admitted first" in warnings[0]


def test_workload_is_found_while_every_thread_of_pulumi_waits_for_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[Callable[[pulumi.ResourceHookArgs], Any]] = []
    monkeypatch.setattr(pulumi, "ResourceHook", lambda _, call: bound.append(call))
    monkeypatch.setattr(job, "has_workload", lambda *_: True)
    job.wait_for_workload("j", "team", "kubeconfig")
    arguments = pulumi.ResourceHookArgs("urn", "id", "j", "t", new_outputs={"metadata": {"uid": "1"}})
    over = threading.Event()

    async def all_wait_for_this_one() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
        waiting = loop.run_in_executor(None, over.wait, 20)
        try:
            await asyncio.wait_for(bound[0](arguments), 10)
        finally:
            over.set()
            await waiting

    asyncio.run(all_wait_for_this_one())


@pytest.mark.parametrize("queue", ["lq", None])
def test_only_a_run_in_a_queue_waits_for_its_place(queue: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[str] = []

    def binding(name: str, *_: object) -> pulumi.ResourceHookBinding:
        waiting.append(name)
        return pulumi.ResourceHookBinding()

    monkeypatch.setattr("gke_ai.components.runs.job.wait_for_workload", binding)
    record(lambda: construct(TpuBatchJob, "x", {**JOB, "queue": queue, "kubeconfig": "k"}), False, monkeypatch)
    assert waiting == (["job x"] if queue else [])


def test_only_the_last_run_of_a_queue_ends_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    lasts: dict[str, bool] = {}

    def binding(name: str, _namespace: str, _kubeconfig: object, last: bool) -> pulumi.ResourceHookBinding:
        lasts[name.rpartition("/")[2]] = last
        return pulumi.ResourceHookBinding()

    monkeypatch.setattr("gke_ai.components.runs.job.wait_for_workload", binding)
    values = {**slices(), "batch": [*slices()["batch"], {"name": "free", "namespace": "team", "pool": "single"}]}
    run_program({f"gke-ai:{key}": value for key, value in values.items()}, False, monkeypatch)
    assert lasts == {"train-3": False, "train-1": False, "train-2": True}
