"""What all components share: the type token, and lookups in the cloud."""

import inspect
from collections.abc import Callable
from typing import TypeVar, get_args

import pulumi
from typing_extensions import get_original_bases

from gke_ai.settings.model import Section

T = TypeVar("T")

# The kubernetes plugin would wait until a Job finishes and all replicas are available. The queue decides both.
SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}


class Component(pulumi.ComponentResource):
    """A component of type `gke-ai:index:<Class>`.

    The arguments are not inputs of the component resource: Pulumi would register it, and create its children, only
    once all of them are known.
    """

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(f"gke-ai:index:{type(self).__name__}", name, None, opts)


def section_of(component: type[Component]) -> type[Section] | None:
    """The section that a component takes as `args`. None for a component without a section."""
    parameter = inspect.signature(component.__init__).parameters.get("args")
    if parameter is None:
        return None
    section: type[Section] = parameter.annotation
    if isinstance(section, TypeVar):
        # The parameter of the generic base class, as in `class VllmServer(ModelServer[Vllm])`.
        (section,) = get_args(get_original_bases(component)[0])
    return section


def look_up(call: Callable[[], T], advice: str) -> T:
    """Return the result of a lookup. Raises RunError with the error and `advice` if the lookup fails."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001  Pulumi raises nothing more precise when a lookup fails
        raise pulumi.RunError(f"{error}\n{advice}") from None
