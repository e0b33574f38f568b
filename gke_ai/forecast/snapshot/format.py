"""The format of a snapshot: the objects of a cluster by kind, with listed fields only, in versioned JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from gke_ai.forecast.snapshot import fields
from gke_ai.forecast.snapshot.pools import MAX_POOLS, NodePool
from gke_ai.forecast.snapshot.values import MAX_PODS, SHOWN, TIME, dangling, invalid_values, is_valid_time
from gke_ai.kube.names import owner_of
from gke_ai.kube.objects import key_of
from gke_ai.kube.pods import wanted_pods

# What a scratch cluster holds: 14,000 objects of a busy cluster have 32 MB, and take 340 MB of memory to read.
MAX_BYTES, MAX_OBJECTS = 64 * 2**20, 30_000


class InvalidSnapshot(Exception):
    """A text is no snapshot that this program can use. The message says what to change."""


class Snapshot(BaseModel):
    """The state of a cluster at one time.

    Attributes:
        version: Version of the format.
        taken_at: When the cluster was read.
        stack: Name of the stack whose cluster it is.
        hashed: Whether names are hashed.
        missing: Kinds that the cluster refused to list.
        kueue: Listed fields of the configuration of Kueue's manager. None if the cluster did not show it.
        kueue_version: Version of Kueue's manager, such as 0.19.2. None if no Deployment has its image.
        pools: The node pools of GKE's API, with listed fields. None if the command did not get them.
        objects: Objects by kind. Each has the listed fields of its kind, without `apiVersion` and `kind`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = Field(default_factory=fields.version)
    taken_at: AwareDatetime = Field(alias="takenAt")
    stack: str = Field(pattern="^[A-Za-z0-9._:@/-]+$", max_length=256)
    hashed: bool = False
    missing: list[str] = []
    kueue: dict[str, Any] | None = None
    kueue_version: str | None = Field(default=None, alias="kueueVersion", pattern=r"^\d+\.\d+\.\d+$", max_length=20)
    pools: list[NodePool] | None = Field(default=None, max_length=MAX_POOLS)
    objects: dict[str, list[dict[str, Any]]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Returns the objects of a kind."""
        return self.objects.get(kind, [])

    def to_json(self) -> str:
        """Returns the snapshot as JSON, with the same text for the same content."""
        return self.model_dump_json(by_alias=True, indent=1, ensure_ascii=True) + "\n"  # it may go to a terminal

    def at(self, now: datetime) -> Snapshot:
        """Returns the snapshot as if it were taken at another time: every time moves, so every age stays."""
        later = now - self.taken_at
        objects = {kind: [shift(item, later) for item in items] for kind, items in self.objects.items()}
        return self.model_copy(update={"taken_at": now, "objects": objects})


def build(stack: str, objects: Mapping[str, list[Any]], taken_at: datetime, **more: Any) -> Snapshot:
    """Returns the snapshot of whole objects by kind: trims them, and sorts them by namespace and name."""
    trimmed = fields.trim_all(objects)
    ordered = {kind: sorted(items, key=key_of) for kind, items in trimmed.items()}
    return Snapshot(takenAt=taken_at.replace(microsecond=0), stack=stack, objects=ordered, **more)


def read(text: str) -> Snapshot:
    """Reads a snapshot. Raises InvalidSnapshot if the text is none, or of a newer version, or has unlisted fields."""
    try:
        content = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidSnapshot(f"This is no JSON: {reason}. {_TAKE_ANOTHER}") from None
    written = content.get("version") if isinstance(content, dict) else None
    if isinstance(written, int) and written > fields.version():
        raise InvalidSnapshot(
            f"The snapshot has version {written} of the format, and this checkout reads version {fields.version()}. "
            "Update the checkout, or take the snapshot with this one."
        )
    try:
        snapshot = Snapshot.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, first["loc"]))[:SHOWN] or "the file"
        raise InvalidSnapshot(f"This is no snapshot: {path}: {first['msg']}. {_TAKE_ANOTHER}") from None
    if snapshot.version < fields.version():  # it was taken before these kinds were part of a snapshot
        unread = [kind for kind in fields.kinds() if kind not in snapshot.objects and kind not in snapshot.missing]
        snapshot = snapshot.model_copy(update={"missing": [*snapshot.missing, *unread]})
    if not is_valid_time(snapshot.taken_at):
        raise InvalidSnapshot(f"takenAt is not a time of this century. {_TAKE_ANOTHER}")
    if unknown := sorted(snapshot.objects.keys() - fields.kinds().keys()):
        raise InvalidSnapshot(f"A snapshot has no objects of kind {unknown[0][:SHOWN]!r}. {_TAKE_ANOTHER}")
    if (count := sum(map(len, snapshot.objects.values()))) > MAX_OBJECTS:
        raise InvalidSnapshot(
            f"The snapshot has {count} objects. A scratch cluster holds {MAX_OBJECTS}. "
            f"Remove the objects of kinds or namespaces that do not matter. {_TAKE_ANOTHER}"
        )
    for path, reason in _mistakes(snapshot):
        raise InvalidSnapshot(f"{path[:SHOWN]} {reason}. No cluster could be restored from it. {_TAKE_ANOTHER}")
    if (pods := sum(map(wanted_pods, _creators(snapshot)))) > MAX_PODS:
        raise InvalidSnapshot(
            f"Its Jobs and servers want {pods} pods. A scratch cluster holds {MAX_PODS}. "
            f"Remove those that do not matter. {_TAKE_ANOTHER}"
        )
    return snapshot


def _mistakes(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yields the path of each value that no cluster has, and what is wrong with it."""
    if snapshot.kueue is not None:
        yield from invalid_values(snapshot.kueue, fields.table()["kueueConfiguration"], "kueue")
    selected = fields.selected_by(snapshot.objects)
    seen: set[object] = set()
    for kind, items in snapshot.objects.items():
        for number, item in enumerate(items):
            path = f"objects.{kind}[{number}]"
            yield from invalid_values(item, fields.kinds()[kind].fields, path, selected)
            yield from dangling(item, path)
            metadata = item["metadata"]
            for key, identity in (("name", (kind, *key_of(item))), ("uid", metadata.get("uid"))):
                if identity in seen:
                    yield f"{path}.metadata.{key}", f"is the {key} of another object"
                seen.add(identity or path)


def _creators(snapshot: Snapshot) -> Iterator[Mapping[str, Any]]:
    """The objects whose controllers create pods. A ReplicaSet and a Job of one of them count once, with it."""
    kinds = ("Deployment", "ReplicaSet", "StatefulSet", "JobSet", "Job")
    uids = {item["metadata"].get("uid") for kind in kinds for item in snapshot.of(kind)} - {None}
    for kind in kinds:
        yield from (item for item in snapshot.of(kind) if owner_of(item).get("uid") not in uids)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


_TAKE_ANOTHER = "Take a snapshot: gke-ai snapshot --stack STACK > snapshot.json"


def shift(value: Any, later: timedelta) -> Any:
    """Returns a value with every time in it moved."""
    if isinstance(value, dict):
        return {key: shift(part, later) for key, part in value.items()}
    if isinstance(value, list):
        return [shift(part, later) for part in value]
    if isinstance(value, str) and (match := TIME.fullmatch(value)):
        moved = datetime.fromisoformat(value).astimezone(UTC) + later
        # Kubernetes has times with seconds and times with microseconds, and refuses neither in place of the other.
        return moved.isoformat(timespec="microseconds" if match[1] else "seconds").replace("+00:00", "Z")
    return value
