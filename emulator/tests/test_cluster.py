"""Only here: the emulator's cluster with the real Kueue: what a deployment finds in it, and what it leaves behind.

The tests share one cluster, and two of them delete theirs at the end: no other test depends on an earlier one.
"""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulator import cluster
from emulator.cloud import auth_plugin, capacity, delay
from emulator.cloud.api import MERGE_PATCH, Object, Refused, answer, client
from emulator.cloud.control_plane import COMPONENTS, id_of
from emulator.cloud.folder import Folder, try_lock
from emulator.cluster import ClusterRecord, PoolRecord
from emulator.gateway import routes as gateway_routes
from emulator.machine import paths, processes
from emulator.nodes.requests import PROVISIONING_REQUEST
from emulator.pods import controllers
from emulator.tests.clusters import clusters_in, eventually
from gke_ai.catalog.fabric.rdma import DEVICE_API, NICS_PER_POD, PROFILE, TEMPLATE, claim_template
from gke_ai.catalog.nodes.shape import free
from gke_ai.catalog.quantities import format_quantities
from gke_ai.catalog.versions import KUEUE_VERSION

pytestmark = pytest.mark.cluster

ZONE = "us-central1-a"
STANDARD = ClusterRecord("llm-cluster", "p", "us-central1", "standard", [ZONE], "1.36.1-gke.1")
AUTOPILOT = ClusterRecord("half", "p", "us-central1", "autopilot", [ZONE], "1.36.1-gke.1")
SYSTEM_POOL = PoolRecord("default-pool", "e2-standard-4", [ZONE], nodes_per_zone=1)
GPU_POOL = PoolRecord("gpupool", "g2-standard-24", [ZONE], gpu="nvidia-l4", gpus=2, driver="latest", nodes_per_zone=3)
PODS = "/api/v1/namespaces/llm/pods"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
CLASSES = "/apis/cloud.google.com/v1/computeclasses"
DEFAULT_PODS = "/api/v1/namespaces/default/pods"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/llm/provisioningrequests"
JOBS = "/apis/batch/v1/namespaces/llm/jobs"
L4 = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
DEPLOYMENT = "/apis/apps/v1/namespaces/llm/deployments/tgi"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    # Deeper than the 108 bytes that the path of a Unix socket may have.
    root = tmp_path_factory.mktemp("state") / "with spaces and Umläute" / ("deep" * 25)
    with clusters_in(root):
        yield root


@pytest.fixture(autouse=True)
def undelayed(state: Path) -> Iterator[None]:  # noqa: ARG001 (whose delays these are)
    """Removes the delays of a test, also of one that failed."""
    yield
    if delay.delays():
        delay.declare({})


@pytest.fixture(scope="module")
def half(state: Path) -> Iterator[Folder]:  # noqa: ARG001 (where the cluster is made)
    """An Autopilot cluster with a running pod."""
    yield started_half()
    cluster.delete("half")


def started_half() -> Folder:
    folder = Folder("half")
    cluster.create("half", AUTOPILOT)
    with client(folder) as api:
        create(api, DEFAULT_PODS, "Pod", "p", spec={"nodeSelector": L4, "containers": [container(1)]})
        await_running(api, "p")
    return folder


@pytest.fixture(scope="module")
def api(state: Path) -> Iterator[httpx.Client]:  # noqa: ARG001 (where the cluster is made)
    """A cluster with the pools of the mixed example, a namespace and the real Kueue, by its chart."""
    cluster.create(STANDARD.name, STANDARD)
    cluster.set_pool(STANDARD.name, SYSTEM_POOL)
    cluster.set_pool(STANDARD.name, GPU_POOL)
    image = "controllerManager.manager.image"
    release = f"{image}.repository=registry.k8s.io/kueue/kueue,{image}.tag=v{KUEUE_VERSION}"
    chart = str(Path(os.environ["GKE_AI_CHARTS"]) / "kueue")
    helm("install", "kueue", chart, "--create-namespace", "--set", release)
    with client(Folder(STANDARD.name)) as api:
        create(api, "/api/v1/namespaces", "Namespace", "llm")
        yield api


@pytest.fixture(scope="module")
def queue(api: httpx.Client) -> str:
    """A local queue with a quota of the GPU pool, and a higher and a lower priority class."""
    quota = {"nvidia.com/gpu": "6", "cpu": "72"}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    group = {"coveredResources": list(quota), "flavors": [{"name": "l4", "resources": resources}]}
    preemption = {"withinClusterQueue": "LowerPriority"}
    spec = {"namespaceSelector": {}, "resourceGroups": [group], "preemption": preemption}
    await_webhook(api)
    create(api, f"{KUEUE}/resourceflavors", "ResourceFlavor", "l4", spec={})
    create(api, f"{KUEUE}/clusterqueues", "ClusterQueue", "queue", spec=spec)
    create(api, f"{KUEUE}/namespaces/llm/localqueues", "LocalQueue", "lq", spec={"clusterQueue": "queue"})
    for name, value in (("high", 1000), ("low", -10)):
        create(api, "/apis/scheduling.k8s.io/v1/priorityclasses", "PriorityClass", name, value=value)
    return "lq"


def await_webhook(api: httpx.Client) -> None:
    """Returns once Kueue's webhook answers."""
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}}
    eventually(lambda: answer(api.post(f"{KUEUE}/resourceflavors", params={"dryRun": "All"}, json=flavor)))


