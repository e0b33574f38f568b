"""`gke-ai submit`, `cancel` and `describe`."""

from __future__ import annotations

import sys
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import yaml

from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.versions import PROJECT_VERSION
from gke_ai.kube.objects import Object, annotation, label
from gke_ai.kube.values import items, mapping
from gke_ai.ops.runs import command as runs
from gke_ai.ops.runs.command import Run
from gke_ai.ops.submit import follow
from gke_ai.ops.submit.checks import Checked, check
from gke_ai.ops.submit.manifest import Manifest
from gke_ai.ops.submit.member import SUBMITTED, Member, title
from gke_ai.ops.submit.opening import Opening
from gke_ai.ops.submit.request import Request
from gke_ai.settings.published import Published
from gke_ai.terminal import Stop, printable
from gke_ai.workspace.stack import Context

REFUSED = 3  # exit code of a run that is refused
OF_STACK = "fit on the machine, quota, pool, priority class, bucket"


@dataclass(frozen=True)
class How:
    """How a run is submitted."""

    again: bool = False
    """Delete a run of the same name that has ended."""
    dry_run: bool = False
    detach: bool = False


def submit(context: Context, opening: Opening, request: Request | Manifest, how: How) -> int:
    """Checks a run, creates it and follows it. Returns the exit code.

    Args:
        context: The cluster, with a namespace.
        opening: The connection to it.
        request: The run.
        how: How it is submitted.
    """
    stated = request.stated_namespace
    if not (stated or context.namespace):
        raise Stop("No namespace is stated, and the context has none. Set --namespace.")
    where = context.namespace if context.is_stated else stated or context.namespace
    api, answer = opening.result(where)
    elsewhere = ""
    if stated and context.namespace and stated != context.namespace:
        if context.is_stated:
            both = f"the run is in namespace {stated}, and --namespace is {context.namespace}"
            elsewhere = f"{both}. Leave one of them out"
        elif elsewhere := Member(api, stated).may_create({"kind": "Job"}):
            # The rest is compared with the user's own namespace.
            where, (api, answer) = context.namespace, opening.result(context.namespace)
    member = Member(api, where)
    published = member.published(answer)
    known = published if isinstance(published, Published) else None
    checked = check(member, known, request)
    if isinstance(request, Request) and request.code:
        tell(request.code.summary)
    left_out = [*([f"{OF_STACK} ({published})"] if isinstance(published, str) else []), *checked.left_out]
    if known and known.version != PROJECT_VERSION:
        tell(f"The stack was deployed by version {known.version}, and this is {PROJECT_VERSION}. Objects may differ.")
    for text in left_out:
        tell(f"Not checked: {text}.")
    for text in checked.notes:
        tell(text)
    problems = [*([elsewhere] if elsewhere else []), *checked.problems, *name_problems(checked, how)]
    if problems:
        tell("The run is refused, and nothing was created:")
        for problem in problems:
            tell(f"  - {problem}")
        return REFUSED
    if how.dry_run:
        print(yaml.safe_dump_all([_without_secrets(item) for item in checked.objects], sort_keys=False), end="")
        return 0
    return _send(context, member, checked, how)


def name_problems(checked: Checked, how: How) -> list[str]:
    """Why an existing object of the same name is in the way."""
    found = checked.existing
    if found is None:
        return []
    run = run_of(found)
    own = bool(checked.objects) and annotation(found, SUBMITTED) == annotation(checked.objects[-1], SUBMITTED)
    if not run.end:
        if own and not how.again:
            return []  # a submission whose answer was lost
        return [f"the {title(found)} exists and has not ended ({run.state}). Cancel it, or choose another name"]
    if how.again:
        return []
    return [f"the {title(found)} has ended ({run.end}). Submit it once more with --again, or choose another name"]


def run_of(item: Object) -> Run:
    """The run of an object."""
    return Run(item["metadata"]["name"], item["metadata"]["namespace"], item["kind"], item=item)


def create(member: Member, checked: Checked, again: bool = False) -> Object:
    """Creates the objects of a run, and returns the run. If it is refused, nothing stays.

    Args:
        member: The client.
        checked: The run.
        again: Delete a run of the same name first.
    """
    *others, run = checked.objects
    found = checked.existing
    if found is not None and again:
        beside = filter(None, map(member.existing, others))
        for old in (found, *(item for item in beside if _owners(item) == {found["metadata"]["uid"]})):
            member.delete(old)
    made: list[Object] = []
    try:
        for item in others:
            made.append(member.create(item))
        created = member.create(run)
    except Stop:
        with suppress(Stop):
            if member.existing(run) is None:  # a refusal leaves nothing that counts in a quota
                for new in made:
                    if not _owners(new):
                        member.delete(new)
        raise
    for item in others:
        member.owned_by(item, created)
    return created


def _owners(item: Object) -> Set[str]:
    """The uids of the runs with which an object is deleted."""
    return {str(owner.get("uid")) for owner in items(item, "metadata", "ownerReferences")}


def _without_secrets(item: Object) -> dict[str, Any]:
    """An object as it is printed: of a Secret the name, the type and the keys."""
    if item["kind"] != "Secret":
        return dict(item)
    shown = {key: item[key] for key in ("apiVersion", "kind", "type") if key in item}
    hidden = {key: dict.fromkeys(mapping(item, key), "(hidden)") for key in ("data", "stringData") if key in item}
    return {**shown, "metadata": {key: item["metadata"][key] for key in ("name", "namespace")}, **hidden}


def _send(context: Context, member: Member, checked: Checked, how: How) -> int:
    created = create(member, checked, how.again)
    found, run = checked.existing, checked.objects[-1]
    queue = label(run, QUEUE_LABEL)
    there = found is not None and not how.again
    _show(f"{title(run)} {'was submitted before' if there else 'is submitted'}{f' to queue {queue}' if queue else ''}.")
    own = Context(context.name, kubeconfig=context.kubeconfig, namespace=member.namespace)
    name = run["metadata"]["name"]
    if how.detach:
        _show(f"Look at it:  {own.next(f'describe {name}')}")
        return 0
    try:
        return follow.follow(member.api, run_of(created), _show)
    except KeyboardInterrupt:
        _show(f"\nDetached. The run goes on. Look at it:  {own.next(f'describe {name}')}")
        return 0


def cancel(context: Context, name: str) -> None:
    """Deletes the object of a run that waits or runs. Its checkpoints stay."""
    api, known = runs.read(context)
    run = runs.find(context, known, name)
    if run.end:
        raise Stop(f"The run {run} has ended already ({run.end}).")
    assert run.item is not None
    Member(api, run.namespace).delete({**run.item, "kind": run.kind})
    print(f"Canceled: the {run.kind} {run} is deleted. Its checkpoints stay.")


def describe(context: Context, name: str) -> None:
    """Prints what is known of a run: its queue and place there, its pods and nodes, and its first log line."""
    api, known = runs.read(context)
    for line in follow.describe(api, runs.find(context, known, name)):
        _show(line)


def _show(text: str) -> None:
    print(printable(text), flush=True)


def tell(text: str) -> None:
    """Prints a line to standard error."""
    print(printable(text), file=sys.stderr, flush=True)
