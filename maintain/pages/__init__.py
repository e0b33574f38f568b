"""Writes the generated pages of `docs/`: `python -m maintain.pages`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.repository import ROOT


def write(folder: Path, pages: Mapping[str, Callable[[], str]]) -> None:
    """Writes the files of a folder that changed, and prints which ones."""
    for name, text in pages.items():
        path = folder / name
        now = text()
        before = path.read_text() if path.exists() else None
        if now != before:
            path.write_text(now)
        shown = path.relative_to(ROOT)
        print(f"{shown}: {'unchanged' if now == before else 'written'}")