def helm(*arguments: str) -> None:
    kubeconfig = str(Folder(STANDARD.name).kubeconfig)
    command = [processes.tool("helm"), "--kubeconfig", kubeconfig, "--namespace", "kueue-system", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def commands() -> dict[str, int]:
    """The programs that run for the cluster, with how many times each does."""
    counted: dict[str, int] = {}
    for pid in processes.of(Folder(STANDARD.name).path):
        words = processes.command(pid)
        name = "daemon" if b"emulator.cluster.daemon" in words else Path(words[0].decode()).name
        counted[name] = counted.get(name, 0) + 1
    return counted


def listening(component: str, name: str) -> list[str]:
    """The TCP addresses on which a component of a control plane listens, as in /proc/net/tcp."""
    pid = id_of(Folder(name), component)
    sockets = {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()}
    tables = [Path("/proc/net", table).read_text().splitlines()[1:] for table in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


def open_to_others(name: str) -> list[Path]:
    """The folders around a cluster's files, and its keys, that other users may read."""
    folder = Folder(name)
    keys = list(folder.pki.glob("*.key"))
    assert len(keys) == 2
    return [path for path in (paths.CLUSTERS, folder.path, *keys) if path.stat().st_mode & 0o077]


def nodes_of(api: httpx.Client, pool: str) -> dict[str, Object]:
    """The nodes of a pool by name."""
    selector = {"labelSelector": f"cloud.google.com/gke-nodepool={pool}"}
    return {node["metadata"]["name"]: node for node in answer(api.get("/api/v1/nodes", params=selector))["items"]}


def pod_of(api: httpx.Client, name: str) -> Object:
    """A pod of the namespace `default`."""
    return answer(api.get(f"{DEFAULT_PODS}/{name}"))


def await_running(api: httpx.Client, name: str) -> None:
    eventually(lambda: pod_of(api, name)["status"].get("phase") == "Running")


def remove(api: httpx.Client, *names: str) -> None:
    """Deletes pods of the namespace `default` at once."""
    for name in names:
        answer(api.delete(f"{DEFAULT_PODS}/{name}", params={"gracePeriodSeconds": "0"}))


ALL_RUN_ONCE = dict.fromkeys((*COMPONENTS, "daemon"), 1)


def container(gpus: int) -> Object:
    return {"name": "c", "image": "example/model", "resources": {"limits": {"nvidia.com/gpu": gpus, "cpu": 2}}}


def create(api: httpx.Client, path: str, kind: str, name: str, **content: Any) -> Object:
    api_version = path.split("/")[2] if path.startswith("/api/") else "/".join(path.split("/")[2:4])
    body = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name} | content.pop("metadata", {}),
        **content,
    }
    return answer(api.post(path, params={"fieldValidation": "Strict"}, json=body))


def delete_with_dependents(api: httpx.Client, path: str) -> None:
    """Deletes an object after its dependents, such as pods and workloads."""
    answer(api.request("DELETE", path, json={"propagationPolicy": "Foreground"}))
    await_gone(api, path)


def await_gone(api: httpx.Client, path: str) -> None:
    eventually(lambda: api.get(path).status_code == 404)


def crd_groups(api: httpx.Client) -> set[str]:
    definitions = answer(api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"))["items"]
    return {crd["spec"]["group"] for crd in definitions}


def phases(api: httpx.Client, **labels: str) -> list[str]:
    """Rows of `kubectl get pods` for the pods with these labels, sorted."""
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    shown = []
    for pod in answer(api.get(PODS, params={"labelSelector": selector}))["items"]:
        gated = any(c.get("reason") == "SchedulingGated" for c in pod["status"].get("conditions", []))
        shown.append("SchedulingGated" if gated else pod["status"]["phase"])
    return sorted(shown)


def restart_daemon(webhook_delay: str) -> None:
    """Kills the daemon, and with it the processes of pods, and starts it with another delay of its webhooks."""
    folder = Folder(STANDARD.name).path
    daemon = next(pid for pid in processes.of(folder) if b"emulator.cluster.daemon" in processes.command(pid))
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: not {"daemon", "kueue"} & commands().keys())
    # As the dying daemon: the kernel closes its files, which hold the lock, after its command line is gone.
    lock = eventually(lambda: try_lock(folder))
    threading.Timer(0.5, os.close, [lock]).start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(controllers.WEBHOOK_DELAY_VARIABLE, webhook_delay)
        cluster.create(STANDARD.name, STANDARD)


def test_a_daemon_that_died_is_restarted_and_starts_kueue_whose_pod_is_ready_before_its_webhook_answers(
    api: httpx.Client,
) -> None:
    def ready() -> bool:
        pods = answer(api.get("/api/v1/namespaces/kueue-system/pods"))["items"]
        conditions = [c for pod in pods for c in pod["status"].get("conditions", [])]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    restart_daemon(webhook_delay="3600")
    eventually(ready)
    with pytest.raises(Refused, match="webhook"):
        create(api, f"{KUEUE}/resourceflavors", "ResourceFlavor", "too-early", spec={})
    assert commands() == ALL_RUN_ONCE
    restart_daemon(webhook_delay="")
    eventually(lambda: commands() == ALL_RUN_ONCE | {"kueue": 1})
    await_webhook(api)


@pytest.mark.nightly
def test_a_kueue_that_hangs_is_restarted_by_the_liveness_probe_of_its_chart(api: httpx.Client) -> None:
    await_webhook(api)
    hangs = kueue()
    os.kill(hangs, signal.SIGSTOP)
    eventually(lambda: kueue() not in (0, hangs), 300)
    await_webhook(api)


