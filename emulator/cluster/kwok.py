"""One cluster: a real control plane by kwokctl's binary runtime, simulated kubelets by KWOK, and our daemon beside.

Making one is idempotent: what is whole is left alone, started again if it had stopped (a reboot); what a killed run
left half-made is thrown away and made anew.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import yaml

from emulator import paths, trust
from emulator.cluster import node_agents, processes
from emulator.cluster.api import answer, client, kubeconfig
from emulator.cluster.folder import Folder, NoSuchCluster, locked, try_lock
from emulator.cluster.records import ClusterRecord, Endpoint

HERE = Path(__file__).parent
KUBERNETES_VERSION = "v1.36.1"
# GKE's own range for Services (https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips#service-range); it
# also keeps them apart from KWOK's pod addresses, which begin where Kubernetes' default range for Services does.
SERVICE_RANGE = "34.118.224.0/20"
_COLLECTIONS = {
    "DaemonSet": f"namespaces/{node_agents.NAMESPACE}/daemonsets",
    "CustomResourceDefinition": "customresourcedefinitions",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    "StorageClass": "storageclasses",
}
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller")


class ClusterFailed(Exception):
    """A cluster could not be started; the message names the log to read."""


def create(name: str, record: ClusterRecord) -> Endpoint:
    """Make a cluster and return where it answers; a cluster that is there is only recorded anew.

    Raises:
        processes.MissingTool: one of the control plane's programs isn't on PATH.
        ClusterFailed: it doesn't come up; the message says which log tells why.
    """
    folder = Folder(name)
    with locked(paths.CLUSTERS):
        if folder.ready:
            folder.write(record, folder.host, ready=True)
            _start(folder)
        else:
            _discard(folder)
            try:
                _make(folder, record)
            except ClusterFailed:
                # On a busy machine a component gives up on the API server, or another took its port: once more, anew.
                _discard(folder)
                _make(folder, record)
        trust.renew()
    return endpoint(name)


def start(name: str) -> None:
    """Start what of the cluster isn't running, its daemon included: after a reboot, or when a process died."""
    folder = Folder(name)
    with locked(paths.CLUSTERS):
        if not folder.ready:
            raise NoSuchCluster(name)
        _start(folder)


def delete(name: str) -> None:
    """End every process of the cluster, wait until the last has gone, and remove what it kept. Idempotent."""
    with locked(paths.CLUSTERS):
        _discard(Folder(name))
        trust.renew()


def exists(name: str) -> bool:
    """Whether the cluster was made to the end."""
    return Folder(name).ready


def endpoint(name: str) -> Endpoint:
    """Where the cluster answers. Raises NoSuchCluster."""
    folder = Folder(name)
    host = folder.host
    return Endpoint(host=host, ca_certificate=base64.b64encode((folder.pki / "ca.crt").read_bytes()).decode())


def _discard(folder: Folder) -> None:
    processes.end(folder.path)
    if folder.path.exists():
        # Renamed first: a removal that is interrupted must not leave something that looks like a cluster.
        doomed = folder.path.with_name(f".{folder.name}.removed")
        shutil.rmtree(doomed, ignore_errors=True)
        folder.path.rename(doomed)
        shutil.rmtree(doomed)


def _make(folder: Folder, record: ClusterRecord) -> None:
    ports = processes.free_ports(6)
    host = f"127.0.0.1:{ports[0]}"
    folder.write(record, host, ready=False)
    folder.log.mkdir()
    selector = folder.path / "egress.yaml"
    selector.write_text(yaml.safe_dump(_egress_selector(folder.socket.name)))
    configuration = folder.path / "kwokctl.yaml"
    stages = (HERE / "stages.yaml").read_text()
    configuration.write_text(yaml.safe_dump(_configuration(ports, selector)) + "---\n" + stages)
    _kwokctl(
        folder,
        "create",
        "cluster",
        "--config",
        str(configuration),
        "--kubeconfig",
        str(folder.path / "kwok.kubeconfig"),
    )
    ca, certificate, key = ((folder.pki / file).read_bytes() for file in ("ca.crt", "admin.crt", "admin.key"))
    user = {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }
    folder.kubeconfig.touch(mode=0o600)
    folder.kubeconfig.write_text(kubeconfig(host, ca, user))
    _start_daemon(folder)
    _await_ready(folder)
    # The first thing that its controllers make; a pod is refused before it.
    _await_success(folder, "/api/v1/namespaces/default/serviceaccounts/default", "kube-controller-manager")
    _install_objects(folder)
    folder.write(record, host, ready=True)
    _await_daemon(folder)


