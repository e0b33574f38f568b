"""The section `queues` for a cluster that has Kueue: what is there, by name. `gke-ai init --from-cluster` writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gke_ai import settings
from gke_ai.catalog.kueue.existing import PRIORITIES_OF_THE_SYSTEM
from gke_ai.catalog.machines.tpus import VERSIONS
from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR, GKE_TPU_ACCELERATOR, GKE_TPU_TOPOLOGY
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.kube.client import ApiClient, list_objects
from gke_ai.kube.existing import Content, read, refusals
from gke_ai.kube.objects import Object
from gke_ai.kube.values import mapping, value
from gke_ai.settings import BadConfiguration
from gke_ai.settings.resolved import DEFAULT_NAMESPACE, needs
from gke_ai.terminal import printable

_CLUSTER = {"name": "cluster", "mode": "existing"}
_EXISTING = {"mode": "existing"}
SHOWN = 200  # characters of a reason, which may have names that a stranger chose


@dataclass(frozen=True)
class Described:
    """What a cluster has, as a section of a configuration."""

    queues: Mapping[str, Any]
    """The section `gke-ai:queues` as plain data; empty if the cluster has no Kueue that a stack can use."""
    left_out: tuple[str, ...]
    """What the section does not name, each with the reason."""


def describe(api: ApiClient) -> Described:
    """Reads a cluster. Stops if it does not answer, or refuses to list a kind.

    A stack with this section alone creates, changes and deletes nothing of Kueue.
    """
    content = read(api)
    priorities = list_objects(api, f"/apis/{KUEUE_API}/workloadpriorityclasses")
    return described(content, [item["metadata"]["name"] for item in priorities])


def described(content: Content, workload_priorities: list[str]) -> Described:
    """Returns the section for the content of a cluster. What a preview would refuse is left out."""
    left_out: list[str] = []
    kueue = content.kueue
    if kueue is None or kueue.cluster_queues is None:
        reason = "has no Kueue" if kueue is None else f"has Kueue {kueue.version}, which does not serve {KUEUE_API}"
        return Described({}, (f"The cluster {reason}.",))

    def usable(noun: str, key: str, candidates: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = []
        for candidate in candidates:
            if reason := _refused(content, key, candidate):
                left_out.append(_line(f"{noun} {candidate['name']}: {reason}."))
            else:
                kept.append(candidate)
        return kept

    sections = {
        "flavors": usable("Flavor", "flavors", _flavors(content)),
        "localQueues": usable("Local queue", "localQueues", _local_queues(content)),
        "priorityClasses": usable("Priority class", "priorityClasses", _priority_classes(content)),
    }
    led_to = {queue["clusterQueue"] for queue in sections["localQueues"]}
    for name in kueue.cluster_queues:
        if name not in led_to:
            left_out.append(_line(f"Cluster queue {name}: no local queue above leads to it. Add one to use it."))
    for name in workload_priorities:
        left_out.append(_line(f"WorkloadPriorityClass {name}: workloads of a stack have a Kubernetes PriorityClass."))
    origins = {"kueue": "existing", **({"jobset": "existing"} if content.jobset else {})}
    return Described({**origins, **{key: items for key, items in sections.items() if items}}, tuple(left_out))


def _flavors(content: Content) -> Iterator[dict[str, Any]]:
    versions = {version.accelerator: name for name, version in VERSIONS.items()}
    for name, flavor in content.flavors.items():
        labels = mapping(flavor, "spec", "nodeLabels")
        section: dict[str, Any] = {"name": name, **_EXISTING}
        if gpu := labels.get(GKE_ACCELERATOR):
            section["accelerator"] = gpu
        if tpu := labels.get(GKE_TPU_ACCELERATOR):
            section["tpu"] = {"version": versions.get(tpu, tpu), "topology": labels.get(GKE_TPU_TOPOLOGY, "")}
        yield section


def _local_queues(content: Content) -> Iterator[dict[str, Any]]:
    for (namespace, name), queue in content.local_queues.items():
        leads = value(queue, "spec", "clusterQueue")
        yield {"name": name, **_EXISTING, "namespace": namespace, "clusterQueue": leads}


def _priority_classes(content: Content) -> Iterator[dict[str, Any]]:
    for name, found in content.priority_classes.items():
        if not name.startswith(PRIORITIES_OF_THE_SYSTEM):
            yield {"name": name, **_EXISTING, "value": found.get("value", 0), **_unusual(found)}


def _unusual(priority: Object) -> dict[str, Any]:
    """Keys of a priority class that are not the default."""
    never = {"preemption": "Never"} if priority.get("preemptionPolicy") == "Never" else {}
    return {**never, **({"globalDefault": True} if priority.get("globalDefault") else {})}


def _refused(content: Content, key: str, section: Mapping[str, Any]) -> str:
    """Why a stack could not use an object by name; empty if it can."""
    if key == "flavors" and value(content.flavors[section["name"]], "spec", "topologyName"):
        return "it has a topology, for which a configuration has no keys"
    if key == "localQueues" and section["namespace"] == DEFAULT_NAMESPACE:
        return f"runs in namespace {DEFAULT_NAMESPACE} would outlive the stack. Add a local queue in another namespace"
    values = {"cluster": _CLUSTER, "queues": {"kueue": "existing", key: [section]}}
    try:
        stack = settings.load(values, "project-id")
    except BadConfiguration as bad:
        return bad.problems[0].cause
    return next((refusal.cause for refusal in refusals(needs.of_cluster(stack), content)), "")


def _line(text: str) -> str:
    plain = printable(" ".join(text.split()))
    return plain if len(plain) <= SHOWN else f"{plain[:SHOWN]}…"
