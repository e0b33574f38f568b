"""Only here: the rules of the official kubernetes plugin that the program counts on, against a real API server.

They run against whichever `pulumi-resource-kubernetes` comes first under `emulator/run`: the official one where it is
installed, else the emulator. Where the emulator is stricter, test_kubernetes_plugin.py says so: it refuses unknown
fields, which the official plugin drops from a typed object and plans at every preview of a custom resource; and it ends
with a killed engine, which the official one outlives by minutes.
"""

from __future__ import annotations

import base64
import copy
import gzip
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import pytest

from emulator.pulumi.plugin import UNKNOWN, Secret, plain
from emulator.tests.kubernetes_engine import (
    CONFIG_MAP,
    NAMESPACE,
    NOWHERE,
    RELEASE,
    Created,
    Engine,
    Rejected,
    Unready,
    release,
)

if TYPE_CHECKING:
    from emulator.tests.kubernetes_fixtures import Cluster

pytestmark = pytest.mark.cluster
pytest_plugins = ("emulator.tests.kubernetes_fixtures",)

DEPLOYMENT = "kubernetes:apps/v1:Deployment"
JOB = "kubernetes:batch/v1:Job"
SECRET = "kubernetes:core/v1:Secret"
SERVICE = "kubernetes:core/v1:Service"
QUEUE = "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"
SKIP_AWAIT = "pulumi.com/skipAwait"
TIMEOUT = "pulumi.com/timeoutSeconds"
WAIT_FOR = "pulumi.com/waitFor"
IMAGE = "registry.example/app:1"
NONE: Mapping[str, str] = {}


def config_map(namespace: str, name: str = "c", annotations: Mapping[str, str] = NONE) -> dict[str, Any]:
    named = {"name": name} if name else {}
    return {"metadata": {"namespace": namespace, "annotations": dict(annotations), **named}, "data": {"a": "1"}}


def deployment(namespace: str, replicas: int = 1, annotations: Mapping[str, str] = NONE) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": IMAGE, "env": [{"name": "EMPTY", "value": ""}]}
    # Written otherwise than the API server writes it.
    container["resources"] = {"requests": {"cpu": "0.1", "memory": "1024Mi"}}
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [container]}}
    return {
        "metadata": {"name": "d", "namespace": namespace, "annotations": dict(annotations)},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "d"}}, "template": template},
    }


def job(namespace: str, annotations: Mapping[str, str] = NONE) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example/job:1"}]}
    metadata = {"name": "j", "namespace": namespace, "annotations": dict(annotations)}
    return {"metadata": metadata, "spec": {"suspend": True, "template": {"spec": pod}}}


