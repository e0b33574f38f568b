"""Each key of a configuration has a type, a default, a meaning and an example, as its page shows them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import Field

from gke_ai.settings import model
from gke_ai.settings.model import Section, Settings, descriptions
from gke_ai.settings.reading import section_types
from maintain.pages.__main__ import FOLDER
from maintain.pages.settings_keys import rows_of, split
from maintain.pages.settings_page import link_to, pages

UNITS = {"Seconds": "seconds", "Minutes": "minutes", "Days": "days", "Gb": "GB"}


def sections() -> dict[str, type[Section]]:
    """Every class that the configuration of a stack can have, by name."""
    found: dict[str, type[Section]] = {}

    def visit(section: type[Section]) -> None:
        if section.__name__ not in found:
            found[section.__name__] = section
            for field in section.model_fields.values():
                for inner in section_types(field.annotation):
                    visit(inner)

    visit(Settings)
    return found


def test_every_key_has_a_type_a_default_a_meaning_and_an_example() -> None:
    rows = {(name, row.key): row for name, section in sections().items() for row in rows_of([section], lambda _: "#")}
    assert [key for key, row in rows.items() if not (row.type and row.default and row.meaning)] == []
    assert [key for key, row in rows.items() if not row.example and "](#" not in row.type] == []


def test_folder_has_no_other_pages() -> None:
    assert {file.name for file in (FOLDER / "settings").iterdir()} == pages().keys()


def mistakes(field: Any, description: str) -> list[str]:
    """What is wrong with the description of a key."""
    meaning, computed = split(description)
    unit = next((unit for suffix, unit in UNITS.items() if str(field.alias).endswith(suffix)), "")
    value = None if field.is_required() else field.get_default(call_default_factory=True)
    found = ["has no meaning"] if not meaning.endswith(".") else []
    if "Default" in meaning or re.search(r"\. [A-Z]", computed):
        found.append("states its default elsewhere than in the last sentence")
    if computed and (field.is_required() or value not in (None, [], {})):
        found.append("states a default that the field has")
    if computed.strip("`.") in ("none", ""):
        found += ["states no default as one"] if computed else []
    if unit.lower() not in meaning.lower():
        found.append(f"lacks its unit, {unit}")
    return found


def test_description_states_meaning_unit_and_default_once() -> None:
    found = {
        (cls, name): mistakes(field, descriptions(section)[name])
        for cls, section in sections().items()
        for name, field in section.model_fields.items()
    }
    assert {key: wrong for key, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("field", "description", "mistake"),
    [
        (Field(default=3, alias="pods"), "Number of pods. Default: 3.", "a default that the field has"),
        (Field(default=None, alias="pods"), "Pods. Default: all. More.", "elsewhere"),
        (Field(default=None, alias="pods"), "Pods. Default: none.", "no default as one"),
        (Field(default=3, alias="waitSeconds"), "Time to wait.", "lacks its unit"),
        (Field(default=3, alias="pods"), "", "no meaning"),
    ],
)
def test_a_wrong_description_is_found(field: Any, description: str, mistake: str) -> None:
    assert [text for text in mistakes(field, description) if mistake in text]


class Form(Section):
    """A class of a test."""

    size: int | None = Field(default=None, ge=1)
    """Size, in bytes. Default: that of the disk."""
    names: list[str] = Field(default=[], examples=[["a|b"]])
    """Names."""


def test_a_row_states_type_bounds_and_default_once() -> None:
    assert list(map(str, rows_of([Form], lambda _: ""))) == [
        "| `size` | integer, 1 or more | that of the disk | Size, in bytes. | `1` |",
        "| `names` | list of string | – | Names. | `[a\\|b]` |",
    ]


def test_a_key_of_one_form_names_the_form() -> None:
    rows = {row.key: str(row) for row in rows_of([model.OnDemand, model.Spot, model.Reservation], lambda _: "")}
    assert rows["reservation"].startswith("| `reservation`, with `mode: reservation` | string | required |")
    assert rows["mode"].startswith("| `mode` | `onDemand`, `spot` or `reservation` | `onDemand` |")


def test_links_lead_to_the_part_of_a_class() -> None:
    assert link_to(model.Cluster) == "settings/cluster.md"
    assert link_to(model.VllmTpu) == "settings/serving.md#engine-vllm-tpu"
    assert link_to(model.FlavorQuota) == "settings/queues.md#clusterqueuesflavors"
