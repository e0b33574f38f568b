"""Whether labels match a selector of Kubernetes, by its own rules.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]


def matches(term: Object, labels: Mapping[str, str]) -> bool:
    """Whether labels match a selector or a term of an affinity.

    An empty selector matches all labels.
    """
    expressions: Iterable[Object] = term.get("matchExpressions", [])
    equal = term.get("matchLabels", {}).items() <= labels.items()
    # Only DaemonSets use terms by field (the node's name).
    return equal and "matchFields" not in term and all(_holds(expression, labels) for expression in expressions)


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or [""]
    match expression.get("operator"):
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
