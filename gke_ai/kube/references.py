"""The objects of its namespace that a pod needs before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gke_ai.kube.values import items, mapping

# Kinds by the fields that name them: in a volume, of one variable, and of all variables.
_VOLUMES = {"secret": ("Secret", "secretName"), "configMap": ("ConfigMap", "name")}
_VARIABLES = {"secretKeyRef": "Secret", "configMapKeyRef": "ConfigMap"}
_ALL_VARIABLES = {"secretRef": "Secret", "configMapRef": "ConfigMap"}


class Reference(NamedTuple):
    """An object that a pod names, and the key of it that it needs; without one, all of it."""

    kind: str
    name: str
    key: str = ""


def references(spec: Mapping[str, Any]) -> Iterator[Reference]:
    """Yields the Secrets, ConfigMaps and claims without which the kubelet starts no container of a pod.

    https://kubernetes.io/docs/concepts/configuration/secret/#restriction-secret-must-exist. Optional ones and
    credentials of registries are no condition.
    """
    for volume in items(spec, "volumes"):
        yield from _of_volume(volume)
        for source in items(volume, "projected", "sources"):
            # A projected Secret is named as a ConfigMap is.
            yield from _of_volume({key: {"secretName": value.get("name"), **value} for key, value in _maps(source)})
        if name := mapping(volume, "persistentVolumeClaim").get("claimName"):
            yield Reference("PersistentVolumeClaim", str(name))
    for container in (*items(spec, "initContainers"), *items(spec, "containers")):
        for variable in items(container, "env"):
            for field, kind in _VARIABLES.items():
                yield from _named(kind, mapping(variable, "valueFrom", field), "name")
        for source in items(container, "envFrom"):
            for field, kind in _ALL_VARIABLES.items():
                yield from _named(kind, mapping(source, field), "name")


def _of_volume(volume: Mapping[str, Any]) -> Iterator[Reference]:
    for field, (kind, name) in _VOLUMES.items():
        yield from _named(kind, mapping(volume, field), name)


def _maps(source: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((key, value) for key, value in source.items() if isinstance(value, Mapping))


def _named(kind: str, source: Mapping[str, Any], name: str) -> Iterator[Reference]:
    if source.get(name) and source.get("optional") is not True:
        keys = [str(entry.get("key")) for entry in items(source, "items")] or [str(source.get("key") or "")]
        yield from (Reference(kind, str(source[name]), key) for key in keys)
