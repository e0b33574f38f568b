"""`docs/components.md`: every component with its section, arguments and outputs."""

import dataclasses
import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import dedent
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from gke_ai.components import ClusterQueue, every_component
from gke_ai.components.arguments import Part
from gke_ai.components.base import Component, arguments_of
from gke_ai.components.cluster.connection import AnyCluster
from gke_ai.components.plugin.__main__ import Package
from gke_ai.components.plugin.inputs import ComponentInputs
from gke_ai.components.plugin.schema import Input, in_package, is_section, stated_fields, takes_outputs, without_outputs
from gke_ai.components.pools.node_pool import NodePoolComponent
from gke_ai.components.pools.tpu_pool import TpuPoolComponent
from gke_ai.components.queues.kueue import ClusterQueueArguments
from gke_ai.components.serving.server import ModelServer
from gke_ai.settings.resolved import Placed
from maintain.pages import FOLDER, with_parts
from maintain.pages.settings_page import link_to

# What several components are together, and what only the program of this repository passes.
NAMES: dict[type, str] = {
    AnyCluster: "[GkeCluster](#gkecluster) or [ClusterConnection](#clusterconnection)",
    NodePoolComponent: "node pool",
    TpuPoolComponent: "[TpuNodePool](#tpunodepool) or [FlexStartTpuPool](#flexstarttpupool)",
    ModelServer: "model server",
    Placed: "`Placed` of a stack",
}
# What the examples in the documentation of components begin with.
PRELUDE = (FOLDER / "components.md").read_text().partition("```python\n")[2].partition("```")[0]
SIMPLE_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def page() -> str:
    outputs = Package(every_component()).outputs()
    every = sorted(every_component(), key=lambda component: component.__name__)
    shared = _shared(every)
    parts = [_component(component, outputs[component.__name__], shared) for component in every]
    types = sorted({type_ for component in every for type_ in _types(component)}, key=lambda cls: cls.__name__)
    table = _table({f"`{name}`": cells for name, cells in shared.items()}, "argument")
    generated = "".join([table, *parts, "\n## Types\n", *map(_type_section, types)])
    return with_parts("components.md", ("and name them after *Shared*.\n\n", "", generated))


def _own(component: type[Component]) -> dict[str, Input]:
    """The arguments that are no keys of the section, or have another type or meaning there."""
    inputs = ComponentInputs(component)
    of_section = stated_fields(inputs.section) if inputs.section else {}
    fields = stated_fields(arguments_of(component))
    return {
        name: field
        for name, field in fields.items()
        if name not in ("opts", "placed") and of_section.get(name) != field
    }


def _shared(every: Sequence[type[Component]]) -> dict[str, str]:
    """Type and meaning of the arguments that several components describe alike, by name."""
    uses = Counter((name, _cells(field)) for component in every for name, field in _own(component).items())
    shared: dict[str, str] = {}
    for (name, cells), times in uses.most_common():
        if times > 1:
            shared.setdefault(name, cells)
    return dict(sorted(shared.items()))


def _component(component: type[Component], outputs: Sequence[str], shared: Mapping[str, str]) -> str:
    inputs, arguments = ComponentInputs(component), _own(component)
    lines = [f"\n## {component.__name__}\n", _summary(component), f"\n```python\n{example_of(component)}\n```"]
    if inputs.section:
        lines.append(f"\nSection: {_link(inputs.section)}")
    own = {name: field for name, field in arguments.items() if shared.get(name) != _cells(field)}
    if own:
        lines.append(f"\n{_rows(own, 'argument')}".removesuffix("\n"))
    if names := [_name(name, field) for name, field in _ordered(arguments) if name not in own]:
        lines.append(f"\n[Shared](#shared-arguments): {', '.join(names)}")
    return "\n".join(lines) + f"\n\nOutputs: {', '.join(f'`{output}`' for output in sorted(outputs)) or 'none'}\n"


def example_of(component: type[Component]) -> str:
    return dedent((inspect.getdoc(component) or "").partition("\n\nExample:\n")[2]).strip()


def _type_section(cls: type) -> str:
    fields = stated_fields(ClusterQueueArguments if cls is ClusterQueue else cls)
    return f"\n### {cls.__name__}\n\n{_summary(cls)}\n\n{_rows(fields, 'field')}"


def _rows(fields: Mapping[str, Input], title: str) -> str:
    return _table({_name(name, field): _cells(field) for name, field in _ordered(fields)}, title)


def _table(rows: Mapping[str, str], title: str) -> str:
    lines = [f"| {title} | is a | meaning |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {cells} |" for name, cells in rows.items())]) + "\n"


def _ordered(fields: Mapping[str, Input]) -> list[tuple[str, Input]]:
    return sorted(fields.items(), key=lambda item: (not item[1].required, item[0]))


def _name(name: str, field: Input) -> str:
    return f"**`{name}`**" if field.required else f"`{name}`"


def _cells(field: Input) -> str:
    marks = ["*output*"] if _accepts_outputs(field.annotation) else []
    marks += ["*Python*"] if in_package(field.annotation) is None else []
    return f"{', '.join([_type(field.annotation), *marks])} | {' '.join((field.description or '').split())}"


def _accepts_outputs(annotation: Any) -> bool:
    return takes_outputs(annotation) or any(map(_accepts_outputs, get_args(annotation)))


def _type(annotation: Any) -> str:
    annotation = without_outputs(annotation)
    if annotation is Any:
        return "any value"
    if annotation in SIMPLE_TYPES:
        return SIMPLE_TYPES[annotation]
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return _link(annotation)
    origin, arguments = get_origin(annotation), [part for part in get_args(annotation) if part is not NoneType]
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (list, Sequence):
        return f"list of {_type(arguments[0])}"
    if origin in (dict, Mapping):
        return f"map of {_type(arguments[0])} to {_type(arguments[1])}"
    if isinstance(origin, type) and issubclass(origin, ModelServer):
        return "model server"
    return " or ".join(dict.fromkeys(map(_type, arguments)))


def _types(component: type[Component]) -> set[type]:
    """Types of arguments that are neither sections nor components."""
    found: set[type] = set()
    open_ends = [field.annotation for field in _own(component).values()]
    while open_ends:
        part = open_ends.pop()
        open_ends += get_args(part)
        if isinstance(part, type) and part not in found and part is not Placed:
            of_arguments = issubclass(part, Part)
            if of_arguments or dataclasses.is_dataclass(part) or part is ClusterQueue:
                found.add(part)
                open_ends += [field.annotation for field in stated_fields(part).values()] if of_arguments else []
    return found


def _link(cls: type) -> str:
    if cls in NAMES:
        return NAMES[cls]
    of_configuration = is_section(cls) and not issubclass(cls, Part)
    return f"[{cls.__name__}]({link_to(cls) if of_configuration else f'#{cls.__name__.lower()}'})"


def _summary(cls: type) -> str:
    """The first paragraph of the documentation, on one line."""
    return " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())
