"""Status, recover and down on recorded objects."""

import io
import json
import os
import re
import socket
import subprocess
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
from rich.console import Console

from emulator.cloud.api import kubeconfig
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.nodes.shape import GKE_NODEPOOL
from gke_ai.kube.client import client_of, list_objects
from gke_ai.kube.events import NOT_SCALED_UP
from gke_ai.ops.lifecycle import down, recover
from gke_ai.ops.status import budgets, queues
from gke_ai.ops.status import command as status
from gke_ai.registered.types import BUCKET, CLUSTER, GATEWAY, HORIZONTAL_POD_AUTOSCALER, KUEUE_STACK, NODE_POOL, RELEASE
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack
from tests.support.local_server import listening

URN = "urn:pulumi:dev::gke-ai::"
ACCOUNT, OF_P = "gcp:serviceaccount/account:Account", "projects/p/locations/l/clusters/c"


def pending(kind: str, name: str, inputs: dict[str, Any] | None, operation: str = "creating") -> dict[str, Any]:
    """A pending operation as a killed update leaves it. Pulumi writes no empty inputs, and a component has none."""
    resource = {"urn": f"{URN}{kind}::{name}", "type": kind, **({"inputs": inputs} if inputs else {})}
    return {"resource": resource, "type": operation}


def deployment(*operations: dict[str, Any]) -> dict[str, Any]:
    """A recorded deployment with a Google Cloud provider and these pending operations."""
    kind = "pulumi:providers:gcp"
    provider = {"urn": f"{URN}{kind}::default", "type": kind, "inputs": {"project": "acme"}}
    return {"resources": [provider], "pending_operations": list(operations)}


@pytest.mark.parametrize(
    ("kind", "inputs", "identity"),
    [
        (CLUSTER, {"name": "c", "location": "us-central1"}, "projects/acme/locations/us-central1/clusters/c"),
        (NODE_POOL, {"name": "n", "cluster": OF_P}, f"{OF_P}/nodePools/n"),
        (NODE_POOL, {"name": "n", "cluster": "c", "location": "l", "project": "p"}, f"{OF_P}/nodePools/n"),
        (BUCKET, {"name": "models"}, "models"),
        ("kubernetes:batch/v1:Job", {"metadata": {"name": "job", "namespace": "llm"}}, "llm/job"),
        ("kubernetes:core/v1:Namespace", {"metadata": {"name": "llm"}}, "llm"),
        (ACCOUNT, {"accountId": "a", "project": "p"}, "projects/p/serviceAccounts/a@p.iam.gserviceaccount.com"),
    ],
)
def test_pending_creation_is_adopted_under_the_id_that_it_has(kind: str, inputs: dict[str, Any], identity: str) -> None:
    state = deployment(pending(kind, "it", inputs))
    assert recover.adopt_pending(state) == ([f"{URN}{kind}::it"], [], [])
    assert state["resources"][-1]["id"] == identity
    assert state["resources"][-1]["inputs"] == inputs
    assert "pending_operations" not in state


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("kubernetes:helm.sh/v3:Release", {"name": "kueue"}),
        ("gcp:storage/bucketIAMMember:BucketIAMMember", {"bucket": "models"}),
        ("pulumi:pulumi:Stack", None),
        ("gke-ai:index:KueueStack", None),
    ],
)
def test_creation_without_an_id_or_inputs_is_repeated_and_not_adopted(kind: str, inputs: Any) -> None:
    state = deployment(pending(kind, "it", inputs))
    assert recover.adopt_pending(state) == ([], [f"{URN}{kind}::it"], [])
    assert len(state["resources"]) == 1


def test_interrupted_update_does_not_make_a_second_resource() -> None:
    bucket = pending(BUCKET, "models", {"name": "models"}, "updating")
    state = deployment(bucket)
    state["resources"].append({**bucket["resource"], "id": "models"})
    assert recover.adopt_pending(state) == ([], [], [])
    assert len(state["resources"]) == 2


POOL = {"name": "l4", "cluster": OF_P, "diskSizeGb": 200}
POOL_URN, POOL_ID = f"{URN}{NODE_POOL}::l4", f"{OF_P}/nodePools/l4"
OLD_ID = f"{POOL_ID}-123456"


