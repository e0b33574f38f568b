"""Reads the run of a question from a file, as in the configuration or as a manifest, or a server of the stack."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from gke_ai import settings
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.quantities import format_quantity
from gke_ai.catalog.section_files import PREFIX
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.forecast.rehearse.manifests import MAX_BYTES, Manifest, parse
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.kube.objects import key_of, label
from gke_ai.settings import BadConfiguration
from gke_ai.settings.estimates.cold_start import Waking, wakings
from gke_ai.settings.resolved import Placed
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_configuration, read_sections
from gke_ai.workspace.run_file import SECTIONS, run_of
from gke_ai.workspace.stack import Stack

KINDS = ("Job", "JobSet", "Workload")


def read_run(path: Path, stack: Stack, snapshot: Snapshot) -> Manifest:
    """Returns the run of a file as an object that Kueue decides on. Stops with every mistake of the file."""
    text = _text(path)
    if "apiVersion" not in text:
        run = _of_configuration(path, read_configuration(path), stack, snapshot)
    else:
        runs = [manifest for manifest in parse(text, str(path)) if manifest.is_rehearsed and manifest.kind in KINDS]
        if len(runs) != 1:
            raise Stop(
                f"{path} has {len(runs)} Jobs, JobSets and Workloads. Write the manifest of one run, or one entry of "
                "training or batch."
            )
        run = _named(runs[0])
    source = f"{run.namespace}/{_queue(path, run)}"
    if cluster_queue(run, snapshot) is None:
        known = ", ".join(sorted(_full_name(item) for item in snapshot.of("LocalQueue"))) or "none"
        raise Stop(
            f"{path}: the cluster has no local queue {source}. It has {known}. Names of a hashed snapshot differ."
        )
    if any(_full_name(item) == f"{run.namespace}/{run.name}" for item in snapshot.of(run.kind) if run.is_named):
        raise Stop(f"{path}: the cluster has {run.title} already. The answer is about one run more, so rename it.")
    return run


def cluster_queue(run: Manifest, snapshot: Snapshot) -> str | None:
    """Returns the cluster queue of a run's local queue. None if the snapshot has no such local queue."""
    source = f"{run.namespace}/{_stated_queue(run)}"
    queues = (item for item in snapshot.of("LocalQueue") if _full_name(item) == source)
    return next((item["spec"].get("clusterQueue") for item in queues), None)


def _text(path: Path) -> str:
    try:
        if path.is_file() and path.stat().st_size <= MAX_BYTES:
            return path.read_text()
    except (OSError, UnicodeDecodeError):
        pass
    raise Stop(f"{path} is not a text file of at most {MAX_BYTES >> 20} MiB. Name the file of the run.")


def _named(run: Manifest) -> Manifest:
    """A run with a name, which the answer needs. The API server would choose another one."""
    if run.is_named:
        return run
    return Manifest({**run.content, "metadata": {**run.content["metadata"], "name": f"{run.name}0"}}, run.source)


def _stated_queue(run: Manifest) -> str:
    spec = run.content.get("spec")
    if run.kind == "Workload":
        return str((spec if isinstance(spec, dict) else {}).get("queueName") or "")
    labels = run.content["metadata"].get("labels")
    return label(run.content, QUEUE_LABEL) if isinstance(labels, dict) else ""


def _queue(path: Path, run: Manifest) -> str:
    queue = _stated_queue(run)
    if not queue:
        where = "spec.queueName" if run.kind == "Workload" else f"metadata.labels has no {QUEUE_LABEL}: it"
        raise Stop(f"{path}: {where} is missing, so Kueue does not manage the run. Add it.")
    return queue


def read_server(name: str, stack: Stack, snapshot: Snapshot) -> tuple[Manifest, Waking | None]:
    """Returns one more replica of a server of the stack, and how long it wakes if it sleeps. Stops if there is none.

    The name may begin with the namespace: `llm/gemma`.
    """
    values, project, region = _sections(stack)
    try:
        resolved = settings.load(values, project, region=region)
    except BadConfiguration as bad:
        raise Stop("\n".join(f"{stack.file}: {problem}" for problem in bad.problems)) from None
    names = {f"{server.section.namespace}/{server.section.name}": server for server in resolved.servers}
    chosen = [whole for whole in names if name in (whole, whole.partition("/")[2])]
    if len(chosen) != 1:
        has = "has no server" if not chosen else f"has {len(chosen)} servers"
        raise Stop(f"{stack.file} {has} {name}. Write one of: {', '.join(chosen or names) or 'none'}.")
    (whole,) = chosen
    found = names[whole]
    if found.section.queue is None:
        raise Stop(f"Server {whole} has no queue: it wakes as soon as a node has room. Kueue does not manage it.")
    replica = _workload(found, f"{found.section.name}-replica", 1, str(stack.file), snapshot)
    if cluster_queue(replica, snapshot) is None:
        raise Stop(f"The cluster has no local queue {found.section.namespace}/{found.section.queue}. Deploy first: up.")
    return replica, next(
        (waking for waking in wakings(resolved.scaled, resolved.placed) if waking.server == whole), None
    )


def _sections(stack: Stack) -> tuple[dict[str, Any], str, str]:
    """The sections of the stack's configuration, its project and its region."""
    config = read_sections(stack.file)
    values = {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}
    return values, str(config.get("gcp:project") or "project-id"), str(config.get("gcp:region") or "")


def _of_configuration(path: Path, content: Mapping[str, Any], stack: Stack, snapshot: Snapshot) -> Manifest:
    """The Workload of a run as it stands in the configuration. Its pool and its priority are those of the stack."""
    file = stack.file
    values, project, region = _sections(stack)
    pools = values.get("tpuPools") or []
    section, item = run_of(path, content, {pool.get("name") for pool in pools if isinstance(pool, dict)})
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
    if run.queue is None:
        raise Stop(f"{path}: the run has no queue, so Kueue does not manage it. Set queue.")
    return _workload(placed, run.object_name, placed.pods_at_once, str(path), snapshot)


def _workload(placed: Placed[Any], name: str, pods: int, source: str, snapshot: Snapshot) -> Manifest:
    """The Workload of so many pods, as Kueue would make it."""
    section = placed.section
    # Kueue counts devices by the claims of a pod.
    counted = {name: amount for name, amount in placed.queued_request.items() if name not in placed.fabric.devices}
    requests = {name: format_quantity(name, Fraction(amount)) for name, amount in counted.items() if Fraction(amount)}
    container = {"name": "main", "image": "rehearsal.invalid/run", "resources": {"requests": requests}}
    pod = {"containers": [container], "nodeSelector": placed.node_selector, "restartPolicy": "Never"}
    templates = {_full_name(item) for item in snapshot.of("ResourceClaimTemplate")}
    claims = [claim for claim in placed.fabric.claims if f"{section.namespace}/{claim}" in templates]
    if claims:
        pod["resourceClaims"] = [{"name": claim, "resourceClaimTemplateName": claim} for claim in claims]
        container["resources"] = {"requests": requests, "claims": [{"name": claim} for claim in claims]}
    pod_set = {"name": "main", "count": pods, "template": {"spec": pod}}
    return Manifest(
        {
            "apiVersion": KUEUE_API,
            "kind": "Workload",
            "metadata": {"name": name, "namespace": section.namespace},
            "spec": {"queueName": section.queue, "priority": placed.priority, "podSets": [pod_set]},
        },
        source,
    )


def _full_name(item: Mapping[str, Any]) -> str:
    return "/".join(key_of(item))
