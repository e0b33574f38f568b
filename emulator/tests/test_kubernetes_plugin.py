"""Only here: the emulated kubernetes plugin against a real API server where it is stricter than the official one."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pulumi.runtime.proto import provider_pb2

from emulator.pulumi.plugin import Secret, plain
from emulator.tests.harness import ROOT, eventually, fork_of
from emulator.tests.kubernetes_engine import CONFIG_MAP, NOWHERE, RELEASE, Created, Engine, Rejected, Unready, release

if TYPE_CHECKING:
    from emulator.tests.kubernetes_fixtures import Cluster

pytestmark = pytest.mark.cluster
pytest_plugins = ("emulator.tests.kubernetes_fixtures",)

CANARY = "hf_canary_0123456789"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
JOB = "kubernetes:batch/v1:Job"
SECRET = "kubernetes:core/v1:Secret"
WIDGET = "kubernetes:example.com/v1:Widget"
Inputs = dict[str, Any]


def pod_template(**spec: Any) -> Inputs:
    return {"spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}], **spec}}


def queued(namespace: str, name: str = "j") -> Inputs:
    template = pod_template(restartPolicy="Never")
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"suspend": True, "template": template}}


NAMED = {"name": "mistake"}
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
MAPPED = {"selector": {}, "template": pod_template(tolerations={"key": "a"})}
MISSPELT = {"selector": {}, "template": pod_template(hostNetwrk=True)}
SERVED = {"selector": {}, "template": pod_template(), "serviceName": "s"}


@pytest.mark.parametrize(
    ("token", "inputs", "complaint"),
    [
        (CONFIG_MAP, {"metadata": NAMED, "dta": {}}, r"dta: unknown property \(did you mean data\?\)"),
        (CONFIG_MAP, {"metadata": NAMED, "data": {"a": 1}}, r'data\["a"\]: expected a string, not a whole number'),
        (CONFIG_MAP, {"metadata": {"nam": "c"}}, "metadata.nam: unknown property"),
        (CONFIG_MAP, {"metadata": {"generateName": "c-"}}, "generateName: not supported with server-side apply"),
        (CONFIG_MAP, {"apiVersion": "v2", "metadata": NAMED}, "apiVersion"),
        (CONFIG_MAP, {"kind": "Secret", "metadata": NAMED}, "kind"),
        (JOB, {"metadata": NAMED, "spec": {}}, "spec.template: required, but missing"),
        (JOB, {"metadata": NAMED, "spec": {"template": {}, "suspend": "true"}}, "spec.suspend: expected a boolean"),
        (DEPLOYMENT, {"metadata": NAMED, "spec": MAPPED}, "spec.template.spec.tolerations: expected a list, not a map"),
        (DEPLOYMENT, {"metadata": NAMED, "spec": MISSPELT}, "hostNetwrk: unknown property"),
        ("kubernetes:core/v1:ConfigMapList", {"items": []}, "a list can't be created"),
        ("kubernetes:yaml/v2:ConfigFile", {"file": "x"}, "the emulator has no components of the official plugin"),
        ("kubernetes:helm.sh/v4:Chart", {"chart": "x"}, "the emulator has no components of the official plugin"),
        (STATEFUL_SET, {"metadata": NAMED, "spec": SERVED}, "doesn't know when a StatefulSet is ready"),
        ("kubernetes:core/v1:ConfigMapPatch", {"metadata": NAMED}, "the emulator has no Patch resources"),
        (RELEASE, {"chart": "oci://r.example/charts/kueue", "vals": {}}, "vals: unknown property"),
        (RELEASE, {"chart": "oci://r.example/charts/kueue", "version": "0.0.1"}, "version 0.0.1 is requested"),
        (RELEASE, {"chart": "oci://r.example/charts/none"}, "no chart in the folder none"),
        (RELEASE, {"chart": "oci://r.example/charts/kueue", "verify": True}, "verify: the emulator doesn't support it"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_created(
    plugin: Engine, token: str, inputs: Inputs, complaint: str
) -> None:
    with pytest.raises(Rejected, match=complaint):
        plugin.check(token, "mistake", inputs)


def test_all_mistakes_of_an_object_and_an_unknown_function_are_reported(plugin: Engine) -> None:
    with pytest.raises(Rejected) as rejected:
        plugin.check(JOB, "j", {"metadata": {"name": 1}, "spec": {"suspend": 1, "parallel": 2}})
    assert rejected.value.message.count("\n") == 3
    with pytest.raises(Rejected, match="kubernetes:yaml:decode"):
        plugin.call("Invoke", provider_pb2.InvokeRequest(tok="kubernetes:yaml:decode"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"kubeconfg": "x"}, "kubeconfg: unknown argument"),
        ({"enableServerSideApply": "false"}, "the emulator doesn't support enableServerSideApply"),
        ({"renderYamlToDirectory": "out"}, "the emulator doesn't support renderYamlToDirectory"),
        ({"upsertExistingObjects": "true"}, "the emulator doesn't support upsertExistingObjects"),
        ({"helmReleaseSettings": '{"driver": "sql"}'}, "the emulator doesn't support helmReleaseSettings"),
    ],
)
def test_an_unsupported_argument_of_the_provider_is_refused(
    plugin: Engine, cluster: Cluster, arguments: Inputs, complaint: str
) -> None:
    assert any(complaint in reason for reason in plugin.check_config(arguments))
    with pytest.raises(Rejected, match=complaint), cluster.plugin(**arguments):
        pass


def test_a_custom_resource_with_an_unknown_field_is_refused(plugin: Engine, cluster: Cluster, namespace: str) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    crd["metadata"] = {"name": "widgets.example.com"}
    cluster.kubectl("apply", "-f", "-", stdin=crd)
    metadata = {"name": "w", "namespace": namespace}
    for preview in (True, False):
        with pytest.raises(Rejected, match="sise"):
            eventually_served(plugin, {"metadata": metadata, "spec": {"sise": 1}}, preview=preview)
        with pytest.raises(Rejected, match="integer"):
            eventually_served(plugin, {"metadata": metadata, "spec": {"size": "big"}}, preview=preview)
    created = plugin.create(WIDGET, "w", {"metadata": metadata, "spec": {"size": 1}})
    assert plugin.changes(created, {"metadata": metadata, "spec": {"size": 2}}) == ["spec.size"]


def eventually_served(plugin: Engine, inputs: Inputs, *, preview: bool) -> Created:
    """A definition is served shortly after its creation. Until then a preview knows only the inputs."""
    for _ in range(20):
        created = plugin.create(WIDGET, "w", inputs, preview=preview)
        time.sleep(0.2)
    return created


def test_no_message_shows_a_secret(plugin: Engine, namespace: str, chart: str) -> None:
    metadata = {"name": "t", "namespace": namespace}
    mistakes: list[tuple[str, Inputs]] = [
        (SECRET, {"metadata": metadata, "data": {"token": Secret(CANARY + "!")}}),
        (SECRET, {"metadata": metadata, "data": {"token": Secret([CANARY])}}),
        (SECRET, {"metadata": metadata, "stringData": {"not a key": Secret(CANARY)}}),
        (JOB, queued(namespace) | {"metadata": metadata | {"labels": {"token": Secret(f"{CANARY} {CANARY}")}}}),
        (RELEASE, release(chart, namespace, values={"refuse": Secret(CANARY)})),
    ]
    for token, inputs in mistakes:
        with pytest.raises((Rejected, Unready)) as failure:
            plugin.create(token, "t", inputs)
        assert CANARY not in str(failure.value), token


def test_secret_inputs_are_secret_in_the_state(plugin: Engine, namespace: str) -> None:
    inputs = queued(namespace)
    inputs["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}
    inputs["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": Secret(CANARY)}]
    created = plugin.create(JOB, "j", inputs)
    refreshed = plugin.refreshed(created)
    for shown in (created.state, refreshed.state, refreshed.inputs):
        assert CANARY not in str(shown)
    assert CANARY in str(plain(refreshed.inputs))


def test_an_unreachable_cluster_is_reported_with_a_remedy(plugin: Engine, cluster: Cluster, namespace: str) -> None:
    inputs = {"metadata": {"name": "c", "namespace": namespace}}
    created = plugin.create(CONFIG_MAP, "c", inputs)
    nobody = cluster.kubeconfig.replace("https://127.0.0.1:", "https://127.0.0.2:")
    with cluster.plugin(kubeconfig=nobody) as away:
        previewed = away.create(CONFIG_MAP, "c", inputs, preview=True)
        assert previewed.outputs["metadata"]["name"] == "c", "a preview does without"
        for act in (away.refresh, away.delete):
            with pytest.raises(Rejected, match="PULUMI_K8S_DELETE_UNREACHABLE=true"):
                act(created)
        with pytest.raises(Rejected, match="unreachable"):
            away.create(CONFIG_MAP, "c2", inputs)
    with cluster.plugin(kubeconfig=nobody, deleteUnreachable="true") as away:
        assert away.refresh(created) is None
        away.delete(created)


def test_a_missing_login_plugin_is_reported(cluster: Cluster) -> None:
    missing = cluster.kubeconfig.replace("gke-gcloud-auth-plugin", "no-such-login")
    with cluster.plugin(kubeconfig=missing) as engine, pytest.raises(Rejected, match="no-such-login, which isn't inst"):
        engine.create(CONFIG_MAP, "c", {"metadata": {"name": "c"}})


def test_a_release_is_installed_upgraded_read_and_removed(
    plugin: Engine, cluster: Cluster, namespace: str, chart: str
) -> None:
    inputs = release(chart, namespace, values={"unused": Secret(CANARY)})
    created = plugin.create(RELEASE, "app", inputs)
    status = {"name": "app", "namespace": namespace, "chart": "app", "version": "1.2.3", "appVersion": "7"}
    assert created.outputs["status"] == {**status, "revision": 1, "status": "deployed"}
    assert created.outputs["resourceNames"] == {"Deployment.apps/apps/v1": ["app"]}
    assert CANARY not in str(created.state)
    assert plugin.changes(created, inputs) == []
    refreshed = plugin.refreshed(created)
    assert plugin.changes(refreshed, inputs) == []
    assert plugin.diff(created, inputs | {"namespace": "default"}).replaces == ["namespace"]
    with pytest.raises(Rejected, match="cannot re-use a name that is still in use"):
        plugin.create(RELEASE, "app", inputs)
    updated = plugin.update(created, inputs | {"values": {"used": 1}})
    assert updated.outputs["status"]["revision"] == 2
    imported = plugin.read(RELEASE, "app", created.id)
    assert imported is not None
    assert plain(imported.inputs)["values"] == {"used": 1}
    plugin.delete(updated)
    assert plugin.refresh(updated) is None
    with pytest.raises(Rejected, match="release: not found"):
        plugin.delete(updated)
    assert "app" not in cluster.kubectl("get", "deployment", "-n", namespace, "-o", "name")


def test_a_release_that_failed_is_recorded_and_upgraded_by_the_next_up(
    plugin: Engine, namespace: str, chart: str
) -> None:
    inputs = release(chart, namespace)
    with pytest.raises(Unready) as failed:
        plugin.create(RELEASE, "app", inputs | NOWHERE | {"timeout": 1})
    assert failed.value.made.outputs["status"]["status"] == "failed"
    assert plugin.refreshed(failed.value.made).outputs["status"]["status"] == "failed"
    repaired = plugin.update(failed.value.made, inputs | {"values": {"other": 1}})  # with none helm keeps the last ones
    assert repaired.outputs["status"]["status"] == "deployed"


def test_an_atomic_release_that_failed_leaves_nothing(
    plugin: Engine, cluster: Cluster, namespace: str, chart: str
) -> None:
    with pytest.raises(Rejected):
        plugin.create(RELEASE, "app", release(chart, namespace, timeout=1, atomic=True, **NOWHERE))
    assert "app" not in cluster.kubectl("get", "deployment,secret", "-n", namespace, "-o", "name")


def test_a_release_may_create_its_namespace_and_skip_the_wait(
    plugin: Engine, cluster: Cluster, namespace: str, chart: str
) -> None:
    inputs = release(chart, f"{namespace}-own", createNamespace=True, skipAwait=True, **NOWHERE)
    created = plugin.create(RELEASE, "app", inputs)
    plugin.delete(created)
    assert f"{namespace}-own" in cluster.kubectl("get", "namespace", "-o", "name"), "helm leaves it behind"


def helm_of(engine: Engine) -> list[int]:
    """The helm processes below a plugin."""
    processes = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in processes.splitlines()]
    plugin = fork_of(engine.process.pid)
    return [int(pid) for pid, parent, args in rows if int(parent) == plugin and "helm" in args]


def killed_while(cluster: Cluster, state: str, namespace: str, act: Callable[[Engine], Any]) -> None:
    """Kills the plugin once helm has recorded this state of the release. Its helm must end too."""
    with cluster.plugin() as engine:
        outcome: list[BaseException] = []

        def attempt() -> None:
            try:
                act(engine)
            except (Rejected, Unready) as error:
                outcome.append(error)

        thread = threading.Thread(target=attempt)
        thread.start()
        selector = f"owner=helm,status={state}"
        eventually(lambda: cluster.kubectl("get", "secret", "-n", namespace, "-l", selector, "-o", "name"), state)
        children = helm_of(engine)
        assert children
        engine.process.kill()
        thread.join()
        assert outcome
        eventually(lambda: not any(alive(pid) for pid in children), "helm ends with the plugin")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_interrupted_release_is_refused_until_helms_record_is_deleted(
    plugin: Engine, cluster: Cluster, namespace: str, chart: str
) -> None:
    def settle(state: str) -> None:
        cluster.kubectl("delete", "secret", "-n", namespace, "-l", f"owner=helm,status={state}")

    inputs = release(chart, namespace, values={"other": 1})
    killed_while(cluster, "pending-install", namespace, lambda e: e.create(RELEASE, "app", inputs | NOWHERE))
    with pytest.raises(Rejected, match="cannot re-use a name that is still in use"):
        plugin.create(RELEASE, "app", inputs)
    settle("pending-install")
    # It takes over what the killed one made.
    created = plugin.create(RELEASE, "app", inputs | NOWHERE | {"skipAwait": True})
    assert created.outputs["status"]["status"] == "deployed"
    killed_while(cluster, "pending-upgrade", namespace, lambda e: e.update(created, inputs | NOWHERE))
    assert plugin.refreshed(created).outputs["status"]["status"] == "pending-upgrade"
    with pytest.raises(Rejected, match="in progress"):
        plugin.update(created, inputs)
    settle("pending-upgrade")
    assert plugin.update(created, inputs).outputs["status"]["status"] == "deployed"


def test_a_canceled_wait_ends_and_records_the_object(cluster: Cluster, namespace: str) -> None:
    with cluster.plugin() as engine:
        threading.Timer(1, engine.cancel).start()
        with pytest.raises(Unready, match="canceled while waiting") as unready:
            engine.create(JOB, "j", queued(namespace))
        assert unready.value.made.id == f"{namespace}/j"


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_the_plugin_ends_with_its_engine(sign: signal.Signals) -> None:
    starts = "plugin = subprocess.Popen([sys.executable, '-m', 'emulator.pulumi.kubernetes'])"
    code = f"import subprocess, sys\n{starts}\nprint(plugin.pid, flush=True)\nplugin.wait()\n"
    engine = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert engine.stdout is not None
    plugin = int(engine.stdout.readline())
    engine.stdout.readline()  # the port: it serves
    engine.send_signal(sign)
    engine.wait()
    eventually(lambda: not alive(plugin), "the plugin ends")


def test_the_plugin_ends_quietly_on_interrupt(cluster: Cluster) -> None:
    with cluster.plugin() as engine:
        engine.process.send_signal(signal.SIGINT)
        assert engine.process.wait(60) == 0
