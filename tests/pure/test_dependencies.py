"""The library takes ranges, from the tested version to the next major one. The program keeps exact versions."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from gke_ai.catalog.versions import OUTPUTS_VERSION
from gke_ai_outputs.version import VERSION
from tests.support.repository import ROOT


def project(folder: str = "") -> dict[str, Any]:
    content: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    return content


def pinned(file: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)$", (ROOT / file).read_text(), re.M))


LIBRARY = [
    *project()["dependencies"],
    *(text for extra in project()["optional-dependencies"].values() for text in extra),
]


@pytest.mark.parametrize("text", [*LIBRARY, *project("gke_ai_outputs")["dependencies"]])
def test_a_range_begins_with_the_tested_version_and_ends_before_the_next_major_one(text: str) -> None:
    requirement = Requirement(text)
    tested = Version(pinned("requirements.txt")[requirement.name])
    lowest, highest = (next(s for s in requirement.specifier if s.operator == sign) for sign in (">=", "<"))
    assert Version(lowest.version) == tested, "what is older is not tested"
    assert highest.version == str(tested.major + 1)


def test_the_library_and_its_extras_have_every_package_of_the_program() -> None:
    assert {Requirement(text).name for text in LIBRARY} == pinned("requirements.txt").keys()


def test_the_program_writes_the_version_of_the_outputs_that_the_typed_view_reads() -> None:
    assert OUTPUTS_VERSION == VERSION
