"""Mistakes in a configuration, in the words of the person who wrote it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from settings.model import Settings

# How Hugging Face's tokens look: https://huggingface.co/docs/hub/security-tokens
TOKEN = re.compile(r"hf_[A-Za-z0-9]{8,}")


@dataclass(frozen=True)
class Problem:
    """One mistake: where it stands in the YAML, what is wrong and what that would lead to, and the remedy.

    What looks like a token is blotted out, wherever in the text it came from.
    """

    path: str
    cause: str
    remedy: str

    def __post_init__(self) -> None:
        for field in ("path", "cause", "remedy"):
            object.__setattr__(self, field, TOKEN.sub("hf_…", getattr(self, field)))

    def __str__(self) -> str:
        end = "" if self.remedy.endswith((".", "?")) else "."
        return f"{self.path}: {self.cause}. {self.remedy}{end}"


class BadConfiguration(Exception):
    """The configuration of a stack can't be built; `problems` has every mistake found, in the order of the sections."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        lines = [f"The configuration of this stack has {count}; nothing was changed.", ""]
        lines += [f"  - {problem}" for problem in self.problems]
        lines += ["", "Correct the stack's configuration file at these paths and run the command again."]
        return "\n".join(lines)


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, as a question, else all of them; what to do if there are none."""
    names = sorted(set(known))
    folded = {one.lower().replace("_", "").replace("-", ""): one for one in names}
    close = difflib.get_close_matches(name.lower().replace("_", "").replace("-", ""), folded, n=1)
    if close:
        return f"Did you mean {folded[close[0]]}?"
    return f"Write one of: {', '.join(names)}" if names else ""


def unknown(
    settings: Settings, path: str, section: str, what: str, name: str, known: Iterable[str], consequence: str
) -> Iterator[Problem]:
    """A problem if `name` is none of the `known` ones of a section, nor of what could not be read of it."""
    names = list(known)
    if name in names or settings.unparsed.may_contain(section, name):
        return
    remedy = nearest(name, names) or f"There is none in this stack: add {name} to {section}"
    yield Problem(path, f"{what} {name} does not exist — {consequence}", remedy)
