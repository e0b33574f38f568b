"""The budgets of tenants in a plan. What is used of them is in the cluster: `gke-ai status` shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gke_ai.catalog.kueue.ledger import NAMESPACE
from gke_ai.kube.values import value
from gke_ai.registered.types import CONFIG_MAP
from gke_ai.review.report.changes import PlannedUpdate, Resource


def budgets(plan: PlannedUpdate) -> Iterator[str]:
    """Yields a line per tenant with a budget, before or after the plan."""
    before, after = (_stated(side) for side in (plan.before, plan.after))
    for tenant in sorted({*before, *after}):
        was, now = before.get(tenant, "no budget"), after.get(tenant, "no budget")
        yield f"`{tenant}`: {now}{f', before: {was}' if plan.before and was != now else ''}"


def _stated(side: Mapping[str, Resource]) -> dict[str, str]:
    for resource in side.values():
        if resource.type == CONFIG_MAP and value(resource.inputs, "metadata", "namespace") == NAMESPACE:
            config = json.loads(value(resource.inputs, "data", "budgets.json"))
            return {tenant: _shown(budget) for tenant, budget in config["budgets"].items()}
    return {}


def _shown(budget: Mapping[str, Any]) -> str:
    limits = []
    if budget["acceleratorHours"]:
        limits.append(f"{budget['acceleratorHours']:,g} accelerator-hours")
    if budget["amount"]:
        limits.append(f"{budget['amount']:,g} {budget['currency']} at prices of {budget['date']}")
    return f"{' and '.join(limits)} a month, warning from {budget['warnAt']:.0%}"
