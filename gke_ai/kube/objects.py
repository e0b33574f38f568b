"""Reads Kubernetes objects, as the API returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gke_ai.kube.values import mapping

Object = Mapping[str, Any]


def key_of(item: Object) -> tuple[str, str]:
    """Returns the namespace and the name of an object. One of the whole cluster has an empty namespace."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def condition(item: Object, condition_type: str) -> Object:
    """Returns a status condition, or an empty one."""
    conditions = (item.get("status") or {}).get("conditions") or []
    return next((entry for entry in conditions if entry["type"] == condition_type), {})


def holds(item: Object, condition_type: str) -> bool:
    """Whether a status condition is true."""
    return bool(condition(item, condition_type).get("status") == "True")


def label(item: Object, key: str) -> str:
    """Returns the value of a label, or an empty text."""
    return str(mapping(item, "metadata", "labels").get(key, ""))


def annotation(item: Object, key: str) -> str:
    """Returns the value of an annotation, or an empty text."""
    return str(mapping(item, "metadata", "annotations").get(key, ""))


@dataclass(frozen=True)
class ApiObject:
    """An object with what identifies it.

    Attributes:
        content: The object, as the API takes it.
    """

    content: Object

    @property
    def kind(self) -> str:
        return str(self.content["kind"])

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
        return str(self.content["apiVersion"]).rpartition("/")[0]

    @property
    def name(self) -> str:
        return str(self.content["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The namespace; empty if none is stated."""
        return str(self.content["metadata"].get("namespace") or "")

    @property
    def title(self) -> str:
        """Kind and name for messages: `Deployment llm/gemma`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"
