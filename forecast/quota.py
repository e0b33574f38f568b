"""Cluster queues whose admitted workloads use more than their quota, such as after a quota is lowered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from catalog.quantities import format_quantity, parse_quantity
from forecast.model import OverQuota
from forecast.timeline import Histories, Object

# By flavor and resource.
Amounts = dict[tuple[str, str], Fraction]


def over_quota(histories: Histories) -> tuple[OverQuota, ...]:
    """Returns what is over its quota at the end. A cohort shares its quota, so its cluster queues count together."""
    queues = histories.get("ClusterQueue", {}).values()
    before = set(_over(history.before for history in queues if history.before))
    now = _over(history.last for history in queues if history.gone is None)
    keys = {_key(entry) for entry in before}
    return tuple(sorted(replace(entry, before=_key(entry) in keys) for entry in now))


def _key(entry: OverQuota) -> tuple[str, str, str]:
    return entry.queues, entry.flavor, entry.resource


def _over(queues: Iterable[Object]) -> Iterator[OverQuota]:
    cohorts: dict[str, list[Object]] = defaultdict(list)
    for queue in queues:
        name = queue["metadata"]["name"]
        cohorts[queue["spec"].get("cohortName") or f"queue/{name}"].append(queue)
    for members in cohorts.values():
        names = ", ".join(sorted(queue["metadata"]["name"] for queue in members))
        quota = _sum(_amounts(group.get("flavors"), "nominalQuota") for queue in members for group in _groups(queue))
        used = _sum(_amounts((queue.get("status") or {}).get("flavorsUsage"), "total") for queue in members)
        for (flavor, resource), amount in used.items():
            most = quota.get((flavor, resource), Fraction(0))
            if amount > most:
                used_text, quota_text = (format_quantity(resource, number) for number in (amount, most))
                yield OverQuota(names, flavor, resource, used_text, quota_text)


def _groups(queue: Object) -> list[Mapping[str, Any]]:
    return queue["spec"].get("resourceGroups") or []


def _amounts(flavors: Iterable[Mapping[str, Any]] | None, key: str) -> Amounts:
    return {
        (flavor["name"], resource["name"]): parse_quantity(str(resource.get(key, 0)))
        for flavor in flavors or []
        for resource in flavor.get("resources") or []
    }


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    total: Amounts = defaultdict(Fraction)
    for each in amounts:
        for key, amount in each.items():
            total[key] += amount
    return total
