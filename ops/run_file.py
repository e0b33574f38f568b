"""Reads one run from a file: as in the configuration, or as a Kubernetes manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import settings
from catalog.documents import Reader
from catalog.objects import label
from catalog.quota import QUEUE_LABEL
from forecast.admission import Run
from forecast.state import State, pod_sets, requests
from ops.configuration_file import read_configuration, read_documents
from ops.stack import ROOT, Stack, Stop
from settings import BadConfiguration
from settings.reading import PREFIX
from settings.runs import run_name

KINDS = ("Job", "JobSet", "Workload")
SECTIONS = ("training", "batch")
_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"


def read_run(path: Path, stack: Stack, cluster: State) -> Run:
    """Returns the run of a file as Kueue would see it now. Stops with every mistake of the file."""
    documents = [document for document in read_documents(path, Reader.KUBECTL) if isinstance(document, dict)]
    manifests = [document for document in documents if document.get("kind") in KINDS and "apiVersion" in document]
    if len(manifests) > 1:
        raise Stop(f"{path} has {len(manifests)} Jobs, JobSets and Workloads. Name a file with one run.")
    if manifests:
        return _of_manifest(path, manifests[0], cluster)
    if len(documents) != 1 or "apiVersion" in documents[0]:
        raise Stop(
            f"{path} has no run. Write one entry of training or batch, or the manifest of a {', a '.join(KINDS)}."
        )
    return _of_configuration(path, documents[0], stack, cluster)


def _of_configuration(path: Path, content: Mapping[str, Any], stack: Stack, cluster: State) -> Run:
    """A run as it stands in the configuration. Its pool and its priority class are those of the stack."""
    file = stack.config_file or ROOT / f"Pulumi.{stack.name}.yaml"
    config = read_configuration(file).get("config") or {}
    values = {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}
    section, item = _item(path, content, values)
    project, region = str(config.get("gcp:project") or "project-id"), str(config.get("gcp:region") or "")
    try:
        resolved = settings.load({**values, **{name: [] for name in SECTIONS}, section: [item]}, project, region=region)
    except BadConfiguration as bad:
        inside = f"{PREFIX}{section}[0]"
        lines = [
            str(problem).replace(inside, str(path), 1) if problem.path.startswith(inside) else f"{file}: {problem}"
            for problem in bad.problems
        ]
        raise Stop("\n".join(lines)) from None
    (placed,) = resolved.placed_runs
    run = placed.section
    needs = {name: float(amount) * placed.pods_at_once for name, amount in placed.queued_request.items()}
    name = f"{run.namespace}/{run.object_kind.lower()}/{run_name(run)}"
    if run.queue is None:
        raise Stop(f"{path}: the run has no queue, so Kueue does not manage it. Set queue.")
    source = f"{run.namespace}/{run.queue}"
    return _run(path, cluster, name, source, needs, placed.priority, placed.node_selector)


def _item(path: Path, content: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[str, object]:
    """The section of a run, and the run: below the name of its section, or alone."""
    named = {key.removeprefix(PREFIX): value for key, value in content.items()}
    for section in SECTIONS:
        if section in named:
            items = named[section]
            if len(named) > 1 or not isinstance(items, list) or len(items) != 1:
                raise Stop(f"{path}: {section} is not a list with one run. Leave one entry.")
            return section, items[0]
    tpus = {pool.get("name") for pool in values.get("tpuPools") or [] if isinstance(pool, dict)}
    return "batch" if "kind" not in content and content.get("pool") in tpus else "training", content


def _of_manifest(path: Path, item: Mapping[str, Any], cluster: State) -> Run:
    try:
        metadata, spec = item["metadata"], item["spec"]
        namespace, name = metadata.get("namespace") or "default", metadata.get("name") or metadata["generateName"]
        pods = [*_pods(item["kind"], spec)]
        queue = spec.get("queueName") if item["kind"] == "Workload" else label(item, QUEUE_LABEL)
        selector = {key: value for _, pod in pods for key, value in (pod.get("nodeSelector") or {}).items()}
        priority = _priority(path, item, pods, cluster)
        needs = requests(pods)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Stop(f"{path}: this is no {item['kind']} that Kubernetes accepts ({error!r}).") from None
    if not queue:
        raise Stop(f"{path}: metadata.labels has no {QUEUE_LABEL}, so Kueue does not manage the run. Add the label.")
    return _run(
        path, cluster, f"{namespace}/{item['kind'].lower()}/{name}", f"{namespace}/{queue}", needs, priority, selector
    )


def _pods(kind: str, spec: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The number of pods and the pod spec of each pod set, as Kueue counts them."""
    if kind == "Workload":
        yield from pod_sets(spec)
    elif kind == "Job":
        parallelism = int(spec.get("parallelism", 1))
        yield min(parallelism, int(spec.get("completions") or parallelism)), spec["template"]["spec"]
    else:
        for job in spec["replicatedJobs"]:
            for pods, pod in _pods("Job", job["template"]["spec"]):
                yield int(job.get("replicas", 1)) * pods, pod


def _priority(path: Path, item: Mapping[str, Any], pods: list[tuple[int, Mapping[str, Any]]], cluster: State) -> int:
    if "priority" in item["spec"]:
        return int(item["spec"]["priority"])
    kueue = label(item, _PRIORITY_LABEL)
    name = (
        f"kueue/{kueue}"
        if kueue
        else next((pod["priorityClassName"] for _, pod in pods if "priorityClassName" in pod), "")
    )
    if name not in cluster.priorities:
        raise Stop(f"{path}: there is no priority class {name.removeprefix('kueue/')} in the cluster.")
    return cluster.priorities[name]


def _run(
    path: Path,
    cluster: State,
    name: str,
    source: str,
    needs: Mapping[str, float],
    priority: int,
    selector: Mapping[str, str],
) -> Run:
    queue = cluster.local.get(source, "")
    if queue not in cluster.queues:
        known = ", ".join(sorted(cluster.local)) or "none"
        raise Stop(
            f"{path}: the cluster has no local queue {source}. It has {known}. Names of a hashed snapshot differ."
        )
    return Run(name, queue, cluster.now, needs, priority, cluster.unsuitable(selector), source=source)
