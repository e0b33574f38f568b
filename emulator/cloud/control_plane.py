"""The settings of a control plane: what kwokctl starts, and on which addresses it listens."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from emulator.cloud import etcd
from emulator.cloud.folder import Folder
from emulator.machine import processes

KUBERNETES_VERSION = "v1.37.2"
# GKE's own range for Services (https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips#service-range).
# Kubernetes' default range for Services would overlap with KWOK's pod addresses.
SERVICE_RANGE = "34.118.224.0/20"
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller")
KEPT = ("etcd", "kube-apiserver")
_CLIENT_CERTIFICATE = "kubelet-client-certificate"
"""The components of a paused cluster."""
_PORTS = {
    "kube-controller-manager": "kubeControllerManagerPort",
    "kube-scheduler": "kubeSchedulerPort",
    "kwok-controller": "kwokControllerPort",
}
"""kwokctl's options with the ports of components that end while a cluster is paused."""
# Relative to the control plane's folder, in which etcd and the API server run.
ETCD, ETCD_PEER = f"unix://{etcd.SOCKET}", f"unix://{etcd.PEER_SOCKET}"


def configuration(ports: list[int], egress_selector: Path, admission: Path, pki: Path) -> dict[str, object]:
    """Returns kwokctl's configuration of a control plane, whose API server reads the files."""
    api, controller_manager, scheduler, kwok = ports
    # Each component has one replica. On a machine that pauses, it would lose its lease and exit.
    no_leader_election = {"key": "leader-elect", "value": "false"}
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {
            "runtime": "binary",
            "kubeVersion": KUBERNETES_VERSION,
            "bindAddress": "127.0.0.1",
            "kubeApiserverPort": api,
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
                    {"key": "etcd-servers", "value": ETCD, "override": True},
                    # Nobody needs it: every component has a certificate or a token.
                    {"key": "anonymous-auth", "value": "false"},
                    # Whoever reads the log of a pod from the daemon shows this certificate.
                    {"key": _CLIENT_CERTIFICATE, "value": str(pki / "admin.crt")},
                    {"key": "kubelet-client-key", "value": str(pki / "admin.key")},
                    {"key": "egress-selector-config-file", "value": str(egress_selector)},
                    {"key": "admission-control-config-file", "value": str(admission)},
                    {"key": "service-cluster-ip-range", "value": SERVICE_RANGE},
                    # Adds the toleration of the accelerator's taint to pods that request it, as GKE does.
                    {"key": "enable-admission-plugins", "value": "ExtendedResourceToleration"},
                    # Mutating policies (beta in Kubernetes) add the other tolerations that GKE adds.
                    {"key": "feature-gates", "value": "MutatingAdmissionPolicy=true"},
                    {"key": "runtime-config", "value": "admissionregistration.k8s.io/v1beta1=true"},
                ],
            },
            {
                "name": "kube-controller-manager",
                "extraArgs": [
                    no_leader_election,
                    # Its check of types takes 13 CPU-seconds of a first update, and nothing reads its result.
                    {"key": "controllers", "value": "*,-validatingadmissionpolicy-status-controller"},
                    # As on GKE, each controller has its own ServiceAccount and permissions. Policies identify
                    # controllers by the ServiceAccount.
                    {"key": "use-service-account-credentials", "value": "true"},
                    # So each controller gets its own token. At the default of 20 requests per second they start late.
                    {"key": "kube-api-qps", "value": "500"},
                    {"key": "kube-api-burst", "value": "1000"},
                    # Nodes never fail here, but on a slow machine one may seem to, and its pods would stay not Ready.
                    {"key": "node-monitor-grace-period", "value": "24h"},
                    # The default of Kubernetes and GKE is 15 s. A shorter period makes autoscaling visible sooner.
                    {"key": "horizontal-pod-autoscaler-sync-period", "value": "2s"},
                    # The default of Kubernetes is 5 min: a quota from before a CRD counts its objects only then.
                    {"key": "resource-quota-sync-period", "value": "5s"},
                ],
            },
            {"name": "kube-scheduler", "extraArgs": [no_leader_election]},
            {
                "name": "etcd",
                "extraArgs": [
                    {"key": "listen-client-urls", "value": ETCD, "override": True},
                    {"key": "listen-peer-urls", "value": ETCD_PEER, "override": True},
                    # A killed process loses nothing, and an emulated cluster need not survive a loss of power.
                    {"key": "unsafe-no-fsync", "value": "true"},
                ],
            },
        ],
    }


def is_open(folder: Folder) -> bool:
    """Whether an earlier version created the control plane: its etcd listens on a port and lets everyone write."""
    return f"--listen-client-urls={ETCD}\n" not in _saved(folder).read_text()


def has_client_certificate(folder: Folder) -> bool:
    """Whether the API server shows a certificate where it reads logs. That of an earlier version shows none."""
    return f"--{_CLIENT_CERTIFICATE}=" in _saved(folder).read_text()


def close(folder: Folder) -> None:
    """Moves the etcd of an earlier version, which must not run, to the sockets."""
    text = _saved(folder).read_text()
    for key, value in {"listen-client-urls": ETCD, "listen-peer-urls": ETCD_PEER}.items():
        text = re.sub(f"--{key}=.*", f"--{key}={value}", text)
    text = re.sub("^( *- )--etcd-servers=.*", rf"\1--etcd-servers={ETCD}\n\1--anonymous-auth=false", text, flags=re.M)
    _saved(folder).write_text(text)
    for file in folder.pki.glob("*.key"):
        file.chmod(0o600)


def leave_taken_ports(folder: Folder, ended: Iterable[str]) -> None:
    """Gives ended components another port if a process has taken theirs. Only the API server's is known elsewhere."""
    text = saved = _saved(folder).read_text()
    for option in (_PORTS[component] for component in ended if component in _PORTS):
        if (found := re.search(rf"^ *{option}: (\d+)$", text, flags=re.M)) and not processes.is_free(int(found[1])):
            text = re.sub(rf"\b{found[1]}\b", str(processes.free_ports(1)[0]), text)
    if text != saved:
        _saved(folder).write_text(text)


def _saved(folder: Folder) -> Path:
    """The configuration that kwokctl reads at each start of the control plane."""
    return folder.control_plane / "kwok.yaml"


def id_of(folder: Folder, component: str) -> int | None:
    """Returns the recorded process id of a component of the control plane. The process may have ended."""
    recorded = id_file(folder, component)
    return int(recorded.read_text()) if recorded.exists() else None


def id_file(folder: Folder, component: str) -> Path:
    """The file in which kwokctl records a process id."""
    return folder.control_plane / "pids" / f"{component}.pid"


def egress_selector(socket_name: str) -> dict[str, object]:
    """Routes the API server's requests to pods and Services to the daemon.

    These are requests to webhooks, aggregated APIs and proxied Services. The name of the socket is relative to the API
    server's working directory, because the kernel limits it to 108 bytes.
    """
    transport = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": socket_name}}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": transport}],
    }


def admission() -> dict[str, object]:
    """Refuses pods of the system's priority classes where no quota allows them: GKE has one in kube-system only.

    https://kubernetes.io/docs/concepts/policy/resource-quotas/#limit-priority-class-consumption-by-default,
    https://github.com/openservicemesh/osm/issues/4408
    """
    classes = ["system-node-critical", "system-cluster-critical"]
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": classes}
    limits = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "ResourceQuotaConfiguration",
        "limitedResources": [{"resource": "pods", "matchScopes": [scope]}],
    }
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ResourceQuota", "configuration": limits}],
    }
