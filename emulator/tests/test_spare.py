"""Only here: a cluster that takes the control plane of a deleted one is like a new one. Tests depend on their order."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulator import cluster
from emulator.cloud import etcd
from emulator.cloud.api import Object, answer, client
from emulator.cloud.control_plane import COMPONENTS, KEPT, id_of
from emulator.cloud.folder import Folder
from emulator.cluster import ClusterRecord, paused, spare
from emulator.machine import paths, processes
from emulator.tests import spares
from emulator.tests.harness import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

RECORD = ClusterRecord("first", "p", "us-central1", "standard", ["us-central1-a"], "1.36.1-gke.1")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"
SERVICES = "/api/v1/namespaces/default/services"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
ADDRESS, PORT = "34.118.224.77", 30077


@pytest.fixture(scope="module")
def slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of spare control planes, of a state whose clusters use them."""
    # Deeper than the 108 bytes that the path of a Unix socket may have.
    root = tmp_path_factory.mktemp("state") / ("deep" * 25)
    root.mkdir()
    with pytest.MonkeyPatch.context() as patch, spares.folder() as opened:
        patch.setattr(paths, "STATE", root)
        patch.setattr(paths, "CLUSTERS", root / "clusters")
        (root / "spare").symlink_to(opened)
        yield opened
        for folder in (root / "clusters").glob("*"):
            cluster.delete(folder.name)


def definition(type_: str) -> Object:
    """A kind Thing whose `size` has a type."""
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": type_}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Thing", "plural": "things"}
    spec = {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]}
    return {"kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"}, "spec": spec}


def post(api: httpx.Client, path: str, item: Object) -> Object:
    return answer(api.post(path, json=item))


def thing(size: object) -> Object:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"size": size}}


def service() -> Object:
    ports = [{"port": 80, "nodePort": PORT}]
    return {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "clusterIP": ADDRESS, "ports": ports}}


def webhook() -> Object:
    """A webhook that nobody answers: with it, no ConfigMap can be created."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]
    of_service = {"service": {"namespace": "default", "name": "s", "port": 80}}
    own = {"name": "a.example.com", "rules": rules, "clientConfig": of_service, "failurePolicy": "Fail"}
    item = own | {"sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1}
    return {"metadata": {"name": "w"}, "webhooks": [item]}


def keys(name: str) -> set[str]:
    """The keys of a cluster's objects, without the names that Kubernetes makes up."""
    random = ("/registry/masterleases", "/registry/peerserverleases", "/registry/leases", "/registry/events")
    return {key for key in etcd.revisions(Folder(name)) if not key.startswith(random)}


def pids(name: str) -> dict[str, int | None]:
    return {component: id_of(Folder(name), component) for component in COMPONENTS}


def ports(name: str) -> set[int]:
    """The ports on which the components listen that end in a pause."""
    commands = [processes.command(pid) for component, pid in pids(name).items() if pid and component not in KEPT]
    words = [word.decode() for words in commands for word in words]
    return {int(word.partition("=")[2]) for word in words if word.startswith(("--secure-port=", "--node-port="))}


def watched(api: httpx.Client, path: str) -> list[str]:
    """The events that the API server's cache has for a new watch."""
    query = {"watch": "1", "resourceVersion": "0", "timeoutSeconds": "1"}
    return api.get(path, params=query).text.splitlines()


def settled(name: str) -> set[str]:
    """The keys of a cluster once its controllers have created everything."""
    last: set[str] = set()

    def unchanged() -> bool:
        nonlocal last
        before, last = last, keys(name)
        return before == last and any("kube-root-ca.crt" in key for key in last)

    eventually(unchanged, "the controllers create nothing more")
    return last


STATE: dict[str, Any] = {}


def test_only_etcd_and_the_api_server_outlive_a_cluster(slots: Path) -> None:
    cluster.create("first", RECORD)
    STATE["pids"] = pids("first")
    STATE["keys"] = settled("first")
    with client(Folder("first")) as api:
        post(api, CRDS, definition("string"))
        eventually(lambda: api.post(THINGS, json=thing("large")).is_success, "the kind exists")
        post(api, "/api/v1/namespaces", {"metadata": {"name": "earlier"}})
        post(api, "/api/v1/namespaces/earlier/configmaps", {"metadata": {"name": "c"}})
        post(api, SERVICES, service())
        spec = {"service": {"namespace": "default", "name": "s"}, "group": "earlier.com", "version": "v1"}
        priorities = {"groupPriorityMinimum": 1, "versionPriority": 1, "insecureSkipTLSVerify": True}
        post(api, API_SERVICES, {"metadata": {"name": "v1.earlier.com"}, "spec": spec | priorities})
        # Changed and deleted objects of a new cluster.
        patch = {"metadata": {"labels": {"earlier": "true"}}}
        headers = {"content-type": "application/merge-patch+json"}
        answer(api.patch("/api/v1/namespaces/default", json=patch, headers=headers))
        answer(api.delete("/apis/rbac.authorization.k8s.io/v1/clusterroles/edit"))
        post(api, WEBHOOKS, webhook())
        eventually(lambda: not api.post(CONFIG_MAPS, json={"metadata": {"name": "c"}}).is_success, "the webhook counts")
    cluster.delete("first")
    assert list(paths.CLUSTERS.iterdir()) == []
    (slot,) = slots.iterdir()
    running = set(processes.of(slot / "clusters" / "spare"))
    assert running == {STATE["pids"][component] for component in KEPT}


