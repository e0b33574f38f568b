"""Problems of a configuration, reported by their path in the YAML."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

# How Hugging Face's tokens look: https://huggingface.co/docs/hub/security-tokens
TOKEN = re.compile(r"hf_[A-Za-z0-9]{8,}")


@dataclass(frozen=True)
class Problem:
    """One mistake: its path in the YAML, its cause and consequence, and the remedy. A table may follow.

    Anything that looks like a token is redacted.
    """

    path: str
    cause: str
    remedy: str
    table: str = ""

    def __post_init__(self) -> None:
        for field in ("path", "cause", "remedy"):
            object.__setattr__(self, field, TOKEN.sub("hf_…", getattr(self, field)))

    def __str__(self) -> str:
        end = "" if self.remedy.endswith((".", "?")) else "."
        table = "".join(f"\n      {line}" for line in self.table.splitlines())
        return f"{self.path}: {self.cause}. {self.remedy}{end}{table}"


SHOWN = 100  # so that a hostile file does not fill a log or a comment


class BadConfiguration(Exception):
    """The configuration is invalid. `problems` has every mistake, in the order of the sections."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        lines = [f"The configuration of this stack has {count}; nothing was changed.", ""]
        lines += [f"  - {problem}" for problem in self.problems[:SHOWN]]
        lines += [f"  … and {len(self.problems) - SHOWN} more."] if len(self.problems) > SHOWN else []
        lines += ["", "Correct the stack's configuration file at these paths and run the command again."]
        return "\n".join(lines)


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggests the closest known name, or else lists all; empty if there is no known name."""
    names = sorted(set(known))
    return closest(name, names) or (f"Write one of: {', '.join(names)}" if names else "")


def closest(name: str, known: Iterable[str]) -> str:
    """Suggests the closest known name; empty if none is close."""
    return f"Did you mean {close}?" if (close := meant(name, known)) else ""


def meant(name: str, known: Iterable[str]) -> str:
    """The closest known name; empty if none is close."""
    folded = {name.lower().replace("_", "").replace("-", ""): name for name in sorted(set(known))}
    close = difflib.get_close_matches(name.lower().replace("_", "").replace("-", ""), folded, n=1)
    return folded[close[0]] if close else ""


def sentence(text: str) -> str:
    """The text with a capital letter, as a sentence of its own."""
    return text[:1].upper() + text[1:]
