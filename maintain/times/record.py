"""The record of a test run: what each test file used. The last run of each kind is kept in the cache folder."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.paths import CACHE
from maintain.times.ledger import Use

FOLDER = CACHE / "times"
# The whole runs, by the markers that they select: `make test` and `make test-long`. Any other run is a part.
WHOLE = {"not long": "test", "": "test-long"}
PART = "part"
# Not a test file: what pytest does before the first test, and its process that gives tests to the workers.
BEFORE, CONTROLLER = "(start and collection)", "(controller)"


@dataclass
class Share:
    """What one worker measured."""

    uses: dict[str, Use] = field(default_factory=dict)
    sampling: float = 0.0
    """CPU time of the measuring itself, which counts as pytest's."""

    def as_json(self) -> dict[str, Any]:
        """The share as plain data."""
        uses = {
            file: {
                "seconds": use.seconds,
                "cpu": dict(use.cpu),
                "clusters": use.clusters,
                "engine runs": use.engine_runs,
            }
            for file, use in self.uses.items()
        }
        return {"files": uses, "sampling": self.sampling}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Share:
        """The share of this plain data."""
        uses = {
            file: Use(use["seconds"], defaultdict(float, use["cpu"]), use["clusters"], use["engine runs"])
            for file, use in data["files"].items()
        }
        return cls(uses, data["sampling"])


@dataclass
class Record:
    """A test run."""

    commit: str
    date: str
    seconds: float
    workers: int
    tests: int
    failed: int
    busy: float
    """CPU time of the whole machine meanwhile, with everything else that ran."""
    share: Share

    def as_json(self) -> dict[str, Any]:
        """The record as plain data."""
        return self.__dict__ | {"share": self.share.as_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Record:
        """The record of this plain data."""
        return cls(**data | {"share": Share.from_json(data["share"])})

    def write(self, kind: str, folder: Path = FOLDER) -> Path:
        """Replaces the record of the last run of this kind."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{kind}.json"
        new = file.with_suffix(".new")
        new.write_text(json.dumps(self.as_json(), indent=1, sort_keys=True) + "\n")
        new.replace(file)
        return file

    @classmethod
    def read(cls, kind: str, folder: Path = FOLDER) -> Record | None:
        """The last run of this kind, if there was one."""
        file = folder / f"{kind}.json"
        return cls.from_json(json.loads(file.read_text())) if file.exists() else None


def merge(shares: Iterable[Share]) -> Share:
    """The sum of what several workers measured."""
    total = Share()
    for share in shares:
        total.sampling += share.sampling
        for file, use in share.uses.items():
            total.uses.setdefault(file, Use()).add(use)
    return total
