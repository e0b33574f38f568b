"""The graph of a stack: components as boxes, dependencies as edges, with changes marked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gke_ai.registered.types import STACK
from gke_ai.review.report.changes import (
    CREATE,
    DELETE,
    LEAVE,
    OPERATIONS,
    REPLACE,
    UPDATE,
    PlannedUpdate,
    Resource,
    component_of,
)

# Symbol, color and word of each operation.
MARKS = {
    CREATE: ("+", "green", "created"),
    UPDATE: ("~", "amber", "changed"),
    REPLACE: ("±", "violet", "replaced"),
    DELETE: ("−", "red", "deleted"),
    LEAVE: ("○", "muted", "retained"),
}
MAX_CHILDREN = 4


@dataclass(frozen=True)
class Child:
    """A line in a box: a resource that changes, or a count of resources that don't."""

    text: str
    operation: str | None = None


@dataclass(frozen=True)
class Box:
    """A component, or a resource outside of components."""

    id: str
    name: str
    kind: str
    namespace: str = ""
    children: tuple[Child, ...] = ()
    operation: str | None = None

    @property
    def subtitle(self) -> str:
        """Its class and namespace."""
        return f"{self.kind} in {self.namespace}" if self.namespace else self.kind


@dataclass(frozen=True)
class Graph:
    """Boxes, and edges from each dependency to its dependents."""

    boxes: Mapping[str, Box]
    edges: frozenset[tuple[str, str]]
    marked: bool = False


def of_plan(plan: PlannedUpdate) -> Graph:
    """Returns the graph of a plan, with deleted as well as created components."""
    return graph(
        {**plan.before, **plan.after}.values(), {change.resource.urn: change.operation for change in plan.changes}
    )


def graph(resources: Iterable[Resource], operations: Mapping[str, str] | None = None) -> Graph:
    """Returns the graph of resources by component. With operations by URN, it marks changes."""
    # Default providers are not part of the system.
    known = {
        resource.urn: resource
        for resource in resources
        if resource.type != STACK
        and not (resource.type.startswith("pulumi:providers:") and "default" in resource.logical_name)
    }
    owner = {urn: (component_of(resource, known) or resource).urn for urn, resource in known.items()}
    members: dict[str, list[Resource]] = defaultdict(list)
    for urn, resource in sorted(known.items()):
        members[owner[urn]].append(resource)
    boxes = {
        urn: box(known[urn], [resource for resource in children if resource.urn != urn], operations or {})
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
    return Graph(boxes, frozenset(reduced(acyclic(edges))), operations is not None)


def box(resource: Resource, children: list[Resource], operations: Mapping[str, str]) -> Box:
    """Returns the box of a component: changed children by name, the others as counts per kind."""
    children = [child for child in children if not child.is_component]
    changed = [child for child in children if child.urn in operations]
    own = [operations[child.urn] for child in [resource, *children] if child.urn in operations]
    worst = min(own, key=OPERATIONS.index, default=None)
    # A component counts as created or deleted only if all of it is. Deleted and retained together count as retained.
    if worst in (CREATE, DELETE, LEAVE) and (len(changed) < len(children) or len(set(own)) > 1):
        worst = LEAVE if set(own) == {DELETE, LEAVE} and len(changed) == len(children) else UPDATE
    same = Counter(child.kind for child in children if child.urn not in operations)
    lines = [Child(f"{child.kind} {short(child.name)}", operations[child.urn]) for child in changed]
    kinds = Counter(child.kind for child in children)
    if len(lines) > MAX_CHILDREN:
        by_kind = Counter((operations[child.urn], child.kind) for child in changed)
        ordered = sorted(by_kind.items(), key=lambda item: (OPERATIONS.index(item[0][0]), item[0][1]))
        lines = [Child(counted(kind, count), operation) for (operation, kind), count in ordered]
    if not operations or (worst in (CREATE, DELETE) and lines):
        lines = [Child(counted(kind, count)) for kind, count in sorted(kinds.items())]
    elif same and lines:
        lines.append(Child(f"{sum(same.values())} more unchanged"))
    if len(lines) > MAX_CHILDREN:
        rest = len(lines) - MAX_CHILDREN + 1
        lines = [*lines[: MAX_CHILDREN - 1], Child(f"and {rest} more kinds")]
    name = resource.logical_name if resource.is_component else resource.name
    return Box(resource.urn, short(name), resource.kind, name.rpartition("/")[0], tuple(lines), worst)


def counted(kind: str, count: int) -> str:
    """Formats a kind with its count, if more than resource."""
    return kind if count == 1 else f"{count} × {kind}"


def short(name: str) -> str:
    """Returns a name without its namespace."""
    return name.rpartition("/")[2] or name


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
    strokes = {CREATE: "#2da44e", UPDATE: "#bf8700", REPLACE: "#8250df", DELETE: "#cf222e", LEAVE: "#818b98"}
    used = {box.operation for box in drawn.boxes.values()}
    lines += [
        f"  classDef {operation} stroke:{strokes[operation]},stroke-width:3px"
        for operation in MARKS
        if operation in used
    ]
    return "\n".join(lines)
