"""Reads the values of a configuration into typed settings, section by section.

Each section and each list item is read separately, so that one mistake does not hide another.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError, create_model
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from gke_ai.catalog.section_files import PREFIX
from gke_ai.settings.model import Queues, Section, Settings, Unresolved, descriptions
from gke_ai.settings.problems import Problem, closest, meant, nearest

# The patterns of gke_ai.settings.model, for messages.
_PATTERNS = {
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": "lowercase letters, digits and '-'. Begin and end with a letter or digit",
    r"^[a-z]([-a-z0-9]*[a-z0-9])?$": "lowercase letters, digits and '-'. Begin with a letter, and do not end with '-'",
}
# By the pattern of texts that are no names: what they are, and an example.
_FORMS = {
    r"^[0-9]+\.[0-9]+\.[0-9]+$": ("a version of a chart", "0.19.2"),
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$": ("a time in UTC", "2026-01-03T08:00:00Z"),
    r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$": ("a time of the day", '"20:00"'),
    r"^(\w[\w.-]*/)*\w[\w.-]*[.]ya?ml$": ("a YAML file of the project", "prices.yaml"),
}
_UNITS = {"Seconds": " seconds", "Days": " days", "Gb": " GiB"}
# By pydantic's error type: the type that it expects, and how to write that in YAML.
_TYPES = {
    "string_type": ("text", "Put the value in quotes"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), ("a whole number", "Write a whole number")),
    **dict.fromkeys(("int_parsing_size", "finite_number"), ("a number that fits in 64 bits", "Write a smaller number")),
    **dict.fromkeys(("float_type", "float_parsing"), ("a number", "Write a number")),
    **dict.fromkeys(("bool_type", "bool_parsing"), ("true or false", "Write true or false")),
    **dict.fromkeys(("list_type", "sequence_str"), ("a list", "Begin each entry with '- ', or write [a, b]")),
    **dict.fromkeys(
        ("dict_type", "model_type", "model_attributes_type"), ("a mapping", "Write one 'key: value' per line")
    ),
}


def read(values: Mapping[str, object]) -> tuple[Settings, Unresolved, list[Problem]]:
    """Reads the settings as far as possible; also returns what is left out, and a problem for each mistake in form."""
    reader = _Reader()
    fields = reader.container(Settings, values, "")
    # Each field is read and checked. Another validation would build the validators of all sections.
    settings = Settings.model_construct(**fields)
    return settings, Unresolved(frozenset(reader.unresolved), frozenset(reader.names)), reader.problems


def with_project(value: object, project: str) -> object:
    """A value of a configuration with the id of the project in place of `{project}`, at any depth."""
    if isinstance(value, str):
        return value.replace("{project}", project)
    if isinstance(value, list):
        return [with_project(item, project) for item in value]
    if isinstance(value, Mapping):
        return {key: with_project(item, project) for key, item in value.items()}
    return value


class _Reader:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.unresolved: set[str] = set()
        self.names: set[str] = set()

    def container(self, model: type[Section], raw: object, path: str) -> dict[str, Any]:
        """Reads the fields of a section one by one; each field has a default."""
        if not isinstance(raw, Mapping):
            self._lost(path, raw)
            self.problems.append(Problem(path, *_wrong_type(raw, "model_type")))
            return {}
        fields = {field.alias or name: name for name, field in model.model_fields.items()}
        read: dict[str, Any] = {}
        for key, value in raw.items():
            where = f"{path}.{key}" if path else f"{PREFIX}{key}"
            if key not in fields:
                self.problems.append(_unknown_key(where, key, model))
                key = _corrected(key, raw, model)  # so that what refers to the section is not reported too
                where = f"{path}.{key}" if path else f"{PREFIX}{key}"
                if not key or not section_types(model.model_fields[fields[key]].annotation):
                    continue  # a plain value is never read by another name: it can be a token
            if value is not None:
                read[fields[key]] = self._field(model, fields[key], value, where)
        return {name: value for name, value in read.items() if value is not None}

    def _field(self, model: type[Section], name: str, value: object, path: str) -> object:
        annotation = model.model_fields[name].annotation
        sections = section_types(annotation)
        if not sections:
            return self._plain(model, name, value, path.rpartition(".")[0] or PREFIX)
        if sections == [Queues]:
            queues = Queues.model_construct(**self.container(Queues, value, path))
            queues._path = path
            return queues
        if get_origin(annotation) is not list:
            return self._section(sections[0], value, path)
        if not isinstance(value, list):
            self._lost(path, value)
            self.problems.append(Problem(path, *_wrong_type(value, "list_type")))
            return None
        items = [self._one_of(sections, item, f"{path}[{index}]") for index, item in enumerate(value)]
        return [item for item in items if item is not None]

    def _plain(self, model: type[Section], name: str, value: object, path: str) -> object:
        """Reads a key with a plain value, not a section; `path` is the path of its section."""
        alone = {model.model_fields[name].alias or name: value}
        try:
            return getattr(_plain_keys(model).model_validate(alone, by_alias=True, by_name=False), name)
        except ValidationError as error:
            self.problems += [_problem(details, model, alone, path) for details in error.errors()]
            return None

    def _one_of(self, sections: list[type[Section]], value: object, path: str) -> Section | None:
        """Reads an item of a list of several section types, which a key such as `engine` distinguishes."""
        if len(sections) == 1 or not isinstance(value, Mapping):
            return self._section(sections[0], value, path)
        key, by_name = discriminator(sections)
        name = str(value.get(key, next(iter(by_name))))
        if name not in by_name:
            self.problems.append(
                Problem(f"{path}.{key}", f"{_quoted(name)} is not a known {key}", nearest(name, by_name))
            )
            # Read the item as the closest known type, to report its other mistakes too.
            name = next(iter(get_close_matches(name, by_name, n=1)), next(iter(by_name)))
            value = {**value, key: name}
        return self._section(by_name[name], value, path)

    def _section(self, model: type[Section], value: object, path: str) -> Section | None:
        try:
            section = model.model_validate(value, by_alias=True, by_name=False)
        except ValidationError as error:
            mistakes = error.errors(include_url=False, include_context=True)
            unknown = [details for details in mistakes if details["type"] == "extra_forbidden"]
            self.problems += [_problem(details, model, value, path) for details in unknown or mistakes]
            if unknown:  # The misspelled keys are reported. The rest is checked as if they were right.
                owners = {details["loc"]: _locate(details, model, value, path)[0] for details in unknown}
                return self._section(model, _with_corrected(value, owners), path)
            self._lost(path, value)
            if any(details["loc"] == ("name",) for details in mistakes):
                self._may_contain_any_name(path)
            return None
        section._path = path
        return section

    def _lost(self, path: str, value: object) -> None:
        self.unresolved.add(path)
        name = value.get("name") if isinstance(value, Mapping) else None
        if isinstance(name, str):
            self.names.add(name)
        else:
            self._may_contain_any_name(path)

    def _may_contain_any_name(self, item: str) -> None:
        # Any name elsewhere may refer to this item, so its whole section counts as unresolved.
        self.unresolved.add(item.rpartition("[")[0] or item)


@cache
def _plain_keys(model: type[Section]) -> type[Section]:
    """A section with only the plain keys of `model`, whose validator needs no other section."""
    fields: dict[str, Any] = {
        name: (field.annotation, field)
        for name, field in model.model_fields.items()
        if not section_types(field.annotation)
    }
    return create_model(model.__name__, __base__=Section, **fields)


def discriminator(sections: list[type[Section]]) -> tuple[str, dict[str, type[Section]]]:
    """The key whose value distinguishes these sections, and the section for each value."""
    for key, field in sections[0].model_fields.items():
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1:
            names = {str(get_args(section.model_fields[key].annotation)[0]): section for section in sections}
            return field.alias or key, names
    raise TypeError(f"{sections} have no key that distinguishes them")


def _corrected(key: str, stated: Mapping[str, object], model: type[Section]) -> str:
    """The key that a misspelled or renamed one stands for; empty if none is close, or it is stated too."""
    right = model.renamed_keys.get(key) or meant(key, _keys(model))
    return "" if right in stated else right


def _with_corrected(value: Any, owners: Mapping[tuple[int | str, ...], type[Section]]) -> object:
    """A copy of a mapping in which unknown keys of these sections, at any depth, are corrected or left out."""
    copied = deepcopy(value)
    for (*parents, key), owner in owners.items():
        holder = copied
        for parent in parents:
            # The error's location contains the capacity mode. The value does not: `reservation` there is a name.
            inside = isinstance(parent, int) or isinstance(holder.get(parent), dict | list)
            holder = holder[parent] if inside else holder
        if key in holder:
            right = _corrected(str(key), holder, owner)
            holder.update({right: holder.pop(key)} if right else {})
            holder.pop(key, None)
    return copied


def section_types(annotation: Any) -> list[type[Section]]:
    """The sections in the type of a key."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [section for part in get_args(annotation) for section in section_types(part)]


