"""Registered resources of a stack as plain data, and the pods that they create."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gke_ai.kube.pods import templates
from gke_ai.kube.values import is_unset, items, mapping, value


@dataclass(frozen=True)
class Resource:
    """One registered resource.

    Attributes:
        urn: Its URN.
        type: Its Pulumi type token.
        name: Its name in the program.
        props: Its inputs, or its outputs if the engine sends no inputs.
        protect: Whether Pulumi refuses to delete it.
        delete_before_replace: Whether Pulumi deletes it before it creates the replacement.
    """

    urn: str
    type: str
    name: str
    props: Mapping[str, Any] = field(default_factory=dict)
    protect: bool = False
    delete_before_replace: bool = False

    @property
    def is_kubernetes(self) -> bool:
        """Whether this is a Kubernetes object. A Helm release is not."""
        return self.type.startswith("kubernetes:") and isinstance(self.props.get("kind"), str)

    @property
    def kind(self) -> str:
        """The Kubernetes kind, else the last part of the type token."""
        return str(self.props["kind"]) if self.is_kubernetes else self.type.rpartition(":")[2]

    @property
    def namespace(self) -> str:
        """Namespace of a Kubernetes object. Default: default."""
        return str(value(self.props, "metadata", "namespace") or "default")

    @property
    def object_name(self) -> str:
        """Name in the cluster or in Google Cloud, else the name in the program."""
        name = value(self.props, "metadata", "name") if self.is_kubernetes else self.props.get("name")
        return name if isinstance(name, str) else self.name

    @property
    def path(self) -> str:
        """Kind and name for messages: `Deployment llm/gemma`, `NodePool l4`."""
        inside = f"{self.namespace}/" if value(self.props, "metadata", "namespace") and self.is_kubernetes else ""
        return f"{self.kind} {inside}{self.object_name}"

    @property
    def labels(self) -> Mapping[str, Any]:
        """Labels of a Kubernetes object."""
        return mapping(self.props, "metadata", "labels")

    @property
    def annotations(self) -> Mapping[str, Any]:
        """Annotations of a Kubernetes object."""
        return mapping(self.props, "metadata", "annotations")


@dataclass(frozen=True)
class RegisteredStack:
    """All resources of a stack, and its configuration by full key, without secrets."""

    resources: Sequence[Resource]
    configuration: Mapping[str, Any] = field(default_factory=dict)

    def of_type(self, *types: str) -> Iterator[Resource]:
        """Yields the resources of these type tokens."""
        return (resource for resource in self.resources if resource.type in types)

    def of_kind(self, *kinds: str) -> Iterator[Resource]:
        """Yields the Kubernetes objects of these kinds."""
        return (resource for resource in self.resources if resource.is_kubernetes and resource.kind in kinds)

    @cached_property
    def pods(self) -> list[Pod]:
        """All pods and pod templates of the stack."""
        return [pod for resource in self.resources for pod in pods_of(resource)]


@dataclass(frozen=True)
class Pod:
    """A pod or a pod template: its metadata, its spec, and the resource that creates it."""

    owner: Resource
    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]

    @property
    def labels(self) -> Mapping[str, Any]:
        return mapping(self.metadata, "labels")

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        """All containers, init containers and sidecars included."""
        return [*items(self.spec, "initContainers"), *items(self.spec, "containers")]

    def wants(self, resource: str) -> bool:
        """Whether a container requests this resource."""
        return any(not is_unset(resource_request(container, resource)) for container in self.containers)

    def at(self, container: Mapping[str, Any]) -> str:
        """Name of a container for messages."""
        return f"container {container.get('name', '?')}"


def pods_of(resource: Resource) -> Iterator[Pod]:
    """Yields the pod or the pod templates of a resource."""
    if resource.is_kubernetes:
        for template in templates(resource.kind, resource.props):
            yield Pod(resource, mapping(template, "metadata"), mapping(template, "spec"))


def resource_request(container: Mapping[str, Any], resource: str) -> Any:
    """Returns the request of a container for a resource, which defaults to its limit."""
    request = value(container, "resources", "requests", resource)
    return value(container, "resources", "limits", resource) if is_unset(request) else request


def selects(selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    """Whether labels match a selector. An empty selector matches nothing."""
    return bool(selector) and all(labels.get(key) == wanted for key, wanted in selector.items())
