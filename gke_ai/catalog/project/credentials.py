"""How credentials look: keys, tokens and passwords of services that programs of AI use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from gke_ai.catalog.tables import table


@cache
def forms() -> Sequence[tuple[str, str, re.Pattern[str]]]:
    """The known forms: what a message calls one, a text that each has, and a pattern."""
    return [(row["title"], row["in"], re.compile(row["form"], re.ASCII)) for row in table("project/credentials.yaml")]


def find(text: str) -> str:
    """Returns what the first credential in a text is, such as `a GitHub token`; empty without one."""
    return next((title for title, part, pattern in forms() if part in text and pattern.search(text)), "")
