"""The HorizontalPodAutoscalers of a stack, for the status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gke_ai.catalog.quantities import parse_quantity, readable
from gke_ai.kube.objects import Object, condition


def autoscaler_rows(autoscalers: Iterable[Object]) -> Iterator[tuple[str, ...]]:
    """Yields a row per metric of an autoscaler: value, target, and why it does not scale."""
    for autoscaler in autoscalers:
        metadata, spec, status = autoscaler["metadata"], autoscaler["spec"], autoscaler.get("status", {})
        values = dict(map(metric_of, status.get("currentMetrics") or []))
        own, scaled = f"{metadata['namespace']}/{metadata['name']}", spec["scaleTargetRef"]["name"]
        now, wanted = status.get("currentReplicas", 0), status.get("desiredReplicas", 0)
        replicas = str(now) if now == wanted else f"{now} → {wanted}"
        bounds = f"{spec.get('minReplicas', 1)} to {spec['maxReplicas']}"
        for metric in spec["metrics"]:
            name, target = metric_of(metric)
            compared = f"{values.get(name, 'unknown')} / {target}"
            yield own, scaled, name, compared, replicas, bounds, hindrance(autoscaler)


def metric_of(metric: Object) -> tuple[str, str]:
    """Returns the name of an autoscaler's metric, and its target or (in a status) its value."""
    source = metric.get(metric["type"][:1].lower() + metric["type"][1:]) or {}
    amount = source.get("target") or source.get("current") or {}
    for form in ("averageValue", "value"):
        if form in amount:
            return named(source), figure(amount[form])
    percent = amount.get("averageUtilization")
    return named(source), "unknown" if percent is None else f"{percent} %"


def named(source: Object) -> str:
    """Returns the name of a metric: its own, or for cpu and memory that of the resource."""
    return str(source.get("metric", {}).get("name") or source.get("name", ""))


def figure(quantity: str) -> str:
    """Formats the value of a metric. Without replicas, the average of an autoscaler is the smallest number."""
    value = parse_quantity(quantity)
    if value < 0:
        return "–"
    return readable("memory", value) if value >= 2**20 else f"{float(value):.4g}"


def hindrance(autoscaler: Object) -> str:
    """Returns why an autoscaler cannot scale as its metrics require, or an empty text."""
    for condition_type, hinders in (("AbleToScale", "False"), ("ScalingActive", "False"), ("ScalingLimited", "True")):
        status_condition = condition(autoscaler, condition_type)
        if status_condition.get("status") == hinders:
            return f"{status_condition.get('reason', '')}: {status_condition.get('message', '')}"
    return ""
