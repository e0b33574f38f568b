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
from gke_ai.workspace.prices import BadPrices, Prices, read


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
    Ledger(
        LEDGER,
        opts=after(*[kueue] if kueue else [], *(namespaces[space] for space in spaces)),
        cluster=cluster,
        queues={space: [queue.name for queue in held if queue.namespace == space] for space in spaces},
        hours={f"{queue.namespace}/{queue.name}": queue.hours for queue in held if queue.hours},
        budgets=budgets,
        time_zone=stack.queues.time_zone,
        rates={flavor.section.name: float(rate_of(flavor, prices)) for flavor in priced},
        currency=prices.currency if priced else "",
        priced_on=prices.date if priced else "",
    )


def _prices(stack: ResolvedStack) -> Prices:
    """The price table that the stack names; an empty one without."""
    try:
        return read(Path(stack.settings.prices)) if stack.settings.prices else Prices("", "")
    except BadPrices as bad:
        raise pulumi.RunError(f"gke-ai:prices: {bad}") from None


def rate_of(flavor: ResourceFlavor, prices: Prices) -> Decimal:
    """The price of an accelerator of a flavor per hour: the highest of its pools. Raises RunError if one has none."""
    section = flavor.section
    choices = [(pool.section.node_machine_type, pool.section.capacity.mode, pool.section) for pool in flavor.pools]
    names = {f"{machine}/{mode}": pool.accelerators_per_node for machine, mode, pool in choices}
    if not names:
        name = section.accelerator or (section.tpu.slice.accelerator if section.tpu else "")
        names = {f"{name}/{section.tpu.capacity if section.tpu else 'onDemand'}": 1}
    rates = []
    for name, count in names.items():
        if (price := prices.of(*name.split("/"))) is None:
            raise pulumi.RunError(
                f"no price for {name}, which flavor {section.name} has. A budget with an amount would count it as "
                "nothing. Add it to the table that gke-ai:prices names, or remove amount from the budgets."
            )
        rates.append(price / count)
    return max(rates)