@pytest.mark.nightly
def test_kueue_works_again_after_the_api_server_was_killed_while_kueue_started(api: httpx.Client) -> None:
    """Kueue then waits for ever for certificates, of a manager that has ended."""
    await_webhook(api)
    log = next(Folder(STANDARD.name).log.glob("kueue-system_*_manager.log"))
    before = log.stat().st_size
    os.kill(kueue(), signal.SIGKILL)
    while b"Starting bootstrap manager" not in log.read_bytes()[before:]:
        time.sleep(0.005)
    api_server = id_of(Folder(STANDARD.name), "kube-apiserver")
    assert api_server
    os.kill(api_server, signal.SIGKILL)
    eventually(lambda: b"Bootstrap manager failed" in log.read_bytes()[before:])
    cluster.start(STANDARD.name)
    eventually(lambda: log.read_bytes()[before:].count(b"Starting bootstrap manager") == 2, 300)
    await_webhook(api)


def kueue() -> int:
    """The process of Kueue, or 0 while there is none."""
    ids = processes.of(Folder(STANDARD.name).path)
    return next((pid for pid in ids if processes.command(pid)[0].endswith(b"/kueue")), 0)


def test_quota_blocks_the_fourth_server_and_preempts_the_job(api: httpx.Client, queue: str) -> None:
    queued = {"labels": {"kueue.x-k8s.io/queue-name": queue}}

    def template(priority: str, gpus: int, **spec: Any) -> Object:
        pod = {"priorityClassName": priority, "nodeSelector": L4, "containers": [container(gpus)]}
        return {"metadata": {"labels": {"app": "tgi"} if priority == "high" else {}}, "spec": pod | spec}

    server = {"replicas": 4, "selector": {"matchLabels": {"app": "tgi"}}, "template": template("high", 2)}
    create(api, "/apis/apps/v1/namespaces/llm/deployments", "Deployment", "tgi", metadata=queued, spec=server)
    eventually(lambda: phases(api, app="tgi") == ["Running"] * 3 + ["SchedulingGated"])

    def scale(replicas: int) -> None:
        answer(api.patch(DEPLOYMENT, json={"spec": {"replicas": replicas}}, headers=MERGE_PATCH))

    scale(1)
    job = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "suspend": True}
    job["template"] = template("low", 2, restartPolicy="OnFailure")
    create(api, JOBS, "Job", "finetune", metadata=queued, spec=job)

    eventually(lambda: phases_of_job(api, "finetune") == ["Running"] * 2)
    scale(2)
    eventually(lambda: phases(api, app="tgi") == ["Running"] * 2 and phases_of_job(api, "finetune") == [])
    scale(1)
    eventually(lambda: phases_of_job(api, "finetune") == ["Running"] * 2)
    # Containers that Kueue had stopped are not the Job's failures.
    assert answer(api.get(f"{JOBS}/finetune"))["status"].get("failed", 0) == 0
    for path in (DEPLOYMENT, f"{JOBS}/finetune"):
        delete_with_dependents(api, path)


def test_a_pod_that_the_program_accepts_is_scheduled_beside_gkes_agents(api: httpx.Client) -> None:
    """All that `fit` counts on of a node is there for a pod, and no more."""
    pool = replace(GPU_POOL, name="whole", nodes_per_zone=1)
    cluster.set_pool(STANDARD.name, pool)
    left = format_quantities(free(pool.shape(ZONE)))
    selector = {"cloud.google.com/gke-nodepool": pool.name}

    def put(name: str, cpu: str) -> Object:
        requests = {"cpu": cpu, "memory": left["memory"], "nvidia.com/gpu": left["nvidia.com/gpu"]}
        container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}
        spec = {"containers": [container], "nodeSelector": selector, "terminationGracePeriodSeconds": 0}
        return answer(api.post(DEFAULT_PODS, json={"metadata": {"name": name}, "spec": spec}))

    def agents() -> list[Object]:
        pods = answer(api.get("/api/v1/namespaces/kube-system/pods"))["items"]
        return [pod for pod in pods if "-whole-" in pod["spec"].get("nodeName", "")]

    def is_unschedulable(name: str) -> bool:
        conditions = pod_of(api, name)["status"].get("conditions", [])
        return any(condition.get("reason") == "Unschedulable" for condition in conditions)

    eventually(lambda: len(agents()) == 2)
    milli = int(left["cpu"].removesuffix("m"))
    put("too-much", f"{milli + 1}m")
    eventually(lambda: is_unschedulable("too-much"))
    answer(api.delete(f"{DEFAULT_PODS}/too-much"))
    put("all", left["cpu"])
    await_running(api, "all")
    answer(api.delete(f"{DEFAULT_PODS}/all"))
    cluster.remove_pool(STANDARD.name, pool.name)


def test_finish_job_ends_a_job(api: httpx.Client) -> None:
    await_webhook(api)
    template = {"spec": {"containers": [{"name": "c", "image": "example/model"}], "restartPolicy": "Never"}}
    create(api, JOBS, "Job", "brief", spec={"parallelism": 2, "completions": 2, "template": template})
    eventually(lambda: phases_of_job(api, "brief") == ["Running"] * 2)
    assert cluster.finish_job(STANDARD.name, "llm", "brief") == 2
    eventually(lambda: answer(api.get(f"{JOBS}/brief"))["status"].get("succeeded") == 2)
    with pytest.raises(cluster.NothingRuns, match="brief"):
        cluster.finish_job(STANDARD.name, "llm", "brief")


