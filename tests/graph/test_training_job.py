"""Training runs of any image: what their JobSet says, and that a run happens once."""

import asyncio
import json
import runpy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pulumi
import pytest

from gke_ai.catalog import checkpoints
from gke_ai.catalog.machines import features
from gke_ai.catalog.nodes.shape import RECORDED_NODES
from gke_ai.components import TrainingJob
from gke_ai.components.runs import run_record
from gke_ai.components.runs.run_client import RunClient
from gke_ai.ops.doctor import needs
from gke_ai.settings import load
from gke_ai.settings.model import TrainingRun
from gke_ai.settings.rules.warnings import long_grace_periods
from tests.support.mistakes import base
from tests.support.recorder import PROJECT, ROOT, Record, configuration, run_program, shared_record

training = partial(base, "training", "training")
PLACE = {"namespace": "llm", "queue": "lq", "accelerator": "nvidia-l4"}
RUN: dict[str, Any] = {**PLACE, "kind": "job", "name": "pretrain", "image": "i:1", "pods": 2, "gpusPerPod": 2}
CHECKPOINTS = {"bucket": "saved", "keep": 3}
Build = Callable[..., Record]


@pytest.fixture
def create(build: Build) -> Build:
    """Creates a `TrainingJob` with some keys of its section."""
    return partial(build, TrainingJob, RUN)


def deploy(values: dict[str, Any]) -> Record:
    """The record of the program with a configuration."""
    return shared_record({f"gke-ai:{key}": value for key, value in values.items()})


@pytest.mark.parametrize(
    ("mode", "seconds", "warns"),
    [("spot", 600, True), ("spot", 15, False), ("spot", None, False), ("onDemand", 600, False)],
)
def test_a_grace_period_that_spot_nodes_do_not_have_is_warned_of(mode: str, seconds: int | None, warns: bool) -> None:
    values, key = training(), "terminationGracePeriodSeconds"
    for pool in values["gpuPools"]:
        pool["capacity"] = {"mode": mode}
    others = {name: value for name, value in values["training"][0].items() if name != key}
    values["training"][0] = others if seconds is None else {**others, key: seconds}
    found = long_grace_periods(load(values, PROJECT).placed)
    assert [text.partition(": ")[0] for text in found] == ([f"gke-ai:training[0].{key}"] if warns else [])
    assert all("only 15 s" in text and "600 s" in text for text in found)


def pod(record: Record) -> dict[str, Any]:
    """Spec of the run's pods."""
    (replicated,) = record.one("JobSet").inputs["spec"]["replicatedJobs"]
    assert replicated["replicas"] == 1
    spec: dict[str, Any] = replicated["template"]["spec"]["template"]["spec"]
    return spec


def variables(record: Record) -> dict[str, Any]:
    """Environment of the container: values, or where they come from."""
    (container,) = pod(record)["containers"]
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in container["env"]}


def test_variables_of_the_program_are_those_that_nobody_else_may_set(create: Build) -> None:
    saved = variables(create(checkpoints=CHECKPOINTS, resumeFrom="other"))
    assert saved.keys() == TrainingRun.model_validate(RUN).set_variables.keys()
    assert variables(create(env={"A": "b"}))["A"] == "b"


def test_run_has_a_directory_of_its_own_for_checkpoints(create: Build) -> None:
    built = create(checkpoints=CHECKPOINTS, terminationGracePeriodSeconds=90)
    seen, folder = variables(built), f"/checkpoints/{built.one('JobSet').object_name}"
    expected = {checkpoints.DIRECTORY: folder, checkpoints.KEEP: "3", checkpoints.GRACE_SECONDS: "90"}
    assert {name: seen[name] for name in expected} == expected
    assert pod(built)["terminationGracePeriodSeconds"] == 90
    assert checkpoints.RESUME_FROM not in seen
    stated = variables(create(checkpoints={**CHECKPOINTS, "path": "a/b"}, resumeFrom="c"))
    assert stated[checkpoints.DIRECTORY] == "/checkpoints/a/b"
    assert stated[checkpoints.RESUME_FROM] == "/checkpoints/c"


def test_outputs_name_the_run_and_its_checkpoints() -> None:
    built = deploy(training())
    name, folder = built.one("JobSet").object_name, "gs://checkpoints/pretrain/first"
    job = {"name": name, "namespace": "llm", "kind": "JobSet", "runKind": "job", "checkpoints": folder}
    assert built.outputs["jobs"] == [job]


