"""Pure rules for when an object is ready, as in the official plugin (provider/pkg/await and jsonpath).

Each rule returns the reasons why an object isn't ready yet, or an empty list. It raises `Failed` if the object will
never become ready.
"""

from __future__ import annotations

import json
import re
from typing import Any

from emulator.pulumi.kubernetes.objects import Object, metadata
from emulator.pulumi.plugin import Refused
from gke_ai.kube.objects import condition, holds

REVISION = "deployment.kubernetes.io/revision"


class Failed(Exception):
    """The object will not become ready."""


def _condition_text(obj: Object, condition_type: str) -> list[str]:
    found = condition(obj, condition_type)
    if not found or found.get("status") == "True":
        return []
    return [f"[{found.get('reason', condition_type)}] {found.get('message', '')}".strip()]


def outdated(obj: Object) -> bool:
    """Whether the object's controller hasn't observed its newest generation yet."""
    observed = (obj.get("status") or {}).get("observedGeneration")
    return observed is not None and observed < metadata(obj).get("generation", 0)


def deployment(obj: Object, replica_sets: list[Object], pods: list[Object]) -> list[str]:
    """A Deployment is ready when it is available and every pod of its newest ReplicaSet is ready.

    Args:
        obj: The Deployment.
        replica_sets: The ReplicaSets of its namespace.
        pods: The pods of its namespace, for the reasons.
    """
    revision = (metadata(obj).get("annotations") or {}).get(REVISION)
    if not revision:
        return ["the Deployment controller hasn't acted on it yet"]
    owned = [r for r in replica_sets if _owned_by(r, obj)]
    newest = next((r for r in owned if (metadata(r).get("annotations") or {}).get(REVISION) == revision), None)
    if newest is None:
        return ["its newest ReplicaSet doesn't exist yet"]
    wanted = newest["spec"].get("replicas", 1)
    ready = (newest.get("status") or {}).get("readyReplicas", 0)
    progressing = condition(obj, "Progressing")
    rolled_out = progressing.get("status") == "True" and progressing.get("reason") == "NewReplicaSetAvailable"
    if holds(obj, "Available") and ready >= wanted and (rolled_out or revision == "1"):
        return []
    reasons = [f"{ready} of {wanted} pods of its newest ReplicaSet are ready"]
    reasons += _condition_text(obj, "Available") + _condition_text(obj, "Progressing")
    return reasons + [text for p in pods if _owned_by(p, newest) for text in pod_problems(p)]


def _owned_by(obj: Object, owner: Object) -> bool:
    return any(o.get("uid") == metadata(owner).get("uid") for o in metadata(obj).get("ownerReferences") or [])


def pod_problems(obj: Object) -> list[str]:
    """Why a pod isn't ready, from its conditions and the states of its containers."""
    name = metadata(obj)["name"]
    texts = [text for name in ("PodScheduled", "Initialized", "Ready") for text in _condition_text(obj, name)]
    for container in (obj.get("status") or {}).get("containerStatuses") or []:
        for state in (container.get("state") or {}).values():
            if state and (state.get("reason") or state.get("message")) and not container.get("ready"):
                text = f"{state.get('reason', '')} {state.get('message', '')}".strip()
                texts.append(f"container {container['name']}: {text}")
    return [f"pod {name}: {text}" for text in texts]


def pod(obj: Object) -> list[str]:
    status = obj.get("status") or {}
    if status.get("phase") == "Succeeded" or holds(obj, "Ready"):
        return []
    return pod_problems(obj) or [f"pod {metadata(obj)['name']} is {status.get('phase', 'not seen by a node')}"]


def job(obj: Object, pods: list[Object]) -> list[str]:
    """A Job is ready when it is complete. A suspended Job never starts.

    Raises:
        Failed: The Job failed.
    """
    status = obj.get("status") or {}
    if holds(obj, "Failed"):
        failed = condition(obj, "Failed")
        raise Failed(f"[{failed.get('reason')}] {failed.get('message')}")
    if holds(obj, "Complete"):
        return []
    if not status.get("startTime"):
        suspended = (obj.get("spec") or {}).get("suspend")
        return ["the Job hasn't started" + (": it is suspended, as a queued Job is" if suspended else "")]
    counts = ", ".join(f"{status.get(state, 0)} {state}" for state in ("active", "succeeded", "failed"))
    reasons = [f"the Job hasn't ended ({counts})"]
    return reasons + [text for p in pods if _owned_by(p, obj) for text in pod_problems(p)]


