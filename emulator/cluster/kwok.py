"""Creates, starts and deletes clusters.

kwokctl's binary runtime runs a real control plane, KWOK simulates the kubelets, and our daemon runs beside them.
Creation is idempotent: a complete cluster stays and is started if it stopped (a reboot); an incomplete cluster of a
killed run is deleted and created again.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml

from emulator.cloud import control_plane
from emulator.cloud.api import APPLY_PATCH, GKE, answer, client, kubeconfig
from emulator.cloud.control_plane import COMPONENTS, id_file, id_of
from emulator.cloud.diagnosis import lack_for_etcd, last_words
from emulator.cloud.folder import Folder, NoSuchCluster, connected, locked, try_lock
from emulator.cloud.records import ClusterRecord, Endpoint
from emulator.cluster import spare
from emulator.gateway.routes import CLASSES, GATEWAY_API
from emulator.machine import paths, processes, trust
from emulator.machine.polling import poll_until
from emulator.machine.progress import noticed
from emulator.nodes import node_agents

HERE = Path(__file__).parent
_COLLECTIONS = {
    "DaemonSet": f"namespaces/{node_agents.NAMESPACE}/daemonsets",
    "CustomResourceDefinition": "customresourcedefinitions",
    "ResourceQuota": f"namespaces/{node_agents.NAMESPACE}/resourcequotas",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "StorageClass": "storageclasses",
}


class ClusterFailed(Exception):
    """A cluster did not start. The message names the log file."""


def create(name: str, record: ClusterRecord) -> Endpoint:
    """Creates a cluster and returns its endpoint.

    For an existing cluster it only updates the record.

    Raises:
        processes.MissingTool: One of the control plane's programs isn't on PATH.
        ClusterFailed: The cluster doesn't start. The message names the log file.
    """
    folder = Folder(name)
    with locked(paths.CLUSTERS), _full_disk_named(folder):
        if folder.ready:
            folder.write(record, folder.host, ready=True)
            _start(folder)
        else:
            _discard(folder)
            _refuse_full_disk(folder)
            if not _reuse(folder, record):
                try:
                    _create(folder, record)
                except ClusterFailed:
                    # On a busy machine a component may time out or lose its port to another process: try once more.
                    _discard(folder)
                    _create(folder, record)
        trust.renew()
        if record.mode == "autopilot":
            _install(folder, [HERE / "autopilot.yaml"])
            _wait_for_autopilot(folder)
    if record.gateway_api:
        _wait_for_gateway_classes(folder)
    return endpoint(name)


def start(name: str) -> None:
    """Starts the cluster's components and daemon that aren't running, after a reboot or a crash."""
    folder = Folder(name)
    with locked(paths.CLUSTERS), _full_disk_named(folder):
        if not folder.ready:
            raise NoSuchCluster(name)
        _start(folder)


def delete(name: str) -> None:
    """Ends all processes of the cluster and deletes its folder. Idempotent."""
    with locked(paths.CLUSTERS):
        _discard(Folder(name))
        trust.renew()


def exists(name: str) -> bool:
    """Whether the cluster was completely created."""
    return Folder(name).ready


def endpoint(name: str) -> Endpoint:
    """Returns the cluster's endpoint. Raises NoSuchCluster."""
    folder = Folder(name)
    host = folder.host
    return Endpoint(host=host, ca_certificate=base64.b64encode((folder.pki / "ca.crt").read_bytes()).decode())


def _discard(folder: Folder) -> None:
    if not spare.leave(folder):
        processes.end(folder.path)
        spare.discard(folder)
    if folder.path.exists():
        # Rename it first: an interrupted removal must not leave a folder that looks like a cluster.
        removed = folder.path.with_name(f".{folder.name}.removed")
        shutil.rmtree(removed, ignore_errors=True)
        folder.path.rename(removed)
        shutil.rmtree(removed)


def _create(folder: Folder, record: ClusterRecord) -> None:
    ports = processes.free_ports(4)
    host = f"127.0.0.1:{ports[0]}"
    folder.create()
    folder.write(record, host, ready=False)
    folder.log.mkdir()
    spare.place(folder)
    workdir = _kwokctl_folder(folder)
    workdir.mkdir(parents=True, exist_ok=True)
    selector = workdir / "egress.yaml"
    selector.write_text(yaml.safe_dump(control_plane.egress_selector(folder.socket.name)))
    admission = workdir / "admission.yaml"
    admission.write_text(yaml.safe_dump(control_plane.admission()))
    configuration = folder.path / "kwokctl.yaml"
    stages = (HERE / "stages.yaml").read_text()
    options = control_plane.configuration(ports, selector, admission, folder.control_plane.resolve() / "pki")
    configuration.write_text(yaml.safe_dump(options) + "---\n" + stages)
    _kwokctl(
        folder,
        "create",
        "cluster",
        "--config",
        str(configuration),
        "--kubeconfig",
        str(folder.path / "kwok.kubeconfig"),
    )
    _write_kubeconfig(folder)
    kept = spare.used(folder)
    if not kept:
        _start_daemon(folder)
    _wait_until_ready(folder)
    # The first object that its controllers create. The API server refuses pods before it exists.
    _wait_for_success(folder, "/api/v1/namespaces/default/serviceaccounts/default", "kube-controller-manager")
    _install(folder, sorted((HERE / "crds").glob("*.yaml")), *node_agents.daemon_sets())
    if kept:
        spare.save(folder)
        _start_daemon(folder)
    folder.write(record, host, ready=True)
    _wait_for_daemon(folder)


