"""The kinds and fields of a snapshot: reads fields.yaml, and copies only the listed fields of an object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gke_ai.catalog.tables import read_table
from gke_ai.kube.objects import Object

SELECTED, REQUIRED = "(selected)", "(required)"
ABSENT = object()
"""In place of what is not listed."""
# Fields whose keys, or whose value, are keys of labels that matter to the scheduler, to Kueue or to a controller.
_MAPS_OF_LABELS = ("matchLabels", "nodeSelector", "nodeLabels")
_LABEL_KEYS = (
    *("topologyKey", "matchLabelKeys", "mismatchLabelKeys", "nodeLabel", "required", "preferred", "topology", "levels"),
    *("kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology"),
    "alpha.jobset.sigs.k8s.io/exclusive-topology",
)


@dataclass(frozen=True)
class Kind:
    """A kind of a snapshot: its API (`batch/v1`), its plural name, and its listed fields."""

    name: str
    api: str
    plural: str
    fields: Object

    def path(self, namespace: str = "") -> str:
        """Returns the API path of all objects, or of those of a namespace."""
        inside = f"namespaces/{namespace}/" if namespace else ""
        return f"/{'apis' if '/' in self.api else 'api'}/{self.api}/{inside}{self.plural}"

    @property
    def group(self) -> str:
        """The API group, which is empty for core kinds."""
        return self.api.rpartition("/")[0]


@cache
def version() -> int:
    """Returns the version of the format that this program writes."""
    return int(table()["version"])


@cache
def kinds() -> Mapping[str, Kind]:
    """Returns the kinds of a snapshot by name. Owners come before the objects that they own."""
    return {name: Kind(name, **entry) for name, entry in table()["kinds"].items()}


@cache
def table() -> Object:
    """Returns the content of fields.yaml."""
    content: Object = read_table(Path(__file__).with_name("fields.yaml"))
    return content


def trim(kind: str, item: Object, selected: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Returns a copy of an object with its listed fields only.

    Args:
        kind: Kind of the object.
        item: The object.
        selected: Keys of labels to keep besides the listed ones; `selected_labels` returns them.
    """
    trimmed = _copy(item, kinds()[kind].fields, selected)
    return {} if trimmed is ABSENT else trimmed


def trim_kueue(configuration: Object) -> dict[str, Any]:
    """Returns a copy of a configuration of Kueue with its listed fields only."""
    trimmed: dict[str, Any] = _copy(configuration, table()["kueueConfiguration"], frozenset())
    return trimmed


def trim_all(objects: Mapping[str, Iterable[Object]]) -> dict[str, list[dict[str, Any]]]:
    """Returns the objects of each kind with their listed fields, and the labels that selectors among them name."""
    selected = selected_by(objects)
    return {kind: [trim(kind, item, selected) for item in items] for kind, items in objects.items()}


def selected_by(objects: Mapping[str, Iterable[Object]]) -> frozenset[str]:
    """Returns the keys of labels that selectors among objects name."""
    bare = (trim(kind, item) for kind, items in objects.items() for item in items)
    return frozenset(key for item in bare for key in selected_labels(item))


def selected_labels(value: Any, field: str = "") -> Iterator[str]:
    """Yields the keys of labels that selectors, affinities, topologies and flavors of an object name."""
    if isinstance(value, Mapping):
        if field in _MAPS_OF_LABELS:
            yield from value
        elif field == "matchExpressions" and "key" in value:
            yield str(value["key"])
        for key, part in value.items():
            yield from selected_labels(part, key)
    elif isinstance(value, list):
        for part in value:
            yield from selected_labels(part, field)
    elif field in _LABEL_KEYS and isinstance(value, str):
        yield value


def _copy(value: Any, listed: Any, selected: frozenset[str]) -> Any:
    """Returns the listed part of a value, or ABSENT if the value does not have the shape of the listed fields."""
    if isinstance(listed, Mapping):
        if not isinstance(value, Mapping):
            return ABSENT
        parts = {key: _copy(part, field_of(listed, key, selected), selected) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part is not ABSENT}
    if isinstance(listed, list):
        if not isinstance(value, list):
            return ABSENT
        if len(listed) > 1:
            return [part for part in value if part in listed]
        items = (_copy(part, listed[0], selected) for part in value)
        return [part for part in items if part is not ABSENT]
    return value if isinstance(listed, str) and isinstance(value, str | int | float) else ABSENT


def field_of(listed: Object, key: str, selected: frozenset[str]) -> Any:
    """Returns the listed part of a field: its form, its own fields or those of its items. ABSENT for another field."""
    if key in listed and key not in ("*", SELECTED, REQUIRED):
        return listed[key]
    if SELECTED in listed and key in selected:
        return listed[SELECTED]
    return listed.get("*", ABSENT)
