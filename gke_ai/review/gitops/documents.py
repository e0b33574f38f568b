"""An object as a YAML document that every tool reads as the same object, and that is the same on each run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import yaml

from gke_ai.catalog.documents import InvalidDocument, Reader, read

FIRST = ("apiVersion", "kind", "metadata")


class _Dumper(yaml.SafeDumper):
    """Writes block style, without anchors, and texts in several lines as blocks."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """Quotes a text that kubectl would not read as this text, such as `y`, `1e3` or `12:30`."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None if plain(text) else '"')


@lru_cache(4096)  # the same texts are in many objects
def plain(text: str) -> bool:
    """Whether kubectl reads a text without quotes as the same text."""
    try:
        return read(text, Reader.KUBECTL) == [text]
    except InvalidDocument:
        return False


_Dumper.add_representer(str, _text)


def document(content: Mapping[str, Any]) -> str:
    """Returns an object as YAML: first what it is, then the rest by name."""
    head = {key: content[key] for key in FIRST if key in content}
    return values({**head, **{key: content[key] for key in sorted(content) if key not in head}})


def values(content: Mapping[str, Any]) -> str:
    """Returns nested data as YAML. Below the first level, keys are in the order of their names."""
    ordered = {key: _sorted(item) for key, item in content.items()}
    return yaml.dump(ordered, Dumper=_Dumper, sort_keys=False, width=float("inf"), allow_unicode=True)


def _sorted(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _sorted(data[key]) for key in sorted(data)}
    return [_sorted(item) for item in data] if isinstance(data, list | tuple) else data
