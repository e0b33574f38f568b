"""Names in sentences."""

from __future__ import annotations


def join_names(names: list[str]) -> str:
    """Joins names for a sentence."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
