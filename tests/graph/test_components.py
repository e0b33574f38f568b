"""Each component: the resources that it creates, the fields that it omits, and the arguments that it refuses."""

import asyncio
import itertools
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pulumi
import pytest
import yaml
from pydantic import BaseModel, ValidationError

from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.components import (
    ClusterConnection,
    FinetuneJob,
    KueueStack,
    NodeFlavor,
    VllmServer,
    WorkloadNamespace,
    every_component,
)
from gke_ai.components.arguments import Refused
from gke_ai.components.runs.job import explained
from gke_ai.components.serving import readiness
from gke_ai.components.serving.server import ModelServer
from gke_ai.components.support import cluster_client
from gke_ai.kube.kubeconfig import kubeconfig
from gke_ai.settings import load, model
from tests.support.recorder import PROJECT, ROOT, Record, failed, record

RUN: dict[str, Any] = {"name": "r", "namespace": "llm", "accelerator": "nvidia-l4", "queue": "lq"}
RUN = {"name": "r", "namespace": "llm", "accelerator": "nvidia-l4", "queue": "lq", "volume": {"bucket": "b"}}

Build = Callable[..., Record]


def cluster() -> ClusterConnection:
    return ClusterConnection("theirs", kubeconfig="kubeconfig")


def test_component_takes_the_section_of_the_configuration_and_keyword_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sections of a stack, as `settings.load` reads them or as a Python program builds them."""
    server: dict[str, Any] = {"model": "m", "gpus": 2, "accelerator": "nvidia-l4"}
    loaded = load({"serving": [{"name": "s", "engine": "vllm", **server}]}, PROJECT)

    def of_a_stack() -> None:
        VllmServer.of("x", None, section=loaded.settings.serving[0], placed=loaded.servers[0], cluster=cluster())

    def of_a_program() -> None:
        VllmServer("s", namespace="llm", cluster=cluster(), token_secret=model.TokenSecret(), **server)

    first, second = (record(run, False, monkeypatch).one("Deployment").inputs for run in (of_a_stack, of_a_program))
    assert first == second
    assert first["spec"]["template"]["spec"]["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}


def test_a_component_alone_keeps_no_compiled_code_because_nothing_bounds_who_writes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = model.ModelCache(bucket="b", compile_cache=True)

    def build() -> None:
        server: dict[str, Any] = {"model": "google/gemma-2-2b-it", "gpus": 1, "accelerator": "nvidia-l4"}
        VllmServer("s", namespace="llm", cluster=cluster(), service_account="s", model_cache=cache, **server)

    with pytest.raises(Refused, match=r"(?s)model_cache\.compile_cache.*only the program of a stack creates it"):
        record(build, False, monkeypatch)


SERVER, POOL = {"engine": "vllm", "name": "s", "model": "m"}, {"name": "p", "machine_type": "g2-standard-24"}


@pytest.mark.parametrize(
    ("section", "field", "message"),
    [
        (model.Vllm, {**SERVER, "replicaz": 2}, "replicaz\n  Extra inputs are not permitted"),
        (model.Autoscaling, {"min_nodes": 1}, "maxNodes\n  Field required"),
        (model.GpuPool, {**POOL, "driver": "newest"}, "driver\n  Input should be 'default', 'latest' or 'disabled'"),
        (model.GpuPool, {**POOL, "create_first": True}, "create_first\n  was renamed: write create_before_delete"),
    ],
    ids=["misspelled", "missing", "wrong", "renamed"],
)
def test_a_bad_field_of_a_section_is_refused_with_its_name(
    section: type[BaseModel], field: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=re.escape(f"{section.__name__}\n{message}")):
        section(**field)


def test_quota_that_is_still_to_be_derived_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = model.ClusterQueue(name="q", flavors=[model.FlavorQuota(flavor="l4", quota="derive")])
    flavors = [NodeFlavor("l4")]
    with pytest.raises(ValueError, match="flavor l4: a KueueStack needs the amounts of a quota, not 'derive'"):
        record(lambda: KueueStack("x", cluster=cluster(), flavors=flavors, cluster_queues=[queue]), False, monkeypatch)


def test_each_engine_names_its_component() -> None:
    servers = [component for component in every_component() if issubclass(component, ModelServer)]
    assert {component.__name__ for component in servers} == {engine.component for engine in ENGINES.values()}


def test_example_in_python_creates_its_components(monkeypatch: pytest.MonkeyPatch) -> None:
    pulumi.runtime.set_all_config({"gcp:project": PROJECT, "gke-ai:hfToken": "hf_canary"}, ["gke-ai:hfToken"])
    program = ROOT / "examples" / "python"
    recorded = record(lambda: runpy.run_path(str(program), run_name="__main__"), False, monkeypatch)
    kinds = {resource.type for resource in recorded.resources.values() if resource.type.startswith("gke-ai:")}
    names = ("GkeCluster", "GpuNodePool", "KueueStack", "WorkloadNamespace", "VllmServer")
    assert kinds == {f"gke-ai:index:{name}" for name in names}, "the tokens of the package for other languages"
    server = recorded.one("Deployment")
    assert server.inputs["metadata"]["labels"] == {"app": "gemma", "kueue.x-k8s.io/queue-name": "team"}
    assert {"ClusterQueue gpus", "LocalQueue team", "NodePool l4"} <= recorded.waits_for(server)
    assert recorded.outputs["url"] == "http://gemma.llm.svc.cluster.local:8000"


def test_kubeconfig_holds_no_credential_and_no_certificate_for_a_public_name() -> None:
    named = yaml.safe_load(kubeconfig("c", "gke-1.example.com", None))
    assert named["clusters"][0]["cluster"] == {"server": "https://gke-1.example.com"}
    assert named["users"][0]["user"].keys() == {"exec"}
    assert named["users"][0]["user"]["exec"]["provideClusterInfo"] is True


def test_flavors_of_the_same_resources_are_one_group(build: Build) -> None:
    gpu = {"cpu": "8", "nvidia.com/gpu": "2"}
    quotas = {"spot": gpu, "plain": {"memory": "1Gi"}, "paid": dict(reversed(gpu.items()))}
    flavors = [{"flavor": name, "quota": quota} for name, quota in quotas.items()]
    queue = {"name": "q", "cohort": "all", "flavors": flavors}
    args = {"namespaces": [], "flavors": [{"name": name} for name in quotas], "cluster_queues": [queue]}
    spec = build(KueueStack, args).one("ClusterQueue").inputs["spec"]
    assert spec["cohortName"] == "all"
    groups = spec["resourceGroups"]
    covered = [(group["coveredResources"], [flavor["name"] for flavor in group["flavors"]]) for group in groups]
    assert covered == [(["cpu", "nvidia.com/gpu"], ["spot", "paid"]), (["memory"], ["plain"])]
    for group in groups:
        for flavor in group["flavors"]:
            assert [resource["name"] for resource in flavor["resources"]] == group["coveredResources"]


def test_secret_without_a_token_is_refused(build: Build) -> None:
    with pytest.raises(Refused, match="needs either hf_token or hf_token_from, and neither is set"):
        build(WorkloadNamespace, {"name": "llm", "token_secrets": [{"name": "hf", "key": "k"}]})


def container_of(build: Build, **run: Any) -> dict[str, Any]:
    """The container of a run."""
    (container,) = build(FinetuneJob, RUN, **run).one("Job").inputs["spec"]["template"]["spec"]["containers"]
    return dict(container)


def test_changed_run_is_created_beside_the_old_one_and_writes_to_another_folder(build: Build) -> None:
    first, changed = build(FinetuneJob, RUN), build(FinetuneJob, RUN, epochs=3)
    assert first.one("Job").urn != changed.one("Job").urn
    for recorded in (first, changed):
        job, service = recorded.one("Job"), recorded.one("Service")
        assert (job.retained, service.retained) == (True, True)
        pod = job.inputs["spec"]["template"]["spec"]
        assert service.inputs["spec"]["selector"] == {"job-name": job.object_name}
        assert pod["subdomain"] == service.object_name
        (container,) = pod["containers"]
        assert f"--main_process_ip {job.object_name}-0.{service.object_name} " in container["command"][2]
        assert {"name": "MODEL_PATH", "value": f"/model-data/{job.object_name}"} in container["env"]
    assert first.one("Service").object_name != changed.one("Service").object_name


def test_run_with_a_fixed_name_ignores_fields_that_kueue_owns(build: Build) -> None:
    job = build(FinetuneJob, RUN, fixed_name=True).one("Job")
    assert job.object_name == "r"
    assert job.ignored == ("spec.suspend", "spec.template.spec.nodeSelector", "spec.template.spec.tolerations")
    assert job.delete_before_replace is False, "a refused change would make Pulumi forget the run that there is"


@pytest.mark.parametrize(
    ("fixed", "said"), [(True, "change its `name` or remove `fixedName`"), (False, "is still in the cluster")]
)
def test_a_run_that_exists_already_is_named_with_the_command_that_deletes_it(
    fixed: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    bound: list[Callable[[pulumi.ErrorHookArgs], bool]] = []
    monkeypatch.setattr(pulumi.log, "error", messages.append)
    monkeypatch.setattr(pulumi, "ErrorHook", lambda _, call: bound.append(call))
    run = model.FineTune.model_validate({**RUN, "queue": None, "fixed_name": fixed})
    explained(run, "x")
    (explain,) = bound
    assert explain(failed("forbidden")) is False
    assert messages == []
    assert explain(failed('jobs.batch "r" already exists')) is False
    (message,) = messages
    assert said in message
    service = run.service_name + run.object_name.removeprefix("r")
    command = f"kubectl -n {run.namespace} delete --ignore-not-found job/{run.object_name} service/{service}"
    assert message.endswith(command), "both stay, and each would stop the next up"
    assert explain(failed("field is immutable")) is False
    assert len(messages) == 1 + fixed


@pytest.mark.parametrize(("index", "kept"), [("0", ["checkpoint-10"]), ("1", ["checkpoint-10", "checkpoint-20"])])
def test_first_pod_deletes_incomplete_checkpoints_before_it_trains(
    index: str, kept: list[str], build: Build, tmp_path: Path
) -> None:
    """Runs the real command, with a stub for `accelerate`."""
    (tmp_path / "accelerate").write_text('#!/bin/sh\ncd "$MODEL_PATH" && echo trains with *\n')
    (tmp_path / "accelerate").chmod(0o755)
    folder = tmp_path / "a folder"
    for name in ("checkpoint-10", "checkpoint-20"):
        (folder / name).mkdir(parents=True)
        (folder / name / "model.safetensors").touch()
    (folder / "checkpoint-10" / "trainer_state.json").touch()
    command = container_of(build)["command"]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "MODEL_PATH": str(folder), "JOB_COMPLETION_INDEX": index}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"trains with {' '.join(kept)}"


def test_incomplete_checkpoints_stay_if_configured_or_with_a_fixed_name(build: Build) -> None:
    for kept in ({"remove_incomplete_checkpoints": False}, {"fixed_name": True}):
        assert container_of(build, **kept)["command"][2].startswith("accelerate launch")
    removed = container_of(build, fixed_name=True, remove_incomplete_checkpoints=True)
    assert "trainer_state.json" in removed["command"][2]


def test_run_has_one_process_per_gpu(build: Build) -> None:
    job = build(FinetuneJob, RUN, pods=3, gpus_per_pod=4).one("Job").inputs["spec"]
    assert (job["completions"], job["parallelism"]) == (3, 3)
    (container,) = job["template"]["spec"]["containers"]
    assert "--num_processes 12 \\\n--num_machines 3 \\\n" in container["command"][2]


# --- the first replica ------------------------------------------------------------------------------------------------
WANTED = model.Tgi(engine="tgi", name="s", model="m", queue="lq", ready_timeout_seconds=10)


def deployment(available: int = 0, observed: int = 1, revision: str = "1", **status: Any) -> dict[str, Any]:
    metadata = {"name": "s", "uid": "d", "generation": 1, "annotations": {readiness.REVISION: revision}}
    return {"metadata": metadata, "status": {"observedGeneration": observed, "availableReplicas": available, **status}}


def replica_set(available: int = 0, revision: str = "1", owner: str = "d") -> dict[str, Any]:
    annotations = {readiness.REVISION: revision}
    metadata = {"uid": f"set-{revision}", "ownerReferences": [{"uid": owner}], "annotations": annotations}
    return {"metadata": metadata, "status": {"availableReplicas": available}}


def pod(
    name: str = "p", gated: bool = False, scheduled: str | None = None, revision: str = "1", **status: Any
) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "False", "message": scheduled}] if scheduled else []
    if scheduled == "":
        conditions = [{"type": "PodScheduled", "status": "True"}]
    return {
        "metadata": {"name": name, "uid": name, "ownerReferences": [{"uid": f"set-{revision}"}]},
        "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}] if gated else [], "nodeName": "n"},
        "status": {"conditions": conditions, **status},
    }


def workload(owner: str, message: str) -> dict[str, Any]:
    conditions = [{"type": "QuotaReserved", "status": "False", "message": message}]
    return {"metadata": {"ownerReferences": [{"uid": owner}]}, "status": {"conditions": conditions}}


NO_IMAGE = {"reason": "ImagePullBackOff", "message": "not found"}
PULLING: dict[str, Any] = {"containerStatuses": [{"state": {"waiting": NO_IMAGE}}]}
LOADING: dict[str, Any] = {"containerStatuses": [{"state": {"running": {}}}]}
REPLICA_FAILURE = [{"type": "ReplicaFailure", "message": "exceeded quota"}]
ROLLING = deployment(1, revision="2", updatedReplicas=1)
PODS = [pod("old", **LOADING), pod("new", revision="2", **PULLING)]
UNSEEN, UNSCHEDULED = "quota: Kueue has not looked at the pod yet", "capacity: the pod is not scheduled yet"
LOADS = "the model to be loaded: the container runs and does not pass its readiness probe yet"
NO_PULL = "its container to start: ImagePullBackOff not found"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ((deployment(1), [replica_set(1)], [pod()], []), None),
        ((deployment(1), [replica_set(1)], [pod(), pod(gated=True)], []), None),
        ((deployment(1, observed=0), [replica_set(1)], [pod(scheduled="x")], []), "its Deployment to be rolled out"),
        ((deployment(1, revision="2"), [replica_set(1)], [pod()], []), "its Deployment to be rolled out"),
        ((deployment(), [replica_set()], [], []), "its pods to be created"),
        ((deployment(conditions=REPLICA_FAILURE), [replica_set()], [], []), "its pods to be created: exceeded quota"),
        ((deployment(), [replica_set()], [pod(gated=True)], [workload("p", "no quota")]), "quota: no quota"),
        ((deployment(), [replica_set()], [pod(gated=True)], [workload("other", "else")]), UNSEEN),
        ((deployment(), [replica_set()], [pod(scheduled="0/3 nodes. preemption: 0/3")], []), "capacity: 0/3 nodes."),
        ((deployment(), [replica_set()], [pod(scheduled="")], []), "its container to start on n"),
        ((deployment(), [replica_set()], [pod(**PULLING)], []), NO_PULL),
        ((deployment(), [replica_set()], [pod(**LOADING)], []), LOADS),
        ((deployment(), [replica_set()], [pod(gated=True), pod("b", **LOADING)], []), LOADS),
        # The ReplicaSet of another Deployment with the same label does not count.
        ((deployment(), [replica_set(1, owner="other"), replica_set()], [pod()], []), UNSCHEDULED),
        # With a broken new image the old pod keeps serving, but its readiness does not count.
        ((ROLLING, [replica_set(1), replica_set(0, "2")], PODS, []), f"{NO_PULL}; its earlier replicas keep serving"),
        ((ROLLING, [replica_set(1), replica_set(1, "2")], PODS, []), None),
    ],
)
def test_server_reports_why_it_waits(found: tuple[Any, Any, Any, Any], reason: str | None) -> None:
    assert readiness.waits_for(*found) == reason


def wait(*states: Any) -> mock.Mock:
    """Waits in a cluster that returns one state after the other, and then keeps the last."""
    cluster = mock.Mock()
    cluster.look.side_effect = itertools.chain(states, itertools.repeat(states[-1]))
    asyncio.run(readiness.wait_for(WANTED, cluster, mock.Mock()))
    return cluster


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A clock that advances only in sleeps. Returns the logged messages."""
    now = [0.0]
    messages: list[str] = []

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr("gke_ai.components.support.polling.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(pulumi.log, "info", lambda text, **_: messages.append(text))
    return messages


def test_ready_server_is_read_only_once_by_a_watch_that_survives_an_api_without_an_answer(clock: list[str]) -> None:
    ready: Any = (deployment(1), [replica_set(1)], [pod()], [])
    assert wait(ready).look.call_count == 1
    assert clock == []
    wait(*[ConnectionError("connection refused\nmore")] * 6, ready)
    assert clock == ["llm/s waits for the cluster to answer: connection refused"]


@pytest.mark.parametrize("preview", [True, False])
def test_client_is_loaded_while_the_engine_works_but_not_for_a_preview(
    preview: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = mock.Mock()
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: preview)
    monkeypatch.setattr("gke_ai.components.support.cluster_client._THREADS", threads)
    cluster_client.load_client.cache_clear()
    for _ in range(2):
        cluster_client.load_client()
    assert [call.args[1] for call in threads.submit.call_args_list] == ([] if preview else ["kubernetes.client"])


def test_server_that_is_never_ready_fails_the_update_with_a_remedy(clock: list[str]) -> None:
    with pytest.raises(pulumi.RunError, match="quota: full") as failure:
        wait((deployment(), [replica_set()], [pod(gated=True)], [workload("p", "full")]))
    assert "readyTimeoutSeconds" in str(failure.value)
    assert "after 10 s" in str(failure.value)
    assert clock == ["llm/s waits for quota: full"], "said once, not at every look"


def test_the_modules_of_components_load_no_resource_class() -> None:
    """Those of core/v1 and container take a third of the time to the first registration."""
    code = "import sys, gke_ai.components; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"pulumi_kubernetes.core.v1", "pulumi_gcp.container._inputs"} & {*done.stdout.split()}
