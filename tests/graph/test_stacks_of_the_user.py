"""What must hold of every stack at the root of a checkout, whatever its users have edited or added.

Other tests use the tests' own copies of the environments, in `tests/data/environments`.
"""

from typing import Any

import pytest
import yaml

from tests.support import repository
from tests.support.examples import set_up
from tests.support.recorder import PROJECT, run_program


def config_of(text: str) -> dict[str, Any]:
    """The configuration in a stack's file, which may have a salt alone."""
    return (yaml.safe_load(text) or {}).get("config") or {}


# Each stack, the environments as the README sets them up, and stacks as `pulumi stack init` leaves them.
TEXTS = [
    *(pytest.param(file.read_text(), id=file.name) for file in repository.stacks_of_the_user()),
    *(pytest.param(set_up(name), id=f"{name} as the README says") for name in repository.STACKS),
    *("encryptionsalt: v1:salt\n", "config:\n", ""),
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_stack_passes_every_rule_and_the_program_registers_it(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulumi has decrypted the secrets of the stack."""
    stated = config_of(text)
    secrets = tuple(key for key, value in stated.items() if isinstance(value, dict) and "secure" in value)
    config = {key: "secret" if key in secrets else value for key, value in stated.items()}
    assert run_program(config, preview=True, monkeypatch=monkeypatch, secret_keys=secrets).resources


@pytest.mark.parametrize("name", repository.STACKS)
def test_an_environment_that_nobody_has_edited_is_the_one_that_tests_and_pages_use(name: str) -> None:
    text = (repository.ROOT / name).read_text()
    is_edited = config_of(text).get("gcp:project") != PROJECT
    assert is_edited or text == repository.source(name).read_text(), f"copy {name} to tests/data/environments"
