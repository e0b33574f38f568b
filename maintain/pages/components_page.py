"""`docs/components.md`: every component with its section, keyword arguments and outputs."""

from __future__ import annotations

import dataclasses
import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic.alias_generators import to_camel

from gke_ai.components import every_component
from gke_ai.components.base import Component
from gke_ai.components.plugin.__main__ import Package
from gke_ai.components.plugin.inputs import ComponentInputs
from gke_ai.components.plugin.schema import REQUIRED, Input, fields_of, is_section, type_of_output, without_metadata
from maintain.pages.settings_page import link_to

HEAD = """# Components

<!-- Written by `make docs` from components/. -->

Programs that compose their own stack use these components. In Python, a component takes its name, a section, resource
options and keyword arguments:

```python
VllmServer("chat", Vllm(engine="vllm", name="chat", model="google/gemma-3-4b-it"), opts, kubeconfig=cluster.kubeconfig)
```

The section is the class of `gke_ai.settings.model` that also describes the component in the configuration of a stack:
the [settings](settings/README.md) list its keys. In Python, keys are in snake_case. The section refuses unknown keys
and wrong values when it is built. The keyword arguments are what the cloud or other sections decide. A complete program
is [examples/python](../examples/python/__main__.py).

In other languages, through the [package](package.md) `gke-ai`, the keys of the section and the keyword arguments are
one set of inputs in camelCase.

An argument in **bold** is required. An argument marked *output* accepts the output of another resource. All other
arguments need values that are known before Pulumi creates anything.

## Shared arguments

Several components have these keyword arguments, and name them after *Shared*.

"""
SIMPLE_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def page() -> str:
    """The page as Markdown."""
    outputs = Package(every_component()).outputs()
    every = sorted(every_component(), key=lambda component: component.__name__)
    shared = _shared(every)
    parts = [_component(component, outputs[component.__name__], shared) for component in every]
    types = sorted({type_ for component in every for type_ in _dataclasses(component)}, key=lambda cls: cls.__name__)
    head = HEAD + _table({f"`{name}`": cells for name, cells in shared.items()}, "keyword argument")
    return head + "".join(parts) + "\n## Types\n" + "".join(map(_type_section, types))


def _shared(every: Sequence[type[Component]]) -> dict[str, str]:
    """Type and meaning of the keyword arguments that several components describe alike, by name."""
    uses = Counter(
        (name, _cells(field)) for component in every for name, field in ComponentInputs(component).keywords.items()
    )
    shared: dict[str, str] = {}
    for (name, cells), times in uses.most_common():
        if times > 1:
            shared.setdefault(name, cells)
    return dict(sorted(shared.items()))


def _component(component: type[Component], outputs: Sequence[str], shared: Mapping[str, str]) -> str:
    inputs = ComponentInputs(component)
    lines = [f"\n## {component.__name__}\n", _summary(component)]
    if inputs.section:
        required = ", ".join(f"`{key}`" for key in sorted(REQUIRED.get(component.__name__, ())))
        lines.append(f"\nSection: {_link(inputs.section)}" + (f" with {required}" if required else ""))
    own = {name: field for name, field in inputs.keywords.items() if shared.get(name) != _cells(field)}
    if own:
        lines.append(f"\n{_rows(own, 'keyword argument')}".removesuffix("\n"))
    if names := [_name(name, field) for name, field in _ordered(inputs.keywords) if name not in own]:
        lines.append(f"\n[Shared](#shared-arguments): {', '.join(names)}")
    for keyword in inputs.keywords:
        if (name := inputs.input_name(keyword)) != to_camel(keyword):
            lines.append(f"\nThe package calls `{keyword}` `{name}`.")
    return "\n".join(lines) + f"\n\nOutputs: {', '.join(f'`{output}`' for output in sorted(outputs)) or 'none'}\n"


def _type_section(cls: type) -> str:
    return f"\n### {cls.__name__}\n\n{_summary(cls)}\n\n{_rows(fields_of(cls), 'field')}"


def _rows(fields: Mapping[str, Input], title: str) -> str:
    return _table({_name(name, field): _cells(field) for name, field in _ordered(fields)}, title)


def _table(rows: Mapping[str, str], title: str) -> str:
    lines = [f"| {title} | is a | meaning |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {cells} |" for name, cells in rows.items())]) + "\n"


def _ordered(fields: Mapping[str, Input]) -> list[tuple[str, Input]]:
    """Required ones first."""
    return sorted(fields.items(), key=lambda item: (not item[1].required, item[0]))


def _name(name: str, field: Input) -> str:
    return f"**`{name}`**" if field.required else f"`{name}`"


def _cells(field: Input) -> str:
    output = ", *output*" if type_of_output(field.annotation) else ""
    return f"{_type(field.annotation)}{output} | {' '.join((field.description or '').split())}"


def _type(annotation: Any) -> str:
    annotation = without_metadata(type_of_output(annotation) or annotation)
    if annotation in SIMPLE_TYPES:
        return SIMPLE_TYPES[annotation]
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return _link(annotation)
    arguments = [argument for argument in get_args(annotation) if argument is not NoneType]
    if get_origin(annotation) in (list, Sequence):
        return f"list of {_type(arguments[0])}"
    if get_origin(annotation) in (dict, Mapping):
        return f"map of string to {_type(arguments[1])}"
    return " or ".join(map(_type, arguments))


def _dataclasses(component: type[Component]) -> set[type]:
    """Types of keyword arguments that are no sections."""
    found: set[type] = set()
    for keyword in ComponentInputs(component).keywords.values():
        parts = (keyword.annotation, *get_args(keyword.annotation))
        found |= {part for part in parts if isinstance(part, type) and dataclasses.is_dataclass(part)}
    return found


def _link(cls: type) -> str:
    return f"[{cls.__name__}]({link_to(cls) if is_section(cls) else f'#{cls.__name__.lower()}'})"


def _summary(cls: type) -> str:
    """The first paragraph of the documentation, on one line."""
    return " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())