def changed(inputs: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of the inputs with the property at a dotted path changed."""
    result = copy.deepcopy(inputs)
    *parents, last = path.split(".")
    target = result
    for step in parents:
        target = target.setdefault(step, {})
    target[last] = value
    return result


@pytest.fixture(scope="module", autouse=True)
def unserved(plugin: Engine) -> Iterator[Future[tuple[str, float]]]:
    """The creation of an object of a kind that is not served. The other tests run meanwhile."""

    def refused() -> tuple[str, float]:
        began = time.monotonic()
        with pytest.raises(Rejected) as rejected:
            plugin.create(QUEUE, "q", {"metadata": {"name": "q"}, "spec": {"namespaceSelector": {}}})
        return rejected.value.message, time.monotonic() - began

    with ThreadPoolExecutor(1) as threads:
        yield threads.submit(refused)


@pytest.mark.parametrize(
    ("token", "inputs", "path", "value", "replaces"),
    [
        (CONFIG_MAP, config_map, "metadata.name", "other", True),
        (CONFIG_MAP, config_map, "metadata.namespace", "default", True),
        (CONFIG_MAP, config_map, "metadata.labels", {"x": "y"}, False),
        (CONFIG_MAP, config_map, "data", {"a": "2"}, True),
        (DEPLOYMENT, deployment, "spec.replicas", 2, False),
        (DEPLOYMENT, deployment, "spec.template.spec.nodeSelector", {"a": "b"}, False),
        (DEPLOYMENT, deployment, "spec.selector.matchLabels", {"app": "other"}, True),
        (JOB, job, "spec.template.spec.nodeSelector", {"a": "b"}, True),
        (JOB, job, "spec.parallelism", 2, True),
        (JOB, job, "spec.completions", 2, True),
        (JOB, job, "spec.suspend", False, False),
        (JOB, job, "spec.ttlSecondsAfterFinished", 60, False),
    ],
)
def test_only_properties_that_cannot_change_in_place_replace(
    plugin: Engine, namespace: str, token: str, inputs: Any, path: str, value: Any, replaces: bool
) -> None:
    properties = inputs(namespace, annotations={SKIP_AWAIT: "true"})
    created = plugin.create(token, "r", properties)
    diff = plugin.diff(created, changed(properties, path, value))
    assert diff.detailedDiff, "the change was not seen"
    assert bool(diff.replaces) == replaces
    fixed_name_stays = replaces and path not in ("metadata.name", "metadata.namespace")
    assert diff.deleteBeforeReplace == fixed_name_stays


def test_an_object_keeps_its_generated_name_and_is_replaced_before_it_is_deleted(
    plugin: Engine, namespace: str
) -> None:
    properties = config_map(namespace, "")
    created = plugin.create(CONFIG_MAP, "auto", properties)
    name = created.outputs["metadata"]["name"]
    assert re.fullmatch(r"auto-[0-9a-f]{8}", name)
    other = changed(properties, "data", {"a": "2"})
    assert plain(plugin.check(CONFIG_MAP, "auto", other, created.inputs))["metadata"]["name"] == name
    diff = plugin.diff(created, other)
    assert (bool(diff.replaces), diff.deleteBeforeReplace) == (True, False)


def test_only_the_cluster_identifier_decides_whether_the_cluster_is_replaced(plugin: Engine, cluster: Cluster) -> None:
    here, there = cluster.kubeconfig, cluster.kubeconfig.replace("127.0.0.1", "127.0.0.2")
    assert plugin.diff_config({"kubeconfig": here}, {"kubeconfig": there})
    assert plugin.diff_config({"kubeconfig": here}, {"kubeconfig": UNKNOWN})
    same = {"clusterIdentifier": "a"}
    assert not plugin.diff_config({"kubeconfig": here, **same}, {"kubeconfig": there, **same})
    assert not plugin.diff_config({"kubeconfig": here, **same}, {"kubeconfig": UNKNOWN, **same})
    other = {"clusterIdentifier": "b"}
    assert plugin.diff_config({"kubeconfig": here, **same}, {"kubeconfig": here, **other}) == ["clusterIdentifier"]


@pytest.mark.parametrize(("token", "inputs"), [(CONFIG_MAP, config_map), (DEPLOYMENT, deployment), (JOB, job)])
def test_a_second_up_changes_nothing(plugin: Engine, namespace: str, token: str, inputs: Any) -> None:
    properties = inputs(namespace, annotations={SKIP_AWAIT: "true"})
    created = plugin.create(token, "s", properties)
    for current in (created, plugin.refreshed(created)):
        assert plugin.changes(current, properties) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.backoffLimit", 0),
        ("spec.template.spec.terminationGracePeriodSeconds", 0),
        ("spec.template.spec.automountServiceAccountToken", False),
        ("spec.template.spec.securityContext", {}),
    ],
)
def test_a_change_to_zero_is_a_change(plugin: Engine, namespace: str, path: str, value: Any) -> None:
    properties = job(namespace, annotations={SKIP_AWAIT: "true"})
    created = plugin.create(JOB, "z", properties)
    assert plugin.changes(created, changed(properties, path, value)) == [path]


def test_the_api_server_omits_the_empty_values_that_are_no_change(plugin: Engine, namespace: str) -> None:
    pod = {"hostNetwork": False, "hostPID": False, "hostIPC": False, "subdomain": "", "priorityClassName": ""}
    pod |= {"nodeSelector": {}, "imagePullSecrets": [], "tolerations": [], "serviceAccountName": ""}
    container = {"stdin": False, "tty": False, "workingDir": "", "args": [], "volumeMounts": [], "command": []}
    properties = deployment(namespace, annotations={SKIP_AWAIT: "true"})
    created = plugin.create(DEPLOYMENT, "d", properties)
    with_empty = copy.deepcopy(properties)
    spec = with_empty["spec"]["template"]["spec"]
    spec |= pod
    spec["containers"][0] |= container
    with_empty["spec"] |= {"paused": False, "minReadySeconds": 0}
    assert plugin.changes(created, with_empty) == []
    live = plugin.update(created, with_empty).outputs["spec"]
    assert live.keys().isdisjoint({"paused", "minReadySeconds"})
    assert live["template"]["spec"].keys().isdisjoint(pod)
    assert live["template"]["spec"]["containers"][0].keys().isdisjoint(container)


def test_string_data_of_a_secret_equals_its_stored_form(plugin: Engine, namespace: str) -> None:
    properties = {"metadata": {"name": "t", "namespace": namespace}, "stringData": {"token": Secret("hf_canary")}}
    created = plugin.create(SECRET, "t", properties)
    for current in (created, plugin.refreshed(created)):
        assert plugin.changes(current, properties) == []
        assert plugin.changes(current, changed(properties, "stringData", {"token": Secret("hf_other")}))


def test_the_contents_of_a_secret_are_secret_in_the_state(plugin: Engine, namespace: str) -> None:
    properties = {"metadata": {"name": "t", "namespace": namespace}, "stringData": {"token": "hf_canary"}}
    created = plugin.create(SECRET, "t", properties)
    assert "stringData" not in created.inputs, "recorded as the API server stores it"
    assert plain(created.inputs["data"]) == {"token": base64.b64encode(b"hf_canary").decode()}
    for data in (created.state["data"], created.inputs["data"], created.state["__inputs"]["data"]):
        assert isinstance(data, Secret)


def test_a_refresh_shows_drift_but_not_fields_that_others_add(plugin: Engine, cluster: Cluster, namespace: str) -> None:
    properties = config_map(namespace)
    created = plugin.create(CONFIG_MAP, "c", properties)
    cluster.kubectl("patch", "configmap", "c", "-n", namespace, "-p", '{"data":{"b":"theirs"}}')
    cluster.kubectl("label", "configmap", "c", "-n", namespace, "theirs=yes")
    assert plugin.changes(plugin.refreshed(created), properties) == []
    cluster.kubectl("patch", "configmap", "c", "-n", namespace, "-p", '{"data":{"a":"changed"}}')
    refreshed = plugin.refreshed(created)
    assert refreshed.inputs["data"] == {"a": "changed"}
    assert plugin.changes(refreshed, properties) == ["data.a"]


def test_an_ignored_field_is_left_to_the_controller_that_owns_it(
    plugin: Engine, cluster: Cluster, namespace: str
) -> None:
    properties = job(namespace, annotations={SKIP_AWAIT: "true"})
    created = plugin.create(JOB, "j", properties)
    cluster.kubectl("patch", "job", "j", "-n", namespace, "--field-manager=queue", "-p", '{"spec":{"suspend":false}}')
    refreshed = plugin.refreshed(created)
    assert plugin.changes(refreshed, properties) == ["spec.suspend"]
    assert plugin.changes(refreshed, properties, ["spec.suspend"]) == []
    labelled = changed(properties, "metadata.labels", {"x": "y"})
    updated = plugin.update(refreshed, labelled, ignore=["spec.suspend"])
    assert updated.outputs["spec"]["suspend"] is False
    assert updated.outputs["metadata"]["labels"]["x"] == "y"


def test_a_field_of_another_manager_is_only_taken_with_force(plugin: Engine, cluster: Cluster, namespace: str) -> None:
    properties = deployment(namespace, annotations={SKIP_AWAIT: "true"})
    created = plugin.create(DEPLOYMENT, "d", properties)
    cluster.kubectl("scale", "deployment", "d", "-n", namespace, "--replicas=2")
    with pytest.raises((Rejected, Unready), match=r"(?s)conflict.*kubectl.*replicas|conflict.*replicas.*kubectl"):
        plugin.update(created, changed(properties, "spec.replicas", 3))
    forced = changed(properties, "spec.replicas", 3)
    forced["metadata"]["annotations"]["pulumi.com/patchForce"] = "true"
    assert plugin.update(created, forced).outputs["spec"]["replicas"] == 3


def test_an_edit_by_kubectl_is_overwritten_by_the_next_update(plugin: Engine, cluster: Cluster, namespace: str) -> None:
    properties = deployment(namespace, annotations={SKIP_AWAIT: "true"})
    created = plugin.create(DEPLOYMENT, "d", properties)
    patch = '{"spec":{"replicas":2,"minReadySeconds":7}}'
    cluster.kubectl("patch", "deployment", "d", "-n", namespace, "-p", patch)
    live = plugin.update(created, changed(properties, "spec.replicas", 3)).outputs["spec"]
    assert live["replicas"] == 3
    assert "minReadySeconds" not in live, "what only kubectl wrote goes with its fields"


def test_an_existing_object_is_not_adopted(plugin: Engine, cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "configmap", "c", "-n", namespace, "--from-literal=a=theirs")
    with pytest.raises(Rejected, match="already exists"):
        plugin.create(CONFIG_MAP, "c", config_map(namespace))


def test_a_preview_shows_objects_whose_kind_or_namespace_does_not_exist_yet_and_changes_nothing(
    plugin: Engine, cluster: Cluster, namespace: str
) -> None:
    nowhere = plugin.create(CONFIG_MAP, "c", config_map("not-yet"), preview=True)
    assert nowhere.outputs["data"] == {"a": "1"}
    queue = {"metadata": {"name": "q"}, "spec": {"namespaceSelector": {}}}
    assert plugin.create(QUEUE, "q", queue, preview=True).outputs["spec"] == queue["spec"]
    unknown = changed(config_map(namespace), "data", {"a": UNKNOWN})
    assert plugin.create(CONFIG_MAP, "c", unknown, preview=True).state["data"]["a"] is UNKNOWN
    plugin.create(CONFIG_MAP, "c", config_map(namespace), preview=True)
    assert "configmap/c" not in cluster.kubectl("get", "configmap", "-n", namespace, "-o", "name").split()
    created = plugin.create(DEPLOYMENT, "d", deployment(namespace, annotations={SKIP_AWAIT: "true"}))
    wanted = deployment(namespace, replicas=2, annotations={SKIP_AWAIT: "true"})
    assert plugin.update(created, wanted, preview=True).outputs["spec"]["replicas"] == 2
    assert cluster.kubectl("get", "deployment", "d", "-n", namespace, "-o", "jsonpath={.spec.replicas}") == "1"


def test_a_create_waits_for_its_namespace(plugin: Engine, cluster: Cluster, namespace: str) -> None:
    late = f"{namespace}-late"
    timer = threading.Timer(1.5, cluster.kubectl, ("create", "namespace", late))
    timer.start()
    assert plugin.create(CONFIG_MAP, "c", config_map(late)).id == f"{late}/c"


def test_the_wait_for_a_deployment_ends_when_its_replicas_are_available(plugin: Engine, namespace: str) -> None:
    created = plugin.create(DEPLOYMENT, "d", deployment(namespace, replicas=2), timeout=30)
    assert created.outputs["status"]["availableReplicas"] == 2


def test_an_unready_deployment_fails_at_its_timeout_and_is_recorded(plugin: Engine, namespace: str) -> None:
    properties = changed(deployment(namespace), "spec.template.spec.nodeSelector", {"no": "where"})
    with pytest.raises(Unready, match=r"(?i)pod") as unready:
        plugin.create(DEPLOYMENT, "d", properties, timeout=3)
    assert unready.value.made.id == f"{namespace}/d"
    with pytest.raises(Unready):
        plugin.refresh(unready.value.made)


def test_wait_for_replaces_the_rule_of_the_kind(plugin: Engine, namespace: str) -> None:
    waits = deployment(namespace, annotations={WAIT_FOR: "jsonpath={.status.unavailableReplicas}=1"})
    unschedulable = changed(waits, "spec.template.spec.nodeSelector", {"no": "where"})
    created = plugin.create(DEPLOYMENT, "d", unschedulable, timeout=20)
    with pytest.raises(Unready):  # a refresh looks at the Deployment by the kind's own rule
        plugin.refresh(created)


def test_a_suspended_job_fails_at_its_timeout_or_that_of_its_annotation(plugin: Engine, namespace: str) -> None:
    with pytest.raises(Unready):
        plugin.create(JOB, "j", job(namespace), timeout=2)
    began = time.monotonic()
    other = changed(job(namespace, annotations={TIMEOUT: "2"}), "metadata.name", "k")
    with pytest.raises(Unready):
        plugin.create(JOB, "k", other)
    assert 1.5 < time.monotonic() - began < 60, "ten minutes without the annotation"


def test_skip_await_skips_the_wait_for_a_suspended_job_and_for_its_deletion(
    plugin: Engine, cluster: Cluster, namespace: str
) -> None:
    # Each would be Unready after 10 seconds.
    properties = job(namespace, annotations={SKIP_AWAIT: "true"})
    properties["metadata"]["finalizers"] = ["example.com/held"]
    created = plugin.create(JOB, "j", properties, timeout=10)
    assert plugin.refresh(created) is not None, "nor in a refresh"
    plugin.delete(created, timeout=10)
    cluster.kubectl("patch", "job", "j", "-n", namespace, "-p", '{"metadata":{"finalizers":null}}')


@pytest.mark.parametrize(
    ("expression", "is_met"),
    [
        ("jsonpath={.status.never}", False),
        ("condition=Never", False),
        ('["jsonpath={.metadata.name}=d", "condition=Never"]', False),
        ("condition=Available", True),
        ("jsonpath={.status.conditions[?(@.type=='Available')].status}=True", True),
        ('["condition=Available", "jsonpath={.status.readyReplicas}=1"]', True),
    ],
)
def test_wait_for_waits_until_it_is_met(plugin: Engine, namespace: str, expression: str, is_met: bool) -> None:
    properties = deployment(namespace, annotations={WAIT_FOR: expression})
    with nullcontext() if is_met else pytest.raises(Unready):
        plugin.create(DEPLOYMENT, "d", properties, timeout=30 if is_met else 2)


def test_a_service_gets_some_seconds_for_its_endpoints_and_a_headless_one_none(plugin: Engine, namespace: str) -> None:
    spec = {"selector": {"a": "b"}, "ports": [{"port": 1}]}
    properties = {"metadata": {"name": "s", "namespace": namespace}, "spec": spec}
    began = time.monotonic()
    plugin.create(SERVICE, "h", changed(changed(properties, "metadata.name", "h"), "spec.clusterIP", "None"))
    headless = time.monotonic() - began
    plugin.create(SERVICE, "s", properties)
    assert time.monotonic() - began - headless > max(8, headless)


def test_a_deletion_is_awaited_and_fails_at_its_timeout(plugin: Engine, cluster: Cluster, namespace: str) -> None:
    # Of no avail: a ConfigMap is none of the kinds that heed the annotation.
    properties = config_map(namespace, annotations={SKIP_AWAIT: "true"})
    properties["metadata"]["finalizers"] = ["example.com/held"]
    created = plugin.create(CONFIG_MAP, "c", properties)
    release = ("patch", "configmap", "c", "-n", namespace, "-p", '{"metadata":{"finalizers":null}}')
    timer = threading.Timer(4, cluster.kubectl, release)
    timer.start()
    with pytest.raises((Rejected, Unready)):
        plugin.delete(created, timeout=1)
    assert timer.is_alive()
    plugin.delete(created)
    assert not cluster.kubectl("get", "configmap", "c", "-n", namespace, "--ignore-not-found")
    assert plugin.refresh(created) is None


def test_a_missing_object_is_dropped_by_a_refresh_and_deleted_without_error(
    plugin: Engine, cluster: Cluster, namespace: str
) -> None:
    deleted = plugin.create(CONFIG_MAP, "c", config_map(namespace))
    cluster.kubectl("delete", "configmap", "c", "-n", namespace)
    undefined = Created(QUEUE, "q", "q", {}, {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue"})
    undefined.state["metadata"] = {"name": "q"}
    for missing in (deleted, undefined):
        assert plugin.refresh(missing) is None
        plugin.delete(missing)


def test_an_import_reads_the_live_object(plugin: Engine, cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "configmap", "c", "-n", namespace, "--from-literal=a=1")
    imported = plugin.read(CONFIG_MAP, "c", f"{namespace}/c")
    assert imported is not None
    assert imported.inputs["data"] == {"a": "1"}
    assert not {"uid", "managedFields", "resourceVersion", "creationTimestamp"} & imported.inputs["metadata"].keys()
    assert plugin.changes(imported, {"metadata": {"name": "c", "namespace": namespace}, "data": {"a": "1"}}) == []
    assert plugin.read(NAMESPACE, "none", "never-made") is None


def test_a_cluster_that_did_not_answer_at_first_stays_unreachable_for_that_process(
    cluster: Cluster, namespace: str
) -> None:
    # The administrator's: the login of Google Cloud is for the cluster's own address.
    kubeconfig = (cluster.emulator.state / "clusters" / "rules" / "kubeconfig").read_text()
    match = re.search(r"https://127\.0\.0\.1:(\d+)", kubeconfig)
    assert match
    port = free_port()
    late = kubeconfig.replace(match[0], f"https://127.0.0.1:{port}")
    with cluster.plugin(kubeconfig=late) as early, forwarded(port, int(match[1])):
        with pytest.raises(Rejected, match="configured Kubernetes cluster is unreachable"):
            early.create(CONFIG_MAP, "c", config_map(namespace))
        with cluster.plugin(kubeconfig=late) as later:
            assert later.create(CONFIG_MAP, "c", config_map(namespace)).id == f"{namespace}/c"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def forwarded(port: int, target: int) -> Iterator[None]:
    """Forwards connections from a local port to another port."""

    def copy_bytes(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                near, _ = server.accept()
                far = socket.create_connection(("127.0.0.1", target))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=copy_bytes, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", port)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield


def test_a_failed_release_is_read_with_its_status(plugin: Engine, namespace: str, chart: str) -> None:
    with pytest.raises(Unready) as failed:
        plugin.create(RELEASE, "app", release(chart, namespace, timeout=1, **NOWHERE))
    refreshed = plugin.refreshed(failed.value.made)
    assert refreshed.outputs["status"]["status"] == "failed"
    assert plugin.changes(refreshed, release(chart, namespace, timeout=1, **NOWHERE)) == [], "nothing would mend it"


def test_a_pending_release_is_read_with_its_status_and_not_upgraded(
    plugin: Engine, cluster: Cluster, namespace: str, chart: str
) -> None:
    created = plugin.create(RELEASE, "app", release(chart, namespace, skipAwait=True))
    relabel(cluster, namespace, "pending-upgrade")
    refreshed = plugin.refreshed(created)
    assert refreshed.outputs["status"]["status"] == "pending-upgrade"
    with pytest.raises((Rejected, Unready), match="in progress"):
        plugin.update(refreshed, release(chart, namespace, skipAwait=True, values={"other": 1}))


def relabel(cluster: Cluster, namespace: str, status: str) -> None:
    """Writes a status into Helm's record of the release, as after a killed helm."""
    name = "sh.helm.release.v1.app.v1"
    secret = json.loads(cluster.kubectl("get", "secret", name, "-n", namespace, "-o", "json"))
    record = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
    record["info"]["status"] = status
    secret["data"]["release"] = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(record).encode()))).decode()
    secret["metadata"]["labels"]["status"] = status
    cluster.kubectl("replace", "-f", "-", stdin=secret)


