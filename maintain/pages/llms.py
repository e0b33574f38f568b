"""Writes docs/llms.txt, the list of pages for language models, from the tables of docs/README.md.

https://llmstxt.org
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.repository import ROOT

ROW = re.compile(r"\| ([^|]+) \| ([^|]+) \|$")
LINK = re.compile(r"\[(?P<text>[^]]+)\]\((?P<page>[^)#]+\.md)[^)]*\)")


def page() -> str:
    """The list: a section for each one of docs/README.md, a line for each page."""
    title, _, summary = (ROOT / "README.md").read_text().partition("\n\n")
    first = " ".join(summary.partition("\n\n")[0].split())
    return "\n".join([title, "", f"> {first}", *lines((ROOT / "docs" / "README.md").read_text()), ""])


def lines(front: str) -> Iterator[str]:
    """The headings, and each page with what it is for, once."""
    seen: set[str] = set()
    for line in front[front.index("## ") :].splitlines():
        if line.startswith("## "):
            yield from ("", line, "")
            continue
        row = ROW.match(line)
        meaning = next((cell for cell in row.groups() if not LINK.search(cell)), "") if row else ""
        for link in LINK.finditer(line):
            if link["page"] not in seen:
                seen.add(link["page"])
                yield f"- [{link['page'].removesuffix('.md')}]({link['page']}): {meaning or link['text']}"