def recorded_and_pending(**recorded: Any) -> dict[str, Any]:
    """A state with a pool, a server after it, and a pending creation under the URN of the pool."""
    creation = pending(NODE_POOL, "l4", POOL)
    state = deployment(creation)
    old = {**creation["resource"], "inputs": {**POOL, "diskSizeGb": 100}, "id": POOL_ID}
    server = {"urn": f"{URN}kubernetes:apps/v1:Deployment::gemma", "type": "kubernetes:apps/v1:Deployment"}
    state["resources"] += [{**old, **recorded}, server]
    return state


def test_replacement_of_a_deleted_resource_is_adopted_in_its_place() -> None:
    # Pulumi has deleted the old resource, and keeps it with this mark until the new one is created. A refresh keeps it,
    # so without the adoption the next up would create a pool that Google has: pkg/resource/deploy/step.go.
    state = recorded_and_pending(pendingReplacement=True)
    assert recover.adopt_pending(state) == ([POOL_URN], [], [])
    _, pool, server = state["resources"]
    assert (pool["id"], pool["inputs"]["diskSizeGb"]) == (POOL_ID, 200)
    assert "pendingReplacement" not in pool
    assert server["urn"].endswith("gemma"), "what depends on the pool stays behind it"


@pytest.mark.parametrize(
    ("recorded", "adopted", "left", "ids"),
    [
        # Pulumi keeps a pending creation when a later update creates the resource: pkg/backend/journal.go.
        pytest.param({}, [], [], [POOL_ID, None], id="of the recorded one"),
        # Either a replacement that is created first, or a creation of an earlier update: the state does not say which.
        pytest.param({"id": OLD_ID}, [], [(POOL_URN, POOL_ID)], [OLD_ID, None], id="beside it"),
        pytest.param(
            {"id": OLD_ID, "delete": True}, [POOL_URN], [], [OLD_ID, None, POOL_ID], id="beside one to delete"
        ),
    ],
)
def test_creation_beside_a_recorded_resource_is_adopted_only_if_that_is_deleted(
    recorded: dict[str, Any], adopted: list[str], left: list[tuple[str, str]], ids: list[str | None]
) -> None:
    state = recorded_and_pending(**recorded)
    assert recover.adopt_pending(state) == (adopted, [], left)
    assert [resource.get("id") for resource in state["resources"][1:]] == ids


