"""What rules look at: the resources of a stack as plain data, and how to find one's way in them.

A value that is known only after an `up` is `UNKNOWN`, one that Pulumi keeps secret is `SECRET`. Rules say nothing of
what they can't see: they compare with what is forbidden, or ask `is_unset` before they miss something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
BUCKET = "gcp:storage/bucket:Bucket"
FIREWALL = "gcp:compute/firewall:Firewall"
SERVICE_ACCOUNT_KEY = "gcp:serviceaccount/key:Key"
SECRET_VERSION = "gcp:secretmanager/secretVersion:SecretVersion"


class Hidden(Enum):
    """A value that a rule can't see."""

    UNKNOWN = "known after an up"
    SECRET = "secret"

    def __str__(self) -> str:
        return f"({self.value})"


UNKNOWN, SECRET = Hidden.UNKNOWN, Hidden.SECRET


@dataclass(frozen=True)
class Resource:
    """One registered resource.

    Attributes:
        urn: Its URN.
        type: Its Pulumi type token.
        name: Its name in the program.
        props: Its inputs, or its outputs where the whole stack is looked at.
        protect: Whether Pulumi refuses to delete it.
        delete_before_replace: Whether what replaces it comes only after it has gone.
    """

    urn: str
    type: str
    name: str
    props: Mapping[str, Any] = field(default_factory=dict)
    protect: bool = False
    delete_before_replace: bool = False

    @property
    def is_kubernetes(self) -> bool:
        """Whether this is a Kubernetes object; a Helm release is none."""
        return self.type.startswith("kubernetes:") and isinstance(self.props.get("kind"), str)

    @property
    def kind(self) -> str:
        """The Kubernetes kind, else the last part of the type token."""
        return str(self.props["kind"]) if self.is_kubernetes else self.type.rpartition(":")[2]

    @property
    def namespace(self) -> str:
        """Namespace of a Kubernetes object, as far as it is told."""
        return str(value(self.props, "metadata", "namespace") or "default")

    @property
    def object_name(self) -> str:
        """Name in the cluster or the cloud, else the one in the program."""
        found = value(self.props, "metadata", "name") if self.is_kubernetes else self.props.get("name")
        return found if isinstance(found, str) else self.name

    @property
    def path(self) -> str:
        """How a message calls it: `Deployment llm/gemma`, `NodePool l4`."""
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
class Stack:
    """All resources of a stack, and its configuration (secrets hidden) by full key."""

    resources: Sequence[Resource]
    configuration: Mapping[str, Any] = field(default_factory=dict)

    def of_type(self, *types: str) -> Iterator[Resource]:
        """Resources of these type tokens."""
        return (one for one in self.resources if one.type in types)

    def of_kind(self, *kinds: str) -> Iterator[Resource]:
        """Kubernetes objects of these kinds."""
        return (one for one in self.resources if one.is_kubernetes and one.kind in kinds)

    @cached_property
    def pods(self) -> list[Pod]:
        """Every pod and pod template of the stack."""
        return [pod for one in self.resources for pod in pods_of(one)]


@dataclass(frozen=True)
class Pod:
    """A pod, or the template of some: its metadata and spec, and the resource that brings it."""

    owner: Resource
    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]

    @property
    def labels(self) -> Mapping[str, Any]:
        return mapping(self.metadata, "labels")

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        """Containers, those that run before and beside them included."""
        return [*items(self.spec, "initContainers"), *items(self.spec, "containers")]

    def wants(self, resource: str) -> bool:
        """Whether a container asks for this resource."""
        return any(not is_unset(resource_request(container, resource)) for container in self.containers)

    def at(self, container: Mapping[str, Any]) -> str:
        """How a message calls one of the containers."""
        return f"container {container.get('name', '?')}"


# Where the kinds that bring pods keep their templates.
_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


def pods_of(resource: Resource) -> Iterator[Pod]:
    """The pods that a resource is or brings: one template each."""
    if not resource.is_kubernetes:
        return
    if resource.kind == "Pod":
        yield _pod(resource, resource.props)
    elif resource.kind == "JobSet":
        for job in items(resource.props, "spec", "replicatedJobs"):
            yield _pod(resource, mapping(job, "template", "spec", "template"))
    elif path := _TEMPLATES.get(resource.kind):
        yield _pod(resource, mapping(resource.props, *path))


def _pod(owner: Resource, template: Mapping[str, Any]) -> Pod:
    return Pod(owner, mapping(template, "metadata"), mapping(template, "spec"))


def value(data: object, *path: str) -> Any:
    """What stands at the path; None where nothing does, and what hides it where something does."""
    for key in path:
        if isinstance(data, Hidden):
            return data
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def mapping(data: object, *path: str) -> Mapping[str, Any]:
    """The mapping at the path; an empty one where there is none that can be seen."""
    found = value(data, *path)
    return found if isinstance(found, Mapping) else {}


def list_at(data: object, *path: str) -> list[Any]:
    """The list at the path; an empty one where there is none that can be seen."""
    found = value(data, *path)
    return found if isinstance(found, list) else []


def items(data: object, *path: str) -> list[Mapping[str, Any]]:
    """The mappings in the list at the path, as far as they can be seen."""
    return [one for one in list_at(data, *path) if isinstance(one, Mapping)]


def is_unset(found: object) -> bool:
    """Whether nothing is there, or nothing but emptiness; what is hidden is there."""
    return found is None or found == "" or found == [] or found == {}


def number(found: object) -> int | None:
    """A whole number, which the engine hands over with a point; None for anything else."""
    return int(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def resource_request(container: Mapping[str, Any], resource: str) -> Any:
    """What a container asks of a resource: its request, which is its limit unless stated."""
    request = value(container, "resources", "requests", resource)
    return value(container, "resources", "limits", resource) if is_unset(request) else request


def selects(selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    """Whether labels have all that a plain selector names; an empty one is none."""
    return bool(selector) and all(labels.get(key) == wanted for key, wanted in selector.items())


def texts(data: object, at: str = "") -> Iterator[tuple[str, str]]:
    """Every text in nested data that can be seen, with its path."""
    if isinstance(data, str):
        yield at, data
    elif isinstance(data, Mapping):
        for key, inner in data.items():
            yield from texts(inner, f"{at}.{key}" if at else str(key))
    elif isinstance(data, list):
        for index, inner in enumerate(data):
            yield from texts(inner, f"{at}[{index}]")
