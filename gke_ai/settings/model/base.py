"""The base class of all sections, and the forms of their values."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import cache
from ipaddress import IPv4Network
from itertools import pairwise
from textwrap import dedent
from typing import Annotated, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    PrivateAttr,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel, to_snake
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, ValidationError

from gke_ai.catalog.quantities import parse_quantity

# RFC 1123 label, the form of Kubernetes object names that also become DNS labels.
DnsLabel = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]

# GKE cluster and node pool names: 40 characters at most, beginning with a letter.
GkeName = Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=40)]


def _number_as_text(value: object) -> object:
    # YAML reads `cpu: 4` as a number. Kubernetes accepts it as a quantity, and so do we.
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _not_negative(text: str) -> str:
    if parse_quantity(text) < 0:
        raise ValueError("is below zero")
    return text


def _positive(text: str) -> str:
    if parse_quantity(text) <= 0:
        raise ValueError("is not above zero")
    return text


# For the schema: the syntax of `parse_quantity`, without a sign.
_FORM = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$"

_QUANTITY = {"type": ["string", "number"], "format": "quantity", "pattern": f"^{_FORM}", "minimum": 0}

_REQUEST = {**_QUANTITY, "pattern": f"^(?=[0-9.]*[1-9]){_FORM}", "exclusiveMinimum": 0}

# A Kubernetes resource quantity, as text: "4", "500m", "30Gi".
Quantity = Annotated[str, AfterValidator(_not_negative), BeforeValidator(_number_as_text), WithJsonSchema(_QUANTITY)]

# A container's resource request, above zero. To request nothing, omit the key.
Request = Annotated[str, AfterValidator(_positive), BeforeValidator(_number_as_text), WithJsonSchema(_REQUEST)]

Labels = dict[str, str]

# Version of a Helm chart.
Version = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]


# A YAML file of the project: a configuration of somebody else names no other file of the machine that reads it.
ProjectFile = Annotated[str, StringConstraints(pattern=r"^(\w[\w.-]*/)*\w[\w.-]*[.]ya?ml$")]


def _network(text: str) -> str:
    try:
        return str(IPv4Network(text))
    except ValueError:
        raise PydanticCustomError("network", "is not an IPv4 range") from None


# An IPv4 range.
Cidr = Annotated[str, AfterValidator(_network), WithJsonSchema({"type": "string", "format": "ipv4-range"})]

_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"
# A time in UTC. GKE returns other time zones as UTC, so each preview would show a change.
Moment = Annotated[
    str,
    StringConstraints(pattern=_MOMENT),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": _MOMENT}),
]


class Section(BaseModel):
    """Base of every section: camelCase keys, no unknown keys, immutable once read."""

    # With the older populate_by_name, mypy would not report a missing field.
    # A stack uses a few of the sections, so each validator is built on its first use.
    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, extra="forbid", frozen=True, defer_build=True
    )

    # What messages call the section, with an article: "a GPU pool". Base classes of sections have none.
    noun: ClassVar[str]

    # Renamed keys of this section, with their new names. The error for an old key names the new one.
    renamed_keys: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _refuse_renamed_fields(cls, values: object) -> object:
        """Name the new field to a Python program that still uses an old one. `reading` checks YAML keys."""
        if not isinstance(values, dict):
            return values
        for old, new in cls.renamed_keys.items():
            if (name := to_snake(old)) in values:
                renamed = PydanticCustomError("renamed", "was renamed: write {new}", {"new": to_snake(new)})
                details = InitErrorDetails(type=renamed, loc=(name,), input=values[name])
                raise ValidationError.from_exception_data(cls.__name__, [details])
        return values

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the descriptions of the fields."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, text in descriptions(cls).items():
            properties[cls.model_fields[name].alias]["description"] = text
        return schema

    def __copy__(self) -> Self:
        copied = super().__copy__()
        for computed in vars(copied).keys() - type(self).model_fields.keys():
            del vars(copied)[computed]  # a copy may get other fields, and pydantic keeps cached properties
        return copied

    # Path of this section in the configuration. gke_ai.settings.reading sets it.
    _path: str = PrivateAttr(default="")

    def at(self, key: str) -> str:
        """Path of a key of this section in the configuration: `gke-ai:gpuPools[0].machineType`."""
        return f"{self._path}.{key}" if self._path else key


@cache
def descriptions(section: type[Section]) -> Mapping[str, str]:
    """What each field of a section means: the docstring below it, there or in a base class, else its description.

    Read from the source where it is asked for. Pydantic's `use_attribute_docstrings` would read all sections at once,
    at each start of the program.
    """
    texts = {}
    for base in reversed(section.__mro__):
        if issubclass(base, Section):
            (definition,) = ast.parse(dedent(inspect.getsource(base))).body
            assert isinstance(definition, ast.ClassDef)
            for field, text in pairwise(definition.body):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                        texts[name] = " ".join(docstring.split())
    stated = {name: field.description for name, field in section.model_fields.items() if field.description}
    return {**texts, **stated}
