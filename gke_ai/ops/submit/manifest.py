"""Reads the manifest of a run, and checks it by what the stack published."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gke_ai.catalog.documents import Reader
from gke_ai.catalog.fabric.topology import ANNOTATIONS
from gke_ai.catalog.kueue.operators import BY_KIND, OPERATORS
from gke_ai.catalog.versions import JOBSET_API
from gke_ai.kube.objects import Object
from gke_ai.kube.pods import container_requests, limited_only, templates
from gke_ai.kube.values import items, mapping, value
from gke_ai.ops.submit.fit import Fit
from gke_ai.settings.published import Published
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_documents

# Kinds that submit creates, with their API version: a run, and what may stand beside it and is deleted with it.
KINDS = {"Job": "batch/v1", "JobSet": JOBSET_API, **{kind: operator.api for kind, operator in BY_KIND.items()}}
# https://cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler#autoscaling_profiles
SCHEDULERS = {None, "default-scheduler", "gke.io/optimize-utilization-scheduler"}
BESIDE = {"Service": "v1", "ConfigMap": "v1", "Secret": "v1"}


@dataclass(frozen=True)
class Manifest:
    """The manifest of a run in a file."""

    file: Path
    content: dict[str, Any]
    beside: Sequence[dict[str, Any]] = ()
    """Objects that are created before the run."""

    @property
    def stated_namespace(self) -> str:
        """The namespace in the manifest; empty if it states none."""
        return str(self.content["metadata"].get("namespace") or "")

    def inside(self, namespace: str) -> list[dict[str, Any]]:
        """Returns the objects in a namespace, the run last."""
        objects = (*self.beside, self.content)
        return [{**item, "metadata": {**item["metadata"], "namespace": namespace}} for item in objects]


def read_manifest(path: Path) -> Manifest:
    """Returns the run of a file, with the objects beside it. Stops if the file has anything else."""
    read = [item for item in read_documents(path, Reader.KUBECTL) if item is not None]
    documents = [part for item in read for part in (items(item, "items") if value(item, "kind") == "List" else [item])]
    runs, beside, others = list[dict[str, Any]](), list[dict[str, Any]](), list[str]()
    for item in documents:
        kind, version = (str(value(item, key) or "") for key in ("kind", "apiVersion"))
        if {**KINDS, **BESIDE}.get(kind) != version:
            others.append(f"a {kind} ({version})" if kind else "text")
        else:
            (runs if kind in KINDS else beside).append(dict(item))
    if others or len(runs) != 1:
        found = f"has {' and '.join(others)}" if others else f"has {len(runs)} runs"
        known = ", ".join(f"{kind} ({version})" for kind, version in KINDS.items())
        raise Stop(
            f"{path} {found}. Write one run: {known}. {', '.join(BESIDE)} may stand beside it; create others first, "
            "with kubectl."
        )
    if wrong := [text for item in (*beside, *runs) for text in _unreadable(item)]:
        raise Stop("\n".join(f"{path}: {text}. The cluster would refuse it. Correct it." for text in wrong))
    return Manifest(path, _named(runs[0]), beside)


def _named(item: dict[str, Any]) -> dict[str, Any]:
    """A run with a name: one from `generateName` ends in its hash, so that a repeated submission finds its own run."""
    metadata = item["metadata"]
    if metadata.get("name"):
        return item
    digest = hashlib.sha256(json.dumps(item, sort_keys=True, default=str).encode()).hexdigest()[:5]
    kept = {key: value for key, value in metadata.items() if key != "generateName"}
    return {**item, "metadata": {**kept, "name": f"{metadata['generateName']}{digest}"}}


def _unreadable(item: Object) -> Iterator[str]:
    """Yields the fields that the checks read and that have another type than Kubernetes takes."""
    metadata = item.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        yield f"metadata.name of the {item['kind']} is missing"
        return
    for key in ("name", "generateName", "namespace"):
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


def problems_of(path: Path, item: Object, published: Published, fit: Fit) -> Iterator[str]:
    """Yields why a run of a manifest would never start: controllers, quotas and nodes that the stack has not."""
    key = next((key for key, operator in OPERATORS.items() if item["kind"] in operator.kinds), "")
    if key and key not in published.sections["queues"]:
        yield (
            f"{path}: the stack has no {OPERATORS[key].name}, so nothing would start a {item['kind']}. Write a Job or "
            f"a JobSet, or ask the platform team to set gke-ai:queues.{key}."
        )
    yield from (f"{path}: {problem}. Request less, or select others." for problem in fit.problems(item))
    named = {mapping(template, "spec").get("schedulerName") for template in templates(item["kind"], item)}
    for name in sorted(map(str, named - SCHEDULERS)):
        yield f"{path}: the stack has no scheduler {name}, so the pods would stay pending. Remove schedulerName."


def notes_of(item: Object) -> Iterator[str]:
    """Yields what quota or topology does not count of a run, which runs all the same."""
    for template in templates(item["kind"], item):
        spec = mapping(template, "spec")
        for container in items(spec, "containers"):
            requested = container_requests(container)
            if missing := [name for name in ("cpu", "memory") if name not in requested]:
                yield (
                    f"Container {container.get('name')} requests no {' and no '.join(missing)}: quota does not count "
                    "it, and other pods of its node may take it."
                )
        if {*ANNOTATIONS} & {*mapping(template, "metadata", "annotations")}:
            yield from (
                f"Container {container} has limits of {', '.join(missing)} and no requests: after a restart, Kueue "
                "counts it as nothing and places others on its node."
                for container, missing in limited_only(spec)
            )
