"""The inputs of each component of the package, from its section and its keyword arguments.

In Python a component takes a section and keyword arguments: `VllmServer(name, Vllm(…), opts, node_selector=…)`.
Programs in other languages pass one flat set of inputs in camelCase: the keys of the section and the keyword arguments.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin

import pulumi
from pulumi.errors import InputPropertyErrorDetails as Refusal
from pulumi.provider.experimental.analyzer import Analyzer, PropertyDefinition, PropertyType, TypeDefinition
from pydantic import AfterValidator, Field, ValidationError, create_model
from pydantic.alias_generators import to_camel

from components import NamespaceQueue, NodeFlavor
from components.base import Component, section_of
from settings import model
from settings.model import Section
from settings.problems import nearest

# Keyword arguments that the package calls otherwise: in Python, `name` is the name of the component.
INPUT_NAMES = {
    "NodeAccount": {"account_id": "name"},
    "WorkloadNamespace": {"namespace": "name"},
}
# Types that the package calls otherwise than their class, so that programs in other languages need no change.
TYPE_NAMES: Mapping[type, str] = {
    model.ExistingDeployment: "ScaledDeployment",
    NamespaceQueue: "LocalQueue",
    NodeFlavor: "Flavor",
}
# Keys that the package requires and their section does not, by component or type. Making one optional would change its
# type in Go.
REQUIRED = {
    "ClusterNetwork": {"name"},
    "GkeCluster": {"name"},
    "JetStreamAutoscaling": {"deployment"},
    "ModelBucket": {"location"},
    "TokenSecretArgs": {"name", "key"},
}
# By pydantic's error type. Other errors keep pydantic's text.
REASONS = {"missing": "is required", "extra_forbidden": "is not a known input"}
SIMPLE_TYPES = {
    str: PropertyType.STRING,
    int: PropertyType.INTEGER,
    float: PropertyType.NUMBER,
    bool: PropertyType.BOOLEAN,
}
_ANALYZER = Analyzer("gke-ai")
S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class Input:
    """An input: the type that Python sees, whether it is required, and its description."""

    annotation: Any
    required: bool
    description: str | None


@dataclass(frozen=True)
class ComponentInputs:
    """The inputs of a component."""

    component: type[Component]

    @property
    def section(self) -> type[Section] | None:
        """The section that the component takes, if it takes one."""
        return section_of(self.component)

    @cached_property
    def keywords(self) -> dict[str, Input]:
        """The keyword arguments, by name in Python."""
        described = arguments_part(self.component.__init__.__doc__ or "")
        return {
            parameter.name: Input(
                parameter.annotation, parameter.default is parameter.empty, described.get(parameter.name)
            )
            for parameter in inspect.signature(self.component.__init__).parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY
        }

    def input_name(self, keyword: str) -> str:
        """Name of the input for a keyword argument."""
        return INPUT_NAMES.get(self.component.__name__, {}).get(keyword) or to_camel(keyword)

    def definitions(self, types: Types) -> dict[str, PropertyDefinition]:
        """The inputs for the schema, by name. Adds the types that they use to `types`."""
        keys = {to_camel(key): field for key, field in fields_of(self.section).items()} if self.section else {}
        keywords = {self.input_name(keyword): field for keyword, field in self.keywords.items()}
        return types.properties_of(self.component.__name__, {**keys, **keywords})

    def arguments(self, inputs: Mapping[str, Any]) -> tuple[Section | None, dict[str, Any]]:
        """The arguments of the component: its section, if it takes one, and its keyword arguments.

        Raises InputPropertiesError with the path of each refused input and the reason.
        """
        inputs = without_nulls(inputs)
        keys = [to_camel(key) for key in self.section.model_fields] if self.section else []
        names = {keyword: self.input_name(keyword) for keyword in self.keywords}
        refused = list(self._unknown(inputs, [*keys, *names.values()]))
        refused += [
            {"property_path": name, "reason": REASONS["missing"]}
            for name in sorted(REQUIRED.get(self.component.__name__, set()) - inputs.keys())
        ]
        section = None
        if self.section:
            of_section = {key: value for key, value in inputs.items() if key in keys}
            section = checked(self.section, {**tags(self.section), **of_section}, refused)
        of_keywords = {name: value for name, value in inputs.items() if name in names.values()}
        keywords = checked(checking_model("Keywords", self.keywords, names), of_keywords, refused)
        if refused:
            lines = "; ".join(f"{detail['property_path']}: {detail['reason']}" for detail in refused)
            raise pulumi.InputPropertiesError(f"{self.component.__name__}: {lines}", refused)
        return section, {keyword: getattr(keywords, keyword) for keyword, name in names.items() if name in inputs}

    def _unknown(self, inputs: Mapping[str, Any], known: Sequence[str]) -> Iterator[Refusal]:
        renamed = self.section.renamed_keys if self.section else {}
        for name in inputs:
            if name in renamed:
                yield {"property_path": name, "reason": f"was renamed: write {renamed[name]}"}
            elif name not in known:
                reason = f"is not an input of {self.component.__name__}. {nearest(name, known)}"
                yield {"property_path": name, "reason": reason}


class Types:
    """The types of nested inputs, collected while the inputs of all components are defined."""

    def __init__(self, package: str) -> None:
        self._package = package
        self.definitions: dict[str, TypeDefinition] = {}

    def properties(self, definition: PropertyDefinition) -> Mapping[str, PropertyDefinition]:
        """The inputs of a type, by name. Empty for a type without."""
        return self.definitions[definition.ref.rpartition(":")[2]].properties if definition.ref else {}

    def properties_of(self, owner: str, fields: Mapping[str, Input]) -> dict[str, PropertyDefinition]:
        """The definitions of the inputs of a component or type, by name."""
        definitions = {name: self._of(field.annotation) for name, field in fields.items()}
        for name, field in fields.items():
            definitions[name].optional = not field.required and name not in REQUIRED.get(owner, ())
            definitions[name].description = re.sub(
                r"`[a-z]+(_[a-z]+)+`", lambda code: to_camel(code[0]), field.description or ""
            )
        return definitions

    def _of(self, annotation: Any) -> PropertyDefinition:
        annotation = without_metadata(annotation)
        if (plain := type_of_output(annotation)) is not None:
            definition = self._of(plain)
            definition.plain = None
            return definition
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Literal:
            return PropertyDefinition(type=SIMPLE_TYPES[type(arguments[0])], plain=True)
        if origin is list or origin is Sequence:
            return PropertyDefinition(type=PropertyType.ARRAY, items=self._of(arguments[0]), plain=True)
        if origin is dict or origin is Mapping:
            values = self._of(arguments[1])
            return PropertyDefinition(type=PropertyType.OBJECT, additional_properties=values, plain=True)
        if origin in (Union, UnionType):
            choices = [choice for choice in arguments if choice is not NoneType]
            if len(choices) > 1 and all(is_section(choice) for choice in choices):
                return self._reference(union_name(annotation), merged(choices), f"One of {names_of(choices)}.")
            # A package has no unions: of a quota's amounts and the word `derive`, it takes the amounts.
            return self._of(choices[0])
        if annotation in SIMPLE_TYPES:
            return PropertyDefinition(type=SIMPLE_TYPES[annotation], plain=True)
        name = TYPE_NAMES.get(annotation, annotation.__name__)
        return self._reference(name, fields_of(annotation), inspect.getdoc(annotation) or "")

    def _reference(self, name: str, fields: Mapping[str, Input], description: str) -> PropertyDefinition:
        name = f"{name}Args"
        if name not in self.definitions:
            self.definitions[name] = TypeDefinition(
                name=name,
                type=PropertyType.OBJECT,
                properties=self.properties_of(name, {to_camel(key): field for key, field in fields.items()}),
                properties_mapping={to_camel(key): key for key in fields},
                module=__name__,
                python_type=dict,
                description=description or None,
            )
        return PropertyDefinition(ref=f"#/types/{self._package}:index:{name}", plain=True)


def fields_of(cls: type) -> dict[str, Input]:
    """The fields of a section or of a dataclass, by name in Python."""
    if is_section(cls):
        constants = tags(cls)
        return {
            name: Input(field.annotation, field.is_required() and to_camel(name) not in constants, with_choices(field))
            for name, field in cls.model_fields.items()
        }
    hints = inspect.get_annotations(cls, eval_str=True)
    return {
        field.name: Input(
            hints[field.name], field.default is dataclasses.MISSING, _ANALYZER.get_docstring(cls, field.name)
        )
        for field in dataclasses.fields(cls)
    }


def with_choices(field: Any) -> str:
    """The description of a key, and its values if it is a choice."""
    choices = [
        value
        for part in (field.annotation, *get_args(field.annotation))
        if get_origin(part) is Literal
        for value in get_args(part)
    ]
    return f"{field.description} Values: {', '.join(choices)}." if len(choices) > 1 else str(field.description)


def merged(sections: Sequence[type[Section]]) -> dict[str, Input]:
    """The fields of several sections together. Those that all have are required: their value tells them apart."""
    fields: dict[str, Input] = {}
    for name in dict.fromkeys(name for section in sections for name in section.model_fields):
        owners = [section for section in sections if name in section.model_fields]
        field = owners[0].model_fields[name]
        modes = [str(value) for section in owners for value in tags(section).values()]
        common = len(owners) == len(sections)
        text = f"One of {', '.join(modes)}." if common else f"{field.description} Only for {' and '.join(modes)}."
        fields[name] = Input(str if common else field.annotation, common, text)
    return fields


def names_of(sections: Sequence[type[Section]]) -> str:
    """The names of sections, for a description."""
    return ", ".join(section.__name__ for section in sections)


def union_name(union: Any) -> str:
    """The name that `settings.model` gives to a union of sections."""
    return next(name for name, value in vars(model).items() if without_metadata(value) == union)


def tags(section: type[Section]) -> dict[str, Any]:
    """The keys of a section that have only one value, such as `engine`, with this value."""
    constants = {
        name: get_args(field.annotation)
        for name, field in section.model_fields.items()
        if get_origin(field.annotation) is Literal
    }
    return {to_camel(name): values[0] for name, values in constants.items() if len(values) == 1}


def arguments_part(docstring: str) -> dict[str, str]:
    """The descriptions in the part `Args:` of a docstring, by argument."""
    lines = inspect.cleandoc(docstring).partition("Args:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", lines, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def checking_model(name: str, fields: Mapping[str, Input], names: Mapping[str, str]) -> type[Section]:
    """A model that checks inputs that no section declares. `names` has the name of each input."""
    definitions: dict[str, Any] = {
        key: (checkable(field.annotation), Field(default=... if field.required else None, alias=names[key]))
        for key, field in fields.items()
    }
    return create_model(name, __base__=Section, **definitions)


def checkable(annotation: Any) -> Any:
    """The type as pydantic can check it: outputs are not checked, and a dataclass is made from its checked inputs."""
    if type_of_output(annotation) is not None:
        return Any
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        fields = fields_of(annotation)
        checking = checking_model(annotation.__name__, fields, {key: to_camel(key) for key in fields})
        return Annotated[checking, AfterValidator(lambda checked: annotation(**dict(checked)))]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return Union[tuple(checkable(choice) for choice in arguments)]  # noqa: UP007  built at run time
    if origin in (list, dict, Sequence, Mapping):
        return origin[tuple(checkable(argument) for argument in arguments)]
    return annotation


def without_nulls(value: Any) -> Any:
    """The inputs without those that are null, which counts as omitted."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def checked(section: type[S], values: Mapping[str, Any], refused: list[Refusal]) -> S | None:
    """The section with these values. If it refuses some, adds them to `refused` and returns None."""
    try:
        return section.model_validate(values, by_alias=True, by_name=False)
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_input=False):
            reason = REASONS.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
            refused.append({"property_path": property_path(problem["loc"], values), "reason": reason})
        return None


def property_path(location: Sequence[str | int], values: Any) -> str:
    """The path of an input, as Pulumi writes it. Pydantic's location also has the choices that it tried."""
    path = ""
    for index, step in enumerate(location):
        if isinstance(step, int):
            path, values = f"{path}[{step}]", values[step]
        elif isinstance(values, Mapping) and (step in values or index == len(location) - 1):
            path, values = f"{path}.{step}" if path else step, values.get(step)
    return path


def is_section(annotation: Any) -> TypeGuard[type[Section]]:
    """Whether a type is a section."""
    return isinstance(annotation, type) and issubclass(annotation, Section)


def without_metadata(annotation: Any) -> Any:
    """The type in `Annotated[type, …]`."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def type_of_output(annotation: Any) -> Any:
    """The type in `pulumi.Input[type]`, a union with an awaitable. None for other types."""
    awaitables = [part for part in get_args(annotation) if get_origin(part) is Awaitable]
    return get_args(awaitables[0])[0] if awaitables else None
