"""The ledger, with what an accelerator costs in each flavor."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pulumi

from gke_ai.catalog.kueue.ledger import LEDGER
from gke_ai.components import GkeCluster, KueueStack, Ledger, WorkloadNamespace
from gke_ai.program.cluster import after
from gke_ai.settings import ResolvedStack
from gke_ai.settings.resolved import ResourceFlavor
from gke_ai.settings.resolved.tenants import budgeted_flavors
from gke_ai.workspace.prices import BadPrices, Prices, read, with_google


def create_ledger(
    stack: ResolvedStack, cluster: GkeCluster, kueue: KueueStack | None, namespaces: dict[str, WorkloadNamespace]
) -> None:
    """The ledger, if a tenant has a budget or a local queue has hours."""
    budgets = {tenant.name: tenant.budget for tenant in stack.settings.tenants if tenant.budget}
    held = stack.held_queues
    if not held:
        return
    spaces = dict.fromkeys(queue.namespace for queue in held)
    prices = _prices(stack)
    priced = budgeted_flavors(stack.settings.tenants, stack.queues, stack.cluster_queues)
    rates = {flavor.section.name: rate_of(flavor, prices) for flavor in priced}
    Ledger(
        LEDGER,
        opts=after(*[kueue] if kueue else [], *(namespaces[space] for space in spaces)),
        cluster=cluster,
        queues={space: [queue.name for queue in held if queue.namespace == space] for space in spaces},
        hours={f"{queue.namespace}/{queue.name}": queue.hours for queue in held if queue.hours},
        budgets=budgets,
        time_zone=stack.queues.time_zone,
        rates={flavor: float(rate) for flavor, (rate, _) in rates.items()},
        currency=prices.currency if priced else "",
        priced_on=min((date for _, date in rates.values()), default=""),
    )


def _prices(stack: ResolvedStack) -> Prices:
    """The prices of the table that the stack names, if any, and Google's list prices of its region."""
    try:
        own = read(Path(stack.settings.prices)) if stack.settings.prices else None
    except BadPrices as bad:
        raise pulumi.RunError(f"gke-ai:prices: {bad}") from None
    return with_google(own, stack.measured, stack.cluster.region)


def rate_of(flavor: ResourceFlavor, prices: Prices) -> tuple[Decimal, str]:
    """The price of an accelerator of a flavor per hour, and its date: the highest of its pools.

    Raises RunError if a pool has no price.
    """
    section = flavor.section
    pools = [pool.section for pool in flavor.pools]
    counts = {f"{pool.node_machine_type}/{pool.capacity.mode}": pool.accelerators_per_node for pool in pools}
    if not counts:
        name = section.accelerator or (section.tpu.slice.accelerator if section.tpu else "")
        counts = {f"{name}/{section.tpu.capacity if section.tpu else 'onDemand'}": 1}
    rates = []
    for key, count in counts.items():
        if (price := prices.at(key)) is None:
            raise pulumi.RunError(
                f"{prices.gap(key)}, which flavor {section.name} has. A budget with an amount would count it as "
                "nothing. Add it to the table that gke-ai:prices names, or remove amount from the budgets."
            )
        rates.append((price / count, prices.date_of(key)))
    return max(rates)
