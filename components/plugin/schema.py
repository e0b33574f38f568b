"""The schema of inputs: the fields of sections and dataclasses as Pulumi's package schema has them."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from pulumi.provider.experimental.analyzer import (
    Analyzer,
    EnumValueDefinition,
    PropertyDefinition,
    PropertyType,
    TypeDefinition,
)
from pydantic.alias_generators import to_camel

from gke_ai.components.arguments import Part, TakesOutputs
from gke_ai.manifests.cluster_queue import NodeFlavor
from gke_ai.settings import model
from gke_ai.settings.model import Section
from gke_ai.settings.model.settings import PodSecurity
from gke_ai.settings.model.topology import Level

# Types that the package calls otherwise than their class, so that programs in other languages need no change.
TYPE_NAMES: Mapping[type, str] = {model.ExistingDeployment: "ScaledDeployment", NodeFlavor: "Flavor"}
# Keys that the package requires and their section does not, by component or type. Making one optional would change its
# type in Go.
REQUIRED = {
    "JetStreamAutoscaling": {"deployment"},
    "ModelBucket": {"location"},
    "ServerAutoscaling": {"deployment"},
    "TokenSecret": {"name", "key"},
}
# Names of the choices that several components or types have. Another is called as its key, after the one that has it.
CHOICES: Mapping[tuple[str, ...], str] = {
    get_args(PodSecurity): "PodSecurity",
    get_args(Level): "TopologyLevel",
    ("stackdriver", "prometheus"): "MetricsSource",
    ("MayStopSearch", "TryNextFlavor"): "FlavorSearch",
}
SIMPLE_TYPES = {
    str: PropertyType.STRING,
    int: PropertyType.INTEGER,
    float: PropertyType.NUMBER,
    bool: PropertyType.BOOLEAN,
}
_ANALYZER = Analyzer("gke-ai")


@dataclass(frozen=True)
class Input:
    """An input: the type that Python sees, whether it is required, and its description."""

    annotation: Any
    required: bool
    description: str | None


class Types:
    """The types of nested inputs, collected while the inputs of all components are defined."""

    def __init__(self, package: str) -> None:
        self._package = package
        self.definitions: dict[str, TypeDefinition] = {}

    def properties_of(self, owner: str, fields: Mapping[str, Input]) -> dict[str, PropertyDefinition]:
        """The definitions of the inputs of a component or type, by name."""
        definitions = {name: self._of(field.annotation, owner + upper_first(name)) for name, field in fields.items()}
        for name, field in fields.items():
            definitions[name].optional = not field.required and name not in REQUIRED.get(owner, ())
            definitions[name].description = re.sub(
                r"`[a-z]+(_[a-z]+)+`", lambda code: to_camel(code[0]), field.description or ""
            )
        return definitions

    def _of(self, annotation: Any, called: str) -> PropertyDefinition:
        """The definition of a type. `called` is the name of a choice."""
        if takes_outputs(annotation):
            definition = self._of(without_outputs(annotation), called)
            definition.plain = None
            return definition
        annotation = without_metadata(annotation)
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Literal:
            if len(arguments) > 1:
                return self._choice(CHOICES.get(arguments, called), arguments)
            return PropertyDefinition(type=SIMPLE_TYPES[type(arguments[0])], plain=True)
        if origin is list or origin is Sequence:
            return PropertyDefinition(type=PropertyType.ARRAY, items=self._of(arguments[0], called), plain=True)
        if origin is dict or origin is Mapping:
            values = self._of(arguments[1], called)
            return PropertyDefinition(type=PropertyType.OBJECT, additional_properties=values, plain=True)
        if origin in (Union, UnionType):
            choices = [choice for choice in arguments if choice is not NoneType]
            if len(choices) > 1 and all(is_section(choice) for choice in choices):
                return self._reference(union_name(annotation), merged(choices), f"One of {names_of(choices)}.")
            # A package has no unions: of a quota's amounts and the word `derive`, it takes the amounts.
            return self._of(choices[0], called)
        if annotation in SIMPLE_TYPES:
            return PropertyDefinition(type=SIMPLE_TYPES[annotation], plain=True)
        name = TYPE_NAMES.get(annotation, annotation.__name__)
        return self._reference(name, fields_of(annotation), inspect.getdoc(annotation) or "")

    def _choice(self, name: str, values: Sequence[str]) -> PropertyDefinition:
        """A text that is one of several, as an enumeration."""
        self.definitions[name] = TypeDefinition(
            name=name,
            type=PropertyType.STRING,
            properties={},
            properties_mapping={},
            module=__name__,
            python_type=str,
            enum=[
                EnumValueDefinition(name="".join(map(upper_first, re.split("[_-]", cased(value)))), value=value)
                for value in values
            ],
        )
        return PropertyDefinition(ref=f"#/types/{self._package}:index:{name}", plain=True)

    def _reference(self, name: str, fields: Mapping[str, Input], description: str) -> PropertyDefinition:
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
    """The fields of a section or of a dataclass that have a plain form, by name in Python."""
    plain = {
        name: replace(field, annotation=in_package(field.annotation)) for name, field in stated_fields(cls).items()
    }
    return {name: field for name, field in plain.items() if field.annotation is not None}


def stated_fields(cls: type) -> dict[str, Input]:
    """The fields of a section or of a dataclass, by name in Python."""
    if is_section(cls):
        constants, texts = tags(cls), model.descriptions(cls)
        return {
            name: Input(
                Annotated[field.annotation, *marks] if (marks := outputs_among(field.metadata)) else field.annotation,
                field.is_required() and to_camel(name) not in constants,
                with_choices(texts[name], field.annotation),
            )
            for name, field in cls.model_fields.items()
        }
    hints = inspect.get_annotations(cls, eval_str=True)
    return {
        field.name: Input(
            hints[field.name], field.default is dataclasses.MISSING, _ANALYZER.get_docstring(cls, field.name)
        )
        for field in dataclasses.fields(cls)
    }


def upper_first(name: str) -> str:
    """The name with its first letter in upper case."""
    return name[:1].upper() + name[1:]


def cased(value: str) -> str:
    """The value in lower case if it is in upper case, as Google's constants are."""
    return value.lower() if value.isupper() else value