def _start(folder: Folder) -> None:
    if _forget_dead(folder) or not _answers(folder):
        _kwokctl(folder, "start", "cluster")
        _await_ready(folder)
    _start_daemon(folder)
    _await_daemon(folder)


def _forget_dead(folder: Folder) -> bool:
    """Whether a component of the control plane is down. kwokctl takes any process that has a recorded id, a zombie or
    another one since a reboot, for the component: so the ids of those that are down are removed."""
    running = set(processes.of(folder.path))
    recorded = [folder.control_plane / "pids" / f"{component}.pid" for component in COMPONENTS]
    dead = [file for file in recorded if not file.exists() or int(file.read_text()) not in running]
    for file in dead:
        file.unlink(missing_ok=True)
    return bool(dead)


def _ended(folder: Folder, component: str) -> bool:
    """Whether a component was started and runs no more."""
    recorded = folder.control_plane / "pids" / f"{component}.pid"
    return recorded.exists() and int(recorded.read_text()) not in processes.of(folder.path)


def _configuration(ports: list[int], egress_selector: Path) -> dict[str, object]:
    api, etcd, etcd_peer, controller_manager, scheduler, kwok = ports
    # There is one of each; on a machine that stands still for a while it would lose its lease and end.
    alone = {"key": "leader-elect", "value": "false"}
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {
            "runtime": "binary",
            "kubeVersion": KUBERNETES_VERSION,
            "bindAddress": "127.0.0.1",
            "kubeApiserverPort": api,
            "etcdPort": etcd,
            "etcdPeerPort": etcd_peer,
            "kubeControllerManagerPort": controller_manager,
            "kubeSchedulerPort": scheduler,
            "kwokControllerPort": kwok,
            "etcdBinary": processes.tool("etcd"),
            "kubeApiserverBinary": processes.tool("kube-apiserver"),
            "kubeControllerManagerBinary": processes.tool("kube-controller-manager"),
            "kubeSchedulerBinary": processes.tool("kube-scheduler"),
            "kwokControllerBinary": processes.tool("kwok"),
            "kubectlBinary": processes.tool("kubectl"),
        },
        "componentsPatches": [
            {
                "name": "kube-apiserver",
                "extraArgs": [
                    {"key": "egress-selector-config-file", "value": str(egress_selector)},
                    {"key": "service-cluster-ip-range", "value": SERVICE_RANGE},
                    # Gives pods that ask for accelerators the toleration of their taint, as GKE does.
                    {"key": "enable-admission-plugins", "value": "ExtendedResourceToleration"},
                    # The other tolerations that GKE gives: policies, which Kubernetes has as a beta.
                    {"key": "feature-gates", "value": "MutatingAdmissionPolicy=true"},
                    {"key": "runtime-config", "value": "admissionregistration.k8s.io/v1beta1=true"},
                ],
            },
            {
                "name": "kube-controller-manager",
                "extraArgs": [
                    alone,
                    # Each controller by its own ServiceAccount and with its own rights, as on GKE: policies tell them
                    # from people by that.
                    {"key": "use-service-account-credentials", "value": "true"},
                    # That is a client and a token for each: at the default of 20 requests a second they start late.
                    {"key": "kube-api-qps", "value": "500"},
                    {"key": "kube-api-burst", "value": "1000"},
                    # No node ever dies; on a slow machine one may seem to, and nobody would make its pods Ready again.
                    {"key": "node-monitor-grace-period", "value": "24h"},
                    # GKE's, and Kubernetes' default, is 15 s: nobody should wait that long to see an autoscaler act.
                    {"key": "horizontal-pod-autoscaler-sync-period", "value": "2s"},
                ],
            },
            {"name": "kube-scheduler", "extraArgs": [alone]},
        ],
    }


