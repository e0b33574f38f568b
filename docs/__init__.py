"""The documentation, and what writes those of its pages that are made from code: `python -m docs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path


def write(folder: Path, pages: Mapping[str, Callable[[], str]]) -> None:
    """Writes what has changed of these files of a folder, and says which those were."""
    for name, text in pages.items():
        path = folder / name
        now = text()
        before = path.read_text() if path.exists() else None
        if now != before:
            path.write_text(now)
        shown = path.relative_to(Path(__file__).parent.parent)
        print(f"{shown}: {'as it was' if now == before else 'written'}")
