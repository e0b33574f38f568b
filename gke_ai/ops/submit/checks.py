"""Checks a run before anything is created: by the program's rules, and by what the cluster and the registry say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gke_ai.catalog.operators import BY_KIND
from gke_ai.catalog.quota import QUEUE_LABEL
from gke_ai.kube.objects import Object, label
from gke_ai.kube.pods import templates
from gke_ai.kube.values import items, mapping
from gke_ai.manifests.runs import objects_of, place_of
from gke_ai.ops.submit.ending import ending
from gke_ai.ops.submit.fit import Fit
from gke_ai.ops.submit.image import ImageCheck
from gke_ai.ops.submit.manifest import Manifest, problems_of
from gke_ai.ops.submit.member import Member, marked
from gke_ai.ops.submit.request import Request
from gke_ai.settings.problems import Problem
from gke_ai.settings.published import Published, place


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
    objects = [marked(item) for item in (code.inside(objects) if code and objects else objects)]
    queue = run.queue if published is None else None  # the rules have checked it
    checked = _ask(member, objects or [kind], queue, texts, run.images, complete=not texts)
    return replace(checked, notes=notes)


def _check_manifest(member: Member, published: Published | None, manifest: Manifest) -> Checked:
    """Checks a manifest: by what the stack published, and by what the cluster says."""
    item = marked(manifest.inside(member.namespace))
    problems = list(problems_of(manifest.file, item, published))
    fit = Fit.of_queue(published, label(item, QUEUE_LABEL)) if published else None
    pools = [pool for template in templates(item["kind"], item) for pool in (fit.pools_for(template) if fit else ())]
    gone, notes = ending(pools, datetime.now(UTC))
    if gone:
        problems.append(f"{manifest.file}: {gone}. The run would wait forever. Use another pool or queue.")
    specs = [mapping(template, "spec") for template in templates(item["kind"], item)]
    containers = [container for spec in specs for container in items(spec, "containers")]
    # That of a TrainJob may be in its runtime.
    images = [
        str(container.get("image", ""))
        for container in containers
        if item["kind"] not in BY_KIND or "image" in container
    ]
    checked = _ask(member, [item], label(item, QUEUE_LABEL) or None, problems, images, complete=True)
    return replace(checked, notes=notes)


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
    with ThreadPoolExecutor(4) as pool:
        existing = pool.submit(member.existing, run)
        rights = pool.submit(member.may_create, run)
        queued = pool.submit(member.queue_problem, queue) if queue else None
        tries = [pool.submit(member.refusal, item) for item in objects] if complete else []
        found = [*problems, rights.result(), member.class_problem(run), *([queued.result()] if queued else [])]
        # An object that exists already would count twice against the quota of the namespace.
        refusals = [] if rights.result() or existing.result() else [attempt.result() for attempt in tries]
    missing, left_out = check.result()
    found += [*(f"the cluster refuses it: {text}" for text in refusals if text), *missing]
    return Checked(objects if complete else (), [text for text in found if text], left_out, existing.result())


def _in_words(problem: Problem, request: Request) -> str:
    """A problem with the places where the user wrote its keys: in the file, or as options."""
    return re.sub(
        r"gke-ai:(?:training|batch)\[0\][\w.\[\]]*", lambda match: request.named(match[0].rstrip(".")), str(problem)
    )
