"""What all components share: the type token, reading of arguments, and lookups in the cloud."""

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar

import pulumi
from pydantic import ValidationError
from pydantic.alias_generators import to_snake

from settings.model import Section

S = TypeVar("S", bound=Section)
T = TypeVar("T")


class ResourcesArgs(TypedDict, total=False):
    """CPU, memory and ephemeral storage of one pod; limits equal requests."""

    cpu: str
    """Cores, as a Kubernetes quantity."""
    memory: str
    """Bytes, as a Kubernetes quantity."""
    ephemeral_storage: str
    """Bytes, as a Kubernetes quantity."""


class TokenSecretArgs(TypedDict):
    """A Kubernetes Secret that holds the Hugging Face token."""

    name: str
    key: str


class Component(pulumi.ComponentResource):
    """A component of type `gke-ai:index:<Class>`.

    The arguments are not inputs of the component resource: Pulumi would register it, and create its children, only
    once all of them are known.
    """

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(f"gke-ai:index:{type(self).__name__}", name, None, opts)


def look_up(call: Callable[[], T], advice: str) -> T:
    """Return the result of a lookup. Raises RunError with the error and `advice` if the lookup fails."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001  Pulumi raises nothing more precise when a lookup fails
        raise pulumi.RunError(f"{error}\n{advice}") from None


def read(model: type[S], component: str, args: Mapping[str, Any]) -> S:
    """Parse the arguments that belong to the section `model`, with its defaults and checks.

    Raises InputPropertiesError with the path of each refused argument and the reason.
    """
    for old, new in model.renamed_keys.items():
        if (argument := to_snake(old)) in args:
            reason = f"{argument} was renamed: write {to_snake(new)}"
            raise pulumi.InputPropertiesError(f"{component}: {reason}", [{"property_path": old, "reason": reason}])
    try:
        return model.model_validate({key: value for key, value in args.items() if key in model.model_fields})
    except ValidationError as error:
        refused: list[pulumi.errors.InputPropertyErrorDetails] = [
            {"property_path": ".".join(map(str, problem["loc"])), "reason": problem["msg"]}
            for problem in error.errors(include_url=False, include_input=False)
        ]
        lines = "; ".join(f"{argument['property_path']}: {argument['reason']}" for argument in refused)
        raise pulumi.InputPropertiesError(f"{component}: {lines}", refused) from None


def arguments(section: Section, **more: object) -> Any:
    """The arguments of a section's component: the keys of the section, and those that the program adds."""
    return {**section.model_dump(exclude_none=True), **more}
