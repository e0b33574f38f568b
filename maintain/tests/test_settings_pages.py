"""The pages of the settings have every key of every class, each with its type, default, meaning and example."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import Field

from gke_ai.settings import model
from gke_ai.settings.model import Section, Settings, descriptions
from gke_ai.settings.schema import schema
from gke_ai.settings.secrets import SECRETS
from maintain.pages import FOLDER
from maintain.pages.settings_keys import rows_of, split
from maintain.pages.settings_page import link_to, pages
from maintain.pages.statements import sections

# maintain/tests/test_documentation.py compares them with what is generated.
PAGES = {file.name: file.read_text() for file in (FOLDER / "settings").iterdir()}
ROWS = re.compile(r"^\| `(?P<key>[\w:-]+)`(?P<forms>, with [^|]*)? \| (?P<cells>.*) \|$", re.M)
UNITS = {"Seconds": "seconds", "Minutes": "minutes", "Days": "days", "Gb": "GB"}


def described() -> Iterator[tuple[str, str, str]]:
    """Each class that a page describes: the page, the class and the part of the page about it."""
    for name, text in PAGES.items():
        for part in re.split(r"^## ", text, flags=re.M):
            for cls in re.findall(r"In Python: `(\w+)`\.", part):
                yield name, cls, part


def test_every_class_of_a_configuration_is_on_a_page_and_there_are_no_other_pages() -> None:
    assert PAGES.keys() == pages().keys()
    classes = {cls for _, cls, _ in described()}
    assert classes == sections().keys() - {"Settings"}
    assert set(schema()["$defs"]) <= classes


@pytest.mark.parametrize(
    ("page", "cls", "part"), [pytest.param(*each, id=f"{each[0]}-{each[1]}") for each in described()]
)
def test_table_of_a_class_has_all_its_keys(page: str, cls: str, part: str) -> None:
    section = getattr(model, cls)
    others = {field.alias for other in re.findall(r"In Python: `(\w+)`\.", part) for field in fields_of(other)}
    keys = {row["key"] for row in ROWS.finditer(part)}
    if "(#shared-keys)" in part:
        form, (_, shared) = part.splitlines()[0], PAGES[page].split("\n## Shared keys\n")
        rows = list(ROWS.finditer(shared.partition("\n## ")[0]))
        keys |= {row["key"] for row in rows if not row["forms"] or form in re.findall(r"`[^`]*`", row["forms"])}
    assert {field.alias for field in section.model_fields.values()} <= keys, page
    assert keys <= others, page


def fields_of(cls: str) -> list[Any]:
    return list(getattr(model, cls).model_fields.values())


def test_every_key_of_the_stack_is_on_the_front_page() -> None:
    keys = re.findall(r"^\| \[?`(?:gke-ai:)(\w+)`", PAGES["README.md"], re.M)
    assert sorted(keys) == sorted(
        [*(str(field.alias) for field in Settings.model_fields.values()), *(secret.key for secret in SECRETS)]
    )
    for key in ("gcp:project", "gcp:region"):
        assert f"`{key}`" in PAGES["README.md"]


def test_every_key_has_a_type_a_default_a_meaning_and_an_example() -> None:
    rows = {(name, row.key): row for name, section in sections().items() for row in rows_of([section], lambda _: "#")}
    assert [key for key, row in rows.items() if not (row.type and row.default and row.meaning)] == []
    assert [key for key, row in rows.items() if not row.example and "](#" not in row.type] == []


def mistakes(field: Any, description: str) -> list[str]:
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
