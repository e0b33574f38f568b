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

from gke_ai.components import MultisliceJob, TpuBatchJob
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

# Of the runs of `slices()`, as 0.3.0 gave them.
NAMES = {"train-3-ea02fd", "train-1-515c5f", "train-2-89a9c9", "host-ef0e85", "hosts-93db4e"}
JOB: dict[str, Any] = {"name": "j", "namespace": "team", "tpu": {"version": "v6e", "topology": "4x4"}}
SET: dict[str, Any] = {
    "name": "s",
    "namespace": "team",
    "queue": "lq",
    "kind": "multislice",
    "slices": 2,
    "tpu": {"version": "v5p", "topology": "2x2x2"},
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


def test_changed_job_is_a_new_one_beside_the_old(build: Build) -> None:
    first, changed = build(TpuBatchJob, JOB), build(TpuBatchJob, JOB, args=["60s"])
    assert first.one("Job").urn != changed.one("Job").urn
    assert first.one("Service").object_name != changed.one("Service").object_name
    for built in (first, changed):
        assert built.one("Job").retained
        assert built.one("Service").retained
        assert built.one("Job").ignored == ("spec",)
        assert built.one("Job").delete_before_replace is False


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


def test_slices_that_are_put_by_name_are_one_run(build: Build) -> None:
    """The variables count all slices of the JobSet. Counted by replicated Job, each slice would be a run by itself."""
    built = build(MultisliceJob, SET, pools_of_slices=["a", "b"], env={"A": "b"})
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
    assert waiting == (["TpuBatchJob x"] if queue else [])


def test_only_the_last_run_of_a_queue_ends_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    lasts: dict[str, bool] = {}

    def binding(name: str, _namespace: str, _kubeconfig: object, last: bool) -> pulumi.ResourceHookBinding:
        lasts[name.rpartition("/")[2]] = last
        return pulumi.ResourceHookBinding()

    monkeypatch.setattr("gke_ai.components.runs.job.wait_for_workload", binding)
    values = {**slices(), "batch": [*slices()["batch"], {"name": "free", "namespace": "team", "pool": "single"}]}
    run_program({f"gke-ai:{key}": value for key, value in values.items()}, False, monkeypatch)
    assert lasts == {"train-3": False, "train-1": False, "train-2": True}