def with_choices(description: str, annotation: Any) -> str:
    """The description of a key, and its values if it is a choice."""
    choices = [
        value for part in (annotation, *get_args(annotation)) if get_origin(part) is Literal for value in get_args(part)
    ]
    return f"{description} Values: {', '.join(choices)}." if len(choices) > 1 else description


def merged(sections: Sequence[type[Section]]) -> dict[str, Input]:
    """The fields of several sections together. Those that all have are required: their value tells them apart."""
    fields: dict[str, Input] = {}
    for name in dict.fromkeys(name for section in sections for name in section.model_fields):
        owners = [section for section in sections if name in section.model_fields]
        field = owners[0].model_fields[name]
        modes = [str(value) for section in owners for value in tags(section).values()]
        common = len(owners) == len(sections)
        meaning = model.descriptions(owners[0])[name]
        text = f"One of {', '.join(modes)}." if common else f"{meaning} Only for {' and '.join(modes)}."
        fields[name] = Input(Literal[tuple(modes)] if common else field.annotation, common, text)
    return fields


def names_of(sections: Sequence[type[Section]]) -> str:
    """The names of sections, for a description."""
    return ", ".join(section.__name__ for section in sections)


def union_name(union: Any) -> str:
    """The name that `gke_ai.settings.model` gives to a union of sections."""
    return next(name for name, value in vars(model).items() if without_metadata(value) == union)


def tags(section: type[Section]) -> dict[str, Any]:
    """The keys of a section that have only one value, such as `engine`, with this value."""
    constants = {
        name: get_args(field.annotation)
        for name, field in section.model_fields.items()
        if get_origin(field.annotation) is Literal
    }
    return {to_camel(name): values[0] for name, values in constants.items() if len(values) == 1}


def is_section(annotation: Any) -> TypeGuard[type[Section]]:
    """Whether a type is a section."""
    return isinstance(annotation, type) and issubclass(annotation, Section)


def without_metadata(annotation: Any) -> Any:
    """The type in `Annotated[type, …]`."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def outputs_among(metadata: Sequence[Any]) -> list[TakesOutputs]:
    """The marks of a type that accepts outputs."""
    return [item for item in metadata if isinstance(item, TakesOutputs)]


def takes_outputs(annotation: Any) -> bool:
    """Whether a type, or a choice of it, accepts the output of a resource."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return bool(outputs_among(metadata)) or takes_outputs(inner)
    return get_origin(annotation) in (Union, UnionType) and any(map(takes_outputs, get_args(annotation)))


def without_outputs(annotation: Any) -> Any:
    """The type of the values that are no outputs."""
    if get_origin(annotation) is Annotated:
        return without_outputs(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return Union[tuple(map(without_outputs, get_args(annotation)))]  # noqa: UP007  built at run time
    return annotation


def in_package(annotation: Any) -> Any:
    """The type without components and what else only a program in Python has. None if nothing is left."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *metadata = arguments
        plain = in_package(inner)
        marks = outputs_among(metadata)
        return plain if plain is None or not marks else Annotated[plain, *marks]
    if origin in (Union, UnionType):
        choices = [choice for choice in map(in_package, arguments) if choice not in (None, NoneType)]
        none = [NoneType] if NoneType in arguments else []
        return Union[(*choices, *none)] if choices else None
    if origin in (list, Sequence):
        inner = in_package(arguments[0])
        return None if inner is None else origin[inner]
    if origin in (dict, Mapping):
        key, value = map(in_package, arguments)
        return None if key is None or value is None else origin[key, value]
    if origin is Literal or annotation in SIMPLE_TYPES or annotation is NoneType or annotation in TYPE_NAMES:
        return annotation
    plain = dataclasses.is_dataclass(annotation) or (is_section(annotation) and not issubclass(annotation, Part))
    return annotation if plain and isinstance(annotation, type) else None
