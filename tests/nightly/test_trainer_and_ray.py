"""Only here: the real Kubeflow Trainer and KubeRay start, evict and resume what a member of a tenant submits.

Each kind is admitted by Kueue, evicted for a server, and ends. The real API server refuses what a tenant may not say.
Simulated pods run nothing: a stub answers for the Ray head, and the tests end the pods that submit or train.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
import yaml

from tests.support.emulator import Emulator, Found, eventually, gone
from tests.support.further_kinds import GPU, patch, pod_template, ray_cluster, ray_cluster_spec, ray_job, train_job
from tests.support.tenant_attacks import check_attacks
from tests.support.tenants import (
    FIXED,
    FOREIGN,
    NO_QUEUE,
    OWN,
    OWNER,
    PLACES,
    PRIORITY_NOT_ITS,
    RBAC,
    UNLISTED,
    Credential,
    created,
    deployment,
    kubeconfig_of,
    owned_by,
    pod,
    pods_of,
    running,
    spec,
)
from tests.support.workloads import finish

Object = dict[str, Any]
JOBSET, RAY = "jobset.sigs.k8s.io/jobset-name", "ray.io/cluster"
Ask = Callable[..., str]


@pytest.fixture(scope="module")
def ask(shared: Emulator, team_a: Credential) -> Ask:
    """Runs a command as the member, with only a kubeconfig."""
    file = kubeconfig_of(shared, team_a.team)

    def run(verb: str, *words: str, fails: bool = False) -> str:
        return shared.run("gke-ai", verb, *words, "--namespace", "team-a", "--kubeconfig", str(file), fails=fails)

    return run


def submit(ask: Ask, shared: Emulator, item: Object, *more: str, fails: bool = False) -> str:
    file = shared.state / "manifest.yaml"
    file.write_text(yaml.safe_dump(item))
    return ask("submit", "--manifest", str(file), "--detach", *more, fails=fails)


def test_both_controllers_are_installed_and_stay_as_they_are(shared: Emulator) -> None:
    assert shared.planned() == {}
    (runtime,) = shared.get("clustertrainingruntimes")
    assert runtime["metadata"]["name"] == "torch-distributed"
    (settings,) = shared.get("configmaps", "-n", "kueue-system", "--field-selector=metadata.name=kueue-manager-config")
    for name in ("trainer.kubeflow.org/trainjob", "ray.io/rayjob", "ray.io/raycluster"):
        assert f"- {name}\n" in settings["data"]["controller_manager_config.yaml"]


RUNS = [
    pytest.param(train_job("run", OWN, nodes=2), JOBSET, 2, "run-node-0", id="TrainJob"),
    pytest.param(ray_job("run", OWN, ray_cluster_spec(2)), RAY, 4, "run", id="RayJob"),
]


@pytest.mark.parametrize(("item", "label", "pods", "ends"), RUNS)
def test_a_run_is_evicted_for_a_server_and_resumes_and_completes(
    item: Object, label: str, pods: int, ends: str, ask: Ask, shared: Emulator, team_a: Credential
) -> None:
    kind = item["kind"]

    def own() -> str:
        name = team_a.read(kind, "run").content.get("status", {}).get("rayClusterName", "-")
        return f"{label}={'run' if label == JOBSET else name}"

    submit(ask, shared, item)
    uid = team_a.read(kind, "run").content["metadata"]["uid"]
    eventually(lambda: running(team_a, own()), f"the {kind} runs", seconds=120)
    eventually(lambda: f"{pods} of {pods} pods run" in ask("describe", "run"), "all pods run", seconds=60)
    described = ask("describe", "run")
    assert f"{kind} team-a/run: Started, 0 restarts" in described
    assert "admitted on flavor gpus" in described
    assert "team-a/run" in ask("runs")
    assert f"{kind} team-a/run: Started, {pods} of {pods} pods run" in ask("logs", "run")
    assert f"team-a/{kind.lower()}/run" in shared.make("status")

    created(team_a.create(deployment(spec(priorityClassName="high"), OWN, "server")))
    assert team_a.change("Deployment", "server/scale", {"spec": {"replicas": 3}}).status == 200
    eventually(lambda: "evicted: preempted" in ask("describe", "run"), f"the {kind} is evicted", seconds=120)
    eventually(lambda: len(pods_of(team_a, "app=server")) == 3 and running(team_a, "app=server"), "the server runs")
    assert not [pod for pod in pods_of(team_a, own()) if pod["status"].get("phase") == "Running"]

    assert team_a.delete("Deployment", "server").status == 200
    eventually(lambda: running(team_a, own()), f"the same {kind} runs again", seconds=120)
    assert team_a.read(kind, "run").content["metadata"]["uid"] == uid
    eventually(lambda: f"{pods} of {pods} pods run" in ask("describe", "run"), "all pods run again", seconds=120)
    finish(shared, ends, "team-a")
    eventually(lambda: "Completed" in ask("describe", "run"), f"the {kind} completes", seconds=120)
    assert "has ended (Completed)" in submit(ask, shared, item, fails=True)
    last = own()
    assert team_a.delete(kind, "run").status == 200
    eventually(lambda: team_a.read(kind, "run").status == 404 and not pods_of(team_a, last), "it is gone", seconds=120)


def test_a_canceled_raycluster_leaves_nothing(ask: Ask, shared: Emulator, team_a: Credential) -> None:
    submit(ask, shared, ray_cluster("work", OWN))
    eventually(lambda: len(pods_of(team_a, f"{RAY}=work")) == 2, "its head and its worker run", seconds=120)
    eventually(lambda: "2 of 2 pods run" in ask("describe", "work"), "they run", seconds=60)
    uid = team_a.read("RayCluster", "work").content["metadata"]["uid"]
    owner = {**owned_by("RayCluster", "ray.io/v1", "work")[0], "uid": uid}
    assert OWNER in team_a.create(pod(spec(gpus=None), None, ownerReferences=[owner])).message
    assert "Canceled" in ask("cancel", "work")

    def left() -> list[str]:
        found = [entry for kind in ("Pod", "Service", "Workload") for entry in team_a.read(kind).content["items"]]
        return [entry["metadata"]["name"] for entry in found if "work" in entry["metadata"]["name"]]

    eventually(lambda: not left(), "nothing is left", seconds=60)


def test_a_wrong_manifest_is_refused_by_submit(ask: Ask, shared: Emulator, team_a: Credential) -> None:
    large = submit(ask, shared, train_job("large", OWN, nodes=4), fails=True)
    assert "the 4 pods of a set request 4 of nvidia.com/gpu, and queue queue-of-team-a has 3 in flavor gpus." in large
    forged = submit(ask, shared, ray_job("forged", OWN, ray_cluster_spec(priorityClassName="top")), fails=True)
    assert "uses a priority class that team-a may not use: set low or high" in forged
    assert team_a.read("TrainJob", "large").status == 404


# --- what a member is refused -----------------------------------------------------------------------------------------
RAY_NAME: Object = {"annotations": {"ray.io/ft-enabled": "true"}}
NAMED_WORKERS = {**ray_cluster_spec()["workerGroupSpecs"][0], "template": {**pod_template(GPU), "metadata": RAY_NAME}}
NAMED = {**ray_cluster_spec(), "workerGroupSpecs": [NAMED_WORKERS]}
SELECTING = {"entrypoint": "x", "clusterSelector": {"ray.io/cluster": "x"}}
PATCHES, TOP = [patch(), patch("example.com/another")], ray_cluster_spec(priorityClassName="top")
# Kinds that start pods past the queue.
SERVICE, RUNTIME = (
    {"apiVersion": version, "kind": kind, "metadata": {"name": "attack"}, "spec": {}}
    for kind, version in (("RayService", "ray.io/v1"), ("TrainingRuntime", "trainer.kubeflow.org/v1alpha1"))
)
# Beside the fields of the matrix, which test_every_attack_of_the_matrix_is_refused tries on each kind.
ATTACKS: list[tuple[str, Object, str]] = [
    ("TrainJob without a queue", train_job(queue=""), NO_QUEUE),
    ("RayJob without a queue", ray_job(queue=""), NO_QUEUE),
    ("RayCluster without a queue", ray_cluster(queue=""), NO_QUEUE),
    ("TrainJob with several patches", train_job("attack", OWN, runtimePatches=PATCHES), "has several patches"),
    ("RayJob of another's priority", ray_job("attack", OWN, TOP), PRIORITY_NOT_ITS),
    *(
        (f"{item['kind']} with a name of Ray", {**item, "metadata": {**item["metadata"], **RAY_NAME}}, FOREIGN)
        for item in (ray_cluster("attack", OWN), ray_job("attack", OWN))
    ),
    ("RayCluster whose workers have a name of Ray", ray_cluster("attack", OWN, NAMED), FOREIGN),
    ("RayService", SERVICE, RBAC),
    ("TrainingRuntime", RUNTIME, RBAC),
    ("RayJob on a Ray cluster that exists", {**ray_job("attack", OWN), "spec": SELECTING}, UNLISTED),
]


@pytest.mark.parametrize(("attack", "refusal"), [pytest.param(item, text, id=name) for name, item, text in ATTACKS])
def test_a_member_is_refused(attack: Object, refusal: str, team_a: Credential) -> None:
    answer = team_a.create(attack)
    assert answer.status == 403, answer.message
    assert refusal in answer.message


def test_every_attack_of_the_matrix_is_refused(team_a: Credential) -> None:
    """Each field, finalizer and option that tests/support/tenant_matrix.yaml refuses, on each kind, by each verb."""
    each = {**GPU, "nvidia.com/gpu": "9"}

    def items(name: str, queue: str) -> list[Object]:
        cluster = ray_cluster_spec(each=each)
        return [train_job(name, queue, each=each), ray_job(name, queue, cluster), ray_cluster(name, queue, cluster)]

    waiting = items("matrix", OWN)
    for item in waiting:
        created(team_a.create(item))
    pairs = zip(waiting, items("matrix-plain", ""), strict=True)
    try:
        check_attacks(team_a.ask, [(item, plain, PLACES[item["kind"]].format("team-a")) for item, plain in pairs])
    finally:
        for item in waiting:
            assert team_a.delete(item["kind"], "matrix").status == 200


def test_a_waiting_run_is_neither_started_nor_changed_by_its_author(team_a: Credential) -> None:
    each = {**GPU, "nvidia.com/gpu": "9"}
    items = [train_job("waits", OWN, each=each), ray_job("waits", OWN, ray_cluster_spec(each=each))]
    items.append(ray_cluster("waits-too", OWN, ray_cluster_spec(each=each)))
    for item in items:
        created(team_a.create(item))
        name = item["metadata"]["name"]
        answer = team_a.change(item["kind"], name, {"spec": {"suspend": False}})
        assert FIXED in answer.message or "only Kueue may start it" in answer.message
        more = {"spec": {"trainer": {"numNodes": 2}}} if item["kind"] == "TrainJob" else {"spec": {"rayVersion": "9"}}
        assert team_a.change(item["kind"], name, more).status in (403, 422)
        assert team_a.change(item["kind"], name, {"metadata": {"labels": {"mine": "yes"}}}).status == 200
        assert team_a.delete(item["kind"], name).status == 200


def test_a_rayservice_of_the_platform_starts_no_pods_past_the_queue(shared: Emulator, team_a: Credential) -> None:
    service = {"serveConfigV2": "applications: []", "rayClusterConfig": ray_cluster_spec()}
    item = {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "svc"}, "spec": service}
    file = shared.state / "service.json"
    file.write_text(json.dumps(item))
    shared.kubectl("create", "-n", "team-a", "-f", str(file))

    def refused() -> bool:
        log = "".join(path.read_text() for path in shared.state.glob("clusters/*/log/*kuberay-operator*"))
        return "without a queue" in log

    eventually(refused, "KubeRay is refused the Ray cluster", seconds=60)
    assert team_a.read("RayCluster").content["items"] == []
    shared.kubectl("delete", "rayservice", "svc", "-n", "team-a")


class Listener(BaseHTTPRequestHandler):
    """Answers as a Ray head, and remembers what it was sent."""

    seen: ClassVar[list[Mapping[str, str]]] = []

    def do_GET(self) -> None:
        self.seen.append({name.lower(): value for name, value in self.headers.items()})
        body = json.dumps({"submission_id": self.path.rpartition("/")[2], "status": "RUNNING"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def elsewhere() -> Iterator[int]:
    """A port of this machine where a stranger listens."""
    Listener.seen.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def redirected(shared: Emulator, name: str, port: int) -> Object:
    """A RayJob whose head sends KubeRay to a port of this machine."""
    folder = shared.state / "clusters" / shared.outputs()["clusterName"]
    (folder / "ray-elsewhere").write_text(f"http://127.0.0.1:{port}")
    return ray_job(name, OWN, submissionMode="HTTPMode", jobId="redirected")


def test_a_head_that_redirects_kuberay_gets_no_credential(elsewhere: int, team_a: Credential, shared: Emulator) -> None:
    """With the flag that this program turns off, it receives a token: so this test would notice one."""
    created(team_a.create(redirected(shared, "redirects", elsewhere)))
    eventually(lambda: len(Listener.seen) > 1, "KubeRay follows the redirect", seconds=120)
    assert not [name for headers in Listener.seen for name in headers if "auth" in name or "cookie" in name]
    path = ("-n", "kuberay-system", "deployment", "kuberay-operator")
    (container,) = json.loads(shared.kubectl("get", *path, "-o", "json"))["spec"]["template"]["spec"]["containers"]
    words = [word.replace("proxy=false", "proxy=true") for word in container["args"]]
    assert words != container["args"]

    def run_with(arguments: list[str]) -> None:
        change = [{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": arguments}]
        shared.kubectl("patch", *path, "--type=json", "-p", json.dumps(change))

    try:
        run_with(words)
        eventually(lambda: any("authorization" in headers for headers in Listener.seen), "it has a token", seconds=120)
    finally:
        run_with(container["args"])
    assert team_a.delete("RayJob", "redirects").status == 200
    eventually(lambda: not team_a.read("Workload").content["items"], "it is gone", seconds=120)


def test_heads_that_never_answer_hold_up_no_other_run(team_a: Credential, shared: Emulator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for number in range(2):
            created(team_a.create(redirected(shared, f"silent-{number}", port)))
        created(team_a.create(ray_job("quick", OWN, submissionMode="HTTPMode")))

        def ended() -> bool:
            return bool(team_a.read("RayJob", "quick").content.get("status", {}).get("jobStatus") == "SUCCEEDED")

        eventually(ended, "the other run ends", seconds=120)
    for name in ("silent-0", "silent-1", "quick"):
        assert team_a.delete("RayJob", name).status == 200
    eventually(lambda: not team_a.read("Workload").content["items"], "they are gone", seconds=120)


# --- last of all ------------------------------------------------------------------------------------------------------
def test_a_stack_with_a_trainjob_and_a_raycluster_is_deleted(shared: Emulator, team_a: Credential) -> None:
    created(team_a.create(train_job("last", OWN)))
    created(team_a.create(ray_cluster("last", OWN)))
    eventually(lambda: running(team_a, f"{RAY}=last"), "the Ray cluster runs", seconds=60)
    shared.make("down")
    gone(shared, Found(frozenset(), frozenset()))
