"""The arguments of a component: a class whose fields are the keywords of the component's constructor."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

import pulumi
import pulumi_gcp as gcp
from pydantic import (
    ConfigDict,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_snake
from pydantic_core import CoreSchema, core_schema

from gke_ai.settings.model import Section, Settings
from gke_ai.settings.problems import Problem
from gke_ai.settings.reading import mistakes_of_arguments, section_types

A = TypeVar("A", bound="Part")
C = TypeVar("C")
P = ParamSpec("P")
S = TypeVar("S", bound=Section)
T = TypeVar("T")


class TakesOutputs:
    """Marks the type of an argument that may be the output of a resource."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def pass_outputs(value: Any, check: Callable[[Any], Any]) -> Any:
            return value if isinstance(value, pulumi.Output) else check(value)

        return core_schema.no_info_wrap_validator_function(pass_outputs, handler(source))


if TYPE_CHECKING:
    from pulumi import Input as Input
else:

    class Input:
        """`pulumi.Input`, of which pydantic checks the value that is no output."""

        def __class_getitem__(cls, kind: Any) -> Any:
            return Annotated[kind, TakesOutputs()]


class Refused(pulumi.RunError):
    """Arguments of a component are wrong. The message has every mistake, with the path of the argument."""

    def __init__(self, component: str, *problems: Problem) -> None:
        self.component, self.problems = component, problems
        lines = "".join(f"\n  - {in_python(problem)}" for problem in problems)
        count = "1 argument is" if len(problems) == 1 else f"{len(problems)} arguments are"
        super().__init__(f"{component}: {count} wrong.{lines}")


# The keys of arguments that no section has.
OWN_KEYS: set[str] = set()
KEY = re.compile(r"\b[a-z]+(?:[A-Z][a-z0-9]*)+\b")


# Remedies for YAML, and for Python.
FORMS = {
    "Begin each entry with '- ', or write [a, b]": "Pass a list",
    "Write one 'key: value' per line": "Pass a mapping",
    "Put the value in quotes": "Pass a text",
    "or write quota: derive": "or state none for the pool",
}


def in_python(problem: Problem) -> str:
    """A problem that names keys and forms of the YAML, as they are in Python."""
    text, key = str(problem), problem.path.rpartition(".")[2]
    if KEY.fullmatch(key):  # a key that no section has is unknown, and still the caller's
        text = re.sub(rf"\b{key}\b", to_snake(key), text)
    for of_yaml, form in FORMS.items():
        text = text.replace(of_yaml, form)
    return KEY.sub(lambda word: to_snake(word[0]) if word[0] in keys() | OWN_KEYS else word[0], text)


@cache
def keys() -> frozenset[str]:
    """The keys of all sections."""
    open_ends: list[type[Section]] = [Settings]
    seen: dict[type[Section], None] = {}
    while open_ends:
        section = open_ends.pop()
        if section not in seen:
            seen[section] = None
            open_ends += [inner for field in section.model_fields.values() for inner in section_types(field.annotation)]
    return frozenset(field.alias or name for section in seen for name, field in section.model_fields.items())


