"""The keys of the settings as rows of a table: type, default, meaning and example of each."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import yaml

from gke_ai import settings
from gke_ai.catalog.section_files import PREFIX
from gke_ai.settings.model import Section, descriptions
from gke_ai.settings.reading import discriminator, section_types
from gke_ai.settings.schema import plain
from tests.support import repository

# The examples come from these files.
CONFIGURATIONS = repository.configurations()
COMPUTED = re.compile(r"\s*\bDefault: (?P<default>.*)\.$", re.S)
_MAX_EXAMPLE_LENGTH = 60
_SUMMARIES = {"quantity": "quantity", "ipv4-range": "IPv4 range"}
_NAMES = {"boolean": "boolean", "integer": "integer", "number": "number", "string": "string"}


@dataclasses.dataclass(frozen=True)
class Row:
    """A key of one or more classes, as a page shows it."""

    key: str
    type: str
    default: str
    meaning: str
    example: str = dataclasses.field(compare=False)
    # The forms of a union that have the key, such as `mode: spot`. Empty if all have it.
    forms: tuple[str, ...] = ()

    def __str__(self) -> str:
        forms = f", with {' or '.join(f'`{form}`' for form in self.forms)}" if self.forms else ""
        example = f"`{self.example}`" if self.example else ""
        cells = [f"`{self.key}`{forms}", self.type, self.default, self.meaning, example]
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# Returns the link to the table of sections, from their classes.
Link = Callable[[Sequence[type[Section]]], str]


def table(sections: Sequence[type[Section]], link: Link) -> str:
    """The keys of a section, or of the sections of a union, as a Markdown table."""
    return as_table(rows_of(sections, link))


def as_table(rows: Iterable[Row]) -> str:
    """Keys as a Markdown table. Required keys are first, and those of all forms."""
    ordered = sorted(rows, key=lambda row: (bool(row.forms), row.default != "required"))
    return "| key | type | default | meaning | example |\n| --- | --- | --- | --- | --- |\n" + "\n".join(
        map(str, ordered)
    )


def rows_of(sections: Sequence[type[Section]], link: Link) -> list[Row]:
    """A row for each key. A key that several sections have alike is one row, with the example of the first."""
    if len(sections) == 1:
        return list(_rows(sections[0], link))
    tag, by_form = discriminator(list(sections))
    found: dict[Row, list[str]] = {}
    for form, section in by_form.items():
        for row in _rows(section, link):
            if row.key != tag:
                found.setdefault(row, []).append(f"{tag}: {form}")
    shared = [
        dataclasses.replace(row, forms=() if len(forms) == len(sections) else tuple(forms))
        for row, forms in found.items()
    ]
    first = next(row for row in _rows(sections[0], link) if row.key == tag)
    return [
        dataclasses.replace(first, type=_either(f"`{form}`" for form in by_form), meaning="One of the forms above."),
        *shared,
    ]


def _rows(section: type[Section], link: Link) -> Iterator[Row]:
    schema = plain(section.model_json_schema(by_alias=True))
    for name, field in section.model_fields.items():
        key = field.alias or name
        meaning, computed = split(descriptions(section)[name])
        if field.is_required():
            default = "required"
        elif computed:
            default = computed
        else:
            default = _default(field.get_default(call_default_factory=True))
        of_key = schema["properties"][key]
        sections = section_types(field.annotation)
        value_type = _type_of_sections(of_key, link(sections)) if sections else _type(of_key)
        yield Row(key, value_type, default, meaning, example_of(section, key) or _other(of_key))


def split(description: str) -> tuple[str, str]:
    """The description of a key without its last sentence, and the default that this sentence states."""
    stated = COMPUTED.search(description)
    return (description[: stated.start()], stated["default"]) if stated else (description, "")


def _default(value: object) -> str:
    if value is None or value in ([], {}, ""):
        return "–"
    if isinstance(value, Section):
        keys = value.model_dump(by_alias=True, exclude_defaults=False)
        return f"`{_as_yaml(keys)}`" if len(keys) == 1 else "the defaults of its keys"
    return f"`{_as_yaml(value)}`"


def _type_of_sections(schema: Mapping[str, Any], anchor: str) -> str:
    is_list = "items" in schema or any("items" in choice for choice in schema.get("anyOf", []))
    return f"list of [objects]({anchor})" if is_list else f"[object]({anchor})"


def _type(schema: Mapping[str, Any]) -> str:
    """The type of a value without sections, with its bounds."""
    if choices := schema.get("anyOf", schema.get("oneOf")):
        return _either(_type(choice) for choice in choices if choice.get("type") != "null")
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return _either(f"`{value}`" for value in schema["enum"])
    if schema.get("format") in _SUMMARIES:
        return _SUMMARIES[schema["format"]]
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    if schema["type"] == "object":
        return f"map of string to {_type(schema['additionalProperties'])}"
    return _NAMES[schema["type"]] + _range(schema)


def _either(types: Iterable[str]) -> str:
    *others, last = types
    comma = "," if any(" of " in other for other in others) else ""
    return f"{', '.join(others)}{comma} or {last}" if others else last


def _range(schema: Mapping[str, Any]) -> str:
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    if minimum is None:
        return ""
    return f", {minimum} to {maximum}" if maximum is not None else f", {minimum} or more"


def _other(schema: Mapping[str, Any]) -> str:
    """A value other than the default, if the type lists its values."""
    if schema.get("type") == "boolean":
        return _as_yaml(not schema.get("default"))
    choices = [value for value in schema.get("enum", []) if value != schema.get("default")]
    minimum = next((part["minimum"] for part in [schema, *schema.get("anyOf", [])] if "minimum" in part), None)
    value = next(iter(choices), schema.get("const", schema.get("default", minimum)))
    return "" if value is None else _as_yaml(value)


def example_of(section: type[Section], key: str) -> str:
    """An example of a key: from the model, otherwise from a configuration of this project. Empty if there is none."""
    (field,) = (field for name, field in section.model_fields.items() if (field.alias or name) == key)
    if field.examples:
        return _as_yaml(field.examples[0])
    examples = [example for base in section.__mro__ for example in _examples().get((base, key), ()) if example]
    short = (example for example in examples if len(example) <= _MAX_EXAMPLE_LENGTH and "\n" not in example)
    return next(short, f"{examples[0].splitlines()[0][: _MAX_EXAMPLE_LENGTH - 1]}…" if examples else "")


@cache
def _examples() -> Mapping[tuple[type, str], list[str]]:
    """The values of each class and key in the configurations of this project, base classes included."""
    examples: dict[tuple[type, str], list[str]] = {}
    for path in CONFIGURATIONS:
        config = yaml.safe_load(path.read_text())["config"]
        values = {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}
        for section, key, value in _used(settings.load(values, "my-project").settings):
            for base in type(section).__mro__:
                if issubclass(base, Section) and key in {field.alias for field in base.model_fields.values()}:
                    examples.setdefault((base, key), []).append(_as_yaml(value))
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
    return text.removesuffix("\n").removesuffix("\n...")
