"""Writes every page that is made from code, so that none is older than what it describes: `make docs`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from docs import components_page, outputs_page, settings_page
from policy import reference as policies
from settings.schema import schema

FOLDER = Path(__file__).parent
PAGES: dict[str, Callable[[], str]] = {
    "components.md": components_page.page,
    "outputs.md": outputs_page.page,
    "policies.md": policies.page,
    "settings.md": settings_page.page,
    "stack.schema.json": lambda: json.dumps(schema(), indent=1) + "\n",
}


def main() -> None:
    """Writes what has changed, and says which pages that were."""
    for name, text in PAGES.items():
        path = FOLDER / name
        now = text()
        before = path.read_text() if path.exists() else None
        if now != before:
            path.write_text(now)
        print(f"docs/{name}: {'as it was' if now == before else 'written'}")


if __name__ == "__main__":
    main()
