"""Finds the run in a file that has it as it stands in `training` or `batch` of a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from gke_ai.catalog.section_files import PREFIX
from gke_ai.terminal import Stop

SECTIONS = ("training", "batch")


def run_of(path: Path, content: Mapping[str, Any], tpu_pools: Set[object]) -> tuple[str, Any]:
    """Returns the section of a run, and the run: below the name of its section, or alone.

    Alone and without a kind, it is a batch Job if its pool is one of `tpu_pools`.
    """
    named = {key.removeprefix(PREFIX): value for key, value in content.items() if isinstance(key, str)}
    for section in SECTIONS:
        if section in named:
            items = named[section]
            if len(named) > 1 or not isinstance(items, list) or len(items) != 1:
                raise Stop(f"{path}: {section} is not a list with one run. Leave one entry.")
            return section, items[0]
    return "batch" if "kind" not in content and content.get("pool") in tpu_pools else "training", content
