"""What must hold of every stack at the root of a checkout, whatever its users have edited or added.

Other tests use the tests' own copies of the environments, in `tests/data/environments`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import repository
from tests.support.examples import set_up
from tests.support.recorder import PROJECT, run_program

STACKS = repository.stacks_of_the_user()


def config_of(text: str) -> dict[str, Any]:
    """The configuration in a stack's file, which may have a salt alone."""
    return (yaml.safe_load(text) or {}).get("config") or {}


def check(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Applies every rule to a stack, and runs the program with it. Pulumi has decrypted its secrets."""
    stated = config_of(text)
    secrets = tuple(key for key, value in stated.items() if isinstance(value, dict) and "secure" in value)
    config = {key: "secret" if key in secrets else value for key, value in stated.items()}
    record = run_program(config, preview=True, monkeypatch=monkeypatch, secret_keys=secrets)
    assert record.resources


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.name)
def test_a_stack_passes_every_rule_and_the_program_registers_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(file.read_text(), monkeypatch)


@pytest.mark.parametrize("name", repository.STACKS)
def test_an_environment_that_is_set_up_as_the_readme_says_passes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(set_up(name), monkeypatch)


@pytest.mark.parametrize("name", repository.STACKS)
def test_an_environment_that_nobody_has_edited_is_the_one_that_tests_and_pages_use(name: str) -> None:
    text = (repository.ROOT / name).read_text()
    is_edited = config_of(text).get("gcp:project") != PROJECT
    assert is_edited or text == repository.source(name).read_text(), f"copy {name} to tests/data/environments"


@pytest.mark.parametrize("text", ["encryptionsalt: v1:salt\n", "config:\n", ""])
def test_a_stack_that_nobody_has_configured_passes(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `pulumi stack init` leaves it."""
    check(text, monkeypatch)
