"""What all components share: their type token, their arguments, and how they ask the cloud for what is there."""

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

    Its arguments are no inputs of the component itself: a component that had them would be registered, and its children
    created, only when every one of them is known.
    """

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(f"gke-ai:index:{type(self).__name__}", name, None, opts)


def look_up(call: Callable[[], T], advice: str) -> T:
    """What the cloud says to a question; RunError with its answer and `advice` where it refuses one."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001  Pulumi raises nothing more precise when a lookup fails
        raise pulumi.RunError(f"{error}\n{advice}") from None


def read(model: type[S], component: str, args: Mapping[str, Any]) -> S:
    """Reads the keys of `args` that the section `model` has, with its defaults and its checks.

    Raises InputPropertiesError with the path and the reason of each argument that the section refuses.
    """
    for former, present in model.renamed_keys.items():
        if (argument := to_snake(former)) in args:
            reason = f"{argument} was renamed: write {to_snake(present)}"
            raise pulumi.InputPropertiesError(f"{component}: {reason}", [{"property_path": former, "reason": reason}])
    try:
        return model.model_validate({key: value for key, value in args.items() if key in model.model_fields})
    except ValidationError as error:
        refused: list[pulumi.errors.InputPropertyErrorDetails] = [
            {"property_path": ".".join(map(str, problem["loc"])), "reason": problem["msg"]}
            for problem in error.errors(include_url=False, include_input=False)
        ]
        lines = "; ".join(f"{one['property_path']}: {one['reason']}" for one in refused)
        raise pulumi.InputPropertiesError(f"{component}: {lines}", refused) from None


def arguments(section: Section, **more: object) -> Any:
    """The arguments of a section's component: the section's own keys, and what the program adds to them."""
    return {**section.model_dump(exclude_none=True), **more}