def _problem(error: ErrorDetails, model: type[Section], raw: object, path: str) -> Problem:
    """Converts a pydantic error to a problem. It quotes the value only if that is a choice, a name or a number."""
    owner, key, where = _locate(error, model, raw, path)
    error_type, value, context = error["type"], error["input"], error.get("ctx", {})
    unit = next((unit for suffix, unit in _UNITS.items() if key.endswith(suffix)), "")
    noun = owner.noun
    if error_type == "extra_forbidden":
        return _unknown_key(where, key, owner)
    if error_type == "missing":
        return Problem(where, f"{key} is missing, and {noun} needs it", f"Add it{_meaning(owner, key)}")
    if error_type == "union_tag_not_found":
        return Problem(f"{where}.mode", "mode is missing, and capacity needs it", f"Write {_modes(owner, key)}")
    if error_type == "union_tag_invalid":
        return Problem(
            f"{where}.mode", f"{context['tag']} is not a capacity mode of GKE", f"Write {_modes(owner, key)}"
        )
    if error_type == "literal_error":
        return Problem(where, f"{_quoted(value)} is not a value of {key}", f"Write {context['expected']}")
    if error_type == "string_pattern_mismatch" and context["pattern"] in _FORMS:
        form, example = _FORMS[context["pattern"]]
        return Problem(where, f"{_quoted(value)} is not {form}", f"Write for example {example}")
    if error_type == "string_pattern_mismatch":
        words = _PATTERNS[context["pattern"]]
        return Problem(
            where, f"{_quoted(value)} is not a valid name. Kubernetes or Google Cloud would refuse it", f"Use {words}"
        )
    if error_type == "string_too_long":
        length = f"{key} has {len(str(value))} characters, and the maximum is {context['max_length']}"
        return Problem(where, length, f"Shorten it to {context['max_length']} characters")
    if error_type == "greater_than_equal":
        minimum = f"{context['ge']}{unit}"
        return Problem(where, f"{value} is below the minimum, {minimum}", f"Set it to {minimum} or more")
    if error_type == "less_than_equal":
        maximum = f"{context['le']}{unit}"
        return Problem(where, f"{value} is above the maximum, {maximum}", f"Set it to {maximum} or less")
    if error_type == "string_too_short":
        return Problem(where, f"{key} is empty, and {noun} needs it", f"Write it{_meaning(owner, key)}")
    if error_type == "too_short":
        return Problem(where, f"{key} is empty, and {noun} needs at least one entry", "Add an entry")
    if error_type == "network":
        cause = f"{_quoted(value)} is not an IPv4 range. Google Cloud would refuse it"
        return Problem(where, cause, "Write for example 10.0.0.0/20, with no bit set after the prefix")
    if error_type == "value_error" and isinstance(value, str):
        reason = str(context["error"])
        cause = reason if value in reason else f"{value} {reason}"
        return Problem(where, f"{cause}. Kubernetes would refuse it", 'Write for example "4", "500m" or "30Gi"')
    if error_type in _TYPES:
        return Problem(where, *_wrong_type(value, error_type))
    return Problem(where, error["msg"], f"See the keys of {noun}: {', '.join(_keys(owner))}")