def _reuse(folder: Folder, record: ClusterRecord) -> bool:
    """Creates a cluster with the control plane of a deleted one. False if none waits, or if it doesn't work."""
    host = spare.take(folder)
    if host is None:
        return False
    try:
        folder.write(record, host, ready=False)
        folder.log.mkdir()
        spare.restore(folder)
        _write_kubeconfig(folder)
        _start(folder)
    except (ClusterFailed, spare.Unusable) as failed:
        print(f"The spare control plane of {folder.name} is discarded: {failed}", file=sys.stderr)
        _discard(folder)
        return False
    folder.write(record, host, ready=True)
    return True


def _write_kubeconfig(folder: Folder) -> None:
    ca, certificate, key = ((folder.pki / file).read_bytes() for file in ("ca.crt", "admin.crt", "admin.key"))
    user = {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }
    folder.kubeconfig.touch(mode=0o600)
    folder.kubeconfig.write_text(kubeconfig(folder.host, ca, user))


def _start(folder: Folder) -> None:
    folder.create()
    if control_plane.is_open(folder):
        processes.end(folder.path)
        control_plane.close(folder)
    ended = _forget_dead(folder)
    if ended or not _answers(folder):
        _refuse_full_disk(folder)
        if "kube-apiserver" in ended:
            _refuse_taken_port(folder)
        control_plane.leave_taken_ports(folder, ended)
        with noticed(f"Starting {', '.join(ended) or 'kube-apiserver'} of cluster {folder.name} again"):
            _kwokctl(folder, "start", "cluster")
            _wait_until_ready(folder)
    _start_daemon(folder)
    _wait_for_daemon(folder)


