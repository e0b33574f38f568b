"""Writes the generated pages of `docs/`: `python -m maintain.pages`."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.repository import ROOT

FOLDER = ROOT / "docs"


def with_parts(page: str, *parts: tuple[str, str, str]) -> str:
    """A page of `docs/`, which has its prose itself, with new parts: each with the text before it and after it."""
    text = (FOLDER / page).read_text()
    for before, after, part in parts:
        head, found, rest = text.partition(before)
        if not found or after not in rest:
            raise ValueError(f"docs/{page} has no {before!r} with {after!r} after it")
        text = head + before + part + (after + rest.partition(after)[2] if after else "")
    return text


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
