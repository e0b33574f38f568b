"""`docs/settings.md`: every key of a stack's configuration, from the classes of `settings.model` and their schema."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import yaml

import settings
from settings.model import OnDemand, Section, Settings
from settings.reading import PREFIX
from settings.schema import plain
from tests import repository

# The examples on the page come from these files.
CONFIGURATIONS = repository.configurations()
_UNITS = {"Seconds": "seconds", "Minutes": "minutes", "Days": "days", "Gb": "GB", "PerZone": "nodes", "Nodes": "nodes"}
_MAX_EXAMPLE_LENGTH = 60

HEAD = f"""# Settings

<!-- Written by `make docs` from settings/model. -->

This page lists every key of `Pulumi.STACK.yaml`, under `config:`. Keys of the stack itself start with `{PREFIX}`. All
other keys belong to a section. An omitted key has its default. The program refuses a key that is not on this page.
In any text, `{{project}}` is replaced by the id of the Google Cloud project. A *quantity* is a Kubernetes quantity:
`4`, `500m`, `30Gi`.

Editors with a YAML language server complete and check these keys with the JSON Schema in
[stack.schema.json](stack.schema.json), which the first line of each configuration in this project names. The schema
checks each key by itself. `make preview` also checks that keys match each other, and reports every mistake at once.
"""


def page() -> str:
    """The page as Markdown."""
    examples = examples_of_keys()
    return HEAD + "".join(_section(section, examples) for section in sections())


def sections() -> list[type[Section]]:
    """Every class with keys of its own: the stack first, then each class where a key first needs it."""
    order: dict[type[Section], None] = {}

    def visit(annotation: Any) -> None:
        if inspect.isclass(annotation) and issubclass(annotation, Section):
            if annotation in order:
                return
            order.update(dict.fromkeys(cls for cls in reversed(annotation.__mro__) if issubclass(cls, Section)))
            for field in annotation.model_fields.values():
                visit(field.annotation)
        for argument in get_args(annotation):
            visit(argument)

    visit(Settings)
    return [section for section in order if own_keys(section)]


def own_keys(section: type[Section]) -> list[str]:
    """Keys that the class itself defines, as written in YAML."""
    return [
        field.alias or name for name, field in section.model_fields.items() if name in inspect.get_annotations(section)
    ]


def examples_of_keys() -> dict[tuple[str, str], str]:
    """An example for each class and key: from the model, otherwise from a configuration of this project."""
    examples: dict[tuple[str, str], str] = {}
    for section_type in sections():
        for field in section_type.model_fields.values():
            if field.examples:
                examples[section_type.__name__, field.alias or ""] = _as_yaml(field.examples[0])
    for path in CONFIGURATIONS:
        config = yaml.safe_load(path.read_text())["config"]
        values = {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}
        for section, key, value in _used(settings.load(values, "my-project").settings):
            for base in type(section).__mro__:
                if issubclass(base, Section) and base is not Section and key in own_keys(base):
                    examples.setdefault((base.__name__, key), _as_yaml(value))
    return examples


def _used(section: Section) -> Iterator[tuple[Section, str, object]]:
    """Every key that the section or a section below it sets, with its value."""
    for name in sorted(section.model_fields_set):
        value = getattr(section, name)
        yield section, type(section).model_fields[name].alias or name, value
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Section):
                yield from _used(part)


def _as_yaml(value: object) -> str:
    if isinstance(value, Section) or (isinstance(value, list) and any(isinstance(part, Section) for part in value)):
        return ""
    text = yaml.safe_dump(value, default_flow_style=True, width=1000, allow_unicode=True, sort_keys=False)
    text = text.removesuffix("\n").removesuffix("\n...")
    return text if len(text) <= _MAX_EXAMPLE_LENGTH else f"{text[: _MAX_EXAMPLE_LENGTH - 1]}…"


def _section(section: type[Section], examples: Mapping[tuple[str, str], str]) -> str:
    keys = own_keys(section)
    parents = list(dict.fromkeys(_parents(section)))
    schema = plain(section.model_json_schema(by_alias=True))
    lines = [f"\n## {_title(section)}\n", _doc(section)]
    if parents:
        lines.append(f"\nAlso takes the keys of {' and '.join(_link(base.__name__) for base in parents)}.")
    if keys:
        lines += ["", "| key | type | default | meaning | example |", "| --- | --- | --- | --- | --- |"]
    prefix = PREFIX if section is Settings else ""
    for key in keys:
        of_key = schema["properties"][key]
        required = key in schema.get("required", [])
        name = next(name for name, field in section.model_fields.items() if field.alias == key)
        default = (
            "**required**" if required else _default(section.model_fields[name].get_default(call_default_factory=True))
        )
        example = examples.get((section.__name__, key)) or _other(of_key)
        cells = [
            f"`{prefix}{key}`",
            _type(of_key, key),
            default,
            of_key.get("description", ""),
            f"`{example}`" if example else "",
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _parents(section: type[Section]) -> Iterator[type[Section]]:
    """The nearest classes above with keys of their own."""
    for base in section.__bases__:
        if issubclass(base, Section):
            if own_keys(base):
                yield base
            else:
                yield from _parents(base)


def _doc(section: type[Section]) -> str:
    return " ".join(inspect.getdoc(section).split()) if section.__doc__ else ""  # type: ignore[union-attr]


def _title(section: type[Section]) -> str:
    return "The stack" if section is Settings else section.__name__


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _default(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, Section):
        return "its defaults" if not isinstance(value, OnDemand) else "`{mode: onDemand}`"
    return f"`{_as_yaml(value)}`"


def _type(schema: Mapping[str, Any], key: str) -> str:
    """The type of a value in plain words, with its unit and its bounds."""
    if "$ref" in schema:
        return _link(str(schema["$ref"]).rpartition("/")[2])
    if choices := schema.get("anyOf", schema.get("oneOf")):
        return " or ".join(_type(choice, key) for choice in choices if choice.get("type") != "null")
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("format") == "quantity":
        return "quantity"
    if schema.get("format") == "ipv4-range":
        return "IPv4 range"
    match schema["type"]:
        case "array":
            return f"list of {_type(schema['items'], key)}"
        case "object":
            return f"mapping of names to {_type(schema['additionalProperties'], key)}"
        case "boolean":
            return "true or false"
        case "integer":
            return f"whole number{_unit(key)}{_range(schema)}"
        case "number":
            return f"number{_range(schema)}"
    return "name" if "pattern" in schema else "text"


def _other(schema: Mapping[str, Any]) -> str:
    """A value other than the default, if the type lists its values."""
    if schema.get("type") == "boolean":
        return _as_yaml(not schema.get("default"))
    choices = [value for value in schema.get("enum", []) if value != schema.get("default")]
    minimum = next((part["minimum"] for part in [schema, *schema.get("anyOf", [])] if "minimum" in part), None)
    value = next(iter(choices), schema.get("const", schema.get("default", minimum)))
    return "" if value is None else _as_yaml(value)


def _unit(key: str) -> str:
    return next((f" of {unit}" for suffix, unit in _UNITS.items() if key.endswith(suffix)), "")


def _range(schema: Mapping[str, Any]) -> str:
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    if minimum is None and maximum is None:
        return ""
    return f", {minimum} to {maximum}" if maximum is not None else f", {minimum} or more"
