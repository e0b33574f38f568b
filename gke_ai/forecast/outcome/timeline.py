"""What was observed of a cluster: every version of its objects, each with the second of the emulator's time.

A timeline begins with the objects that exist when the change begins. Times before it are negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gke_ai.kube.objects import Object


@dataclass(frozen=True)
class Observation:
    """One version of an object, or its deletion."""

    at: float
    kind: str
    object: Object
    deleted: bool = False


@dataclass(frozen=True)
class Timeline:
    """Observations in the order of their times.

    `applied` is the second at which Pulumi had applied the change, `ended` the last second of the watch, and `settled`
    whether nothing changed any more. `restored` is the age of a restored state when the change begins, in seconds, and
    `began` the time of the state at second 0, if it is known.
    """

    observations: tuple[Observation, ...]
    applied: float
    ended: float
    settled: bool
    restored: float = 0.0
    began: datetime | None = None


@dataclass
class History:
    """All versions of one object, by time. `gone` is the second of its deletion."""

    versions: list[tuple[float, Object]] = field(default_factory=list)
    gone: float | None = None

    @property
    def first(self) -> float:
        """The second of the first version."""
        return self.versions[0][0]

    @property
    def last(self) -> Object:
        """The newest version."""
        return self.versions[-1][1]

    @property
    def before(self) -> Object | None:
        """The version when the change begins; None if the object came later."""
        return self.at(0.0)

    @property
    def after(self) -> Object | None:
        """The version at the end; None if the object is deleted."""
        return self.last if self.gone is None else None

    @property
    def deleted(self) -> float | None:
        """The second at which its deletion began; None if nobody deletes it."""
        return next((at for at, version in self.versions if version["metadata"].get("deletionTimestamp")), self.gone)

    def at(self, second: float) -> Object | None:
        """The version at a time; None if the object does not exist then."""
        if self.gone is not None and self.gone <= second:
            return None
        return next((version for at, version in reversed(self.versions) if at <= second), None)


Histories = Mapping[str, Mapping[str, History]]


def histories(timeline: Timeline) -> Histories:
    """Returns the history of each object that exists when the change begins or later, by kind and uid."""
    result: dict[str, dict[str, History]] = {}
    for observation in timeline.observations:
        metadata = observation.object["metadata"]
        history = result.setdefault(observation.kind, {}).setdefault(metadata["uid"], History())
        if observation.deleted:
            history.gone = observation.at
            if history.versions:
                continue
        history.versions.append((observation.at, observation.object))
    return {
        kind: {uid: history for uid, history in of_kind.items() if history.gone is None or history.gone > 0}
        for kind, of_kind in result.items()
    }