@contextlib.contextmanager
def _full_disk_named(folder: Folder) -> Iterator[None]:
    """Turns the failure to write a file into that of the cluster."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _refuse_full_disk(folder)
        raise


def _refuse_full_disk(folder: Folder) -> None:
    """Stops at once if etcd would end for lack of space: the API server would wait for it for minutes."""
    if lack := lack_for_etcd(folder.control_plane.resolve()):
        raise ClusterFailed(f"The emulator's cluster {folder.name} doesn't start: {lack}")


def _refuse_taken_port(folder: Folder) -> None:
    """Stops at once if another program listens on the API server's port, which the stack's kubeconfig names."""
    host, _, port = folder.host.partition(":")
    with socket.socket() as probe:  # not by binding: connections of the ended API server may still hold the port
        taken = probe.connect_ex((host, int(port))) == 0
    if taken:
        raise ClusterFailed(
            f"The emulator's cluster {folder.name} doesn't start: another program listens on its port {port}. "
            f"Find the program with `ss -ltnp 'sport = :{port}'` and end it. Then run this again."
        )


def _forget_dead(folder: Folder) -> list[str]:
    """Returns the components of the control plane that are down, and removes their recorded ids.

    kwokctl mistakes any process with a recorded id for the component, also a zombie or an unrelated process after a
    reboot.
    """
    running = set(processes.of(folder.path))
    dead = [component for component in COMPONENTS if id_of(folder, component) not in running]
    for component in dead:
        id_file(folder, component).unlink(missing_ok=True)
    return dead


def _ended(folder: Folder, component: str) -> bool:
    """Whether a component was started and has ended."""
    recorded = id_of(folder, component)
    return recorded is not None and recorded not in processes.of(folder.path)


def _kwokctl_folder(folder: Folder) -> Path:
    """The folder of kwokctl's clusters, which has the control plane's folder two levels below."""
    return folder.control_plane.resolve().parent.parent


def _kwokctl(folder: Folder, *arguments: str) -> None:
    log = folder.log / "kwokctl.log"
    command = [processes.tool("kwokctl"), "--name", folder.control_plane.resolve().name, *arguments]
    own = spare.environment(folder) or processes.environment(folder.path)
    with log.open("ab") as output:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=own | _workdir(_kwokctl_folder(folder)),
            cwd=folder.path,
            start_new_session=True,
            umask=0o077,
        )
    if ran.returncode != 0:
        _refuse_full_disk(folder)
        raise ClusterFailed(f"The emulator's cluster {folder.name} doesn't start: {last_words(log)} (log: {log})")


def _workdir(path: Path) -> dict[str, str]:
    """The variables that name kwokctl's folder.

    kwokctl reads its own variable up to the first space. Its default is the folder `.kwok` of the home, without limits.
    """
    if not any(character.isspace() for character in str(path)):
        return {"KWOK_WORKDIR": str(path)}
    link = path / ".kwok"
    if not link.is_symlink():
        link.symlink_to(".")
    return {"HOME": str(path)}


def _answers(folder: Folder) -> bool:
    try:
        with client(folder) as api:
            return api.get("/readyz").is_success
    except httpx.HTTPError:
        return False


def _wait_until_ready(folder: Folder) -> None:
    _wait_for_success(folder, "/readyz", "kube-apiserver")
    # The others give up if the API server isn't ready within ten seconds, as on a busy machine.
    if _forget_dead(folder):
        _kwokctl(folder, "start", "cluster")


def _wait_for_success(folder: Folder, path: str, component: str, timeout: float = 60) -> None:
    """Polls a path of the API server that succeeds only once `component` works."""
    logs = folder.control_plane / "logs"
    next_look = time.monotonic() + 2
    with client(folder) as api:

        def succeeds() -> bool:
            nonlocal next_look
            with contextlib.suppress(httpx.HTTPError):
                if api.get(path).is_success:
                    return True
            if time.monotonic() > next_look:
                for ended in (name for name in ("etcd", component) if _ended(folder, name)):
                    _refuse_full_disk(folder)
                    log = logs / f"{ended}.log"
                    raise ClusterFailed(f"{ended} of {folder.name} has ended: {last_words(log)} (log: {log})")
                next_look = time.monotonic() + 2
            return False

        if not poll_until(succeeds, timeout):
            log = logs / f"{component}.log"
            raise ClusterFailed(f"{component} of {folder.name} doesn't work after {timeout:.0f} s (log: {log})")


def _install(folder: Folder, files: Iterable[Path], *others: dict[str, Any]) -> None:
    """Installs objects that GKE installs in a cluster.

    Server-side apply makes this idempotent.
    """
    with client(folder) as api:
        items = [item for file in files for item in yaml.safe_load_all(file.read_text())]
        for item in (*items, *others):
            root = "/apis" if "/" in item["apiVersion"] else "/api"
            path = f"{root}/{item['apiVersion']}/{_COLLECTIONS[item['kind']]}/{item['metadata']['name']}"
            answer(api.patch(path, params=GKE, json=item, headers=APPLY_PATCH))


def _start_daemon(folder: Folder) -> None:
    # A killed daemon keeps its lock and its socket for a moment, until the kernel has closed its files.
    poll_until(lambda: _has_daemon(folder) or _is_unlocked(folder), 5, pause=0.02)
    if _has_daemon(folder):
        return
    command = [sys.executable, "-m", "emulator.cluster.daemon", folder.name]
    env = processes.environment(folder.path, PYTHONPATH=str(paths.ROOT), GKE_AI_STATE=str(paths.STATE))
    processes.detach(command, folder.log / "daemon.log", env, paths.ROOT)


def _has_daemon(folder: Folder) -> bool:
    return any(b"emulator.cluster.daemon" in processes.command(pid) for pid in processes.of(folder.path))


def _is_unlocked(folder: Folder) -> bool:
    lock = try_lock(folder.path)
    if lock is not None:
        os.close(lock)
    return lock is not None


def _wait_for_daemon(folder: Folder, timeout: float = 20) -> None:
    if not poll_until(lambda: _accepts(folder.socket), timeout, pause=0.02):
        log = folder.log / "daemon.log"
        raise ClusterFailed(f"The daemon of cluster {folder.name} doesn't answer: {last_words(log)} (log: {log})")


def _wait_for_autopilot(folder: Folder, timeout: float = 60) -> None:
    """Waits until the API server changes and refuses pods by the policies, which it reads after they exist."""
    container = {"name": "main", "image": "none"}
    with client(folder) as api:

        def status(spec: dict[str, Any]) -> tuple[int, bool]:
            pod = {"metadata": {"name": "probe-of-autopilot"}, "spec": {"containers": [container], **spec}}
            probe = api.post("/api/v1/namespaces/default/pods", params={"dryRun": "All"}, json=pod)
            return probe.status_code, "autopilot.gke.io/warden-version" in probe.text

        if not poll_until(lambda: status({})[1] and status({"hostPID": True})[0] >= 400, timeout, pause=0.05):
            raise ClusterFailed(f"The policies of Autopilot are not in effect after {timeout:.0f} s in {folder.name}.")


def _wait_for_gateway_classes(folder: Folder, timeout: float = 60) -> None:
    """Waits for the daemon, so that a cluster has its GatewayClasses from the beginning."""
    with client(folder) as api:

        def accepted(name: str) -> bool:
            with contextlib.suppress(httpx.HTTPError):
                found = api.get(f"/apis/{GATEWAY_API}/gatewayclasses/{name}")
                return found.is_success and bool(found.json().get("status", {}).get("conditions"))
            return False

        if not poll_until(lambda: all(accepted(name) for name in CLASSES), timeout):
            log = folder.log / "daemon.log"
            raise ClusterFailed(f"The GatewayClasses of {folder.name} don't exist: {last_words(log)} (log: {log})")


def _accepts(path: Path) -> bool:
    try:
        connected(path).close()
    except OSError:
        return False
    return True
