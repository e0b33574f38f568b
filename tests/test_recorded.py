"""What earlier versions left in their stacks, as it is given to this version."""

from __future__ import annotations

import pytest

from tests import recorded

RECORDS = [(version, system) for version in recorded.versions() for system in recorded.systems(version)]


@pytest.mark.parametrize(("version", "system"), RECORDS)
def test_record_is_previewed_in_the_project_that_it_was_deployed_in(version: str, system: str) -> None:
    """In another, such as today's default of the emulator, everything would be replaced."""
    config, resources = recorded.read(version, system, "x")
    kinds = ("gcp:", "pulumi:providers:gcp")
    inputs = [resource.get("inputs", {}) for resource in resources if resource["type"].startswith(kinds)]
    assert {one["project"] for one in inputs if "project" in one} == {config["gcp:project"]}