def volume_claim(obj: Object, binding_mode: str, *, created: bool) -> list[str]:
    """A claim is ready when it is bound.

    With WaitForFirstConsumer, a new claim is ready when it is pending.
    """
    phase = (obj.get("status") or {}).get("phase")
    waits_for_pod = created and binding_mode == "WaitForFirstConsumer"
    if phase == "Bound" or (waits_for_pod and phase == "Pending"):
        return []
    return [f"the claim is {phase or 'not seen yet'}, not bound"]


def quota(obj: Object) -> list[str]:
    """A quota is ready when its controller enforces its limits."""
    counted = (obj.get("status") or {}).get("hard") or {}
    late = [name for name, limit in ((obj.get("spec") or {}).get("hard") or {}).items() if counted.get(name) != limit]
    return [f"{', '.join(late)} isn't counted yet"] if late else []


def service_needs_endpoints(obj: Object) -> bool:
    spec = obj.get("spec") or {}
    return bool(spec.get("selector")) and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None"


def service_has_address(obj: Object) -> bool:
    balancer = (obj.get("status") or {}).get("loadBalancer") or {}
    return obj["spec"].get("type") != "LoadBalancer" or bool(balancer.get("ingress"))


def endpoints_pending(endpoints: Object | None) -> bool:
    return any(subset.get("notReadyAddresses") for subset in (endpoints or {}).get("subsets") or [])


class WaitFor:
    """The annotation `pulumi.com/waitFor`.

    Its value is `jsonpath={PATH}`, `jsonpath={PATH}=VALUE`, `condition=TYPE[=STATUS]`, or a JSON list of these, which
    must all be met.

    Raises:
        Refused: The annotation has another form.
    """

    def __init__(self, text: str) -> None:
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = None
        expressions = parsed if isinstance(parsed, list) else [text]
        if not expressions:
            raise Refused("pulumi.com/waitFor: the list is empty; name at least one condition")
        self._rules = [_rule(expression) for expression in expressions]

    def missing(self, obj: Object) -> list[str]:
        if outdated(obj):
            return ["its controller hasn't seen the newest version"]
        return [text for rule in self._rules for text in rule(obj)]


def _rule(expression: Any) -> Any:
    if isinstance(expression, str) and expression.startswith("condition="):
        name, _, wanted = expression.removeprefix("condition=").partition("=")

        def met(obj: Object) -> list[str]:
            status = str(condition(obj, name).get("status", "absent"))
            return [] if status.lower() == (wanted or "True").lower() else [f"condition {name} is {status}"]

        return met
    if isinstance(expression, str) and expression.startswith("jsonpath="):
        return _jsonpath_rule(expression)
    raise Refused(f'pulumi.com/waitFor: expected "jsonpath=…" or "condition=…", not {expression!r}')


def _jsonpath_rule(expression: str) -> Any:
    import jsonpath_rfc9535  # imported late: only objects with the annotation need it

    match = re.fullmatch(r"jsonpath=\{\s*(.*?)\s*\}(?:=(.+))?", expression, re.DOTALL)
    if match is None:
        raise Refused(f"pulumi.com/waitFor: {expression!r} should be jsonpath={{.path}} or jsonpath={{.path}}=value")
    path, wanted = match[1], match[2]
    try:
        query = jsonpath_rfc9535.compile(path if path.startswith("$") else f"${path}")
    except jsonpath_rfc9535.JSONPathError as error:
        raise Refused(f"pulumi.com/waitFor: {{{path}}} is not a JSONPath: {str(error).splitlines()[0]}") from None

    def matches(obj: Object) -> list[str]:
        values = query.find(obj).values()
        if not values:
            return [f"{{{path}}} selects nothing"]
        if wanted is None:
            return []
        if isinstance(values[0], (dict, list)):
            raise Refused(f"pulumi.com/waitFor: {{{path}}} selects a map or a list, which is never {wanted!r}")
        text = json.dumps(values[0]) if isinstance(values[0], bool) else str(values[0])
        return [] if text == wanted else [f"{{{path}}} is {text}, not {wanted}"]

    return matches