def _egress_selector(socket_name: str) -> dict[str, object]:
    """Sends what the API server has for pods and Services (webhooks, aggregated APIs, proxied Services) to the daemon.

    The socket's name is relative to the API server's working directory: a whole path may exceed the 108 bytes that the
    kernel allows it.
    """
    transport = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": socket_name}}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": transport}],
    }


def _kwokctl(folder: Folder, *arguments: str) -> None:
    log = folder.log / "kwokctl.log"
    command = [processes.tool("kwokctl"), "--name", folder.name, *arguments]
    with log.open("ab") as output:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=processes.environment(folder.path, KWOK_WORKDIR=str(folder.kwok)),
            cwd=folder.path,
            start_new_session=True,
        )
    if ran.returncode != 0:
        raise ClusterFailed(f"The emulator's cluster {folder.name} doesn't start: {_tail(log)} (more in {log})")


def _answers(folder: Folder) -> bool:
    try:
        with client(folder) as api:
            return api.get("/readyz").is_success
    except httpx.HTTPError:
        return False


def _await_ready(folder: Folder) -> None:
    _await_success(folder, "/readyz", "kube-apiserver")


def _await_success(folder: Folder, path: str, component: str, timeout: float = 60) -> None:
    """Ask until the API server gives an answer that it can only give once `component` works."""
    deadline, look = time.monotonic() + timeout, time.monotonic() + 2
    with client(folder) as api:
        while True:
            try:
                if api.get(path).is_success:
                    return
            except httpx.HTTPError:
                pass
            log = folder.control_plane / "logs" / f"{component}.log"
            if time.monotonic() > deadline:
                raise ClusterFailed(f"{component} of {folder.name} doesn't work after {timeout:.0f} s (see {log})")
            if time.monotonic() > look:
                if _ended(folder, component):
                    raise ClusterFailed(f"{component} of {folder.name} has ended: {_tail(log)} (more in {log})")
                look = time.monotonic() + 2
            time.sleep(0.05)


def _install_objects(folder: Folder) -> None:
    """What GKE brings to a cluster; applied server-side, so that a second time changes nothing."""
    with client(folder) as api:
        files = sorted((HERE / "crds").glob("*.yaml"))
        items = [item for file in files for item in yaml.safe_load_all(file.read_text())]
        for item in (*items, *node_agents.daemon_sets()):
            path = f"/apis/{item['apiVersion']}/{_COLLECTIONS[item['kind']]}/{item['metadata']['name']}"
            headers = {"content-type": "application/apply-patch+yaml"}
            answer(api.patch(path, params={"fieldManager": "gke"}, json=item, headers=headers))


def _start_daemon(folder: Folder) -> None:
    held = try_lock(folder.path)
    if held is None:
        return
    os.close(held)
    command = [sys.executable, "-m", "emulator.cluster.daemon", folder.name]
    env = processes.environment(folder.path, PYTHONPATH=str(paths.ROOT), GKE_AI_STATE=str(paths.STATE))
    processes.detach(command, folder.log / "daemon.log", env, paths.ROOT)


def _await_daemon(folder: Folder, timeout: float = 20) -> None:
    deadline = time.monotonic() + timeout
    while not _accepts(folder.socket):
        if time.monotonic() > deadline:
            log = folder.log / "daemon.log"
            raise ClusterFailed(f"The daemon of cluster {folder.name} doesn't answer: {_tail(log)} (more in {log})")
        time.sleep(0.02)


def _accepts(path: Path) -> bool:
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            # By way of the folder's descriptor, as the whole path may be too long for a socket.
            probe.connect(f"/proc/self/fd/{folder}/{path.name}")
        except OSError:
            return False
        finally:
            os.close(folder)
    return True


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it says nothing"
