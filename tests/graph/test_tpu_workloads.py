"""Batch Jobs and Multislice runs: where their pods run, how slices form one run, and queued provisioning."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest import mock

import pulumi
import pytest

from gke_ai.components import MultisliceJob, TpuBatchJob
from gke_ai.components.runs import job
from gke_ai.components.runs.job import explained
from gke_ai.settings import ResolvedStack, load
from gke_ai.settings.model import Multislice, TpuBatch
from gke_ai.settings.resolved.needs import external_hosts
from tests.support.mistakes import base
from tests.support.recorder import PROJECT, Record, Registration, failed, run_program, shared_record

BASES = ("slices", "queued", "growing", "on_autopilot", "with_bucket")
slices, queued, growing, on_autopilot, with_bucket = (partial(base, "tpu_workloads", name) for name in BASES)

# Of the runs of `slices()`, as 0.3.0 gave them.
NAMES = {"train-3-ea02fd", "train-1-515c5f", "train-2-89a9c9", "host-ef0e85", "hosts-93db4e"}
JOB: dict[str, Any] = {"name": "j", "namespace": "team", "tpu": {"version": "v6e", "topology": "4x4"}}
SLICES = {"slices": 2, "tpu": {"version": "v5p", "topology": "2x2x2"}}
SELECTOR = {"cloud.google.com/gke-tpu-topology": "2x4"}
QUEUED = {"namespace": "team", "queue": "lq", "node_selector": SELECTOR}
SET: dict[str, Any] = {"name": "s", "kind": "multislice", **SLICES, **QUEUED}
Build = Callable[..., Record]
Hook = Callable[[pulumi.ResourceHookArgs], Any]
CREATED = pulumi.ResourceHookArgs("urn", "id", "j", "t", new_outputs={"metadata": {"uid": "1"}})


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[Hook]:
    """The hooks that are bound during a test."""
    hooks: list[Hook] = []
    for kind in ("ErrorHook", "ResourceHook"):
        monkeypatch.setattr(pulumi, kind, lambda _, call: hooks.append(call))
    return hooks


def loaded(values: dict[str, Any]) -> ResolvedStack:
    return load(values, PROJECT, token_given=False)


def test_runs_are_kept_off_pools_that_only_look_alike() -> None:
    values = slices()
    # A single-host pool of 8-chip machines has the same labels of accelerator and topology.
    assert loaded(values).of(Multislice)[0].only_pools == ["one", "two", "three"]
    del values["tpuPools"][3], values["batch"][0]
    assert loaded(values).of(Multislice)[0].only_pools == []


@pytest.mark.parametrize(
    ("values", "pools"),
    [(slices(), [[], [], []]), (growing(), [["one"], ["one", "two"]]), (on_autopilot(), [[], [], []])],
    ids=["fixed", "elastic", "without"],
)
def test_only_slices_that_grow_have_their_pool_by_name(values: Any, pools: list[list[str]]) -> None:
    assert [run.pool_of_slice for run in loaded(values).of(Multislice)] == pools


def test_bound_of_a_queued_run_is_its_own_or_its_pools() -> None:
    stack = loaded(queued())
    (train,), (batch,) = stack.of(Multislice), stack.of(TpuBatch)
    assert (train.queued_seconds, batch.queued_seconds) == (7200, 3600)
    assert loaded(slices()).of(TpuBatch)[1].queued_seconds is None


def test_name_of_a_run_follows_from_its_content() -> None:
    job = {"name": "j", "pool": "p"}
    first, second = (TpuBatch.model_validate({**job, "args": [text]}) for text in ("3600s", "60s"))
    assert first.object_name != second.object_name
    assert first.model_copy(update={"fixed_name": True}).object_name == "j"


def test_changed_job_is_a_new_one_beside_the_old(build: Build) -> None:
    records = build(TpuBatchJob, JOB), build(TpuBatchJob, JOB, args=["60s"])
    assert len({built.one("Job").urn for built in records}) == 2
    assert len({built.one("Service").object_name for built in records}) == 2
    for built in records:
        job = built.one("Job")
        assert (job.retained, job.ignored, job.delete_before_replace) == (True, ("spec",), False)
        assert built.one("Service").retained


SET_OF_ONE = Multislice(name="r", kind="multislice", slices=1, fixed_name=True)


@pytest.mark.parametrize(
    ("run", "error", "kind"),
    [
        (TpuBatch(name="r", pool="p", fixed_name=True), 'jobs.batch "r" already exists', "job"),
        (SET_OF_ONE, "spec.replicatedJobs: Invalid value: field is immutable", "jobset"),
    ],
    ids=["Job", "JobSet"],
)
def test_refused_change_of_a_fixed_name_is_explained(
    run: Any, error: str, kind: str, bound: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(pulumi.log, "error", messages.append)
    explained(run, "x")
    assert [bound[0](failed(text)) for text in (error, "forbidden")] == [False, False]
    (text,) = messages
    assert "change its `name`" in text
    assert f"delete --ignore-not-found {kind}/r" in text


def test_namespace_of_a_run_gets_the_secret_that_it_reads() -> None:
    built = shared_record({f"gke-ai:{key}": value for key, value in with_bucket().items() if key != "hfTokenSecret"})
    secret = built.one("Secret")
    assert (secret.inputs["metadata"]["namespace"], secret.object_name) == ("team", "hf-secret")
    (job,) = [job for job in built.all("Job") if job.object_name.startswith("host-")]
    (container,) = job.inputs["spec"]["template"]["spec"]["containers"]
    key = {"name": "hf-secret", "key": "hf_api_token"}
    assert container["env"] == [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": key}}]


def test_sidecar_of_a_run_takes_its_share_of_the_node() -> None:
    job, without = loaded(with_bucket()).of(TpuBatch)
    assert job.node_request["memory"] == 35 * 2**30
    assert "memory" not in without.node_request


def test_hugging_face_is_reached_by_a_run_that_reads_the_token() -> None:
    assert external_hosts(loaded(with_bucket()))["huggingface.co"] == "train-3"
    assert "huggingface.co" not in external_hosts(loaded(slices()))


def test_new_keys_that_are_not_set_change_no_name() -> None:
    assert {run.object_name for run in loaded(slices()).runs} == NAMES
    changed = {run.object_name for run in loaded(with_bucket()).runs} - NAMES
    assert {name.rpartition("-")[0] for name in changed} == {"train-3", "host"}


def test_slices_that_are_put_by_name_are_one_run(build: Build) -> None:
    """The variables count all slices of the JobSet. Counted by replicated Job, each slice would be a run by itself."""

    def env(jobset: Registration) -> list[Any]:
        specs = [item["template"]["spec"]["template"]["spec"] for item in jobset.inputs["spec"]["replicatedJobs"]]
        return [spec["containers"][0].get("env") for spec in specs]

    jobset = build(MultisliceJob, SET, pools_of_slices=["a", "b"], env={"A": "b"}).one("JobSet")
    labels = {"MEGASCALE_NUM_SLICES": "global-replicas", "MEGASCALE_SLICE_ID": "job-global-index"}
    path = "metadata.labels['jobset.sigs.k8s.io/{}']".format
    read = {name: {"fieldRef": {"fieldPath": path(label)}} for name, label in labels.items()}
    values = {"MEGASCALE_COORDINATOR_ADDRESS": f"{jobset.object_name}-slice-0-0-0.{jobset.object_name}", "A": "b"}
    for variables in env(jobset):
        found = {item["name"]: item.get("value", item.get("valueFrom")) for item in variables}
        assert found == read | values
    assert len(env(jobset)) == 2
    assert env(build(MultisliceJob, SET).one("JobSet")) == [None], "GKE tells the Jobs of one replicated Job"


@pytest.mark.parametrize(("last", "pause"), [(False, [1]), (True, [])])
@pytest.mark.parametrize("after", [0, 3])
def test_creation_of_a_queued_run_ends_when_kueue_knows_it_and_a_second_later_unless_it_is_the_last(
    after: int, last: bool, pause: list[float], bound: list[Hook], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, sleep = [False] * after + [True], mock.AsyncMock()
    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(job, "has_workload", lambda *_: answers.pop(0))
    job.wait_for_workload("j", "team", "kubeconfig", last)
    asyncio.run(bound[0](CREATED))
    assert [call.args[0] for call in sleep.await_args_list] == [job.PAUSE_SECONDS] * after + pause
    assert not answers


def test_run_without_a_workload_in_time_loses_its_place(bound: list[Hook], monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", warnings.append)
    monkeypatch.setattr(job, "PATIENCE_SECONDS", -1)
    monkeypatch.setattr(job, "has_workload", lambda *_: False)
    job.wait_for_workload("j", "team", "kubeconfig")
    asyncio.run(bound[0](CREATED))
    assert "may be admitted first" in warnings[0]


def test_workload_is_found_while_all_threads_of_pulumi_wait(bound: list[Hook], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "has_workload", lambda *_: True)
    job.wait_for_workload("j", "team", "kubeconfig")
    over = threading.Event()

    async def all_wait_for_this_one() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
        waiting = loop.run_in_executor(None, over.wait, 20)
        try:
            await asyncio.wait_for(bound[0](CREATED), 10)
        finally:
            over.set()
            await waiting

    asyncio.run(all_wait_for_this_one())


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """What binds a run to the hook that waits for its place."""
    wait_for_workload = mock.Mock(return_value=pulumi.ResourceHookBinding())
    monkeypatch.setattr(job, "wait_for_workload", wait_for_workload)
    return wait_for_workload


@pytest.mark.parametrize(("queue", "waiting"), [("lq", ["TpuBatchJob x"]), (None, [])])
def test_only_a_run_in_a_queue_waits(queue: str | None, waiting: list[str], wait: mock.Mock, build: Build) -> None:
    build(TpuBatchJob, JOB, queue=queue, kubeconfig="k")
    assert [call.args[0] for call in wait.call_args_list] == waiting


def test_last_run_of_a_queue_ends_without_a_pause(wait: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {**slices(), "batch": [*slices()["batch"], {"name": "free", "namespace": "team", "pool": "single"}]}
    run_program({f"gke-ai:{key}": value for key, value in values.items()}, False, monkeypatch)
    lasts = {call.args[0].rpartition("/")[2]: call.args[3] for call in wait.call_args_list}
    assert lasts == {"train-3": False, "train-1": False, "train-2": True}


def test_pools_of_a_multislice_run_that_are_names_are_the_only_ones_of_its_pods(build: Build) -> None:
    (slices,) = build(MultisliceJob, SET, pools=["a", "b"]).one("JobSet").inputs["spec"]["replicatedJobs"]
    affinity = slices["template"]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "cloud.google.com/gke-nodepool", "operator": "In", "values": ["a", "b"]}
    ]
