"""The commands on runs, on recorded objects: what would lose a run, repeat it or mislead a person."""

import io
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client import ApiException
from rich.console import Console

from gke_ai.catalog.checkpoints import Checkpoint
from gke_ai.catalog.engines import fuse
from gke_ai.kube.client import Answer
from gke_ai.ops.doctor import requests
from gke_ai.ops.runs import checkpoints, logs
from gke_ai.ops.runs import command as runs
from gke_ai.ops.runs.command import Run
from gke_ai.ops.status import command as status
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack

OUTPUT = {"name": "pretrain-1a2b3c", "namespace": "llm", "kind": "JobSet", "runKind": "job"}
SAVED = {**OUTPUT, "checkpoints": "gs://saved/pretrain-1a2b3c"}
FINE_TUNE = {"name": "finetune-4d5e6f", "namespace": "llm", "kind": "Job", "runKind": "fineTune", "checkpoints": ""}


def jobset(name: str = "pretrain-1a2b3c", namespace: str = "llm", **state: Any) -> dict[str, Any]:
    """A JobSet of one child Job with two pods."""
    child = {"name": "worker", "replicas": 1, "template": {"spec": {"parallelism": 2}}}
    spec = {"suspend": False, "replicatedJobs": [child]}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": state}


def job(name: str = "finetune-4d5e6f", owner: str = "", **state: Any) -> dict[str, Any]:
    owners = {"ownerReferences": [{"kind": "JobSet", "name": owner, "controller": True}]} if owner else {}
    return {"metadata": {"name": name, "namespace": "llm", **owners}, "spec": {"parallelism": 2}, "status": state}