def mistakes_of_arguments(error: ValidationError, model: type[Section], values: Mapping[str, object]) -> list[Problem]:
    """A problem for each argument of a component that its class refuses, by its path."""
    raw = _by_keys(values)
    problems: dict[str, Problem] = {}
    for details in error.errors(include_url=False):
        details["loc"] = tuple(_by_key(step) for step in details["loc"])
        if details.get("ctx", {}).get("class") == "Sequence":
            details["type"] = "list_type"
        problem, value = _problem(details, model, raw, ""), details["input"]
        if type(value).__module__ == "pulumi.output":
            cause = (
                "is the output of a resource, which is known only during an update. This value decides what is created"
            )
            problem = Problem(
                problem.path, cause, "Pass the component, the value itself, or a value of the configuration"
            )
        elif details["type"] == "is_instance_of":
            cause = f"the value is {_type_name(value)}, and must be a {details['ctx']['class']}"
            problem = Problem(problem.path, cause, "Pass the component")
        elif details["type"] == "unexpected_keyword_argument":
            key = problem.path.rpartition(".")[2]
            problem = Problem(problem.path, f"{key} is not a known key. It would have no effect", "Remove it")
        problems.setdefault(problem.path, problem)
    return list(problems.values())


def _by_keys(values: Any) -> Any:
    """The values by their keys in the YAML."""
    if isinstance(values, Mapping):
        return {_by_key(key): _by_keys(value) for key, value in values.items()}
    return [_by_keys(item) for item in values] if isinstance(values, list) else values


