"""Checks a run before anything is created: by the program's rules, and by what the cluster and the registry say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gke_ai.catalog.kueue.configuration import POD_GATE
from gke_ai.catalog.kueue.operators import BY_KIND
from gke_ai.catalog.machines.capacity import capacity_until, moment
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.kube.objects import Object, label
from gke_ai.kube.pods import templates
from gke_ai.kube.references import references
from gke_ai.kube.values import items, mapping, value
from gke_ai.manifests.runs import objects_of, place_of
from gke_ai.ops.status.workloads import span
from gke_ai.ops.submit.fit import Fit
from gke_ai.ops.submit.image import ImageCheck
from gke_ai.ops.submit.manifest import Manifest, notes_of, problems_of
from gke_ai.ops.submit.member import Member, marked
from gke_ai.ops.submit.request import Request
from gke_ai.settings.problems import Problem
from gke_ai.settings.published import Published, place
from gke_ai.settings.resolved import NodePool
from gke_ai.settings.rules.common import join_names

# Keys of a pod that name other objects, and one with which it may be invalid.
_NAMED = frozenset({"serviceAccountName", "serviceAccount", "priorityClassName", "runtimeClassName", "nodeSelector"})


@dataclass(frozen=True)
class Checked:
    """A run after its checks."""

    objects: Sequence[Object]
    """What is created, in order. The last one is the run."""
    problems: Sequence[str]
    left_out: Sequence[str]
    existing: Object | None = None
    notes: Sequence[str] = ()
    """What the user should know of a run that is not refused."""


def check(member: Member, published: Published | None, request: Request | Manifest) -> Checked:
    """Returns a run with all that is wrong with it, and the checks that were left out."""
    if isinstance(request, Manifest):
        return _check_manifest(member, published, request)
    return _check_run(member, published, request)


def _check_run(member: Member, published: Published | None, request: Request) -> Checked:
    """Checks a run of a section: by the program's rules, and by what the cluster says."""
    section, item = request.run(published, member.namespace)
    placed, problems = place(published, section, item)
    code = request.code
    texts = [*(code.problems if code else []), *(_in_words(problem, request) for problem in problems)]
    if placed is None:
        return Checked((), texts, ())
    run = placed.section
    gone, notes = ending(placed.pools, datetime.now(UTC))
    if gone:
        path = next(iter(run.named_pools), run.at("queue"))
        texts.append(_in_words(Problem(path, f"{gone}. The run would wait forever", "Use another pool"), request))
    kind = {"kind": run.object_kind, "metadata": {"name": run.object_name, "namespace": member.namespace}}
    objects = [] if texts else objects_of(run, place_of(placed))
    # A ConfigMap of code has the hash of its files.
    given = code.inside(objects) if code and objects else objects
    objects = [dict(item) if item["kind"] == "ConfigMap" else marked(item) for item in given]
    queue = run.queue if published is None else None  # the rules have checked it
    checked = _ask(member, objects or [kind], queue, texts, run.images, complete=not texts)
    return replace(checked, notes=notes)


def _check_manifest(member: Member, published: Published | None, manifest: Manifest) -> Checked:
    """Checks a manifest: by what the stack published, and by what the cluster says."""
    objects = [marked(item) for item in manifest.inside(member.namespace)]
    run = objects[-1]
    fit = Fit.of_queue(published, label(run, QUEUE_LABEL)) if published else None
    problems = list(problems_of(manifest.file, run, published, fit)) if published and fit else []
    pools = [pool for template in templates(run["kind"], run) for pool in (fit.pools_for(template) if fit else ())]
    gone, notes = ending(pools, datetime.now(UTC))
    if gone:
        problems.append(f"{manifest.file}: {gone}. The run would wait forever. Use another pool or queue.")
    specs = [mapping(template, "spec") for template in templates(run["kind"], run)]
    containers = [container for spec in specs for container in items(spec, "containers")]
    # That of a TrainJob may be in its runtime.
    named = [container for container in containers if run["kind"] not in BY_KIND or "image" in container]
    images = [str(container.get("image", "")) for container in named]
    checked = _ask(member, objects, label(run, QUEUE_LABEL) or None, problems, images, complete=True)
    return replace(checked, notes=[*notes, *notes_of(run)])


def ending(pools: Iterable[NodePool], now: datetime) -> tuple[str, list[str]]:
    """Returns why no pool of a run has nodes, as a sentence, and notes on the pools that still have some.

    A limit of the run's time changes neither: the run may end earlier, and may wait before it counts.
    """
    named = {pool.section.name: capacity_until(pool.section.node_labels) for pool in pools}
    gone = [name for name, end in named.items() if end and end <= now]
    if gone and len(gone) == len(named):
        return f"the reservation of pool {join_names(gone)} has ended, and Google deleted its nodes", []
    return "", [
        f"Google deletes the nodes of pool {name} at {moment(end)}, in {span((end - now).total_seconds())}. "
        "A run that is not done by then is interrupted, and its pods wait for nodes that do not come back."
        for name, end in named.items()
        if end and end > now
    ]