@pytest.mark.usefixtures("slots")
def test_the_next_cluster_has_exactly_the_objects_of_a_new_one() -> None:
    cluster.create("second", RECORD)
    assert {name: pid for name, pid in pids("second").items() if STATE["pids"][name] == pid}.keys() == set(KEPT)
    with client(Folder("second")) as api:
        # Before anything else is written, so that only caches could have the earlier objects.
        for path in ("/api/v1/namespaces", SERVICES, CONFIG_MAPS, WEBHOOKS, API_SERVICES, CRDS):
            served = (answer(api.get(path, params={"resourceVersion": "0"})), watched(api, path))
            assert "earlier" not in str(served), path
            assert "example.com" not in str(served), path
        assert api.get(THINGS).status_code == 404
        assert api.get("/api/v1/namespaces/earlier").status_code == 404
        assert "earlier" not in answer(api.get("/api/v1/namespaces/default"))["metadata"].get("labels", {})
        assert answer(api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/edit"))["rules"]
        groups = {group["name"] for group in answer(api.get("/apis"))["groups"]}
        assert groups.isdisjoint({"example.com", "earlier.com"})
    assert settled("second") == STATE["keys"]


@pytest.mark.usefixtures("slots")
def test_names_addresses_and_ports_of_the_earlier_cluster_are_free() -> None:
    with client(Folder("second")) as api:
        post(api, CONFIG_MAPS, {"metadata": {"name": "c"}})
        created = post(api, SERVICES, service())["spec"]
        assert (created["clusterIP"], created["ports"][0]["nodePort"]) == (ADDRESS, PORT)
        post(api, CRDS, definition("integer"))
        eventually(lambda: api.post(THINGS, json=thing(3)).is_success, "the kind exists with its new schema")
        assert api.post(THINGS, json={**thing("large"), "metadata": {"name": "u"}}).status_code == 422


@pytest.mark.usefixtures("slots")
def test_a_cluster_with_an_earlier_control_plane_is_paused_resumed_and_restarted() -> None:
    before = ports("second")
    paused.pause("second")
    assert {name for name, pid in pids("second").items() if pid in processes.of(Folder("second").path)} == set(KEPT)
    with contextlib.ExitStack() as others:  # other programs that took the ports meanwhile
        for port in before:
            others.enter_context(socket.create_server(("127.0.0.1", port)))
        paused.resume("second")
    assert len(before) == len(ports("second")) == 3
    assert before.isdisjoint(ports("second"))
    with client(Folder("second")) as api:
        assert answer(api.get(f"{THINGS}/t"))["spec"] == {"size": 3}
    processes.end(Folder("second").path)  # as a reboot does
    cluster.start("second")
    with client(Folder("second")) as api:
        assert answer(api.get(f"{THINGS}/t"))["spec"] == {"size": 3}


def test_a_control_plane_that_does_not_work_is_never_taken(slots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = pids("second")
    cluster.delete("second")
    (slot,) = slots.iterdir()

    def fails(_: object) -> None:
        raise spare.Unusable("its objects keep changing")

    with monkeypatch.context() as patch:
        patch.setattr(spare, "restore", fails)
        cluster.create("third", RECORD)
    assert not slot.exists()
    after = pids("third")
    assert set(after.values()).isdisjoint(before.values())
    api_server = after["kube-apiserver"]
    assert api_server
    os.kill(api_server, signal.SIGKILL)
    eventually(lambda: api_server not in processes.of(Folder("third").path), "the API server has ended")
    cluster.delete("third")
    assert list(slots.iterdir()) == []


def test_a_killed_process_leaves_no_control_plane_and_no_cluster(tmp_path: Path) -> None:
    state = tmp_path / "used"
    program = (
        "import pathlib, subprocess, sys, time\n"
        "from emulator.machine import processes; from emulator.tests import spares\n"
        f"state = pathlib.Path({str(state)!r}); spares.give(state); opened = (state / 'spare').resolve()\n"
        "for plane in (opened / 'slot' / 'clusters' / 'spare', state / 'clusters' / 'dev'):\n"
        "    plane.mkdir(parents=True); subprocess.Popen(['sleep', '600'], env=processes.environment(plane))\n"
        "print(opened, flush=True); time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        opened = Path(process.stdout.readline().strip())
        planes = (opened / "slot" / "clusters" / "spare", state / "clusters" / "dev")
        assert [len(processes.of(plane)) for plane in planes] == [1, 1]
        process.kill()
    eventually(lambda: not opened.exists(), "the folder is gone")
    assert [processes.of(plane) for plane in planes] == [[], []]
    assert not state.exists()