class Part(Section):
    """A part of the arguments of a component. Values that it cannot have raise Refused, with every mistake."""

    noun: ClassVar[str] = "the component"

    # Components, providers and outputs are arguments as they are.
    model_config = ConfigDict(arbitrary_types_allowed=True)

    _section: Section | None = PrivateAttr(default=None)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        OWN_KEYS.update(field.alias or name for name, field in cls.model_fields.items())

    @model_validator(mode="wrap")
    @classmethod
    def _refuse(cls, values: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return check(values)
        except ValidationError as error:
            if not isinstance(values, dict):
                raise
            raise Refused(cls.__name__, *mistakes_of_arguments(error, cls, values)) from None

    @classmethod
    def of(cls, section: Section, **more: Any) -> Self:
        """The arguments with the fields of a section, which the rules of its stack have checked."""
        arguments: Any = cls.model_construct(section.model_fields_set | more.keys(), **{**dict(section), **more})
        arguments._section = section
        checked: Self = arguments
        return checked

    @property
    def is_checked(self) -> bool:
        """Whether the rules of a stack have checked the section."""
        return self._section is not None

    def section(self, kind: type[S]) -> S:
        """The section of this type, in which a component is called by its name."""
        if isinstance(self._section, kind):
            return self._section
        values = {name: in_sections(getattr(self, name)) for name in kind.model_fields}
        defaults = {name: field.get_default(call_default_factory=True) for name, field in kind.model_fields.items()}
        stated = {name for name, value in values.items() if name in self.model_fields_set or value != defaults[name]}
        section: Any = kind.model_construct(stated, **values)
        built: S = section
        return built

    def components(self) -> list[pulumi.Resource]:
        """The components among the arguments, which this one waits for."""
        found: dict[int, pulumi.Resource] = {id(it): it for _, value in self for it in components_in(value)}
        return list(found.values())


class Arguments(Part):
    """The arguments that every component has. If a section describes it, a component also has those of the section."""

    opts: pulumi.ResourceOptions | None = None
    """Options of the component, as in every Pulumi program."""

    def options(self, component: str) -> pulumi.ResourceOptions:  # noqa: ARG002  for the messages of others
        """The options of the component: the caller's, and the components that it waits for."""
        stated = self.opts or pulumi.ResourceOptions()
        # A child that waited for its parent would wait for itself.
        after = [component for component in self.components() if component is not stated.parent]
        return pulumi.ResourceOptions.merge(pulumi.ResourceOptions(depends_on=after), stated)


def takes(arguments: Callable[P, A]) -> Callable[[Callable[[C, str, A], None]], Callable[Concatenate[C, str, P], None]]:
    """Decorates a constructor: its caller passes the fields of `arguments` as keywords.

    https://docs.python.org/3/library/typing.html#typing.ParamSpec
    """

    def decorate(build: Callable[[C, str, A], None]) -> Callable[Concatenate[C, str, P], None]:
        @wraps(build)
        def construct(component: C, name: str, /, *ready: Any, **keywords: Any) -> None:
            kind: Any = arguments
            title = f"{type(component).__name__} {name}"
            if ready and not isinstance(ready[0], kind):
                advice = "Write each argument as a keyword, and the options as opts=…"
                raise TypeError(f"{title} takes its name and keywords, not a {type(ready[0]).__name__}. {advice}")
            build(component, name, ready[0] if ready else read(kind, title, name, keywords))

        construct.__dict__["arguments"] = arguments
        return construct

    return decorate


def read(kind: type[A], title: str, name: str, keywords: Mapping[str, Any]) -> A:
    """The arguments with these values: a thing is called as its component. Raises Refused with every mistake."""
    field = kind.model_fields.get("name")
    named = {"name": name, **keywords} if field and field.default == "" else keywords
    try:
        return kind(**named)
    except Refused as refused:
        raise Refused(title, *refused.problems) from None


def in_sections(value: Any) -> Any:
    """What a section says for an argument: the name of a component, else the value itself."""
    if isinstance(value, list | tuple):
        return [in_sections(item) for item in value]
    return getattr(value, "called", value) if isinstance(value, pulumi.ComponentResource) else value


def components_in(value: Any) -> Iterator[pulumi.Resource]:
    """The components in an argument, at any depth."""
    if isinstance(value, pulumi.ComponentResource):
        yield value
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from components_in(pair)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from components_in(item)
    elif isinstance(value, Part):
        yield from value.components()
    elif isinstance(value, Section):
        yield from components_in(getattr(value, "component", None))


def project_of(stated: pulumi.Input[str] | None, component: str) -> pulumi.Input[str]:
    """Id of the Google Cloud project: the argument, else the provider's. Raises Refused without either."""
    if found := stated or gcp.config.project:
        return found
    cause = "no Google Cloud project is set, and the resources need one"
    remedy = "Pass project=…, or set that of the provider: pulumi config set gcp:project PROJECT"
    raise Refused(component, Problem("project", cause, remedy))


def on(value: pulumi.Input[T], function: Callable[[T], C]) -> Any:
    """The function of an argument that may be an output: at once, if it is none."""
    return value.apply(function) if isinstance(value, pulumi.Output) else function(value)  # type: ignore[arg-type]
