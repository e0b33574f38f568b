"""What all components share: the type token, custom objects in the cluster, and lookups in the cloud."""

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.components.arguments import Arguments
from gke_ai.settings.model import Section

T = TypeVar("T")

# The kubernetes plugin would wait until a Job finishes and all replicas are available. The queue decides both.
SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}


# What Pulumi applies to the resource alone that has the option, and not to the children of a component.
# https://www.pulumi.com/docs/iac/concepts/resources/options/
OF_ONE_RESOURCE = (
    *("additional_secret_outputs", "custom_timeouts", "delete_before_replace", "hide_diffs", "ignore_changes"),
    *("import_", "replace_on_changes", "replace_with", "replacement_trigger"),
)


class Component(pulumi.ComponentResource):
    """A component of type `gke-ai:index:<Class>`.

    It waits for the components among its arguments. The arguments are not inputs of the component resource: Pulumi
    would register it, and create its children, only once all of them are known.

    Its children inherit `protect`, `retain_on_delete`, `deleted_with`, providers, transforms and aliases from its
    options, as Pulumi documents. What Pulumi applies to one resource alone, such as `ignore_changes`, goes to the
    child that the component is about: the cluster, the pool, the Deployment, the Job.

    Refused: RunError for such an option of a component without such a child.
    """

    def __init__(self, name: str, args: Arguments, further: pulumi.ResourceOptions | None = None) -> None:
        opts = pulumi.ResourceOptions.merge(args.options(f"{type(self).__name__} {name}"), further)
        stated = {option: getattr(opts, option, None) for option in OF_ONE_RESOURCE}
        self._of_main_child = {option: value for option, value in stated.items() if value is not None}
        self._has_main_child = False
        super().__init__(f"gke-ai:index:{type(self).__name__}", name, None, opts)

    @property
    def called(self) -> str:
        """What sections call the component."""
        return self._name

    @classmethod
    def of(cls, name: str, opts: pulumi.ResourceOptions | None, *, section: Section, **more: Any) -> Self:
        """The component of a section that the rules of its stack have checked, with further arguments."""
        construct: Any = cls
        component: Self = construct(name, arguments_of(cls).of(section, opts=opts, **more))
        return component

    def child(self, part: str, **options: Any) -> tuple[str, pulumi.ResourceOptions]:
        """The name and the options of a child."""
        return named(part, pulumi.ResourceOptions(parent=self, **options))

    def main_child(self, part: str, **options: Any) -> tuple[str, pulumi.ResourceOptions]:
        """The name and the options of the child that the component is about."""
        return named(part, self.main_options(**options))

    def main_options(self, **options: Any) -> pulumi.ResourceOptions:
        """Options of the child that the component is about: these, and the caller's that are for one resource alone."""
        self._has_main_child = True
        return pulumi.ResourceOptions.merge(
            pulumi.ResourceOptions(parent=self, **options), pulumi.ResourceOptions(**self._of_main_child)
        )

    def register_outputs(self, outputs: pulumi.Inputs) -> None:
        """Report the outputs to Pulumi, once all children are registered."""
        if self._of_main_child and not self._has_main_child:
            raise pulumi.RunError(
                f"{type(self).__name__} {self._name}: opts has {', '.join(self._of_main_child)}, which no child "
                f"would take. Use transforms, which reach every child"
            )
        super().register_outputs(outputs)


def named(part: str, opts: pulumi.ResourceOptions) -> tuple[str, pulumi.ResourceOptions]:
    """The name of a child, which begins with that of its component, and its options.

    So a program can have two of each component. In states of earlier releases, a child is called as its part.
    """
    component = opts.parent
    assert isinstance(component, Component)
    own = component._name
    if part == own or part.startswith(f"{own}/"):
        return part, opts
    # A namespace, and what the component is called, stand once in the name of an object.
    namespace, _, rest = part.partition("/")
    inside = rest if rest and f"/{namespace}/" in f"/{own}/" else part
    name = own if own == rest or own.endswith(f"/{part}") else f"{own}/{inside}"
    former = [pulumi.Alias(name=earlier) for earlier in dict.fromkeys((part, f"{own}/{part}")) if earlier != name]
    return name, pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(aliases=former))


def arguments_of(component: type[Component]) -> type[Arguments]:
    """The class of a component's arguments."""
    arguments: type[Arguments] = component.__init__.__dict__["arguments"]
    return arguments


def custom_object(
    api_version: str,
    kind: str,
    name: str,
    spec: pulumi.Input[Mapping[str, Any]],
    opts: pulumi.ResourceOptions,
    *,
    namespace: str = "",
    suffix: str = "",
) -> "k8s.apiextensions.CustomResource":
    """A Kubernetes object of a kind without a class in the SDK: the resource `NAMESPACE/NAME`, ending with `suffix`."""
    metadata: k8s.meta.v1.ObjectMetaArgsDict = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    resource = f"{namespace}/{name}{suffix}" if namespace else f"{name}{suffix}"
    return custom_resource(named(resource, opts), api_version, kind, metadata, spec=spec)


def custom_resource(
    child: tuple[str, pulumi.ResourceOptions],
    api_version: str,
    kind: str,
    metadata: "k8s.meta.v1.ObjectMetaArgsDict",
    **content: Any,
) -> "k8s.apiextensions.CustomResource":
    """A child of a kind without a class in the SDK."""
    name, opts = child
    return k8s.apiextensions.CustomResource(
        name, api_version=api_version, kind=kind, metadata=metadata, opts=opts, **content
    )


def look_up(call: Callable[[], T], advice: str) -> T:
    """Return the result of a lookup. Raises RunError with the error and `advice` if the lookup fails."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001  Pulumi raises nothing more precise when a lookup fails
        raise pulumi.RunError(f"{error}\n{advice}") from None