@pytest.mark.usefixtures("queue")
def test_kueue_has_its_own_service_accounts_permissions_and_serves_its_aggregated_api(api: httpx.Client) -> None:
    await_webhook(api)
    token = next(Folder(STANDARD.name).sandboxes.glob("*/*/token")).read_text()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    with without_certificate(api, authorization=f"Bearer {token}") as kueue:
        who = answer(kueue.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json=review))
        assert kueue.get("/api/v1/namespaces/llm/configmaps").status_code == 403
    assert who["status"]["userInfo"]["username"] == "system:serviceaccount:kueue-system:kueue-controller-manager"
    path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/queue/pendingworkloads"
    assert eventually(lambda: answer(api.get(path)))["kind"] == "PendingWorkloadsSummary"


def without_certificate(api: httpx.Client, **headers: str) -> httpx.Client:
    """A client that has only these headers to show who it is."""
    tls = ssl.create_default_context(cafile=str(Folder(STANDARD.name).pki / "ca.crt"))
    return httpx.Client(base_url=api.base_url, verify=tls, trust_env=False, headers=headers)


def test_a_system_priority_class_is_refused_outside_kube_system(api: httpx.Client) -> None:
    for name in ("system-cluster-critical", "system-node-critical"):
        spec = {"priorityClassName": name, "containers": [{"name": "c", "image": "example/agent"}]}
        with pytest.raises(Refused, match="insufficient quota to match these scopes"):
            create(api, PODS, "Pod", "critical", spec=spec)
        create(api, "/api/v1/namespaces/kube-system/pods", "Pod", name, spec=spec)


def test_a_deleted_pod_with_a_finalizer_stays_until_its_owner_removes_it(api: httpx.Client) -> None:
    kept = {"finalizers": ["example.com/keep"]}
    create(api, PODS, "Pod", "kept", metadata=kept, spec={"containers": [container(0)]})
    eventually(lambda: answer(api.get(f"{PODS}/kept"))["status"]["phase"] == "Running")
    api.delete(f"{PODS}/kept")
    eventually(lambda: answer(api.get(f"{PODS}/kept"))["status"]["phase"] == "Failed")
    answer(api.patch(f"{PODS}/kept", json={"metadata": {"finalizers": None}}, headers=MERGE_PATCH))
    await_gone(api, f"{PODS}/kept")


def test_a_pod_monitoring_with_a_misplaced_field_is_refused(api: httpx.Client) -> None:
    path = "/apis/monitoring.googleapis.com/v1/namespaces/llm/podmonitorings"
    selector = {"matchLabels": {"app": "tgi"}}
    spec = {"selector": selector, "endpoints": [{"port": "http", "interval": "15s"}]}
    create(api, path, "PodMonitoring", "right", spec=spec)
    with pytest.raises(Refused, match="unknown field"):
        create(api, path, "PodMonitoring", "wrong", spec=spec, selector=selector)


def create_class(api: httpx.Client, name: str, machine: str, config: Object | None = None, **priority: str) -> Object:
    """A ComputeClass of Spot nodes of this machine type. Returns what selects it in a pod."""
    spec = {
        "priorities": [{"machineType": machine, "spot": True, **priority}],
        "nodePoolAutoCreation": {"enabled": True},
    }
    create(api, CLASSES, "ComputeClass", name, spec=spec | (config or {}))
    return {"cloud.google.com/compute-class": name}


def create_pod_with_disk(api: httpx.Client, name: str, machine: str, gpus: int) -> Object:
    """A pod on Spot nodes of this machine type, with a disk of the StorageClass premium-rwo."""
    claim: Object = {"accessModes": ["ReadWriteOnce"], "storageClassName": "premium-rwo"}
    claim["resources"] = {"requests": {"storage": "100Gi"}}
    disk = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    pod = {"nodeSelector": create_class(api, name, machine), "containers": [container(gpus)], "volumes": [disk]}
    return create(api, DEFAULT_PODS, "Pod", name, spec=pod)


def test_a_disk_that_the_machine_cannot_attach_keeps_its_pod_pending(api: httpx.Client) -> None:
    create_pod_with_disk(api, "g4", "g4-standard-48", 1)

    def reasons() -> dict[str, str]:
        return {e["reason"]: e["message"] for e in answer(api.get("/api/v1/namespaces/default/events"))["items"]}

    eventually(lambda: "FailedAttachVolume" in reasons())
    assert "'pd-ssd' is not a compatible disk type" in reasons()["FailedAttachVolume"]
    assert pod_of(api, "g4")["status"]["phase"] == "Pending"
    api.delete(f"{DEFAULT_PODS}/g4")
    await_gone(api, f"{DEFAULT_PODS}/g4")


def test_a_pod_of_a_compute_class_gets_a_node_a_toleration_and_a_disk(api: httpx.Client) -> None:
    created = create_pod_with_disk(api, "cheap", "g2-standard-24", 2)
    taint = {"key": "cloud.google.com/compute-class", "operator": "Equal", "value": "cheap", "effect": "NoSchedule"}
    assert taint in created["spec"]["tolerations"]
    await_running(api, "cheap")
    node = answer(api.get(f"/api/v1/nodes/{pod_of(api, 'cheap')['spec']['nodeName']}"))
    assert node["metadata"]["labels"]["cloud.google.com/gke-spot"] == "true"
    (volume,) = answer(api.get("/api/v1/persistentvolumes"))["items"]
    assert (volume["status"]["phase"], volume["spec"]["capacity"]) == ("Bound", {"storage": "100Gi"})
    api.delete(f"{DEFAULT_PODS}/cheap")
    eventually(lambda: answer(api.get("/api/v1/persistentvolumes"))["items"] == [])