def test_a_further_pool_with_the_same_gpus_does_not_move_a_run() -> None:
    values = training()
    selector = {"cloud.google.com/gke-accelerator": "nvidia-l4", "cloud.google.com/gke-nodepool": "l4"}
    assert load(values, PROJECT).placed_runs[0].node_selector == selector
    values["gpuPools"].append({**values["gpuPools"][0], "name": "other"})
    assert load(values, PROJECT).placed_runs[0].node_selector == selector


def test_derived_quota_holds_the_run() -> None:
    values = training()
    values["training"][0]["pods"] = 3
    (run,) = load(values, PROJECT).placed_runs
    assert (run.section.accelerator_resource, run.accelerators, run.pods_at_once) == ("nvidia.com/gpu", 2, 3)
    assert str(run.node_request["memory"]) == str(34 * 2**30), "with the sidecar"


def on_autopilot() -> dict[str, Any]:
    """The run where Google creates the nodes, with dashboards."""
    values = training()
    values["cluster"] = {"mode": "autopilot", "location": "us-central1"}
    del values["gpuPools"], values["serving"]
    values["queues"]["flavors"] = [{"name": "l4", "accelerator": "nvidia-l4"}]
    quota = {"cpu": 32, "memory": "256Gi", "nvidia.com/gpu": 4, "ephemeral-storage": "100Gi"}
    values["queues"]["clusterQueues"][0]["flavors"][0]["quota"] = quota
    values["monitoring"] = {}
    values["training"][0] |= {"pool": None, "accelerator": "nvidia-l4"}
    return values


def test_doctor_asks_for_all_gpus_of_a_run_and_for_metrics_of_jobsets() -> None:
    stack = load(on_autopilot(), PROJECT)
    (need,) = needs.quotas(stack)
    assert need.count == needs.gpus_everywhere(stack) == 4
    assert features.JOBSET_METRICS in needs.gke_features(stack)


def test_dashboards_show_the_jobset() -> None:
    boards = [board.inputs["dashboardJson"] for board in deploy(on_autopilot()).all("Dashboard")]
    assert any("kube_jobset_restarts" in board for board in boards)


def test_tenant_may_have_a_training_job() -> None:
    tenant = {"name": "llm", "priorityClasses": ["low", "high"], "members": ["user:ada@example.com"]}
    rules = json.dumps(deploy({**training(), "tenants": [tenant]}).one("ValidatingAdmissionPolicy").inputs)
    assert '"datasets", "checkpoints"' in rules.replace('\\"', '"'), "its pods may mount both buckets"


def test_name_follows_from_the_content_and_not_from_the_nodes() -> None:
    def name(**more: Any) -> str:
        return TrainingRun.model_validate(RUN | more).object_name

    # As the first version with this kind gave it. A later version must give the same.
    assert name() == "pretrain-eb2866"
    assert name(pods=2, maxRestarts=4, rendezvousPort=29500) == name(), "a default that is set is no change"
    assert name(image="i:2") != name()
    assert name(checkpoints=CHECKPOINTS) != name()
    assert name(pool="a") == name(pool="b") == name(accelerator="nvidia-l4") == name(computeClass="c") == name()


def bound(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[pulumi.ResourceHookArgs], Any]]:
    """The hooks that are bound from now on."""
    hooks: list[Callable[[pulumi.ResourceHookArgs], Any]] = []
    monkeypatch.setattr(pulumi, "ResourceHook", lambda _, call: hooks.append(call))
    return hooks


def cluster(recorded: bool = False, ending: int = 0) -> mock.Mock:
    """A client of a cluster in which a run is recorded or not, and its pods end after some questions."""
    client = mock.Mock()
    client.return_value.has_record.return_value = recorded
    client.return_value.stop.side_effect = [*["2 pods are still ending"] * ending, None]
    return client


def test_recorded_run_is_never_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = bound(monkeypatch)
    run_record.only_once("jobset j", "llm", "j-1a2b3c", "kubeconfig")
    (refuse,) = hooks
    args = pulumi.ResourceHookArgs("urn", "id", "j", "t")
    monkeypatch.setattr(run_record, "RunClient", cluster(recorded=False))
    asyncio.run(refuse(args))
    monkeypatch.setattr(run_record, "RunClient", cluster(recorded=True))
    with pytest.raises(pulumi.RunError) as refused:
        asyncio.run(refuse(args))
    assert str(refused.value) == (
        "The run llm/j-1a2b3c was created before, and its JobSet was deleted. A run happens only once. Remove it, or "
        "give it another name to run it again."
    )


