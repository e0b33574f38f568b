"""Reads tables that are files of this project, in YAML or JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml


def read_table(file: Path) -> Any:
    """Returns the content of a file of this project."""
    if file.suffix == ".json":
        return json.loads(file.read_text())
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it was built
    return yaml.load(file.read_text(), loader)


def table(name: str) -> Any:
    """Returns the content of a file, by its path in this folder."""
    return read_table(Path(__file__).parent / name)