def test_a_pod_of_a_compute_class_with_a_network_profile_gets_the_nics_of_its_node(api: httpx.Client) -> None:
    driver = {"nodePoolConfig": {"dra": {"networking": {"enabled": True}}}}
    selector = create_class(api, "b200", "a4-highgpu-8g", driver, acceleratorNetworkProfile=PROFILE)
    path = f"/apis/{DEVICE_API}/namespaces/default"
    answer(api.post(f"{path}/resourceclaimtemplates", json=claim_template("default")))
    resources = container(8)["resources"] | {"claims": [{"name": TEMPLATE}]}
    pod = {"nodeSelector": selector, "containers": [container(8) | {"resources": resources}]}
    pod["resourceClaims"] = [{"name": TEMPLATE, "resourceClaimTemplateName": TEMPLATE}]
    create(api, DEFAULT_PODS, "Pod", "b200", spec=pod)
    await_running(api, "b200")
    (claim,) = answer(api.get(f"{path}/resourceclaims"))["items"]
    assert len(claim["status"]["allocation"]["devices"]["results"]) == NICS_PER_POD
    api.delete(f"{DEFAULT_PODS}/b200")
    eventually(lambda: answer(api.get(f"{path}/resourceclaims"))["items"] == [])


@pytest.mark.parametrize(
    ("priority", "cause"),
    [
        ({"machineTyp": "g2-standard-24"}, "unknown field"),
        ({"machineType": "g2-standard-24", "machineFamily": "g2"}, "machineType and machineFamily exclude each other"),
        ({"machineType": "g2-standard-24", "minCores": 8}, "machineType excludes minCores"),
        ({"machineType": "a", "spot": True, "flexStart": {"enabled": True}}, "flexStart and spot exclude each other"),
        ({"flexStart": {"enabled": True, "nodeRecycling": {"leadTimeSeconds": 0}}}, "greater than or equal to 1"),
        ({"machineType": "a", "reservations": {"affinity": "Specific"}}, "specific reservations are named"),
        ({"nodepools": ["a"], "spot": True}, "nodepools stands alone"),
        ({"machineType": "a", "acceleratorNetworkProfile": "Auto"}, "should match"),
    ],
)
def test_a_compute_class_that_breaks_googles_rules_is_refused(api: httpx.Client, priority: Object, cause: str) -> None:
    with pytest.raises(Refused, match=cause):
        create(api, CLASSES, "ComputeClass", "wrong", spec={"priorities": [priority]})


@pytest.fixture(scope="module")
def requested(api: httpx.Client) -> None:
    """The queue `dws`, whose runs get the nodes of a pool by a ProvisioningRequest."""
    await_webhook(api)

    queued = replace(GPU_POOL, name="queued", capacity="queuedFlexStart", nodes_per_zone=None, max_nodes=2)
    cluster.set_pool(STANDARD.name, queued)
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    flavor = {"nodeLabels": {"cloud.google.com/gke-nodepool": "queued"}, "tolerations": [toleration]}
    create(api, f"{KUEUE}/resourceflavors", "ResourceFlavor", "queued", spec=flavor)
    # The pods are sent to the nodes that came for them.
    chosen = {"key": PROVISIONING_REQUEST, "valueFromProvisioningClassDetail": "ResizeRequestName"}
    config = {
        "provisioningClassName": "queued-provisioning.gke.io",
        "managedResources": ["nvidia.com/gpu"],
        "podSetUpdates": {"nodeSelector": [chosen]},
        "retryStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1},
    }
    create(api, f"{KUEUE}/provisioningrequestconfigs", "ProvisioningRequestConfig", "dws", spec=config)
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "dws"}
    check = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    create(api, f"{KUEUE}/admissionchecks", "AdmissionCheck", "dws", spec=check)
    quota = [{"name": "nvidia.com/gpu", "nominalQuota": "8"}, {"name": "cpu", "nominalQuota": "99"}]
    group = {"coveredResources": ["nvidia.com/gpu", "cpu"], "flavors": [{"name": "queued", "resources": quota}]}
    strategy = {"admissionChecks": [{"name": "dws"}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group], "admissionChecksStrategy": strategy}
    create(api, f"{KUEUE}/clusterqueues", "ClusterQueue", "dws", spec=spec)
    create(api, f"{KUEUE}/namespaces/llm/localqueues", "LocalQueue", "dws", spec={"clusterQueue": "dws"})


@pytest.mark.usefixtures("requested")
def test_kueue_requests_queued_nodes_and_its_job_runs_on_them(api: httpx.Client) -> None:
    capacity.declare({"queuedFlexStart": False})
    submit_queued(api, "dws", 2)

    def waits() -> list[str]:
        requests = answer(api.get(REQUESTS))["items"]
        conditions = [c for request in requests for c in request.get("status", {}).get("conditions", [])]
        return [c["message"] for c in conditions if (c["type"], c["status"]) == ("Provisioned", "False")]

    eventually(lambda: waits() == ["queued: no queuedFlexStart capacity (GCE_STOCKOUT)"])
    assert phases_of_job(api, "dws") == []
    capacity.declare({"queuedFlexStart": True})
    eventually(lambda: phases_of_job(api, "dws") == ["Running"] * 2)
    nodes = requested_nodes(api)
    assert len(nodes) == 2
    pods = answer(api.get(PODS, params={"labelSelector": "batch.kubernetes.io/job-name=dws"}))["items"]
    names = {node["metadata"]["labels"][PROVISIONING_REQUEST] for node in nodes}
    assert {pod["spec"]["nodeSelector"][PROVISIONING_REQUEST] for pod in pods} == names
    assert cluster.finish_job(STANDARD.name, "llm", "dws") == 2
    delete_with_dependents(api, f"{JOBS}/dws")


