"""What tests read in pictures."""

from __future__ import annotations

from xml.etree import ElementTree


def texts_of(picture: str) -> list[str]:
    """The texts of a picture, in the order in which they are drawn."""
    return [item.text or "" for item in ElementTree.fromstring(picture) if item.tag.endswith("text")]
