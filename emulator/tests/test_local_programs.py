"""Only here: named images run as local processes: what a program sees, and what Kubernetes sees of it.

The tests share one cluster.
"""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulator import cluster
from emulator.cloud import program
from emulator.cloud.api import MERGE_PATCH, Object, answer, client
from emulator.cloud.folder import Folder
from emulator.cloud.store import BUCKET_IAM_MEMBER, Record, Store, project_number
from emulator.cluster import ClusterRecord, PoolRecord
from emulator.commands import logs
from emulator.google.storage import BUCKET
from emulator.machine import processes
from emulator.tests import spares
from emulator.tests.clusters import clusters_in, eventually
from gke_ai.catalog.project.identities import principal

pytestmark = pytest.mark.cluster

ZONE = "us-central1-a"
CLUSTER = ClusterRecord("local", "p", "us-central1", "standard", [ZONE], "1.36.1-gke.1")
POOL = PoolRecord("default-pool", "e2-standard-8", [ZONE], nodes_per_zone=1)
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
IMAGE, OF_IMAGE = "example.com/worker", "example.com/writer"
WORKER = """
import os, pathlib, signal, socket, sys, time

def saved(number, frame):
    time.sleep(0.5)
    out("saved", "yes")
    print("saved", flush=True)
    sys.exit(75)

def out(name, text):
    folder = pathlib.Path(os.environ["OUT"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)

def rendezvous():
    host, port = os.environ["COORDINATOR"].split(":")
    if os.environ["INDEX"] == "0":
        with socket.create_server((host, int(port))) as server:
            connection, _ = server.accept()
            out("met", connection.recv(100).decode())
    else:
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(os.environ["POD"].encode())

def wait():
    signal.signal(signal.SIGTERM, saved)
    print("started in", os.environ["OUT"], flush=True)
    # Python can miss a signal that comes just before a long sleep.
    for _ in range(6000):
        time.sleep(0.1)

def stubborn():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("started", flush=True)
    time.sleep(600)

def write():
    out("result", sys.argv[2])
    print("wrote", os.environ["OUT"], flush=True)

def leave():
    print("leaves with", sys.argv[2], flush=True)
    sys.exit(int(sys.argv[2]))

globals()[sys.argv[1]]()
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("local")
    (root / "program").mkdir()
    (root / "program" / "worker.py").write_text(WORKER)
    with clusters_in(root):
        spares.give(root)
        variables = [word for name in ("POD", "INDEX", "OUT", "COORDINATOR") for word in ("--env", name)]
        program.main(["add", IMAGE, str(root / "program"), *variables, "--", "python", "worker.py", "..."])
        words = ["python", "worker.py", "write", "of the image"]
        program.main(["add", OF_IMAGE, str(root / "program"), *variables, "--", *words])
        yield root


@pytest.fixture(scope="module")
def api(state: Path) -> Iterator[httpx.Client]:  # noqa: ARG001 (where the cluster is made)
    cluster.create(CLUSTER.name, CLUSTER)
    cluster.set_pool(CLUSTER.name, POOL)
    with client(Folder(CLUSTER.name)) as api:
        yield api


@pytest.fixture(scope="module")
def store(state: Path) -> Store:
    store = Store(state / "cloud")
    create_bucket(store, "runs")
    return store


def create_bucket(store: Store, name: str) -> None:
    store.put(Record(name, BUCKET, "p", {}))
    member = principal(project_number("p"), "p", "default", "default")
    role = "roles/storage.objectUser"
    store.put(Record(f"b/{name}/{role}/{member}", BUCKET_IAM_MEMBER, "p", {"role": role, "member": member}))


def template(*words: str, bucket: str = "runs", image: str = f"{IMAGE}:1", grace: int = 20, **spec: object) -> Object:
    fields = {"POD": "metadata.name", "INDEX": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
    env = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    container: Object = {"name": "worker", "image": image, "env": [*env, {"name": "OUT", "value": "/data/$(POD)"}]}
    container["volumeMounts"] = [{"name": "bucket", "mountPath": "/data"}]
    if words:
        container["command"] = ["python", "worker.py", *words]
    driver = {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": bucket}}
    content: Object = {"restartPolicy": "Never", "terminationGracePeriodSeconds": grace, "containers": [container]}
    content["volumes"] = [{"name": "bucket", "csi": driver}]
    return {"metadata": {"annotations": {"gke-gcsfuse/volumes": "true"}}, "spec": content | spec}


def create_pod(api: httpx.Client, name: str, *words: str, finalizers: tuple[str, ...] = (), **spec: Any) -> None:
    content = template(*words, **spec)
    content["metadata"] |= {"name": name, "finalizers": list(finalizers)}
    answer(api.post(PODS, json={"apiVersion": "v1", "kind": "Pod", **content}))


def create_job(api: httpx.Client, name: str, pod: Object, **spec: object) -> None:
    content = {"backoffLimit": 0, "completionMode": "Indexed", "completions": 1, "template": pod, **spec}
    answer(api.post(JOBS, json={"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": content}))


def pod(api: httpx.Client, name: str) -> Object:
    return answer(api.get(f"{PODS}/{name}"))


def pods_of(api: httpx.Client, job: str) -> list[Object]:
    return list(answer(api.get(PODS, params={"labelSelector": f"batch.kubernetes.io/job-name={job}"}))["items"])


def waiting(api: httpx.Client, name: str) -> Any:
    """Why the container of a pod waits. Raises LookupError while it does not."""
    return pod(api, name)["status"]["containerStatuses"][0]["state"]["waiting"]


def remove(api: httpx.Client, name: str) -> None:
    answer(api.delete(f"{PODS}/{name}"))
    eventually(lambda: api.get(f"{PODS}/{name}").status_code == 404)


def names_of(api: httpx.Client, job: str) -> list[str]:
    return sorted(item["metadata"]["name"] for item in pods_of(api, job))


def log_of(api: httpx.Client, name: str, **options: object) -> str:
    response = api.get(f"{PODS}/{name}/log", params={key: str(value) for key, value in options.items()})
    return response.text if response.is_success else ""


def conditions(api: httpx.Client, job: str) -> dict[str, str]:
    found = answer(api.get(f"{JOBS}/{job}"))["status"].get("conditions", [])
    return {condition["type"]: condition.get("reason", "") for condition in found if condition["status"] == "True"}


def complete(api: httpx.Client, job: str) -> dict[str, str]:
    """The conditions of a Job that is complete. Raises LookupError with its pods if it is not yet."""
    found = conditions(api, job)
    if "Complete" not in found:
        pods = [(item["metadata"]["name"], item["status"]) for item in pods_of(api, job)]
        raise LookupError(f"{found}, pods: {pods}")
    return found


def terminated(item: Object) -> tuple[str, int | None]:
    (container,) = item["status"]["containerStatuses"]
    return item["status"]["phase"], container["state"].get("terminated", {}).get("exitCode")


def local_processes() -> list[int]:
    folder = Folder(CLUSTER.name).path
    return [pid for pid in processes.of(folder) if any(b"worker.py" in word for word in processes.command(pid))]


def test_a_jobs_program_writes_to_its_bucket_and_its_log(api: httpx.Client, store: Store) -> None:
    create_job(api, "write", template("write", "42"))
    eventually(lambda: complete(api, "write"))
    (of_job,) = pods_of(api, "write")
    name = of_job["metadata"]["name"]
    assert terminated(of_job) == ("Succeeded", 0)
    assert (store.bucket_folder("runs") / name / "result").read_text() == "42"
    assert log_of(api, name) == f"wrote /data/{name}\n"
    (time_written, text) = log_of(api, name, timestamps=True).split(" ", 1)
    assert (time_written[:3], text) == ("202", f"wrote /data/{name}\n")


def test_a_container_runs_the_command_of_its_image_and_waits_with_another_one(api: httpx.Client, store: Store) -> None:
    create_pod(api, "of-image", image=OF_IMAGE)
    eventually(lambda: terminated(pod(api, "of-image")) == ("Succeeded", 0))
    assert (store.bucket_folder("runs") / "of-image" / "result").read_text() == "of the image"
    create_pod(api, "hostile", "write", image=OF_IMAGE)
    eventually(lambda: "is not one that you named for example.com/writer" in waiting(api, "hostile")["message"])
    assert "emulator/run program add example.com/writer" in waiting(api, "hostile")["message"], "as its user would type"
    remove(api, "hostile")


def test_an_image_that_nobody_named_runs_nothing(api: httpx.Client, store: Store) -> None:
    create_pod(api, "simulated", "write", "42", image="example.com/other:1")
    eventually(lambda: pod(api, "simulated")["status"]["phase"] == "Running")
    time.sleep(2)
    assert pod(api, "simulated")["status"]["phase"] == "Running"
    assert "simulated/result" not in store.objects("runs")
    remove(api, "simulated")


def test_a_deleted_pod_stays_until_its_program_has_saved(
    api: httpx.Client, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    create_pod(api, "saves", "wait", finalizers=("example.com/keep",))
    eventually(lambda: "started in /data/saves" in log_of(api, "saves"))
    following = ThreadPoolExecutor(1).submit(log_of, api, "saves", follow=True)
    time.sleep(0.5)
    assert not following.done()
    answer(api.delete(f"{PODS}/saves"))
    assert terminated(pod(api, "saves")) == ("Running", None)
    assert "saves/saved" not in store.objects("runs")
    eventually(lambda: terminated(pod(api, "saves")) == ("Failed", 75))
    assert "saves/saved" in store.objects("runs")
    assert following.result(timeout=60) == "started in /data/saves\nsaved\n"
    answer(api.patch(f"{PODS}/saves", json={"metadata": {"finalizers": None}}, headers=MERGE_PATCH))
    eventually(lambda: api.get(f"{PODS}/saves").status_code == 404)
    assert logs.main(["sav"]) == 0
    words = [line.split(" ", 2)[1:] for line in capsys.readouterr().out.splitlines()]
    assert words == [["saves", "started in /data/saves"], ["saves", "saved"]]


def test_a_program_that_ignores_sigterm_is_killed_after_the_grace_period_or_by_force(api: httpx.Client) -> None:
    create_pod(api, "stubborn", "stubborn", finalizers=("example.com/keep",), grace=2)
    eventually(lambda: "started" in log_of(api, "stubborn"))
    begin = time.monotonic()
    answer(api.delete(f"{PODS}/stubborn"))
    eventually(lambda: terminated(pod(api, "stubborn")) == ("Failed", 137))
    assert 1.5 < time.monotonic() - begin < 25, "30 seconds without a grace period"
    answer(api.patch(f"{PODS}/stubborn", json={"metadata": {"finalizers": None}}, headers=MERGE_PATCH))
    eventually(lambda: not local_processes())
    create_pod(api, "forced", "stubborn")
    eventually(lambda: "started" in log_of(api, "forced"))
    assert len(local_processes()) == 1
    answer(api.request("DELETE", f"{PODS}/forced", json={"gracePeriodSeconds": 0}))
    eventually(lambda: not local_processes())


def test_a_pod_failure_policy_sees_the_exit_status(api: httpx.Client) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}
    create_job(api, "three", template("leave", "3"), backoffLimit=5, podFailurePolicy={"rules": [rule]})
    eventually(lambda: conditions(api, "three").get("Failed") == "PodFailurePolicy")
    assert [terminated(item) for item in pods_of(api, "three")] == [("Failed", 3)]


def test_a_container_restarts_in_its_pod_by_the_restart_policy(api: httpx.Client) -> None:
    create_pod(api, "restarts", "leave", "3", restartPolicy="OnFailure")
    eventually(lambda: pod(api, "restarts")["status"]["containerStatuses"][0]["restartCount"] >= 2)
    status = pod(api, "restarts")["status"]
    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 3
    assert log_of(api, "restarts", previous=True) == "leaves with 3\n"
    remove(api, "restarts")


def test_two_pods_of_a_job_meet_by_name(api: httpx.Client, store: Store) -> None:
    # Both at the same time, and another run with the same port beside them.
    for job in ("meet", "other"):
        pod = template("rendezvous", subdomain="peers")
        pod["spec"]["containers"][0]["env"].append({"name": "COORDINATOR", "value": f"{job}-0.peers:29500"})
        create_job(api, job, pod, completions=2, parallelism=2)
    for job in ("meet", "other"):
        eventually(lambda job=job: "Complete" in conditions(api, job))  # type: ignore[misc]
        zero, one = names_of(api, job)
        assert (store.bucket_folder("runs") / zero / "met").read_text() == one


def test_a_suspended_job_saves_and_resumes_with_a_new_pod(api: httpx.Client, store: Store) -> None:
    create_job(api, "suspended", template("wait"))
    (first,) = eventually(lambda: [name for name in names_of(api, "suspended") if "started" in log_of(api, name)])
    answer(api.patch(f"{JOBS}/suspended", json={"spec": {"suspend": True}}, headers=MERGE_PATCH))
    eventually(lambda: not pods_of(api, "suspended"))
    assert f"{first}/saved" in store.objects("runs")
    assert answer(api.get(f"{JOBS}/suspended"))["status"].get("failed", 0) == 0
    answer(api.patch(f"{JOBS}/suspended", json={"spec": {"suspend": False}}, headers=MERGE_PATCH))
    (second,) = eventually(lambda: [name for name in names_of(api, "suspended") if "started" in log_of(api, name)])
    assert second != first
    answer(api.delete(f"{JOBS}/suspended", params={"propagationPolicy": "Background"}))
    eventually(lambda: not pods_of(api, "suspended"))


def test_a_pod_waits_for_its_bucket(api: httpx.Client, store: Store) -> None:
    create_pod(api, "early", "write", "42", bucket="later")

    missing = {"reason": "FailedMount", "message": "the bucket later doesn't exist"}
    eventually(lambda: waiting(api, "early") == missing)
    store.put(Record("later", BUCKET, "p", {}))
    eventually(lambda: "default/default has no role on the bucket later" in waiting(api, "early")["message"])
    create_bucket(store, "later")
    eventually(lambda: terminated(pod(api, "early")) == ("Succeeded", 0))


def test_processes_end_with_the_daemon_and_their_pods_fail(api: httpx.Client) -> None:
    create_pod(api, "lost", "wait")
    eventually(lambda: "started" in log_of(api, "lost"))
    folder = Folder(CLUSTER.name).path
    (daemon,) = (pid for pid in processes.of(folder) if b"emulator.cluster.daemon" in processes.command(pid))
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: not local_processes())
    cluster.start(CLUSTER.name)
    eventually(lambda: terminated(pod(api, "lost")) == ("Failed", 137))


def test_processes_end_with_their_cluster(api: httpx.Client) -> None:
    create_pod(api, "last", "stubborn")
    eventually(lambda: "started" in log_of(api, "last"))
    assert len(local_processes()) == 1
    cluster.delete(CLUSTER.name)
    assert local_processes() == []
