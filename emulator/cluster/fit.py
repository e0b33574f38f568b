"""Whether a pod could run on a node, in the scheduler's own terms as far as a workload of the product has them.

Node selector, required node affinity, taints, resources, and the anti-affinity by which JobSet keeps Jobs apart. Not
weighed: volumes (they follow the pod), other affinity between pods, topology spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from catalog.quantities import format_quantity, parse_quantity
from emulator.cluster import node_agents

Object = dict[str, Any]
Amounts = Mapping[str, Fraction]


def requests(pod: Object) -> dict[str, Fraction]:
    """What a pod asks of its node: containers and sidecars together, or a larger init container; and one pod's place.

    https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
    """
    spec = pod["spec"]
    together: Counter[str] = Counter()
    peak: dict[str, Fraction] = {}
    for container in spec.get("initContainers", []):
        asked = _requests(container)
        if container.get("restartPolicy") == "Always":
            together.update(asked)
            asked = {}
        for resource, amount in asked.items():
            peak[resource] = max(peak.get(resource, Fraction(0)), amount + together[resource])
    for container in spec["containers"]:
        together.update(_requests(container))
    total = {name: max(Fraction(together[name]), peak.get(name, Fraction(0))) for name in {*together, *peak}}
    return total | {"pods": Fraction(1)}


def _requests(container: Object) -> dict[str, Any]:
    asked = container.get("resources", {}).get("requests", {})
    return {resource: parse_quantity(str(text)) for resource, text in asked.items()}


def refusal(pod: Object, node: Object, free: Amounts) -> str | None:
    """Why a pod can't run on a node that has `free` resources left; None if it can."""
    if wrong := wrong_label(pod, node):
        return wrong
    labels = node["metadata"].get("labels", {})
    required = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = required.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    if terms and not any(matches(term, labels) for term in terms):
        return "it doesn't match the pod's node affinity"
    for taint in node["spec"].get("taints", []):
        # A node that is coming up has taints of Kubernetes' own until it is Ready.
        passing = taint["key"].startswith("node.kubernetes.io/")
        if not passing and taint["effect"] != "PreferNoSchedule" and not tolerates(pod, taint):
            return f"the pod doesn't tolerate its taint {taint['key']}={taint.get('value', '')}:{taint['effect']}"
    return shortage(requests(pod), free)


def wrong_label(pod: Object, node: Object, but: str = "") -> str | None:
    """The first label of the pod's node selector (`but` one) that a node lacks, as a reason; None if it has all."""
    labels = node["metadata"].get("labels", {})
    for key, value in pod["spec"].get("nodeSelector", {}).items():
        if key != but and labels.get(key) != value:
            return f"it has no label {key}={value}"
    return None


def shortage(asked: Amounts, free: Amounts) -> str | None:
    """The first resource that there is too little of, or None."""
    for resource, amount in asked.items():
        has = free.get(resource, Fraction(0))
        if amount > has:
            wanted, left = format_quantity(resource, amount), format_quantity(resource, has)
            return f"too little {resource} ({wanted} asked, {left} there)"
    return None


def tolerates(pod: Object, taint: Mapping[str, str]) -> bool:
    """Whether one of the pod's tolerations covers a taint."""
    for toleration in pod["spec"].get("tolerations", []):
        if toleration.get("effect") not in (None, "", taint["effect"]):
            continue
        if toleration.get("key") not in (None, "", taint["key"]):
            continue
        if toleration.get("operator") == "Exists" or (
            toleration.get("key") and toleration.get("value", "") == taint.get("value", "")
        ):
            return True
    return False


def kept_apart(pod: Object, node: Object, placed: Iterable[tuple[Object, Object]]) -> bool:
    """Whether the pod's required anti-affinity keeps it off a node, given pods with the nodes they are placed on."""
    affinity = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
    labels = node["metadata"]["labels"]
    return any(
        on["metadata"]["labels"].get(term["topologyKey"]) == labels.get(term["topologyKey"])
        and matches(term.get("labelSelector", {}), other["metadata"].get("labels", {}))
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution", [])
        for other, on in placed
    )


def room(node: Object) -> dict[str, Fraction]:
    """What a node has for pods other than GKE's own agents, which come to every new node."""
    return less(
        {key: parse_quantity(str(value)) for key, value in node["status"]["allocatable"].items()},
        node_agents.requests_on(node),
    )


def less(free: Amounts, asked: Amounts) -> dict[str, Fraction]:
    """What is left of `free` when `asked` is taken."""
    return {key: amount - asked.get(key, Fraction(0)) for key, amount in free.items()}


def matches(term: Object, labels: Mapping[str, str]) -> bool:
    """Whether labels meet a selector, or a term of an affinity; an empty one takes them all."""
    expressions: Iterable[Object] = term.get("matchExpressions", [])
    equal = term.get("matchLabels", {}).items() <= labels.items()
    # Terms by field (a node's name) are DaemonSets' affair.
    return equal and "matchFields" not in term and all(_holds(expression, labels) for expression in expressions)


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values", [])
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.lstrip("-").isdigit() and int(value) > int(values[0])
        case "Lt":
            return value is not None and value.lstrip("-").isdigit() and int(value) < int(values[0])
    return False
