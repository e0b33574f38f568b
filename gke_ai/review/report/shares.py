"""How cluster queues and cohorts share quota before and after a plan, from the registered objects."""

from __future__ import annotations

from collections.abc import Mapping

from gke_ai.catalog.kueue.cohort_tree import ZERO
from gke_ai.catalog.nodes.shape import ACCELERATORS
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.kube.cohorts import amounts_text, trees, weight_text
from gke_ai.kube.values import value
from gke_ai.review.report.changes import PlannedUpdate, Resource

Row = tuple[str, ...]
COLUMNS = ("queue or cohort", "cohort", "own quota", "weight", "part by weight", "lends at most", "borrows at most")


def share_rows(plan: PlannedUpdate) -> list[Row]:
    """Returns a row per cohort and member of one, in the order of the tree. Each figure is before → after."""
    before, after = _figures(plan.before), _figures(plan.after)
    none = ("–",) * (len(COLUMNS) - 2)
    rows = []
    for path in sorted(before.keys() | after.keys()):
        pairs = zip(before.get(path, none), after.get(path, none), strict=True)
        rows.append((path[-1], ("–", *path)[-2], *(old if old == new else f"{old} → {new}" for old, new in pairs)))
    return rows


def _figures(side: Mapping[str, Resource]) -> dict[Row, Row]:
    """The figures of each cohort and member of one, by the titles from the outermost cohort to it."""
    kinds = [f"kubernetes:{KUEUE_API}:{kind}" for kind in ("ClusterQueue", "Cohort")]
    objects = [[item.inputs for item in side.values() if item.type == kind and _is_named(item)] for kind in kinds]
    nodes = [node for node in trees(*objects) if node.parent or node.children]
    cells = {cell for node in nodes for cell in node.cells()}
    shown = {cell for cell in cells if cell[1] in ACCELERATORS} or cells
    figures = {}
    for node in nodes:
        own = amounts_text({cell: node.nominal.get(cell, ZERO) for cell in shown})
        lends = amounts_text({cell: node.lends(cell) for cell in shown})
        borrows = amounts_text({cell: node.most(cell) - node.quota(cell) for cell in shown})
        shared = (weight_text(node.item), f"{float(node.part):.0%}", lends, borrows) if node.parent else ("",) * 4
        figures[tuple(above.title for above in node.path)[::-1]] = tuple(cell or "–" for cell in (own, *shared))
    return figures


def _is_named(item: Resource) -> bool:
    return isinstance(value(item.inputs, "metadata", "name"), str)