def _by_key(step: Any) -> Any:
    """A name in Python as the key in the YAML. Other steps of a path stay."""
    return to_camel(step) if isinstance(step, str) and "_" in step and step.islower() else step


def _locate(error: ErrorDetails, model: type[Section], raw: object, path: str) -> tuple[type[Section], str, str]:
    """The section and key of an error, and its path in the YAML.

    Pydantic's location also names the member of a union that it tried. The YAML does not have that step.
    """
    owner, key, fields = model, "", [model]
    for index, step in enumerate(error["loc"]):
        last = index == len(error["loc"]) - 1
        if len(fields) > 1 and isinstance(raw, Mapping) and step == raw.get("mode") and not last:
            fields = [section for section in fields if step in _modes_of(section)]
        elif isinstance(step, int) and isinstance(raw, list):
            raw, path = raw[step], f"{path}[{step}]"
        elif isinstance(raw, Mapping) and (step in raw or (last and error["type"] in ("missing", "extra_forbidden"))):
            step = str(step)
            raw = raw.get(step)
            plain = step.replace("_", "").replace("-", "").isalnum()
            dot = "" if path in ("", PREFIX) else "."
            path += f"{dot}{step}" if plain else f'["{step}"]'
            key = step
            if fields:
                owner = fields[0]
            field = next((f for f in owner.model_fields.values() if f.alias == step), None) if fields else None
            fields = section_types(field.annotation) if field else []
        elif fields:
            fields = [section for section in fields if step in _modes_of(section)] or fields
    return owner, key, path


def _modes_of(section: type[Section]) -> tuple[object, ...]:
    """The values of `mode`, which tells the members of a union apart."""
    return get_args(section.model_fields["mode"].annotation) if "mode" in section.model_fields else ()


def _unknown_key(path: str, key: str, model: type[Section]) -> Problem:
    if new_key := model.renamed_keys.get(key):
        return Problem(path, f"{key} was renamed. It would have no effect", f"Write {new_key} instead")
    cause = f"{key} is not a key of {model.noun}. It would have no effect"
    for other in _alternatives(model):
        if key in _keys(other) and not closest(key, _keys(model)):
            tag, values = discriminator([other])
            return Problem(path, cause, f"Remove it, or set {tag}: {next(iter(values))}, which has this key")
    return Problem(path, cause, nearest(key, _keys(model)))


def _alternatives(model: type[Section]) -> list[type[Section]]:
    """The other sections that an item of the same list can be."""
    unions = [section_types(field.annotation) for field in Settings.model_fields.values()]
    return [other for union in unions if model in union for other in union if other is not model]


def _keys(model: type[Section]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _meaning(model: type[Section], key: str) -> str:
    description = next((text for name, text in descriptions(model).items() if to_camel(name) == key), "")
    return f". {description}" if description else ""


def _modes(model: type[Section], key: str) -> str:
    annotation = next(f.annotation for f in model.model_fields.values() if f.alias == key)
    names = [str(get_args(section.model_fields["mode"].annotation)[0]) for section in section_types(annotation)]
    return f"mode: {' | '.join(names)}"


def _wrong_type(value: object, error_type: str) -> tuple[str, str]:
    wanted, remedy = _TYPES[error_type]
    if isinstance(value, str) and error_type in ("int_parsing", "float_parsing", "bool_parsing"):
        return f"{_quoted(value)} is not {wanted}", remedy
    if error_type == "string_type" and not isinstance(value, int | float):
        remedy = "Write a single text value"
    return f"the value is {_type_name(value)}, and must be {wanted}", remedy


def _type_name(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return "a list"
    return "a mapping" if isinstance(value, Mapping) else f"a {type(value).__name__}"


def _quoted(value: object) -> str:
    text = str(value)
    return f'"{text[:60]}…"' if len(text) > 60 else f'"{text}"'
