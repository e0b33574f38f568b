"""Only here: the emulator previews every stack at the root of a checkout, whatever its users have edited or added."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.support import repository
from tests.support.emulator import Emulator
from tests.support.examples import set_up


@pytest.mark.parametrize("file", repository.stacks_of_the_user(), ids=lambda file: file.name)
def test_a_stack_previews_on_the_emulator(file: Path, emulator: Emulator) -> None:
    # What a stack expects to exist, such as a secret, is created as the emulator says.
    while missing := json.loads(emulator.run("ready", str(file)))["missing"]:
        emulator.run(*shlex.split(missing["command"])[1:])
    assert "to create" in emulator.make("preview", file)


def test_a_stack_with_a_salt_and_an_encrypted_token_previews_on_the_emulator(
    emulator: Emulator, tmp_path: Path
) -> None:
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(set_up("Pulumi.dev.yaml"))
    assert "to create" in emulator.make("preview", file)
