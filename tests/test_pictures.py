"""The pictures of the documentation: none is older than what it shows."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from docs.pictures.__main__ import FOLDER, pictures
from docs.pictures.record import RECORDING
from report.svg import PALETTE

PICTURES = pictures()


@pytest.mark.parametrize("name", PICTURES)
def test_picture_shows_what_the_code_and_the_recording_say(name: str) -> None:
    drawn = PICTURES[name]()
    assert drawn == (FOLDER / name).read_text(), f"{name} is stale. Run: make pictures"
    picture = ElementTree.fromstring(drawn)
    assert float(picture.attrib["width"]) <= 1200


def test_no_picture_is_left_over() -> None:
    assert {path.name for path in FOLDER.glob("*.svg")} == PICTURES.keys()


def test_recording_is_of_preemption_and_of_giving_back() -> None:
    recording = json.loads(RECORDING.read_text())
    lanes = {lane["name"]: [one["state"] for one in lane["states"]] for lane in recording["workloads"]}
    assert lanes["training"][0] == lanes["training"][-1] == "running"
    assert "evicted" in lanes["training"]
    assert [name for name, states in lanes.items() if states == ["pending", "gone"]]  # a replica beyond the quota
    assert max(one["gpus"] for one in recording["gpus"]) == recording["quota"]


def luminance(colour: str) -> float:
    """Relative luminance: https://www.w3.org/TR/WCAG21/#dfn-relative-luminance"""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("name", sorted(PALETTE.keys() - {"page", "card", "band", "line"}))
@pytest.mark.parametrize("shade", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_light_and_on_dark(name: str, shade: int) -> None:
    for ground in ("page", "card"):
        dark, light = sorted([luminance(PALETTE[name][shade]), luminance(PALETTE[ground][shade])])
        assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{name} on {ground}"
