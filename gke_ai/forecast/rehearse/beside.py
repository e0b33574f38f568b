"""What a stack beside the Kueue of somebody else expects of its cluster, created in the scratch cluster before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gke_ai.catalog.fabric.topology import TOPOLOGY
from gke_ai.catalog.section_files import folder_of
from gke_ai.forecast.rehearse import plain
from gke_ai.forecast.rehearse.restore import wait_for_webhooks
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.snapshot.fields import kinds
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.kube.client import ApiClient, client_of, request
from gke_ai.kube.objects import Object, key_of
from gke_ai.settings import BadConfiguration, ResolvedStack
from gke_ai.settings.resolved import needs
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_keys, resolve

CREATED = 409  # the status if an object exists
# Kinds of which the owner of the Kueue may have objects that those by name refer to.
_OWNERS = ("Topology", "ResourceFlavor", "ProvisioningRequestConfig", "AdmissionCheck", "Cohort", "ClusterQueue")


def others(config: Path, snapshot: Snapshot | None) -> ResolvedStack | None:
    """Returns the stack of a configuration that expects something of its cluster; None if it expects nothing.

    Stops if only a snapshot says what that is. A configuration that is refused is reported by its deployment.
    """
    try:
        stack = resolve({"gcp:project": "project-id", **read_keys(config)}, folder_of(config))
    except BadConfiguration:
        return None
    expected = needs.of_cluster(stack)
    if not expected:
        return None
    if expected.kueue and not snapshot:
        raise Stop(
            f"{config.name}: gke-ai:queues.kueue: it is somebody else's, and its configuration and queues decide. Add "
            "the state of the cluster: --snapshot snapshot.json"
        )
    return stack


def setup_of(emulator: Scratch, stack: ResolvedStack, snapshot: Snapshot | None) -> dict[str, Any]:
    """Returns the controllers that the cluster has, and the objects of others that the stack needs, as plain data."""
    expected = needs.of_cluster(stack)
    found = plain.controllers(emulator, snapshot) if snapshot else {}
    has_jobset = found["jobset"] if snapshot else bool(expected.jobset)
    return {
        "kueue": found["kueue"] if expected.kueue else None,
        "jobset": stack.queues.jobset == "existing" and has_jobset,
        "objects": [*_objects(stack, snapshot)],
    }


def install(emulator: Scratch, stack: ResolvedStack, setup: dict[str, Any]) -> None:
    """Installs the controllers in the scratch cluster, which exists, and creates the objects."""
    plain.enter(emulator, stack.cluster.name)
    plain.install_controllers(emulator, setup)
    api = client_of(emulator.kubeconfig(), 1)
    if setup["kueue"]:
        wait_for_webhooks(api)
    for item in setup["objects"]:
        _create(api, item)


def _objects(stack: ResolvedStack, snapshot: Snapshot | None) -> Iterator[Object]:
    expected = needs.of_cluster(stack)
    spaces = {*(item.name for item in expected.namespaces), *(queue.namespace for queue in expected.local_queues)}
    labels = {item["metadata"]["name"]: item["metadata"].get("labels") or {} for item in _of(snapshot, "Namespace")}
    for name in sorted(spaces - {"default"}):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels.get(name, {})}}
    for priority in expected.priority_classes:
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": priority.name},
            "value": priority.value,
            "preemptionPolicy": priority.preemption,
            "globalDefault": priority.global_default,
        }
    own = {queue.section.name for queue in stack.cluster_queues}
    own_flavors = {flavor.section.name for flavor in stack.flavors if flavor.section.mode == "create"}
    of_stack = {"ClusterQueue": own, "ResourceFlavor": own_flavors, "AdmissionCheck": own_flavors}
    of_stack["ProvisioningRequestConfig"] = own_flavors
    of_stack["Topology"] = {TOPOLOGY} if any(flavor.has_topology for flavor in stack.flavors) else set()
    for kind in _OWNERS:
        for item in _of(snapshot, kind):
            if item["metadata"]["name"] not in of_stack.get(kind, ()):
                yield _bare(kind, item)
    named = {(queue.namespace, queue.name) for queue in expected.local_queues}
    for item in _of(snapshot, "LocalQueue"):
        if key_of(item) in named:
            yield _bare("LocalQueue", item)


def _of(snapshot: Snapshot | None, kind: str) -> list[Object]:
    return [*snapshot.of(kind)] if snapshot else []


def _bare(kind: str, item: Object) -> Object:
    """An object of a snapshot as its owner wrote it."""
    metadata = {name: item["metadata"][name] for name in ("name", "namespace", "labels") if name in item["metadata"]}
    return {"apiVersion": kinds()[kind].api, "kind": kind, "metadata": metadata, "spec": item.get("spec") or {}}


def _create(api: ApiClient, item: Object) -> None:
    metadata = item["metadata"]
    path = kinds()[item["kind"]].path(metadata.get("namespace", ""))
    answer = request(api, "POST", path, body=item)
    if answer.code >= 400 and answer.code != CREATED:
        raise Stop(f"The scratch cluster refuses {item['kind']} {metadata['name']} of the snapshot: {answer.reason}")
