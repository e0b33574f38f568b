"""The inputs of each component of the package, from its section and its keyword arguments.

In Python a component takes a section and keyword arguments: `VllmServer(name, Vllm(…), opts, node_selector=…)`.
Programs in other languages pass one flat set of inputs in camelCase: the keys of the section and the keyword arguments.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import pulumi
from pulumi.errors import InputPropertyErrorDetails as Refusal
from pulumi.provider.experimental.analyzer import PropertyDefinition
from pydantic import AfterValidator, Field, ValidationError, create_model
from pydantic.alias_generators import to_camel

from gke_ai.components.base import Component, section_of
from gke_ai.components.plugin.schema import REQUIRED, Input, Types, fields_of, tags, type_of_output
from gke_ai.settings.model import Section
from gke_ai.settings.problems import nearest

# Keyword arguments that the package calls otherwise: in Python, `name` is the name of the component.
INPUT_NAMES = {
    "InferencePool": {"pool": "name"},
    "NodeAccount": {"account_id": "name"},
    "WorkloadNamespace": {"namespace": "name"},
}
# By pydantic's error type. Other errors keep pydantic's text.
REASONS = {"missing": "is required", "extra_forbidden": "is not a known input"}
S = TypeVar("S", bound=Section)


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

    @cached_property
    def checking(self) -> type[Section]:
        """The model that checks the keyword arguments."""
        return checking_model(
            "Keywords", self.keywords, {keyword: self.input_name(keyword) for keyword in self.keywords}
        )

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
        names = [self.input_name(keyword) for keyword in self.keywords]
        refused = list(self._unknown(inputs, [*keys, *names]))
        refused += [
            {"property_path": name, "reason": REASONS["missing"]}
            for name in sorted(REQUIRED.get(self.component.__name__, set()) - inputs.keys())
        ]
        section = None
        if self.section:
            of_section = {key: value for key, value in inputs.items() if key in keys}
            section = checked(self.section, {**tags(self.section), **of_section}, refused)
        of_keywords = {name: value for name, value in inputs.items() if name in names}
        keywords = checked(self.checking, of_keywords, refused)
        if refused:
            lines = "; ".join(f"{detail['property_path']}: {detail['reason']}" for detail in refused)
            raise pulumi.InputPropertiesError(f"{self.component.__name__}: {lines}", refused)
        return section, given(keywords) if keywords else {}

    def _unknown(self, inputs: Mapping[str, Any], known: Sequence[str]) -> Iterator[Refusal]:
        renamed = self.section.renamed_keys if self.section else {}
        for name in inputs:
            if name in renamed:
                yield {"property_path": name, "reason": f"was renamed: write {renamed[name]}"}
            elif name not in known:
                reason = f"is not an input of {self.component.__name__}. {nearest(name, known)}"
                yield {"property_path": name, "reason": reason}


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
        return Annotated[checking, AfterValidator(lambda checked: annotation(**given(checked)))]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return Union[tuple(checkable(choice) for choice in arguments)]  # noqa: UP007  built at run time
    if origin in (list, dict, Sequence, Mapping):
        return origin[tuple(checkable(argument) for argument in arguments)]
    return annotation


def given(inputs: Section) -> dict[str, Any]:
    """The inputs that are set. The others have the default of the argument or of the dataclass."""
    return {name: getattr(inputs, name) for name in inputs.model_fields_set}


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
