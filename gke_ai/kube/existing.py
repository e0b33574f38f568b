"""Compares what a stack expects of a cluster that exists with what the cluster has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gke_ai.catalog.kueue import existing
from gke_ai.catalog.kueue.operators import OPERATORS, RAY_PROXY_FLAG, RAY_PROXY_KEY
from gke_ai.catalog.versions import JOBSET_API, KUEUE_API
from gke_ai.kube.client import ApiClient, list_objects, request
from gke_ai.kube.kueue import ExistingKueue, Refusal, installed
from gke_ai.kube.objects import Object, key_of
from gke_ai.kube.values import items, list_at, mapping, value

# Effects of a taint that keep pods away: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
_KEPT_AWAY = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class Content:
    """What a cluster has of what a stack may expect, by name."""

    kueue: ExistingKueue | None = None
    jobset: bool = False
    """Whether it serves the version of JobSet's API that this program writes."""
    operators: Collection[str] = ()
    """Namespaces of the controllers of further kinds whose API it serves, where the controller has pods."""
    proxying: Collection[str] = ()
    """Those of controllers that ask pods with their own credential."""
    namespaces: Mapping[str, existing.Labels] = field(default_factory=dict)
    """Labels of each namespace."""
    flavors: Mapping[str, Object] = field(default_factory=dict)
    local_queues: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    """By namespace and name."""
    priority_classes: Mapping[str, Object] = field(default_factory=dict)


def read(api: ApiClient) -> Content:
    """Reads a cluster. Stops if it does not answer, or refuses to list a kind."""

    def named(path: str) -> dict[str, Object]:
        return {item["metadata"]["name"]: item for item in list_objects(api, path)}

    local_queues = list_objects(api, f"/apis/{KUEUE_API}/localqueues")
    deployments = {
        operator.namespace: list_objects(api, f"/apis/apps/v1/namespaces/{operator.namespace}/deployments")
        for operator in OPERATORS.values()
        if request(api, "GET", f"/apis/{operator.api}").code == 200
    }
    return Content(
        installed(api),
        request(api, "GET", f"/apis/{JOBSET_API}").code == 200,
        [namespace for namespace, found in deployments.items() if found],
        [namespace for namespace, found in deployments.items() if any(_is_proxying(api, item) for item in found)],
        {name: item["metadata"].get("labels") or {} for name, item in named("/api/v1/namespaces").items()},
        named(f"/apis/{KUEUE_API}/resourceflavors"),
        {key_of(queue): queue for queue in local_queues},
        named("/apis/scheduling.k8s.io/v1/priorityclasses"),
    )


def _is_proxying(api: ApiClient, deployment: Object) -> bool:
    """Whether KubeRay asks Ray heads with its own credential, by its flag or its file of configuration."""
    containers = items(deployment, "spec", "template", "spec", "containers")
    words = [str(word) for container in containers for key in ("command", "args") for word in list_at(container, key)]
    flags = {name.lstrip("-"): value for name, _, value in (word.partition("=") for word in words)}
    if "config" in flags:  # then KubeRay ignores its other flags
        files = list_objects(api, f"/api/v1/namespaces/{deployment['metadata']['namespace']}/configmaps")
        return any(
            re.search(rf"^\s*{RAY_PROXY_KEY}:\s*true", str(text), re.M)
            for file in files
            for text in mapping(file, "data").values()
        )
    return flags.get(RAY_PROXY_FLAG.lstrip("-"), "false").lower() not in ("false", "f", "0")


def refusals(expected: existing.Expected, content: Content) -> Iterator[Refusal]:
    """Yields what a cluster lacks, each with the key that expects it and what to change."""
    kueue = content.kueue
    if expected.kueue is not None and kueue is None:
        cause = "the cluster has no Kueue, so nothing would ever start"
        yield Refusal(cause, "Install it first, or remove the key: then this stack installs it")
    elif expected.kueue is not None and kueue is not None:
        yield from kueue.refusals(expected.kueue, content.namespaces)
    if expected.jobset and not content.jobset:
        yield Refusal(
            f"the cluster has no JobSet that serves {JOBSET_API}, which {expected.jobset} needs",
            "Install or upgrade it first, or remove the key: then this stack installs it",
            "gke-ai:queues.jobset",
        )
    for path, operator in expected.operators.items():
        if operator.namespace not in content.operators:
            yield Refusal(
                f"the cluster has no {operator.name} in the namespace {operator.namespace} that serves {operator.api}, "
                "so nothing of its kinds would start",
                "Install it there first, or write install: then this stack installs it",
                path,
            )
        elif expected.tenants and operator.namespace in content.proxying:
            yield Refusal(
                f"{operator.name} of the cluster runs with {RAY_PROXY_FLAG}, so the head of any RayJob can obtain its "
                "credential, which reads every Secret",
                f"Remove the flag, and {RAY_PROXY_KEY} from its configuration. Or remove gke-ai:tenants",
                path,
            )
    for namespace in expected.namespaces:
        if namespace.name not in content.namespaces:
            yield Refusal(
                f"the cluster has no namespace {namespace.name}, and this stack does not create it",
                f"Create it: kubectl create namespace {namespace.name}. Or remove it here: then this stack creates it",
                namespace.at("existingNamespaces"),
            )
    if kueue is not None and kueue.cluster_queues is not None:
        for flavor in expected.flavors:
            yield from _flavor(flavor, content.flavors)
        for queue in expected.local_queues:
            yield from _local_queue(queue, content.local_queues)
    for priority in expected.priority_classes:
        yield from _priority(priority, content.priority_classes)


