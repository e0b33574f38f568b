"""Reads the manifest of a run, and checks it by what the stack published."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from gke_ai.catalog.documents import Reader
from gke_ai.catalog.operators import BY_KIND, OPERATORS
from gke_ai.catalog.quantities import parse_quantity, readable
from gke_ai.catalog.quota import QUEUE_LABEL
from gke_ai.catalog.topology import ANNOTATIONS
from gke_ai.catalog.versions import JOBSET_API
from gke_ai.kube.objects import Object, label
from gke_ai.kube.pods import limited_only, pod_sets, requests, templates
from gke_ai.kube.values import items, mapping
from gke_ai.ops.configuration_file import read_documents
from gke_ai.ops.submit.fit import Fit
from gke_ai.settings.published import Published
from gke_ai.terminal import Stop

# Kinds that submit creates, with their API version.
KINDS = {"Job": "batch/v1", "JobSet": JOBSET_API, **{kind: operator.api for kind, operator in BY_KIND.items()}}


@dataclass(frozen=True)
class Manifest:
    """The manifest of a run in a file."""

    file: Path
    content: dict[str, Any]

    @property
    def stated_namespace(self) -> str:
        """The namespace in the manifest; empty if it states none."""
        return str(self.content["metadata"].get("namespace") or "")

    def inside(self, namespace: str) -> dict[str, Any]:
        """Returns the object in a namespace."""
        return {**self.content, "metadata": {**self.content["metadata"], "namespace": namespace}}


def read_manifest(path: Path) -> Manifest:
    """Returns the run of a file. Stops if the file has anything else."""
    documents = [item for item in read_documents(path, Reader.KUBECTL) if item is not None]
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise Stop(f"{path} has {len(documents)} objects. Write the manifest of one run.")
    (item,) = documents
    kind, version = str(item.get("kind")), str(item.get("apiVersion"))
    if KINDS.get(kind) != version:
        known = " or ".join(f"{kind} ({version})" for kind, version in KINDS.items())
        raise Stop(f"{path} is a {kind} ({version}). Write a {known}.")
    metadata = item.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise Stop(f"{path}: metadata.name is missing. By a name, a repeated submission finds its own run. Add it.")
    if wrong := [*_unreadable(item)]:
        raise Stop("\n".join(f"{path}: {text}. The cluster would refuse it. Correct it." for text in wrong))
    return Manifest(path, item)


def _unreadable(item: Object) -> Iterator[str]:
    """Yields the fields that the checks read and that have another type than Kubernetes takes."""
    metadata = item["metadata"]
    for key in ("name", "namespace"):
        if metadata.get(key) is not None and not isinstance(metadata[key], str):
            yield f"metadata.{key} is no text"
    for key in ("labels", "annotations"):
        stated = metadata.get(key) or {}
        if not isinstance(stated, dict) or not all(isinstance(text, str) for text in stated.values()):
            yield f"metadata.{key} is no map of texts"
    counted = {"spec": mapping(item, "spec")}
    for index, job in enumerate(items(item, "spec", "replicatedJobs")):
        counted[f"spec.replicatedJobs[{index}]"] = job
        counted[f"spec.replicatedJobs[{index}].template.spec"] = mapping(job, "template", "spec")
    counted["spec.trainer"] = mapping(item, "spec", "trainer")
    for ray in (("spec",), ("spec", "rayClusterSpec")):
        for index, group in enumerate(items(item, *ray, "workerGroupSpecs")):
            counted[f"{'.'.join(ray)}.workerGroupSpecs[{index}]"] = group
    for place, spec in counted.items():
        for key in ("parallelism", "replicas", "numNodes", "numOfHosts"):
            if spec.get(key) is not None and type(spec[key]) is not int:
                yield f"{place}.{key} is no number"


def problems_of(path: Path, item: Object, published: Published | None) -> Iterator[str]:
    """Yields what is wrong with a manifest: requests, queue, quota, priority and fit on a node."""
    queue = label(item, QUEUE_LABEL)
    if not queue:
        yield f"{path}: metadata.labels has no {QUEUE_LABEL}, so Kueue does not manage the run. Add it."
    yield from _without_controller(path, item["kind"], published)
    for template in templates(item["kind"], item):
        spec = mapping(template, "spec")
        yield from _without_requests(path, template)
        for container in items(spec, "containers"):
            resources = {**mapping(container, "resources", "limits"), **mapping(container, "resources", "requests")}
            if missing := [name for name in ("cpu", "memory") if resources.get(name) is None]:
                yield (
                    f"{path}: container {container.get('name')} requests no {' and no '.join(missing)}. Nodes would be "
                    "shared without limits, and quota would not count it. Set resources.requests."
                )
    if published is not None:
        yield from _against(path, item, queue, published.sections)
        if fit := Fit.of_queue(published, queue):
            reasons = dict.fromkeys(fit.problem(template) for template in templates(item["kind"], item))
            yield from (f"{path}: {reason}. Request less." for reason in reasons if reason)


def _without_requests(path: Path, template: Object) -> Iterator[str]:
    """Yields the containers with limits and no requests, in a pod that Kueue places by topology."""
    if {*ANNOTATIONS}.isdisjoint(mapping(template, "metadata", "annotations")):
        return
    for container, missing in limited_only(mapping(template, "spec")):
        yield (
            f"{path}: container {container} has limits of {', '.join(missing)} and no requests. After a restart, Kueue "
            "would count it as nothing and place others on its node. Set resources.requests."
        )


def _without_controller(path: Path, kind: str, published: Published | None) -> Iterator[str]:
    """Yields that the stack does not queue a further kind."""
    key = next((key for key, operator in OPERATORS.items() if kind in operator.kinds), "")
    if key and published is not None and key not in published.sections["queues"]:
        yield (
            f"{path}: the stack has no {OPERATORS[key].name}, so nothing would start a {kind}. Write a Job or a "
            f"JobSet, or ask the platform team to set gke-ai:queues.{key}."
        )


def _against(path: Path, item: Object, queue: str, sections: Mapping[str, Any]) -> Iterator[str]:
    queues, (tenant,) = sections["queues"], sections["tenants"]
    allowed = tenant.get("priorityClasses", [])
    default = [entry["name"] for entry in queues["priorityClasses"] if entry.get("globalDefault")]
    for template in templates(item["kind"], item):
        name = mapping(template, "spec").get("priorityClassName")
        if name and name not in (*allowed, *default):
            names = ", ".join(allowed) or "no class"
            yield f"{path}: tenant {tenant['name']} may not use priority class {name}. It may use {names}."
            break
    local = {entry["name"]: entry["clusterQueue"] for entry in queues["localQueues"]}
    if queue not in local:
        return  # the cluster says whether it exists
    total = total_requests(item)
    cluster_queue = next((entry for entry in queues["clusterQueues"] if entry["name"] == local[queue]), None)
    if cluster_queue is None:
        return
    limits: dict[str, Fraction] = {}
    for flavor in cluster_queue["flavors"]:  # Kueue chooses a flavor for each set of pods
        for resource, amount in flavor["quota"].items():
            limits[resource] = limits.get(resource, Fraction(0)) + parse_quantity(amount)
    for resource, amount in total.items():
        if resource not in limits:
            text = f"queue {queue} has no quota for {resource}, which the run requests"
        elif amount > limits[resource]:
            most = readable(resource, limits[resource])
            text = f"the run requests {readable(resource, amount)} of {resource} in all, and queue {queue} has {most}"
        else:
            continue
        yield f"{path}: {text}. Kueue would never admit it. Request less."


def total_requests(item: Object) -> dict[str, Fraction]:
    """What all pods of a run that run together request, by resource."""
    total: defaultdict[str, Fraction] = defaultdict(Fraction)
    for count, template in pod_sets(item):
        for resource, amount in requests(mapping(template, "spec")).items():
            total[resource] += amount * count
    return dict(total)