def test_record_of_a_run_comes_after_its_jobset_and_says_where_it_runs(create: Build) -> None:
    built = create(node_selector={"a": "b"}, queued_seconds=60, kubeconfig="kubeconfig")
    jobset = built.one("JobSet")
    configmap = built.one("ConfigMap", jobset.object_name)
    assert jobset.urn in configmap.dependencies
    assert not configmap.retained, "a run that is removed and added again is one that somebody wants"
    nodes = json.loads(configmap.inputs["metadata"]["annotations"]["gke-ai/nodes"])
    assert nodes["nodeSelector"] == {"a": "b"} == pod(built)["nodeSelector"]
    assert nodes["tolerations"] == pod(built)["tolerations"]


NODES: list[dict[str, Any]] = [
    {"metadata": {"annotations": {RECORDED_NODES: json.dumps({"nodeSelector": {"a": name}, "tolerations": []})}}}
    for name in "bc"
]


def moving(client: mock.Mock, after: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates the record of a run on the first of `NODES`, in a cluster."""
    hooks = bound(monkeypatch)
    monkeypatch.setattr(run_record, "RunClient", client)
    monkeypatch.setattr(run_record, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(pulumi.log, "info", lambda *_: None)
    run_record.moves("run j", "llm", "j-1a2b3c", 60, "kubeconfig")
    (move,) = hooks
    asyncio.run(move(pulumi.ResourceHookArgs("urn", "id", "j", "t", old_inputs=NODES[0], new_inputs=after)))


def test_run_whose_nodes_change_moves_when_its_pods_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    client = cluster(ending=3)
    moving(client, NODES[0], monkeypatch)
    assert client.return_value.mock_calls == [], "its nodes stay"
    moving(client, NODES[1], monkeypatch)
    moved = mock.call.move({"nodeSelector": {"a": "c"}, "tolerations": []})
    assert client.return_value.mock_calls == [*[mock.call.stop()] * 4, moved]


def test_run_whose_pods_do_not_end_is_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_record, "PATIENCE_SECONDS", -1000)
    client = cluster(ending=3)
    with pytest.raises(pulumi.RunError, match=r"can't move to other nodes yet: 2 pods are still ending\. Run up again"):
        moving(client, NODES[1], monkeypatch)
    client.return_value.move.assert_not_called()


class Known(RunClient):
    """A client of a cluster with this JobSet, this Workload and so many running pods. It notes what it changes."""

    def __init__(self, jobset: Any = None, workload: Any = None, pods: int = 0) -> None:
        self._name, self._namespace = "j", "llm"
        self.found, self.workload, self.pods = jobset, workload, pods
        self.changes: list[Any] = []

    def _jobset(self) -> Any:
        return self.found

    def _workload(self, jobset: Any) -> Any:
        return self.workload

    def _running_pods(self) -> int:
        return self.pods

    def _delete_child_jobs(self) -> None:
        self.changes.append("child Jobs deleted")

    def _call(self, *args: Any, **options: str) -> None:
        self.changes.append((*args, *options.values()))


QUEUED = {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}


def state(queued: bool = True, suspended: bool = False, ended: str = "") -> dict[str, Any]:
    """A JobSet."""
    return {"metadata": QUEUED if queued else {}, "spec": {"suspend": suspended}, "status": {"terminalState": ended}}


# The Workload of the JobSet.
ACTIVE, INACTIVE = ({"metadata": {"name": "w"}, "spec": {"active": active}} for active in (True, False))


DEACTIVATED = ("patch", "kueue.x-k8s.io/v1beta2", "workloads", "w", {"spec": {"active": False}})
SUSPENDED, RESUMED = (
    ("patch", "jobset.x-k8s.io/v1alpha2", "jobsets", "j", {"spec": {"suspend": suspend}}) for suspend in (True, False)
)
WORKLOAD_DELETED = ("delete", "kueue.x-k8s.io/v1beta2", "workloads", "w")


@pytest.mark.parametrize(
    ("client", "reason", "changes"),
    [
        pytest.param(Known(None), None, [], id="gone"),
        pytest.param(Known(state(ended="Completed")), None, [], id="ended"),
        pytest.param(Known(state(), ACTIVE), "Kueue has not suspended it yet", [DEACTIVATED], id="running"),
        pytest.param(Known(state(), INACTIVE), "it is not suspended yet", [], id="deactivated"),
        pytest.param(Known(state(queued=False)), "it is not suspended yet", [SUSPENDED], id="without a queue"),
        pytest.param(Known(state(suspended=True), INACTIVE, 2), "2 pods are still ending", [], id="pods end"),
        pytest.param(Known(state(suspended=True), INACTIVE), None, [], id="stopped"),
    ],
)
def test_run_is_stopped_step_by_step(client: Known, reason: str | None, changes: list[Any]) -> None:
    assert client.stop() == reason
    assert [change[: len(SUSPENDED)] for change in client.changes] == changes


@pytest.mark.parametrize(
    ("client", "last"),
    [
        pytest.param(Known(state(suspended=True), INACTIVE), WORKLOAD_DELETED, id="queued"),
        pytest.param(Known(state(queued=False, suspended=True)), RESUMED, id="without a queue"),
        pytest.param(Known(state(suspended=True)), "child Jobs deleted", id="not yet known to Kueue"),
    ],
)
def test_stopped_run_starts_again_on_its_new_nodes(client: Known, last: Any) -> None:
    client.move({"nodeSelector": {"a": "c"}, "tolerations": []})
    path = "/spec/replicatedJobs/0/template/spec/template/spec/nodeSelector"
    assert client.changes[0][4][0] == {"op": "add", "path": path, "value": {"a": "c"}}
    assert client.changes[0][5] == "application/json-patch+json"
    assert client.changes[1] == "child Jobs deleted"
    assert client.changes[-1][: len(last)] == last


@pytest.mark.parametrize("jobset", [None, state(suspended=True, ended="Completed")], ids=["gone", "ended"])
def test_run_that_has_ended_is_not_moved(jobset: Any) -> None:
    client = Known(jobset)
    client.move({"nodeSelector": {}, "tolerations": []})
    assert client.changes == []


def test_names_are_those_of_the_checkpoint_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = runpy.run_path(str(ROOT / "examples" / "training" / "checkpoints.py"), run_name="checkpoints")
    assert (module["EXIT_SAVED"], module["MARKER"]) == (checkpoints.EXIT_SAVED, checkpoints.MARKER)
    folder, other = tmp_path / "run", tmp_path / "other"
    numbers = {checkpoints.KEEP: "3", checkpoints.GRACE_SECONDS: "90"}
    for name, value in {checkpoints.DIRECTORY: folder, checkpoints.RESUME_FROM: other, **numbers}.items():
        monkeypatch.setenv(name, str(value))
    run = module["Checkpoints"].from_environment()
    assert (run.keep, run.grace_seconds, run.resume_from) == (3, 90, other)
    run.start_writing()
    for step in (10, 20):
        run.save(step, {"rank-00000": lambda file: file.write(b"state")})
    newest = checkpoints.newest([str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()])
    assert newest is not None
    assert newest.step == 20
    assert (folder / newest.name).is_dir()


def test_newest_checkpoint_is_the_complete_one_of_the_highest_step() -> None:
    complete = [f"step-00000{step}/COMPLETE" for step in ("090-000001", "100-000001", "100-000002")]
    incomplete = [f"step-00000{name}" for name in ("110-000002/rank-00000.npz", "120-000002/COMPLETE/other")]
    names = ["writers/000002-5f0c", *complete, "step-00000100-000002/rank-00000.npz", *incomplete]
    assert checkpoints.newest(names) == checkpoints.Checkpoint("step-00000100-000002", 100)
    assert checkpoints.newest([]) is None
    transformers = ["checkpoint-20/trainer_state.json", "checkpoint-9/trainer_state.json", "checkpoint-30/model.bin"]
    assert checkpoints.newest(transformers) == checkpoints.Checkpoint("checkpoint-20", 20)


def test_a_number_of_thousands_of_digits_names_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration("examples/training-job.yaml")
    config["gke-ai:training"] = json.dumps(config["gke-ai:training"]).replace('"keep": 3', f'"keep": {"9" * 5000}')
    message = r"gke-ai:training\[0\].checkpoints.keep: the value is a number, and must"
    with pytest.raises(pulumi.RunError, match=message):
        run_program(config, True, monkeypatch)
