"""Holds back nodes and pods for the time that Google Cloud takes.

    emulator/run delay                            show the delays
    emulator/run delay node=3 node/spot=5 server=4 server/llm/gemma=6 pod=1 idle=10 repair=60
    emulator/run delay none                       remove all delays

Seconds by key. The most specific key counts:

    node, node/MODE, node/MACHINE     until a new node is Ready: node/spot, node/g2-standard-24
    server, server/NAMESPACE/NAME     until a pod of a Deployment with accelerators is Ready
    pod                               until another pod with accelerators runs
    idle                              until a node without pods is deleted. Default: 15
    booking                           until unused nodes of a ProvisioningRequest may be deleted. Default: 30
    repair                            until a pool of fixed size replaces a lost node. Default: 60
    request                           until a ProvisioningRequest fails that no pool can serve. Default: 120

Without delays everything is ready immediately. The delays of pods apply to the clusters that exist now.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.cloud.api import APPLY_PATCH, GKE, answer, client
from emulator.cloud.folder import Folder, names
from emulator.cloud.records import Damaged, read, write
from emulator.machine import paths
from emulator.machine.polling import poll_until
from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.nodes.shape import INSTANCE_TYPE, NVIDIA_GPU
from gke_ai.kube.nodes import capacity_mode
from gke_ai.workspace.emulation import READY_AFTER

if TYPE_CHECKING:
    import httpx

Object = dict[str, Any]
IDLE_SECONDS = 15.0
_SERVER = re.compile(r"server/[a-z0-9-]+/[a-z0-9-]+")
_POLICIES = "/apis/admissionregistration.k8s.io/v1beta1"
_KINDS = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}
_NAME = "delays"
_PROBE = "probe-of-delays"
EFFECT_SECONDS = 60.0


def delays() -> dict[str, float]:
    """Returns the delays in seconds, by key."""
    stated: dict[str, float] = read(_file(), "delays", {})
    return stated


def idle_seconds() -> float:
    """Returns how long a node without pods stays.

    GKE waits ten minutes (https://cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler). Here tests wait
    for the deletion.
    """
    return delays().get("idle", IDLE_SECONDS)


def booking_seconds() -> float:
    """Returns how long the nodes of a ProvisioningRequest stay without pods. GKE keeps them for ten minutes.

    https://github.com/GoogleCloudPlatform/cluster-autoscaler: pkg/provisioningrequests/provreqstate/state.go
    """
    return delays().get("booking", 30.0)


def repair_seconds() -> float:
    """Returns after how long a pool of fixed size replaces a lost node. Compute Engine takes minutes.

    https://docs.cloud.google.com/compute/docs/instance-groups/about-repair
    """
    return delays().get("repair", 60.0)


def request_seconds() -> float:
    """Returns how old a ProvisioningRequest without a pool must be to fail.

    https://github.com/GoogleCloudPlatform/cluster-autoscaler: pkg/provisioningrequests/scaleup/orchestrator.go
    """
    return delays().get("request", 120.0)


def hold_back(node: Object) -> Object:
    """Returns a new node, with the annotation if it has a delay."""
    stated, labels = delays(), node["metadata"]["labels"]
    for key in (f"node/{labels.get(INSTANCE_TYPE, '')}", f"node/{capacity_mode(node)}", "node"):
        if key in stated:
            metadata = node["metadata"]
            annotations = {**metadata.get("annotations", {}), READY_AFTER: f"{stated[key]}s"}
            return node | {"metadata": metadata | {"annotations": annotations}}
    return node


def of(item: Object) -> float:
    """Returns the seconds for which a node or pod is held back."""
    return float(item["metadata"].get("annotations", {}).get(READY_AFTER, "0s").removesuffix("s"))


def declare(stated: Mapping[str, float]) -> None:
    """Replaces all delays. Returns once they are in effect: an API server looks at changed policies once a second."""
    write(_file(), {"delays": dict(stated)})
    expression = annotation_of_pods(stated)
    mark = sha256(expression.encode()).hexdigest()[:8] if expression else ""
    for name in names():
        with client(Folder(name)) as api:
            for kind, plural in _KINDS.items():
                path = f"{_POLICIES}/{plural}/{_NAME}"
                if expression:
                    item = _policy(kind, f"object.metadata.?name.orValue('') == '{_PROBE}' ? '{mark}' : {expression}")
                    answer(api.patch(path, params=GKE, json=item, headers=APPLY_PATCH))
                else:
                    api.delete(path)
            if not poll_until(partial(_is_in_effect, api, mark), EFFECT_SECONDS):
                raise TimeoutError(f"The delays are not in effect after {EFFECT_SECONDS:.0f} s in cluster {name}.")


def _is_in_effect(api: httpx.Client, mark: str) -> bool:
    """Whether a pod that is not created would get the mark of the latest delays."""
    container = {"name": "main", "image": "none", "resources": {"limits": {NVIDIA_GPU: "1"}}}
    pod = {"metadata": {"name": _PROBE}, "spec": {"containers": [container]}}
    probe = api.post("/api/v1/namespaces/kube-system/pods", params={"dryRun": "All"}, json=pod)
    if not probe.is_success:
        return False
    found: str = probe.json()["metadata"].get("annotations", {}).get(READY_AFTER, "")
    return found == mark


def annotation_of_pods(stated: Mapping[str, float]) -> str:
    """Returns the CEL expression of a new pod's annotation; empty without delays of pods."""
    if not any(key == "pod" or key.partition("/")[0] == "server" for key in stated):
        return ""
    owned = "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.kind == 'ReplicaSet')"
    servers = f"'{stated.get('server', 0.0)}s'"
    for key, seconds in sorted(stated.items()):
        if _SERVER.fullmatch(key):
            _, namespace, name = key.split("/")
            # The name of a Deployment's ReplicaSet, which begins the names of its pods, ends in a hash.
            named = f"object.metadata.?generateName.orValue('').matches('^{name}-[a-z0-9]+-$')"
            is_it = f"request.namespace == '{namespace}' && {named}"
            servers = f"{is_it} ? '{seconds}s' : {servers}"
    return f"({owned}) ? ({servers}) : '{stated.get('pod', 0.0)}s'"


def _policy(kind: str, expression: str) -> Object:
    base = {"apiVersion": _POLICIES.removeprefix("/apis/"), "kind": kind, "metadata": {"name": _NAME}}
    if kind == "MutatingAdmissionPolicyBinding":
        return base | {"spec": {"policyName": _NAME}}
    accelerators = " || ".join(f"'{resource}' in c.resources.limits" for resource in (NVIDIA_GPU, GOOGLE_TPU))
    holds = f"object.spec.containers.exists(c, has(c.resources) && has(c.resources.limits) && ({accelerators}))"
    change = f"Object{{metadata: Object.metadata{{annotations: {{'{READY_AFTER}': {expression}}}}}}}"
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return base | {
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [pods]},
            "matchConditions": [{"name": "accelerators", "expression": holds}],
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": change}}],
        }
    }


def main(arguments: list[str]) -> int:
    """Runs the command and prints the delays."""
    if arguments:
        stated: dict[str, float] = {}
        for argument in [] if arguments == ["none"] else arguments:
            key, _, text = argument.partition("=")
            if not _is_key(key) or not re.fullmatch(r"\d+(\.\d+)?", text):
                keys = (
                    "node, node/MODE, node/MACHINE, server, server/NAMESPACE/NAME, pod, idle, booking, repair, request"
                )
                print(f"{argument} is not a delay. Write KEY=SECONDS; keys: {keys}.", file=sys.stderr)
                return 2
            stated[key] = float(text)
        declare(stated)
    for key, seconds in delays().items():
        print(f"{key}={seconds:g}")
    return 0


def _is_key(key: str) -> bool:
    kind, _, name = key.partition("/")
    if not name:
        return key in ("node", "server", "pod", "idle", "booking", "repair", "request")
    return (kind == "node" and (name in MODES or name in MACHINES)) or bool(_SERVER.fullmatch(key))


def _file() -> Path:
    return paths.STATE / "delays.json"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Damaged as damaged:
        sys.exit(str(damaged))
