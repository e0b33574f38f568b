"""How close to each other the pods of a run are."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gke_ai.settings.model.base import Section

Level = Literal["block", "subblock", "host"]


class TopologyGroups(Section):
    """Groups of equal size of the pods of a run, in the order of their numbers, each in one place."""

    noun: ClassVar[str] = "the groups of a topology"

    pods: int = Field(ge=2)
    """Number of pods of each group."""
    level: Level
    """Level at which all pods of a group are in one place."""


class Topology(Section):
    """How close to each other Kueue places the pods of a run: `required` or `preferred`, and `groups` within it."""

    noun: ClassVar[str] = "the topology of a run"

    required: Level | None = Field(default=None, examples=["block"])
    """Level at which all pods are in one place. The run waits until one has room. Default: none is required."""
    preferred: Level | None = Field(default=None, examples=["block"])
    """Level at which all pods are in one place if one has room. If none has, Kueue tries the next wider level, and at
    last any nodes. Default: none is preferred."""
    groups: TopologyGroups | None = Field(default=None, examples=[{"pods": 2, "level": "subblock"}])
    """Groups of pods that are in one place each, or the run waits. Their level is narrower. Default: no groups."""
