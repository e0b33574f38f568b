"""Requests of a member that the table `tests/support/tenant_matrix.yaml` calls an attack, against a real API server."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any, NamedTuple

from gke_ai.components.queues.tenant_policy import FURTHER_KINDS
from tests.support.tenant_matrix import ATTACKS, KINDS, OPTIONS, TABLE, Place, Verdict, places, verdicts
from tests.support.tenants import NO_QUEUE, Answer, Object

# Of claims inside another object: the API server takes no finalizers there, and the claim is judged itself.
CLAIMS = {"jobset.JobSetSpec.volumeClaimPolicies", "core.VolumeSource.ephemeral"}
# An update of what nobody can change is refused before the policy is asked.
FIXED = ("is immutable", "is queued as it was created", "may not change", "Forbidden: ", "updates to")
# On Autopilot, GKE may refuse a path of the node before the policy of the tenant does.
OF_GKE = "autogke-no-write-mode-hostpath"
# Kinds that a PUT may replace without a resource version.
UNCONDITIONAL = ("Job", "Deployment", "Secret", "ConfigMap", "Service", "PersistentVolumeClaim", "Pod")
VERBS = {
    "create": ("POST", "application/json"),
    "patch": ("PATCH", "application/merge-patch+json"),
    "apply": ("PATCH", "application/apply-patch+yaml"),
    "update": ("PUT", "application/json"),
}


class Attack(NamedTuple):
    """A request, and what its refusal says. None if the API server accepts it."""

    title: str
    method: str
    path: str
    body: Object | None
    content_type: str
    words: tuple[str, ...] | None


Ask = Callable[[str, str, Object | None, str], Answer]


def with_value(item: Object, place: Place, value: Any) -> Object:
    """The object with a value at a place. What is missing on the way gets the least that it needs."""
    changed = deepcopy(item)
    here = changed
    for step in place[:-1]:
        part = deepcopy(TABLE["needed"].get(step.name, {}))
        inner = here.setdefault(step.field, [part] if step.is_list else part)
        here = inner[0] if step.is_list else inner
    last = place[-1].field
    both = isinstance(value, dict) and isinstance(here.get(last), dict)
    here[last] = {**here[last], **value} if both else deepcopy(value)
    return changed


def stands(verdict: Verdict, kind: str, place: Place) -> bool:
    """Whether a verdict is about this place."""
    own = len(place) == 2 and place[0].field == "metadata"
    inside = any(step.name in CLAIMS for step in place[:-1])
    return kind in verdict.kinds and not inside and (own or not verdict.is_top)


def attacks(queued: Object, plain: Object, path: str) -> Iterator[Attack]:
    """The attacks with an object of a kind: one that waits in a queue, and one without a queue. Both exist."""
    kind = str(queued["kind"])
    for name, judged in verdicts().items():
        for verdict in (verdict for verdict in judged if verdict.section in ATTACKS):
            base = plain if verdict.reason == NO_QUEUE else queued
            words = tuple(verdict.reason.split("|"))
            standing = [place for place in places()[name].get(kind, []) if stands(verdict, kind, place)]
            for index, place in enumerate(standing):
                title = f"{kind} {'.'.join(step.field for step in place)}"
                verbs = ["patch"] if verdict.section == "refused_later" else ["create", "patch"]
                if index == 0:
                    verbs += ["apply", "update"] if kind in UNCONDITIONAL else ["apply"]
                if verdict.reason == NO_QUEUE and kind in FURTHER_KINDS:
                    verbs = ["create"]  # none exists without a queue
                yield from writes(title, with_value(base, place, verdict.value), path, words, verbs)
    for key, value in TABLE["accepted"].items():
        name, _, kinds = key.partition("@")
        for place in places()[name].get(kind, []) if kind in (kinds.split(",") if kinds else KINDS) else []:
            if not any(step.name in CLAIMS for step in place):
                item = with_value(queued, place, value)
                item["metadata"]["name"] = "new"
                title = f"accepted: {kind} {'.'.join(step.field for step in place)}"
                yield Attack(title, "POST", f"{path}?dryRun=All", item, "application/json", None)
    yield from deletions(kind, queued["metadata"]["name"], path)


def writes(title: str, item: Object, path: str, words: tuple[str, ...], verbs: list[str]) -> Iterator[Attack]:
    """An attack by each verb that writes."""
    name = item["metadata"]["name"]
    for verb in verbs:
        method, content_type = VERBS[verb]
        body = {**item, "metadata": {**item["metadata"], "name": "new"}} if verb == "create" else item
        options = "&fieldManager=attack&force=true" if verb == "apply" else ""
        to = f"{path}?dryRun=All{options}" if verb == "create" else f"{path}/{name}?dryRun=All{options}"
        refusals = (*words, OF_GKE) if verb == "create" else (*words, OF_GKE, *FIXED)
        if item["kind"] == "Pod" and verb != "create":
            refusals = ("cannot",)
        yield Attack(f"{verb} {title}", method, to, body, content_type, refusals)


def deletions(kind: str, name: str, path: str) -> Iterator[Attack]:
    """A deletion with each option that is an attack, in the body and in the query."""
    for words, options in OPTIONS["refused"].items():
        for key, value in options.items():
            option, _, kinds = key.partition("@")
            if kind in kinds.split(","):
                body = {option: value, "dryRun": ["All"]}
                yield Attack(f"delete {kind} {option}", "DELETE", f"{path}/{name}", body, "application/json", (words,))
                query = f"{path}/{name}?dryRun=All&{option}={str(value).lower() if value is True else value}"
                yield Attack(f"delete {kind} ?{option}", "DELETE", query, None, "application/json", (words,))


def wrong(attack: Attack, ask: Ask) -> str:
    answer = ask(attack.method, attack.path, attack.body, attack.content_type)
    if attack.words is None:
        return "" if answer.status in (200, 201) else f"{attack.title}: {answer.message[:300]}"
    if answer.status >= 400 and any(words in answer.message for words in attack.words):
        return ""
    return f"{attack.title}: {answer.status} {answer.message[:300]}"


def check_attacks(ask: Ask, items: Iterable[tuple[Object, Object, str]]) -> None:
    """Whether all attacks end as the table says. Prints their number."""
    made = [attack for queued, plain, path in items for attack in attacks(queued, plain, path)]
    print(f"{len(made)} requests of {len({attack.title.partition(' ')[2] for attack in made})} places")
    with ThreadPoolExecutor(8) as pool:
        lines = [line for line in pool.map(lambda attack: wrong(attack, ask), made) if line]
    assert not lines, "\n".join(lines)