def submit_queued(api: httpx.Client, name: str, pods: int, **annotations: str) -> None:
    """Submits a Job to the queue whose runs get their nodes by a request."""
    template = {"spec": {"containers": [container(2)], "restartPolicy": "Never"}}
    spec = {"parallelism": pods, "completions": pods, "suspend": True, "template": template}
    metadata = {"labels": {"kueue.x-k8s.io/queue-name": "dws"}, "annotations": annotations}
    create(api, JOBS, "Job", name, metadata=metadata, spec=spec)


def phases_of_job(api: httpx.Client, name: str) -> list[str]:
    return phases(api, **{"batch.kubernetes.io/job-name": name})


def requested_nodes(api: httpx.Client) -> list[Object]:
    return list(answer(api.get("/api/v1/nodes", params={"labelSelector": PROVISIONING_REQUEST}))["items"])


def requests_since(api: httpx.Client, version: str, job: str) -> dict[str, set[str]]:
    """The conditions that became true of each request of a Job since a version of the list, by Kueue's attempt.

    Kueue deletes a request as soon as it evicts the run, so they are read from the API server's history.
    """
    watched = api.get(REQUESTS, params={"watch": "1", "resourceVersion": version, "timeoutSeconds": "1"})
    found: dict[str, set[str]] = {}
    for request in (json.loads(line)["object"] for line in watched.text.splitlines()):
        if (name := request["metadata"]["name"]).startswith(f"job-{job}-"):
            conditions = request.get("status", {}).get("conditions", [])
            true = {c["type"] for c in conditions if c["status"] == "True"}
            found.setdefault(name.rpartition("-")[2], set()).update(true)
    return found


def version_of_requests(api: httpx.Client) -> str:
    return str(answer(api.get(REQUESTS))["metadata"]["resourceVersion"])


def is_given_up(api: httpx.Client, job: str) -> bool:
    """Whether Kueue no longer admits the workload of a Job."""
    items = answer(api.get(f"{KUEUE}/namespaces/llm/workloads"))["items"]
    return [item["spec"]["active"] for item in items if item["metadata"]["name"].startswith(f"job-{job}-")] == [False]


@pytest.mark.usefixtures("requested")
def test_kueue_retries_a_run_whose_request_failed_and_then_gives_it_up(api: httpx.Client) -> None:
    delay.declare({"request": 1})
    before = version_of_requests(api)
    submit_queued(api, "huge", 3)  # the pool has at most two nodes
    eventually(lambda: is_given_up(api, "huge"), 120)
    # On a busy machine, a watch of one second can end before it has sent the whole history.
    eventually(lambda: requests_since(api, before, "huge") == {"1": {"Failed"}, "2": {"Failed"}})
    assert phases_of_job(api, "huge") == []
    delete_with_dependents(api, f"{JOBS}/huge")


