"""Names and counts in sentences."""

from __future__ import annotations


def join_names(names: list[str]) -> str:
    """Joins names for a sentence."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def plural(count: float, noun: str) -> str:
    """Formats a count with its noun."""
    return f"{count:,.1f}".removesuffix(".0") + f" {noun}{'' if count == 1 else 's'}"