def test_deleting_a_missing_release_fails_and_a_refresh_drops_it(
    plugin: Engine, cluster: Cluster, namespace: str, chart: str
) -> None:
    created = plugin.create(RELEASE, "app", release(chart, namespace, skipAwait=True))
    cluster.kubectl("delete", "secret", "-n", namespace, "-l", "owner=helm")
    with pytest.raises(Rejected, match="release: not found"):
        plugin.delete(created)
    assert plugin.refresh(created) is None


def test_an_update_of_an_object_that_was_deleted_by_hand_is_refused(
    plugin: Engine, cluster: Cluster, namespace: str
) -> None:
    properties = deployment(namespace, annotations={SKIP_AWAIT: "true"})
    created = plugin.create(DEPLOYMENT, "d", properties)
    cluster.kubectl("delete", "deployment", "d", "-n", namespace)
    with pytest.raises(Rejected, match=r'deployments\.apps "d" not found') as refused:
        plugin.update(created, changed(properties, "spec.replicas", 2))
    assert "refresh" not in str(refused.value), "the official plugin names no remedy: docs/troubleshooting.md has it"


@pytest.mark.parametrize(
    ("path", "value"),
    [("spec.strategy", {"type": "Rolling"}), ("spec.template.spec.restartPolicy", "Sometimes"), ("spec.replicas", -1)],
)
def test_a_value_that_is_not_allowed_fails_the_preview(plugin: Engine, namespace: str, path: str, value: Any) -> None:
    with pytest.raises(Rejected, match=path.split(".")[-1]):
        plugin.create(DEPLOYMENT, "d", changed(deployment(namespace), path, value), preview=True)


def test_a_kind_that_is_not_served_is_retried_for_a_minute_and_reported(unserved: Future[tuple[str, float]]) -> None:
    message, seconds = unserved.result()
    assert 'no matches for kind "ClusterQueue" in version "kueue.x-k8s.io/v1beta2"' in message
    assert 55 < seconds < 180