@pytest.mark.usefixtures("requested")
def test_gke_reclaims_the_nodes_of_a_request_at_the_end_of_its_run(api: httpx.Client) -> None:
    delay.declare({"booking": 0, "idle": 0})
    eventually(lambda: requested_nodes(api) == [])
    delay.declare({})
    before = version_of_requests(api)
    submit_queued(api, "short", 1, **{"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "5"})
    eventually(lambda: phases_of_job(api, "short") == ["Running"])
    eventually(lambda: is_given_up(api, "short"), 120)
    ended = {"Accepted", "Provisioned", "BookingExpired", "CapacityRevoked"}
    eventually(lambda: requests_since(api, before, "short") == {"1": ended})
    eventually(lambda: requested_nodes(api) == [])
    delete_with_dependents(api, f"{JOBS}/short")


def test_the_auth_plugin_returns_a_credential_quickly(api: httpx.Client, state: Path) -> None:
    def ask(server: str) -> subprocess.CompletedProcess[str]:
        spec = {"interactive": False, "cluster": {"server": server}}
        info = json.dumps({"kind": "ExecCredential", "apiVersion": auth_plugin.API_VERSION, "spec": spec})
        env = {"KUBERNETES_EXEC_INFO": info, "GKE_AI_STATE": str(state), "PYTHONPATH": str(paths.ROOT)}
        command = [sys.executable, "-P", "-m", "emulator.cloud.auth_plugin"]
        return subprocess.run(command, env=env, capture_output=True, text=True)

    status = json.loads(ask(str(api.base_url)).stdout)["status"]
    assert status == cluster.credential(cluster.endpoint(STANDARD.name).host)
    assert json.loads(ask(f"https://localhost:{api.base_url.port}").stdout)["status"] == status
    refused = ask("https://127.0.0.1:1")
    assert refused.returncode == 1
    assert "no cluster at 127.0.0.1:1" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_control_plane_is_trusted_by_its_dns_name_without_a_certificate_in_the_kubeconfig(
    api: httpx.Client, state: Path
) -> None:
    def version(authorities: Path | None) -> httpx.Response:
        tls = ssl.create_default_context(cafile=authorities)
        tls.load_cert_chain(Folder(STANDARD.name).pki / "admin.crt", Folder(STANDARD.name).pki / "admin.key")
        with httpx.Client(verify=tls, trust_env=False) as anyone:
            return anyone.get(f"https://localhost:{api.base_url.port}/version")

    assert version(state / "authorities.pem").json()["major"] == "1"
    with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
        version(None)  # by those of the machine alone, or of another emulator


def test_others_reach_neither_etcd_nor_the_keys_and_the_control_plane_refuses_them(api: httpx.Client) -> None:
    assert listening("etcd", STANDARD.name) == []
    assert listening("kube-apiserver", STANDARD.name) != []
    assert open_to_others(STANDARD.name) == []
    with without_certificate(api) as anyone:
        answers = {path: anyone.get(path).status_code for path in ("/", "/version", "/readyz", "/api/v1/namespaces")}
    assert set(answers.values()) == {401}, answers


def test_a_pool_changes_in_place_where_gke_does_and_is_replaced_where_not(api: httpx.Client) -> None:
    extra = PoolRecord("extra", "e2-standard-2", [ZONE], nodes_per_zone=2, labels={"team": "red"})
    cluster.set_pool(STANDARD.name, extra)
    before = nodes_of(api, "extra")
    cluster.set_pool(STANDARD.name, replace(extra, labels={"tier": "one"}, nodes_per_zone=1))
    ((name, node),) = nodes_of(api, "extra").items()
    assert name in before
    assert (node["metadata"]["labels"].get("team"), node["metadata"]["labels"]["tier"]) == (None, "one")
    cluster.set_pool(STANDARD.name, replace(extra, machine_type="e2-standard-4", nodes_per_zone=1))
    assert before.keys().isdisjoint(nodes_of(api, "extra"))
    cluster.remove_pool(STANDARD.name, "extra")
    cluster.remove_pool(STANDARD.name, "extra")
    assert nodes_of(api, "extra") == {}


def test_limits_of_an_autoscaled_pool_neither_add_nor_delete_nodes(api: httpx.Client) -> None:
    delay.declare({"idle": 600})
    pool = PoolRecord("limits", "e2-standard-2", [ZONE], min_nodes=2, max_nodes=4)
    cluster.set_pool(STANDARD.name, pool)
    before = nodes_of(api, "limits").keys()
    assert len(before) == 2
    for low, high in ((0, 1), (3, 4)):
        cluster.set_pool(STANDARD.name, replace(pool, min_nodes=low, max_nodes=high))
        assert nodes_of(api, "limits").keys() == before
    cluster.set_pool(STANDARD.name, replace(pool, machine_type="e2-standard-4"))
    after = nodes_of(api, "limits").keys()
    assert (len(after), after & before) == (2, set()), "nodes with another machine are replaced"
    cluster.set_pool(STANDARD.name, PoolRecord("limits", "e2-standard-4", [ZONE], nodes_per_zone=1))
    assert len(nodes_of(api, "limits")) == 1, "a fixed size deletes nodes"
    cluster.remove_pool(STANDARD.name, "limits")
    delay.declare({})


def test_delays_of_pods_are_in_effect_once_they_are_declared(api: httpx.Client) -> None:
    pods = "/api/v1/namespaces/kube-system/pods"  # without the webhook of Kueue, which may not answer yet
    for seconds in (1.0, 2.0, 3.0):
        delay.declare({"pod": seconds})
        name = f"delayed-{seconds:.0f}"
        create(api, pods, "Pod", name, spec={"nodeSelector": L4, "containers": [container(1)]})
        assert delay.of(answer(api.get(f"{pods}/{name}"))) == seconds
        answer(api.delete(f"{pods}/{name}", params={"gracePeriodSeconds": "0"}))


def test_pods_wait_until_their_new_node_is_ready(api: httpx.Client) -> None:
    fresh = PoolRecord("fresh", "e2-standard-4", [ZONE], max_nodes=1)
    cluster.set_pool(STANDARD.name, fresh)
    delay.declare({"node": 3})
    selector = {"cloud.google.com/gke-nodepool": "fresh"}
    listed = {"labelSelector": "cloud.google.com/gke-nodepool=fresh"}
    before = str(answer(api.get("/api/v1/nodes", params=listed))["metadata"]["resourceVersion"])
    create(api, DEFAULT_PODS, "Pod", "early", spec={"nodeSelector": selector, "containers": [container(0)]})

    def since(item: Object, name: str) -> str:
        """When a condition became true, or an empty text."""
        conditions = item.get("status", {}).get("conditions", [])
        return next((c["lastTransitionTime"] for c in conditions if (c["type"], c["status"]) == (name, "True")), "")

    def created() -> Object:
        """The node as it was created, from the API server's history."""
        history = listed | {"watch": "1", "resourceVersion": before, "timeoutSeconds": "1"}
        lines = api.get("/api/v1/nodes", params=history).text.splitlines()
        return dict(json.loads(lines[0])["object"]) if lines else {}

    new = eventually(created)
    assert not since(new, "Ready")
    assert "node.kubernetes.io/not-ready" in [taint["key"] for taint in new["spec"]["taints"]]
    await_running(api, "early")
    (node,) = nodes_of(api, "fresh").values()
    assert since(pod_of(api, "early"), "PodScheduled") >= since(node, "Ready") > ""
    remove(api, "early")
    cluster.remove_pool(STANDARD.name, "fresh")


def test_a_pool_of_fixed_size_is_not_created_without_capacity(api: httpx.Client) -> None:
    dry = PoolRecord("dry", "e2-standard-2", [ZONE], capacity="spot", nodes_per_zone=2)
    capacity.declare({"spot": False})
    try:
        with pytest.raises(cluster.NoCapacity, match=r"Expected 2, running 0\..*GCE_STOCKOUT"):
            cluster.set_pool(STANDARD.name, dry)
    finally:
        capacity.declare({"spot": True})
    assert nodes_of(api, "dry") == {}
    cluster.set_pool(STANDARD.name, dry)
    cluster.remove_pool(STANDARD.name, "dry")


@pytest.mark.usefixtures("queue", "requested")
def test_everything_is_deleted_and_no_namespace_hangs(api: httpx.Client) -> None:
    submit_queued(api, "last", 1)
    eventually(lambda: phases_of_job(api, "last") == ["Running"])
    delete_with_dependents(api, f"{JOBS}/last")
    answer(api.delete("/api/v1/namespaces/llm"))
    kinds = {"clusterqueues": ("queue", "dws"), "resourceflavors": ("l4", "queued"), "admissionchecks": ("dws",)}
    for kind, names in kinds.items():
        for name in names:
            answer(api.delete(f"{KUEUE}/{kind}/{name}"))
            await_gone(api, f"{KUEUE}/{kind}/{name}")
    helm("uninstall", "kueue")
    answer(api.delete("/api/v1/namespaces/kueue-system"))
    # Each takes five seconds at least, by the namespace controller's own rule: so both at a time.
    for namespace in ("llm", "kueue-system"):
        await_gone(api, f"/api/v1/namespaces/{namespace}")
    gkes = {"monitoring.googleapis.com", "cloud.google.com", "autoscaling.x-k8s.io", "networking.gke.io"}
    secret_sync = {"secret-sync.gke.io", "secrets-store.csi.x-k8s.io"}
    gateways = {"gateway.networking.k8s.io", "inference.networking.k8s.io", "inference.networking.x-k8s.io"}
    eventually(lambda: crd_groups(api) == gkes | secret_sync | gateways)
    eventually(lambda: commands() == ALL_RUN_ONCE)
    cluster.delete(STANDARD.name)
    assert commands() == {}
    assert list(paths.CLUSTERS.iterdir()) == []
    cluster.delete(STANDARD.name)


def test_a_cluster_whose_creation_was_killed_is_created_again(state: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from emulator import cluster; from emulator.machine import paths\n"
        "paths.STATE = Path(sys.argv[1]); paths.CLUSTERS = paths.STATE / 'clusters'\n"
        "cluster.create('half', cluster.ClusterRecord('half', 'p', 'us-central1', 'autopilot', ['us-central1-a'], '1'))"
    )
    command = [sys.executable, "-c", program, str(state)]
    cluster.delete("half")
    folder = Folder("half")
    with subprocess.Popen(command, cwd=paths.ROOT, env={**os.environ, "PYTHONPATH": str(paths.ROOT)}) as killed:
        # kwokctl has begun to start the control plane.
        eventually(lambda: len(processes.of(folder.path)) >= 2)
        killed.kill()
    assert not cluster.exists("half")
    started_half()
    assert len(processes.of(folder.path)) == len(ALL_RUN_ONCE)
    with client(folder) as api:
        events = answer(api.get("/api/v1/namespaces/default/events"))["items"]
        assert "TriggeredScaleUp" in [event["reason"] for event in events]
    cluster.delete("half")


def test_a_cluster_has_its_gateway_classes_once_the_gateway_api_is_on(half: Folder) -> None:
    cluster.create("half", replace(AUTOPILOT, gateway_api=True))
    with client(half) as api:
        found = answer(api.get(f"/apis/{gateway_routes.GATEWAY_API}/gatewayclasses"))["items"]
    assert {item["metadata"]["name"] for item in found} == set(gateway_routes.CLASSES)
    assert {item["status"]["conditions"][0]["type"] for item in found} == {"Accepted"}


def test_a_cluster_of_an_earlier_version_is_closed_to_other_users_with_its_objects(half: Folder) -> None:
    folder = half
    processes.end(folder.path)
    saved, port = folder.control_plane / "kwok.yaml", processes.free_ports(1)[0]
    text = saved.read_text().replace("unix://etcd.sock", f"http://127.0.0.1:{port}")
    saved.write_text(text.replace("unix://etcd-peer.sock", "http://127.0.0.1:0"))
    for path in (paths.CLUSTERS, folder.path):
        path.chmod(0o755)
    for key in folder.pki.glob("*.key"):
        key.chmod(0o644)
    cluster.start("half")
    assert listening("etcd", "half") == []
    assert open_to_others("half") == []
    with client(folder) as api:
        answer(api.get(f"{DEFAULT_PODS}/p"))


def test_a_stopped_cluster_is_restarted_with_its_objects_unless_another_program_has_its_port(half: Folder) -> None:
    endpoint, ids = cluster.endpoint("half"), set(processes.of(half.path))
    assert cluster.create("half", AUTOPILOT) == endpoint
    assert set(processes.of(half.path)) == ids
    host, _, port = half.host.partition(":")
    processes.end(half.path)  # as a reboot does
    with socket.create_server((host, int(port))):
        started = time.monotonic()
        with pytest.raises(cluster.ClusterFailed, match=rf"another program listens on its port {port}"):
            cluster.start(half.name)
        assert time.monotonic() - started < 30
    cluster.start("half")
    assert cluster.endpoint("half") == endpoint
    assert len(processes.of(half.path)) == len(ALL_RUN_ONCE)
    with client(half) as api:
        await_running(api, "p")


def test_on_autopilot_a_pod_does_not_get_a_free_node_with_more_gpus(half: Folder) -> None:
    delay.declare({"idle": 600})
    with client(half) as api:

        def place(name: str, gpus: int) -> str:
            """Creates a pod. Returns its node."""
            create(api, DEFAULT_PODS, "Pod", name, spec={"nodeSelector": L4, "containers": [container(gpus)]})
            return str(eventually(lambda: pod_of(api, name)["spec"].get("nodeName", "")))

        large = place("two", 2)
        remove(api, "two")
        assert place("one", 1) != large
        assert place("next", 2) == large
        remove(api, "one", "next")
    delay.declare({})
