"""Writes every generated page: `make docs`."""

import json
from collections.abc import Callable

from gke_ai.forecast.render.markdown import rehearsal_page
from gke_ai.forecast.result.forecast import read
from gke_ai.settings.schema import schema
from maintain.pages import (
    FOLDER,
    command_page,
    components_page,
    costs_page,
    llms,
    outputs_page,
    policies_page,
    proven_page,
    settings_page,
    write,
)
from maintain.pages.pictures import RECORDINGS

PAGES: dict[str, Callable[[], str]] = {
    "command.md": command_page.page,
    "components.md": components_page.page,
    "costs.md": costs_page.page,
    "llms.txt": llms.page,
    "outputs.md": outputs_page.page,
    "policies.md": policies_page.page,
    "proven.md": proven_page.page,
    "rehearsal-comment.md": lambda: rehearsal_page(read(RECORDINGS / "rehearsal.json"), None),
    **{f"settings/{name}": page for name, page in settings_page.pages().items()},
    "stack.schema.json": lambda: json.dumps(schema(), indent=1) + "\n",
}


if __name__ == "__main__":
    write(FOLDER, PAGES)