def pod(name: str, index: int, phase: str = "Running") -> dict[str, Any]:
    """A pod of the JobSet."""
    labels = {runs.JOBSET_LABEL: "pretrain-1a2b3c", runs.INDEX_LABEL: str(index)}
    metadata = {"name": name, "namespace": "llm", "labels": labels}
    spec = {"containers": [{"name": "training"}, {"name": fuse.SIDECAR}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def test_runs_are_those_of_the_configuration_and_earlier_ones_of_their_namespaces() -> None:
    own = jobset(restarts=5, restartsCountTowardsMax=3)
    items = {
        "JobSet": [own, jobset("pretrain-000000"), jobset("other", namespace="elsewhere")],
        "Job": [job("pretrain-1a2b3c-worker-0", owner="pretrain-1a2b3c")],
    }
    found = runs.runs_of({"jobs": [OUTPUT, FINE_TUNE]}, items)
    assert [(str(run), run.is_configured, run.state) for run in found] == [
        ("llm/pretrain-1a2b3c", True, "Started"),
        ("llm/finetune-4d5e6f", True, "Gone"),
        ("llm/pretrain-000000", False, "Started"),
    ]
    assert (found[0].restarts, found[0].wanted_pods) == (3, 2)


def test_runs_are_found_in_namespaces_of_the_stack_also_if_a_config_map_owns_them() -> None:
    outputs = {"jobs": [], "namespaces": ["llm", "research"], "tenants": [{"namespace": "research"}]}
    items = {"JobSet": [jobset("pretrain-000000"), jobset("theirs", namespace="research")]}
    assert [str(run) for run in runs.runs_of(outputs, items)] == ["llm/pretrain-000000"]
    found = runs.runs_of({"jobs": [OUTPUT], "namespaces": ["llm"]}, {"JobSet": [jobset(), jobset("theirs")]}, {"llm"})
    assert [str(run) for run in found] == ["llm/pretrain-1a2b3c"], "the stack did not create the namespace"
    # In a namespace that the stack does not delete, a ConfigMap owns the runs, and controls none.
    own = jobset()
    own["metadata"]["ownerReferences"] = [{"kind": "ConfigMap", "name": "runs-of-gke-ai-dev"}]
    (owned,) = runs.runs_of({"jobs": [OUTPUT]}, {"JobSet": [own], "Job": []})
    assert owned.item == own
    alone = SimpleNamespace(is_alone=True)
    assert [str(run) for run in runs.known_runs(alone, {"JobSet": [own]})] == ["llm/pretrain-1a2b3c"]  # type: ignore[arg-type]


def test_state_of_a_run_is_that_of_its_object() -> None:
    ended: dict[str, Any] = {"conditions": [{"type": "Complete", "status": "True"}]}
    failed: dict[str, Any] = {"conditions": [{"type": "Failed", "status": "True"}], "failed": 4}
    suspended = jobset()
    suspended["spec"]["suspend"] = True
    completed = jobset(terminalState="Completed")
    items = [*(("Job", job(**status)) for status in ({}, ended, failed)), ("JobSet", completed), ("JobSet", suspended)]
    states = [Run("r", "llm", kind, item=item).state for kind, item in items]
    assert states == ["Started", "Completed", "Failed", "Completed", "Suspended"]
    assert Run("r", "llm", "Job", item=job(**failed)).restarts == 4


@pytest.mark.parametrize("name", ["pretrain-1a2b3c", "llm/pretrain-1a2b3c", "pre", "llm/pre"])
def test_run_is_found_by_the_beginning_of_its_name(name: str) -> None:
    known = [Run("pretrain-1a2b3c", "llm", "JobSet"), Run("finetune-4d5e6f", "llm", "Job")]
    assert runs.find(Stack("dev"), known, name) is known[0]
    with pytest.raises(Stop, match=r"dev has no run x\. Runs: llm/pretrain-1a2b3c, llm/finetune-4d5e6f"):
        runs.find(Stack("dev"), known, "x")
    with pytest.raises(Stop, match="llm is the beginning of several names"):
        runs.find(Stack("dev"), known, "llm")


# --- removal ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The API paths that are deleted, in a cluster that accepts it."""
    paths: list[str] = []

    def request(_: object, method: str, path: str, query: dict[str, str]) -> Answer:
        assert (method, query) == ("DELETE", {"propagationPolicy": "Background"})
        paths.append(path)
        return Answer(200)

    monkeypatch.delenv("GKE_AI_STATE", raising=False)
    monkeypatch.setattr(runs, "request", request)
    return paths


def cluster(monkeypatch: pytest.MonkeyPatch, outputs: list[dict[str, Any]], **items: list[dict[str, Any]]) -> None:
    """The runs of a stack in its cluster."""
    monkeypatch.setattr(runs, "read", lambda _: (None, runs.runs_of({"jobs": outputs}, items)))


def test_finished_run_is_deleted_its_entry_is_named_and_a_refusal_says_why(
    deleted: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster(monkeypatch, [OUTPUT], JobSet=[jobset(terminalState="Completed")])
    runs.remove(Stack("prod"), "pretrain")
    assert deleted == ["/apis/jobset.x-k8s.io/v1alpha2/namespaces/llm/jobsets/pretrain-1a2b3c"]
    output = capsys.readouterr().out
    assert "Removed the JobSet llm/pretrain-1a2b3c. Remove it from gke-ai:training too." in output
    assert "gke-ai up --stack prod stops" in output
    cluster(monkeypatch, [OUTPUT], JobSet=[jobset(terminalState="Failed")])
    monkeypatch.setattr(runs, "request", lambda *_: Answer(403, error="forbidden"))
    with pytest.raises(Stop, match="The cluster refuses to delete the JobSet llm/pretrain-1a2b3c: forbidden"):
        runs.remove(Stack("prod"), "pretrain")


@pytest.mark.parametrize("state", [{}, {"restarts": 2}])
def test_run_that_goes_on_stays(state: dict[str, Any], deleted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch, [OUTPUT], JobSet=[jobset(**state)])
    with pytest.raises(Stop, match=r"The run llm/pretrain-1a2b3c has not ended \(state: Started\)"):
        runs.remove(Stack("prod"), "pretrain")
    assert deleted == []


def test_run_without_a_record_is_not_removed_while_an_update_would_repeat_it(
    deleted: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = job(conditions=[{"type": "Complete", "status": "True"}])
    cluster(monkeypatch, [FINE_TUNE], Job=[ended])
    with pytest.raises(Stop, match=r"the next update would run it again\. Remove it from the configuration first"):
        runs.remove(Stack("prod"), "finetune")
    assert deleted == []
    cluster(monkeypatch, [OUTPUT], Job=[ended])
    runs.remove(Stack("prod"), "finetune")
    assert deleted == ["/apis/batch/v1/namespaces/llm/jobs/finetune-4d5e6f"]
    assert capsys.readouterr().out == "Removed the Job llm/finetune-4d5e6f.\n"


# --- checkpoints ------------------------------------------------------------------------------------------------------


def google(pages: list[Answer], asked: list[str]) -> Callable[..., Answer]:
    """Google's storage API, and a credential for it."""

    def request(line: str, token: str = "") -> Answer:
        if line == checkpoints.TOKEN:
            return Answer(0, "credential")
        assert token == "credential"
        asked.append(line)
        return pages.pop(0)

    return request


def test_markers_are_listed_page_by_page() -> None:
    asked: list[str] = []
    first = {"items": [{"name": "a/run/step-00000010-000001/COMPLETE"}], "nextPageToken": "n/2"}
    second = {"items": [{"name": "a/run/step-00000020-000001/COMPLETE"}]}
    names = checkpoints.google_names("saved", "a/run", google([Answer(200, first), Answer(200, second)], asked))
    assert names == [first["items"][0]["name"], second["items"][0]["name"]]  # type: ignore[index]
    assert asked[0] == (
        "GET https://storage.googleapis.com/storage/v1/b/saved/o?fields=items(name),nextPageToken"
        "&matchGlob=a%2Frun%2F%2A%2F%7BCOMPLETE%2Ctrainer_state.json%7D"
    )
    assert asked[1] == f"{asked[0]}&pageToken=n%2F2"
    assert checkpoints.google_names("saved", "", google([Answer(200, {})], asked)) == []
    assert asked[2].endswith("&matchGlob=%2A%2F%7BCOMPLETE%2Ctrainer_state.json%7D"), "of a whole bucket"


def test_reason_for_an_unknown_checkpoint_is_shown_in_full(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "bucket saved can't be listed: the caller has no permission storage.objects.list on it"

    def refuse(_: str) -> None:
        raise checkpoints.Unreadable(reason)

    monkeypatch.setattr(checkpoints, "newest", refuse)
    cluster(monkeypatch, [SAVED], JobSet=[jobset()])
    runs.show(Stack("dev"))
    shown = capsys.readouterr().out
    assert all(word in shown for word in (*reason.split(), "in the configuration"))
    refused = Answer(403, {"error": {"message": "no access"}}, "no access")
    with pytest.raises(checkpoints.Unreadable, match="bucket saved can't be listed: no access"):
        checkpoints.google_names("saved", "run", google([refused], []))
    with pytest.raises(checkpoints.Unreadable, match="run gcloud auth application-default login"):
        checkpoints.google_names("saved", "run", lambda *_, **__: Answer(requests.NOT_FOUND))


def test_newest_checkpoint_is_of_the_runs_own_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GKE_AI_STATE", "/nowhere")
    names = ["run-2/step-00000030-000001/COMPLETE", "run/step-00000020-000001/COMPLETE"]
    monkeypatch.setattr(checkpoints, "emulated_names", lambda _: names)
    assert checkpoints.newest("gs://saved/run") == Checkpoint("step-00000020-000001", 20)
    assert checkpoints.newest("gs://saved/ru") is None
    assert runs.saved(Run("r", "llm", "JobSet", "job", "gs://saved/run")) == ("step-00000020-000001", "20")
    assert runs.saved(Run("r", "llm", "JobSet", "job", "gs://saved/ru")) == ("none", "–")
    assert runs.saved(Run("r", "llm", "JobSet", "job")) == ("–", "–")
    monkeypatch.setattr(checkpoints, "emulated_names", lambda _: ["step-00000040-000001/COMPLETE"])
    assert checkpoints.newest("gs://saved") == Checkpoint("step-00000040-000001", 40)


# --- status and logs --------------------------------------------------------------------------------------------------


@pytest.fixture
def newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket with a checkpoint."""
    monkeypatch.setattr(checkpoints, "newest", lambda _: Checkpoint("step-00000120-000002", 120))


@pytest.mark.usefixtures("newest")
def test_status_shows_pods_restarts_checkpoint_and_step_of_a_run() -> None:
    out = io.StringIO()
    found = runs.runs_of({"jobs": [SAVED]}, {"JobSet": [jobset(restarts=3, restartsCountTowardsMax=1)]})
    snapshot = status.ClusterObjects(pods=[pod("a", 0), pod("b", 1, "Pending")], runs=found)
    Console(file=out, width=240).print(*status.report(Stack("dev"), snapshot))
    (row,) = (line.split() for line in out.getvalue().splitlines() if line.startswith("llm/pretrain"))
    assert row == ["llm/pretrain-1a2b3c", "1", "of", "2", "1", "step-00000120-000002", "120", "Started"]


class Api:
    """A cluster whose pods have written logs."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts

    configuration = SimpleNamespace(host="https://c")

    def select_header_accept(self, _: list[str]) -> str:
        return "text/plain"

    def param_serialize(self, _: str, path: str, query_params: list[tuple[str, str]], **__: object) -> tuple[str, str]:
        return path, json.dumps(dict(query_params))

    def call_api(self, path: str, query: str, **_: object) -> SimpleNamespace:
        assert json.loads(query) == {"container": "training", "tailLines": "5"}
        text = self.texts.get(path.split("/")[-2])
        if text is None:
            raise ApiException(404)
        return SimpleNamespace(status=200, response=SimpleNamespace(status=200, data=text.encode(), headers={}))


@pytest.mark.usefixtures("newest")
def test_logs_are_those_of_each_pod_in_order_with_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GKE_AI_STATE", raising=False)
    pods = [pod("run-worker-0-10-x", 10), pod("run-worker-0-2-z", 2), pod("run-worker-0-0-y", 0)]
    monkeypatch.setattr(runs, "list_objects", lambda *_, **__: pods)
    (found,) = runs.runs_of({"jobs": [SAVED]}, {"JobSet": [jobset(restarts=3, restartsCountTowardsMax=1)]})
    api: Any = Api(**{"run-worker-0-0-y": "step 1\nstep 2\n", "run-worker-0-2-z": "ready\n"})
    assert list(logs.report(api, found, 5)) == [
        "run-worker-0-0-y: step 1",
        "run-worker-0-0-y: step 2",
        "run-worker-0-2-z: ready",
        "run-worker-0-10-x: no log: the cluster refuses it (HTTP 404)",
        "JobSet llm/pretrain-1a2b3c: Started, 3 of 2 pods run, 1 restarts",
        "newest complete checkpoint: step-00000120-000002, step 120",
    ]


@pytest.mark.usefixtures("newest")
def test_logs_of_deleted_pods_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "list_objects", lambda *_, **__: [])
    (found,) = runs.runs_of({"jobs": [SAVED]}, {"JobSet": [jobset()]})
    api: Any = Api()
    for emulated, command in ((True, "emulator/run logs pretrain-1a2b3c -n llm"), (False, "gcloud")):
        monkeypatch.setattr(logs, "on_emulator", lambda emulated=emulated: emulated)
        assert command in list(logs.report(api, found, 5))[-1]
