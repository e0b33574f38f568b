"""Reads tables that are YAML files of this project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def read_table(file: Path) -> Any:
    """Returns the content of a file of this project."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it was built
    return yaml.load(file.read_text(), loader)


def table(name: str) -> Any:
    """Returns the content of a file in this folder."""
    return read_table(Path(__file__).with_name(name))
