"""How close to each other the pods of a run are."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gke_ai.settings.model.base import Section

Level = Literal["block", "subblock", "host"]


class Topology(Section):
    """How close to each other Kueue places the pods of a run. One of its keys is set."""

    noun: ClassVar[str] = "the topology of a run"

    required: Level | None = Field(default=None, examples=["block"])
    """Level at which all pods are in one place. The run waits until one has room. Default: none is required."""
    preferred: Level | None = Field(default=None, examples=["block"])
    """Level at which all pods are in one place if one has room. If none has, Kueue tries the next wider level, and at
    last any nodes. Default: none is preferred."""
