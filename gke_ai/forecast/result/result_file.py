"""Reads the JSON file of a forecast or a simulation, which may be a stranger's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from gke_ai.terminal import Stop

MAX_BYTES = 256 * 2**20
Result = TypeVar("Result")


@dataclass(frozen=True)
class ResultFile(Generic[Result]):
    """The file that a verb writes with `--json`: its dataclass, its version, and a key that other files lack."""

    kind: type[Result]
    version: int
    verb: str
    key: str

    def parse(self, text: str) -> Result:
        """Returns the result in a text. Raises ValueError if it is none of this version."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is not JSON ({error})") from None
        if not isinstance(content, dict) or not {"version", self.key} <= content.keys():
            raise ValueError(f"it is not the result of `gke-ai {self.verb}`")
        if content["version"] != self.version:
            raise ValueError(f"its version is {content['version']!r}, and this program reads version {self.version}")
        try:
            return TypeAdapter(self.kind).validate_python(content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ValueError(f"it does not have the form of such a result ({where}: {first['msg']})") from None

    def read(self, path: Path) -> Result:
        """Returns the result in a file. Stops if it is none."""
        try:
            if path.stat().st_size > MAX_BYTES:
                raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB")
            return self.parse(path.read_text())
        except OSError as error:
            raise Stop(f"{path} cannot be read ({error.strerror}).") from None
        except ValueError as bad:
            raise Stop(f"{path} cannot be used: {bad}. Run `gke-ai {self.verb} --json` again.") from None