def test_recover_names_what_it_leaves_and_clears_every_pending_creation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: dict[str, Any] = {}

    def pulumi(_: Stack, *arguments: str, stdin: str = "", **__: Any) -> subprocess.CompletedProcess[str]:
        if arguments[:2] == ("stack", "import"):
            written.update(json.loads(stdin))
        return subprocess.CompletedProcess(arguments, 0, "", "")

    monkeypatch.setattr(Stack, "read", lambda *_: {"deployment": recorded_and_pending(id=OLD_ID)})
    monkeypatch.setattr(Stack, "pulumi", pulumi)
    recover.recover(Stack("none"))
    assert "pending_operations" not in written["deployment"], "a refresh would keep them"
    assert f"leaving     NodePool l4: its creation as {POOL_ID} was interrupted" in capsys.readouterr().out


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a local backend, with folders for the states and the locks."""
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}")
    for name in ("stacks/gke-ai", "locks/organization/gke-ai/dev"):
        (tmp_path / ".pulumi" / name).mkdir(parents=True)
    return tmp_path / ".pulumi"


def test_recover_refuses_while_the_update_still_runs(backend: Path) -> None:
    lock = backend / "locks/organization/gke-ai/dev/one.json"
    held = {"pid": os.getpid(), "hostname": socket.gethostname(), "timestamp": "now"}
    lock.write_text(json.dumps(held))
    with pytest.raises(Stop, match=f"process {os.getpid()}"):
        recover.refuse_if_running(Stack("dev"))
    for nobodys in (json.dumps({**held, "pid": 2**22 + 1}), "", '{"pid": 1, "hostn', "[]", '{"pid": 1}'):
        lock.write_text(nobodys)
        recover.refuse_if_running(Stack("dev"))


@pytest.mark.parametrize("content", ["", '{"version": 3, "checkp', "[]"])
def test_damaged_state_is_restored_from_a_copy(content: str, backend: Path) -> None:
    state = backend / "stacks/gke-ai/dev.json"
    state.write_text(content)
    with pytest.raises(Stop, match=r"dev\.json is damaged.*recover"):
        Stack("dev").refuse_damaged()
    with pytest.raises(Stop, match="no copy of it is beside it"):
        recover.restore_damaged("dev")
    state.with_name("dev.json.bak").write_text('{"version": 3}')
    recover.restore_damaged("dev")
    assert (state.read_text(), state.with_name("dev.json.damaged").read_text()) == ('{"version": 3}', content)
    Stack("dev").refuse_damaged()


def test_state_whose_sidecar_was_cut_off_can_be_read_again(backend: Path) -> None:
    files = {"dev.json": "{}", "dev.json.attrs": "", "dev.json.bak.attrs": "{}", "b.json.attrs": ""}
    for name, content in files.items():
        (backend / "stacks/gke-ai" / name).write_text(content)
    recover.mend_sidecars("dev")
    left = {file.name for file in (backend / "stacks/gke-ai").iterdir()}
    assert left == {"dev.json", "dev.json.bak.attrs", "b.json.attrs"}


def test_down_names_the_key_that_protects() -> None:
    cluster = {"urn": f"{URN}c::c", "type": CLUSTER, "inputs": {"name": "prod", "deletionProtection": True}}
    bucket = {"urn": f"{URN}b::b", "type": BUCKET, "inputs": {"name": "models"}, "protect": True}
    free = {"urn": f"{URN}b::d", "type": BUCKET, "inputs": {"name": "scratch"}}
    keys = ["cluster prod: gke-ai:cluster.protect", "bucket models: gke-ai:buckets[].protect"]
    assert down.protected([cluster, bucket, free]) == keys


@pytest.mark.parametrize(
    ("parent", "name", "namespace", "own"),
    [
        (KUEUE_STACK, "jobset", "jobset-system", True),
        (KUEUE_STACK, "kueue", "kueue-system", False),
        (KUEUE_STACK, "jobset", "elsewhere", False),
        ("gke-ai:index:Other", "jobset", "jobset-system", False),
    ],
)
def test_only_a_jobset_of_the_stacks_own_kueue_counts(parent: str, name: str, namespace: str, own: bool) -> None:
    release = {"urn": f"{URN}{RELEASE}::{name}", "type": RELEASE, "parent": f"{URN}{parent}::kueue"}
    component = {"urn": release["parent"], "type": parent}
    assert down.jobset_release([component, {**release, "inputs": {"name": name, "namespace": namespace}}]) is own


def test_failed_down_names_what_namespaces_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "Some content in the namespace has finalizers remaining: example.com/kept in 1 resource instances"
    conditions = [{"status": "True", "message": message}, {"status": "False", "message": "other"}]
    ended, kept = {"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"finalizers": ["example.com/kept"]}
    team = {"metadata": {"name": "team-a", **ended}, "status": {"conditions": conditions}}
    pods = [{"metadata": {"name": "slow", **ended}}, {"metadata": {"name": "held", **ended, **kept}}]
    answers = {"/api/v1/namespaces": [{"metadata": {"name": "llm"}}, team], "/api/v1/namespaces/team-a/pods": pods}
    monkeypatch.setattr(down, "list_objects", lambda _, path: answers[path])
    assert down.ending(None) == [  # type: ignore[arg-type]
        "pod team-a/slow: has until 2026-01-01T00:00:00Z to end",
        "pod team-a/held: finalizers example.com/kept",
        f"namespace team-a: {message}",
    ]
    monkeypatch.setattr(down, "list_objects", Mock(side_effect=Stop("The cluster does not answer")))
    assert down.ending(None) == []  # type: ignore[arg-type]


def node(name: str, ready: str = "True") -> dict[str, Any]:
    """A GPU node of two."""
    labels = {GKE_NODEPOOL: "gpupool", "node.kubernetes.io/instance-type": "g2-standard-24"}
    state = {"allocatable": {"nvidia.com/gpu": "2"}, "conditions": [{"type": "Ready", "status": ready}]}
    return {
        "metadata": {"name": name, "labels": {**labels, "cloud.google.com/gke-provisioning": "standard"}},
        "status": state,
    }


def pod(name: str, node_name: str | None, **scheduled: str) -> dict[str, Any]:
    """A pod of two GPUs, on a node or with the reason why not."""
    spec: dict[str, Any] = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}
    spec |= {"nodeName": node_name} if node_name else {}
    condition = {"type": "PodScheduled", "status": "True" if node_name else "False", **scheduled}
    return {"metadata": {"name": name, "namespace": "llm"}, "spec": spec, "status": {"conditions": [condition]}}


def workload(name: str, *conditions: dict[str, str], kind: str = "Job", namespace: str = "llm") -> dict[str, Any]:
    """A workload of a run with these conditions."""
    metadata = {"name": name, "namespace": namespace, "ownerReferences": [{"kind": kind, "name": name}]}
    return {"metadata": metadata, "spec": {"queueName": "lq", "priority": 20}, "status": {"conditions": [*conditions]}}


def printed(**objects: Any) -> str:
    """The status of a cluster with these objects as a person sees it, on a wide terminal."""
    out = io.StringIO()
    Console(file=out, width=240).print(*status.report(Stack("dev"), status.ClusterObjects(**objects)))
    return out.getvalue()


def rows(text: str, first: str) -> list[list[str]]:
    """The further cells of the rows of a table that begin with a word; an empty cell leaves none."""
    return [re.split(r"\s{2,}", line.strip())[1:] for line in text.splitlines() if line.split()[:1] == [first]]


def test_status_shows_what_waits_and_why() -> None:
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted"}
    evicted["message"] = "to make room (UID: 1d06, JobUID: 258e) for serving; preemptor path: /a; preemptee path: /b"
    waits = {"type": "QuotaReserved", "status": "False", "message": "insufficient unused quota for nvidia.com/gpu"}
    text = printed(
        nodes=[node("a"), node("b", "False")],
        pods=[pod("runs", "a"), pod("gated", None, reason="SchedulingGated", message="blocked by gates")],
        workloads=[workload("old", evicted), workload("new", waits), workload("untouched")],
    )
    for shown in (
        *("1 of 2", "2 of 4"),  # ready nodes, and GPUs used
        *("Evicted: Preempted", "to make room for serving ", "insufficient unused quota for nvidia.com/gpu"),
        *("Kueue has not processed it yet", "SchedulingGated: its queue has not admitted it", "make down STACK=dev"),
    ):
        assert shown in text
    assert "UID" not in text
    assert "path:" not in text


def test_empty_pool_is_shown_with_its_bound_and_a_full_one_as_full() -> None:
    tpus = {"name": "slice", "nodeConfig": {"machineType": "ct6e-standard-4t"}, "autoscaling": {"maxNodeCount": 4}}
    pools = [
        {"name": "gpupool", "autoscaling": {"totalMaxNodeCount": 2, "maxNodeCount": 0}},
        {**tpus, "nodeLocations": ["us-east5-b"]},
        {"name": "fixed", "nodeConfig": {"machineType": "e2-standard-4"}},
    ]
    text = printed(nodes=[node("a"), node("b")], pools=pools)
    assert rows(text, "gpupool") == [["g2-standard-24", "standard", "2 of 2, at most 2", "0 of 4"]]
    assert rows(text, "slice") == [["ct6e-standard-4t", "empty, at most 4", "–"]]
    assert rows(text, "fixed") == [["e2-standard-4", "empty", "–"]]


def test_waiting_pod_shows_the_last_event_of_the_autoscaler() -> None:
    waits = pod("mixtral", None, reason="Unschedulable", message="0/3 nodes are available")
    waits["metadata"]["uid"] = "1"
    events = [
        {"reason": NOT_SCALED_UP, "message": message, "lastTimestamp": f"2026-01-01T00:00:0{second}Z"}
        | {"involvedObject": {"kind": "Pod", "uid": uid}}
        for uid, second, message in (
            ("1", 2, "compute class c: spot is out, flexStart is out"),
            ("1", 1, "compute class c: spot is out"),
            ("2", 3, "another pod's"),
        )
    ]
    text = printed(pods=[waits], events=events)
    reason = "Unschedulable: compute class c: spot is out, flexStart is out (0/3 nodes are available)"
    assert rows(text, "llm/mixtral") == [[reason]]
    assert "emulator/run capacity" in text


def jobset(name: str, suspended: bool = False, **state: Any) -> dict[str, Any]:
    """A JobSet of three slices that may be restarted four times."""
    jobs = [{"name": "slice", "replicas": 3}]
    spec = {"suspend": suspended, "failurePolicy": {"maxRestarts": 4}, "replicatedJobs": jobs}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": state}


def test_jobset_shows_what_it_waits_for_and_its_restarts() -> None:
    waits = {"type": "QuotaReserved", "status": "False", "message": "insufficient unused quota for google.com/tpu"}
    held = workload("waits", waits, kind="JobSet", namespace="default")
    failed = {"type": "Failed", "status": "True", "message": "reached max restarts"}
    jobsets = [
        jobset("runs", replicatedJobsStatus=[{"name": "slice", "ready": 3}], restartsCountTowardsMax=1),
        jobset("starts", replicatedJobsStatus=[{"name": "slice", "ready": 2}]),
        jobset("waits", suspended=True),
        jobset("ended", terminalState="Failed", conditions=[failed], restartsCountTowardsMax=4),
    ]
    text = printed(workloads=[held], jobsets=jobsets)
    assert rows(text, "default/runs") == [["3 of 3", "1 of 4", "Running"]]
    assert rows(text, "default/starts")[0][:3] == ["2 of 3", "0 of 4", "Starting"]
    assert rows(text, "default/waits") == [["0 of 3", "0 of 4", "Waiting", waits["message"]]]
    assert rows(text, "default/ended") == [["0 of 3", "4 of 4", "Failed", failed["message"]]]


def autoscaler(**state: Any) -> dict[str, Any]:
    """An autoscaler by backlog and TPU memory."""
    targets = {"jetstream_prefill_backlog_size": {"averageValue": "10"}, "memory_used": {"value": "12884901888"}}
    external = [{"metric": {"name": name}, "target": target} for name, target in targets.items()]
    metrics = [{"type": "External", "external": metric} for metric in external]
    return {
        "metadata": {"name": "jetstream-hpa", "namespace": "default"},
        "spec": {"scaleTargetRef": {"name": "maxengine-server"}, "maxReplicas": 2, "metrics": metrics},
        "status": {"currentReplicas": 1, "desiredReplicas": 1, **state},
    }


def test_autoscaler_shows_each_metric_beside_its_target_and_why_it_does_not_scale() -> None:
    name = "jetstream_prefill_backlog_size"
    backlog = {"type": "External", "external": {"metric": {"name": name}, "current": {"averageValue": "12500m"}}}
    text = printed(autoscalers=[autoscaler(desiredReplicas=2, currentMetrics=[backlog])])
    assert rows(text, "default/jetstream-hpa") == [
        ["maxengine-server", name, "12.5 / 10", "1 → 2", "1 to 2"],
        ["maxengine-server", "memory_used", "unknown / 12Gi", "1 → 2", "1 to 2"],
    ]
    inactive = {"type": "ScalingActive", "status": "False", "message": "no metrics returned"}
    inactive["reason"] = "FailedGetExternalMetric"
    able = {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "fine"}
    text = printed(autoscalers=[autoscaler(conditions=[able, inactive])])
    assert "FailedGetExternalMetric: no metrics returned" in text
    assert "fine" not in text


def read_paths(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], list[Any]]) -> list[str]:
    """Answers each list of a status by its kind. Returns the paths that are read."""
    paths: list[str] = []

    def list_of(_: Any, path: str, **__: str) -> list[Any]:
        paths.append(path)
        return answer(path.rpartition("/")[2])

    monkeypatch.setattr(status, "list_objects", list_of)
    monkeypatch.setattr(queues, "list_objects", list_of)
    monkeypatch.setattr(budgets, "list_objects", list_of)
    return paths


def test_status_reads_only_kinds_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = pod("waits", None, reason="Unschedulable")
    paths = read_paths(monkeypatch, lambda kind: [waits] if kind == "pods" else [])
    stack = Stack("dev")
    vars(stack)["resources"] = []
    status.take(stack, None)  # type: ignore[arg-type]
    assert not [path for path in paths if "jobset" in path or "autoscal" in path or "gateway" in path]
    assert "/api/v1/events" in paths
    waits["status"]["conditions"][0]["status"] = "True"
    paths.clear()
    vars(stack)["resources"] += [{"type": kind} for kind in (status.JOBSET, HORIZONTAL_POD_AUTOSCALER, GATEWAY)]
    vars(stack)["resources"].append({"type": NODE_POOL, "inputs": {"name": "p"}})
    assert status.take(stack, None).pools == [{"name": "p"}]  # type: ignore[arg-type]
    assert len([path for path in paths if "jobset" in path or "autoscal" in path]) == 2
    assert len([path for path in paths if "gateway" in path]) == 2
    assert "/api/v1/events" not in paths


@pytest.mark.parametrize("counted_after", [2, 99])
def test_status_waits_until_kueue_counted_what_it_admitted(counted_after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or not much longer than Kueue takes."""
    admitted = {"metadata": {}, "status": {"admission": {"clusterQueue": "gpus"}}}
    ended = {"metadata": {}, "status": {**admitted["status"], "conditions": [{"type": "Finished", "status": "True"}]}}

    def reads() -> int:
        return sum(path.endswith("/clusterqueues") for path in paths)

    def answer(kind: str) -> list[Any]:
        queue = {"metadata": {"name": "gpus"}, "status": {"reservingWorkloads": int(reads() >= counted_after)}}
        lists: dict[str, list[Any]] = {"clusterqueues": [queue], "workloads": [admitted, ended]}
        return lists.get(kind, [])

    paths = read_paths(monkeypatch, answer)
    monkeypatch.setattr(queues, "COUNT_PAUSE", 0)
    stack = Stack("dev")
    vars(stack)["resources"] = []
    (queue,) = status.take(stack, None).cluster_queues  # type: ignore[arg-type]
    assert queue["status"]["reservingWorkloads"] == (counted_after == 2)
    assert reads() == min(counted_after, queues.COUNT_READS)


