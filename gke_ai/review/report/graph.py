"""The graph of a plan: components as boxes, dependencies as edges, with changes marked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from gke_ai.registered.types import STACK
from gke_ai.review.report import changes
from gke_ai.review.report.changes import CREATE, DELETE, LEAVE, REPLACE, UPDATE, PlannedUpdate, Resource

# Symbol, color and word of each operation.
MARKS = {
    CREATE: ("+", "#2da44e", "created"),
    UPDATE: ("~", "#bf8700", "changed"),
    REPLACE: ("±", "#8250df", "replaced"),
    DELETE: ("−", "#cf222e", "deleted"),
    LEAVE: ("○", "#818b98", "retained"),
}


@dataclass(frozen=True)
class Box:
    """A component, or a resource outside of components, with what happens to it."""

    name: str
    kind: str
    operation: str | None = None


@dataclass(frozen=True)
class Graph:
    """Boxes by URN, and edges from each dependency to its dependents."""

    boxes: Mapping[str, Box]
    edges: frozenset[tuple[str, str]]


def of_plan(plan: PlannedUpdate) -> Graph:
    """Returns the graph of a plan by component, with deleted as well as created ones."""
    operations = {change.resource.urn: change.operation for change in plan.changes}
    # Default providers are not part of the system.
    known = {
        resource.urn: resource
        for resource in {**plan.before, **plan.after}.values()
        if resource.type != STACK
        and not (resource.type.startswith("pulumi:providers:") and "default" in resource.logical_name)
    }
    owner = {urn: (changes.component_of(resource, known) or resource).urn for urn, resource in known.items()}
    members: dict[str, list[Resource]] = defaultdict(list)
    for urn, resource in sorted(known.items()):
        members[owner[urn]].append(resource)
    boxes = {
        urn: box(known[urn], [resource for resource in children if resource.urn != urn], operations)
        for urn, children in members.items()
        # Omit components without resources.
        if not (known[urn].is_component and len(children) == 1)
    }
    edges = {
        (owner[first], owner[urn])
        for urn, resource in known.items()
        for first in resource.dependencies
        if {owner.get(first), owner[urn]} <= boxes.keys() and owner[first] != owner[urn]
    }
    return Graph(boxes, frozenset(reduced(acyclic(edges))))


def box(resource: Resource, children: list[Resource], operations: Mapping[str, str]) -> Box:
    """Returns the box of a component, with the worst that happens to a part of it."""
    children = [child for child in children if not child.is_component]
    changed = [child for child in children if child.urn in operations]
    own = [operations[part.urn] for part in [resource, *children] if part.urn in operations]
    worst = min(own, key=changes.OPERATIONS.index, default=None)
    # A component counts as created or deleted only if all of it is. Deleted and retained together count as retained.
    if worst in (CREATE, DELETE, LEAVE) and (len(changed) < len(children) or len(set(own)) > 1):
        worst = LEAVE if set(own) == {DELETE, LEAVE} and len(changed) == len(children) else UPDATE
    name = resource.logical_name if resource.is_component else resource.name
    return Box(name.rpartition("/")[2] or name, resource.kind, worst)


def acyclic(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Removes edges that close a cycle: two components may each need a part of the other."""
    after = defaultdict(list)
    for first, second in sorted(edges):
        after[first].append(second)
    kept: set[tuple[str, str]] = set()
    done: set[str] = set()

    def visit(node: str, above: frozenset[str]) -> None:
        for other in after[node]:
            if other not in above:
                kept.add((node, other))
                if other not in done:
                    visit(other, above | {other})
        done.add(node)

    for node in sorted(after):
        if node not in done:
            visit(node, frozenset([node]))
    return kept


def reduced(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Returns the transitive reduction of edges."""
    after: dict[str, set[str]] = defaultdict(set)
    for first, second in edges:
        after[first].add(second)

    def reach(node: str) -> set[str]:
        reached: set[str] = set()
        open_ends = [*after[node]]
        while open_ends:
            reached.add(other := open_ends.pop())
            open_ends += after[other] - reached
        return reached

    far = {node: reach(node) for node in {end for edge in edges for end in edge}}
    return {
        (first, second)
        for first, second in edges
        if not any(second in far[between] for between in after[first] if between != second)
    }


def mermaid(drawn: Graph) -> str:
    """Returns the graph as Mermaid, which GitHub draws in comments: components only, with changes marked."""
    ids = {urn: f"c{index}" for index, urn in enumerate(sorted(drawn.boxes))}
    lines = ["graph LR"]
    for urn in sorted(drawn.boxes):
        box = drawn.boxes[urn]
        symbol = f"{MARKS[box.operation][0]} " if box.operation else ""
        text = f"{symbol}{box.name}<br/>{box.kind}".replace('"', "#quot;").replace("\n", " ")
        lines.append(f'  {ids[urn]}["{text}"]{f":::{box.operation}" if box.operation else ""}')
    lines += [f"  {ids[first]} --> {ids[second]}" for first, second in sorted(drawn.edges)]
    used = {box.operation for box in drawn.boxes.values()}
    colors = {operation: color for operation, (_, color, _) in MARKS.items() if operation in used}
    lines += [f"  classDef {operation} stroke:{color},stroke-width:3px" for operation, color in colors.items()]
    return "\n".join(lines)
