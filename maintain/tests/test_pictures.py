"""The pictures of the documentation are up to date."""

import json
from xml.etree import ElementTree

import pytest

from gke_ai.formats.svg import PALETTE
from maintain.pages.pictures import FOLDER, loss
from maintain.pages.pictures.__main__ import pictures
from maintain.pages.pictures.record import RECORDING

PICTURES = pictures()


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_up_to_date(name: str) -> None:
    drawn = PICTURES[name]()
    assert drawn == (FOLDER / name).read_text(), f"{name} is stale. Run: make pictures"
    assert float(ElementTree.fromstring(drawn).attrib["width"]) <= 1200


def test_every_picture_has_code_that_draws_it() -> None:
    assert {path.name for path in FOLDER.glob("*.svg")} == PICTURES.keys()


def test_recording_shows_preemption_and_resumption() -> None:
    recording = json.loads(RECORDING.read_text())
    lanes = {lane["name"]: [span["state"] for span in lane["states"]] for lane in recording["workloads"]}
    assert lanes["training"][0] == lanes["training"][-1] == "running"
    assert "evicted" in lanes["training"]
    assert [name for name, states in lanes.items() if states == ["pending", "gone"]]  # a replica beyond the quota
    assert max(sample["gpus"] for sample in recording["gpus"]) == recording["quota"]


def test_recorded_loss_continues_after_the_preemption_as_if_undisturbed() -> None:
    recording = json.loads(loss.RECORDING.read_text())
    steps = [step for attempt in recording["attempts"] for step in attempt["steps"]]
    assert len(recording["attempts"]) == 2
    assert [number for _, number, _ in steps] == list(range(1, len(steps) + 1)), "no step is lost or repeated"
    assert [loss for _, _, loss in steps] == recording["undisturbed"]


def luminance(color: str) -> float:
    """Relative luminance: https://www.w3.org/TR/WCAG21/#dfn-relative-luminance"""
    shares = [int(color[position : position + 2], 16) / 255 for position in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("name", sorted(PALETTE.keys() - {"page", "card", "band", "line"}))
@pytest.mark.parametrize("shade", [0, 1], ids=["light", "dark"])
def test_text_is_readable_on_light_and_dark_backgrounds(name: str, shade: int) -> None:
    for background in ("page", "card"):
        dark, light = sorted([luminance(PALETTE[name][shade]), luminance(PALETTE[background][shade])])
        assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{name} on {background}"