def test_a_command_on_a_stack_without_a_cluster_names_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stack, "read", lambda *_: {"deployment": None})
    with pytest.raises(Stop, match=r"^dev has no cluster yet\. Next: make up STACK=dev$"):
        status.show(Stack("dev"))


class Busy(BaseHTTPRequestHandler):
    """An API server that is busy at first: twice it says when to ask again."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        is_busy = len(self.asked) < 3
        self.send_response(429 if is_busy else 200)
        if is_busy:
            self.send_header("Retry-After", "0")
        content = b'{"items": [{"metadata": {}}]}'
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None: ...


def test_a_request_to_a_busy_cluster_is_sent_again_when_the_cluster_says() -> None:
    with listening(Busy) as address:
        api = client_of(kubeconfig(address, b"", {}).replace("https:", "http:"), 1)
        assert list_objects(api, "/api/v1/nodes") == [{"metadata": {}}]
        assert Busy.asked == ["/api/v1/nodes"] * 3
        # The server speaks no TLS, and none listens on port 1.
        for host, cause in ((address, "SSLError"), ("127.0.0.1:1", "NewConnectionError")):
            with pytest.raises(Stop, match=rf"^The cluster does not answer \({cause}\)"):
                list_objects(client_of(kubeconfig(host, b"", {}), 1), "/api/v1/nodes")
    assert Busy.asked == ["/api/v1/nodes"] * 3, "an unreachable cluster is reported at once"


def test_a_watched_status_is_redrawn_on_one_screen_until_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, reads = io.StringIO(), iter(["first", "second"])

    def take(*_: object) -> status.ClusterObjects:
        if name := next(reads, ""):
            node = {"metadata": {"name": "n", "labels": {GKE_NODEPOOL: name}}, "status": {}}
            return status.ClusterObjects(nodes=[node])
        raise KeyboardInterrupt

    monkeypatch.setattr(status, "take", take)
    monkeypatch.setattr(status, "WATCH_SECONDS", 0.0)
    monkeypatch.setattr(Stack, "cluster", lambda _: None)
    with pytest.raises(Stop, match="the output is no terminal"):
        status.watch(Stack("dev"))
    monkeypatch.setattr(status, "new_console", lambda: Console(file=screen, force_terminal=True, width=100, height=40))
    status.watch(Stack("dev"))
    begin, end = "\x1b[?1049h", "\x1b[?1049l"  # of the alternate screen
    drawn = screen.getvalue().partition(begin)[2].partition(end)[0]
    assert drawn.index("first") < drawn.index("second")
    assert screen.getvalue().endswith(f"\x1b[?25h{end}")


def test_next_steps_point_to_the_emulator_and_on_google_cloud_to_kubectl(monkeypatch: pytest.MonkeyPatch) -> None:
    template = {"metadata": {"labels": {QUEUE_LABEL: "lq"}}, "spec": {"containers": []}}
    server = {"metadata": {"name": "gemma", "namespace": "llm"}, "spec": {"replicas": 2, "template": template}}
    objects = {"deployments": [server], "workloads": [workload("waits")]}
    last = {**objects, "deployments": [{**server, "spec": {"replicas": 1, "template": template}}]}
    assert "make status STACK=dev" in printed()
    assert "emulator/run kubectl -n llm scale deployment/gemma --replicas=1" in printed(**objects)
    assert "scale" not in printed(**last), "the last replica stays"
    monkeypatch.delenv("GKE_AI_STATE")
    text = printed(**objects)
    assert "kubectl -n llm scale deployment/gemma" in text
    assert "gke-ai down --stack dev" in text
    assert "emulator/run" not in text
    assert "make " not in text
    assert Stack("dev").next("up") == "gke-ai up --stack dev"