def _ask(
    member: Member,
    objects: Sequence[Mapping[str, Any]],
    queue: str | None,
    problems: Sequence[str],
    images: Sequence[str],
    complete: bool,
) -> Checked:
    """Asks the cluster and the registry about a run, all at once. Only `complete` objects are tried."""
    run = objects[-1]
    check = ImageCheck(images)
    # Equal pods are asked about once.
    distinct = {json.dumps(pod, sort_keys=True, default=str): pod for pod in (_pods(run) if complete else ())}
    pods = distinct.values()
    named = {reference for pod in pods for reference in references(pod["spec"])}
    beside = {(item["kind"], item["metadata"]["name"]) for item in objects}
    lacking = sorted(reference for reference in named if (reference.kind, reference.name) not in beside)
    with ThreadPoolExecutor(4) as pool:
        existing = pool.submit(member.existing, run)
        rights, of_pods = pool.submit(member.may_create, run), pool.submit(member.may_create, {"kind": "Pod"})
        queued = pool.submit(member.queue_problem, queue) if queue else None
        tries = [pool.submit(member.refusals, item) for item in (*objects, *_claims(run))] if complete else []
        pod_tries = [pool.submit(member.refusals, pod) for pod in pods]
        lacks = [pool.submit(member.lacks, reference) for reference in lacking]
        found = [*problems, rights.result(), member.class_problem(run), *([queued.result()] if queued else [])]
        # An object that exists already would count twice against the quota of the namespace.
        known = rights.result() or existing.result()
        refusals = [] if known else [text for attempt in tries for text in attempt.result()]
        # As policies say of a pod what they say of the run, each is listed once.
        of_a_pod = [] if known or of_pods.result() else [text for attempt in pod_tries for text in attempt.result()]
    found += [f"the cluster refuses it: {text}" for text in refusals]
    found += [f"the cluster would refuse its pods: {text}" for text in of_a_pod if text not in refusals]
    found += [] if known else [*(lack.result() for lack in lacks), *(member.quota_problems(run) if complete else ())]
    missing, left_out = check.result()
    if complete and of_pods.result():
        left_out = [*left_out, "whether its pods are allowed (you may not create pods)"]
    found = [*dict.fromkeys(text for text in [*found, *missing] if text)]
    return Checked(objects if complete else (), found, left_out, existing.result())


def _pods(run: Object) -> Iterator[dict[str, Any]]:
    """Yields a pod of each template, as the controllers create it, held by Kueue. Pods of other images are left out.

    The cluster says of a pod whose account or class is missing only that, so such a pod is there without them too.
    """
    queue = label(run, QUEUE_LABEL)
    # JobSet adds the volumes of its claims: https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/api/jobset/v1alpha2/jobset_types.go
    added = [{"name": claim["metadata"]["name"], "emptyDir": {}} for claim in _claims(run)]
    for template in templates(run["kind"], run):
        spec = mapping(template, "spec")
        if not all("image" in container for container in items(spec, "containers")) or not items(spec, "containers"):
            continue
        annotations = mapping(template, "metadata", "annotations")
        pod: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "of-the-run",
                "namespace": run["metadata"]["namespace"],
                "labels": {QUEUE_LABEL: queue} if queue else {},
                # Those of Kueue and JobSet are read on the run.
                "annotations": {key: text for key, text in annotations.items() if "k8s.io/" not in key},
            },
            "spec": {
                **spec,
                **({"volumes": [*items(spec, "volumes"), *added]} if added else {}),
                **({"schedulingGates": [{"name": POD_GATE}]} if queue else {}),
            },
        }
        yield pod
        if not _NAMED.isdisjoint(spec):
            yield {**pod, "spec": {key: part for key, part in pod["spec"].items() if key not in _NAMED}}


def _claims(run: Object) -> list[dict[str, Any]]:
    """The claims that JobSet creates for a run."""
    policies = items(run, "spec", "volumeClaimPolicies")
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": value(claim, "metadata", "name"), "namespace": run["metadata"]["namespace"]},
            "spec": value(claim, "spec"),
        }
        for policy in policies
        for claim in items(policy, "templates")
    ]


def _in_words(problem: Problem, request: Request) -> str:
    """A problem with the places where the user wrote its keys: in the file, or as options."""
    key = r"gke-ai:(?:training|batch)\[0\][\w.\[\]]*"
    return re.sub(key, lambda match: request.named(match[0].rstrip(".")), str(problem))
