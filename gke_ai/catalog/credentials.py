"""How credentials look: keys, tokens and passwords of services that programs of AI use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from gke_ai.catalog.tables import table


class Form(NamedTuple):
    """A form of a credential."""

    title: str
    """What a message calls it: `a GitHub token`."""
    part: str
    """A text that each has, which is looked for first."""
    pattern: re.Pattern[str]


@cache
def forms() -> Sequence[Form]:
    """The known forms."""
    return [Form(row["title"], row["in"], re.compile(row["form"], re.ASCII)) for row in table("credentials.yaml")]


def find(text: str) -> str:
    """Returns what the first credential in a text is, such as `a GitHub token`; empty without one."""
    return next((form.title for form in forms() if form.part in text and form.pattern.search(text)), "")