def _flavor(flavor: existing.NamedFlavor, flavors: Mapping[str, Object]) -> Iterator[Refusal]:
    found = flavors.get(flavor.name)
    if found is None:
        cause = f"the cluster has no flavor {flavor.name}, so its cluster queues would admit nothing"
        yield Refusal(cause, _other(flavors, "name"), flavor.at("name"))
        return
    labels = mapping(found, "spec", "nodeLabels")
    for pool, nodes in flavor.pools.items():
        if not any(labels.items() <= node.items() for node in nodes):
            lacking = {key: text for key, text in labels.items() if all(node.get(key) != text for node in nodes)}
            yield Refusal(
                f"flavor {flavor.name} of the cluster selects nodes with {_listed(lacking or labels)}, and those of "
                f"pool {pool} have other labels: nothing would run there",
                "Name a flavor that selects them, or remove mode and choose another name: then this stack creates it",
                flavor.at("pools"),
            )
    others = {key: labels[key] for key, text in flavor.accelerator.items() if labels.get(key, text) != text}
    if others:
        yield Refusal(
            f"flavor {flavor.name} of the cluster selects nodes with {_listed(others)}, and this stack expects "
            f"{_listed({key: flavor.accelerator[key] for key in others})}",
            "Write the accelerator of the flavor, or name another flavor",
            flavor.at("name"),
        )
    tolerations = items(found, "spec", "tolerations")
    for taint in items(found, "spec", "nodeTaints"):
        key = taint.get("key")
        tolerated = key in flavor.tolerated or any(other.get("key") in (None, "", key) for other in tolerations)
        if taint.get("effect") in _KEPT_AWAY and not tolerated:
            yield Refusal(
                f"flavor {flavor.name} of the cluster has the taint {key}, which workloads of this stack do not "
                "tolerate: Kueue would admit none of them there",
                f"Add a toleration of {key} to the flavor, which Kueue gives to its workloads, or name another flavor",
                flavor.at("name"),
            )


def _local_queue(queue: existing.NamedQueue, queues: Mapping[tuple[str, str], Object]) -> Iterator[Refusal]:
    found = queues.get((queue.namespace, queue.name))
    if found is None:
        here = [name for namespace, name in queues if namespace == queue.namespace]
        cause = f"the cluster has no local queue {queue.name} in namespace {queue.namespace}: its workloads would wait "
        yield Refusal(f"{cause}forever", _other(here, "name"), queue.at("name"))
    elif (leads := value(found, "spec", "clusterQueue")) != queue.cluster_queue:
        yield Refusal(
            f"local queue {queue.name} in namespace {queue.namespace} leads to cluster queue {leads}, and not to "
            f"{queue.cluster_queue}",
            f"Write clusterQueue: {leads}, or name another local queue",
            queue.at("clusterQueue"),
        )


def _priority(priority: existing.NamedPriority, classes: Mapping[str, Object]) -> Iterator[Refusal]:
    found = classes.get(priority.name)
    if found is None:
        own = [name for name in classes if not name.startswith(existing.PRIORITIES_OF_THE_SYSTEM)]
        cause = f"the cluster has no priority class {priority.name}, so it would refuse the pods"
        yield Refusal(cause, _other(own, "name"), priority.at("name"))
        return
    for key, stated, theirs in (
        ("value", priority.value, found.get("value", 0)),
        ("preemption", priority.preemption, found.get("preemptionPolicy", "PreemptLowerPriority")),
        ("globalDefault", priority.global_default, bool(found.get("globalDefault"))),
    ):
        if stated != theirs:
            cause = f"priority class {priority.name} of the cluster has another {key}, so workloads would be ordered "
            yield Refusal(f"{cause}otherwise", f"Write {key}: {_yaml(theirs)}", priority.at(key))


def _other(names: Iterable[str], key: str) -> str:
    """What to change if an object is not there."""
    listed = ", ".join(sorted(names))
    create = "Or remove mode: then this stack creates it" if listed else "Remove mode: then this stack creates it"
    return f"Write as {key} one of {listed}. {create}" if listed else create


def _listed(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={text}" for key, text in labels.items())


def _yaml(stated: object) -> str:
    return str(stated).lower() if isinstance(stated, bool) else str(stated)
