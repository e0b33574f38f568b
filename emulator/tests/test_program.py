"""The images that a user names to run as local processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from emulator.cloud import program
from emulator.cloud.program import LocalProgram, program_for
from emulator.machine import paths


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "STATE", tmp_path / "state")


def add(folder: Path, image: str, *more: str) -> None:
    command = [] if "--" in more else ["--", "python", "train.py"]
    assert program.main(["add", image, str(folder), *more, *command]) == 0


def test_no_image_runs_until_it_is_named() -> None:
    assert program.named() == []
    assert program_for("example.com/trainer:1") is None


@pytest.mark.parametrize(
    ("image", "runs"),
    [
        ("example.com/trainer", True),
        ("example.com/trainer:1", True),
        ("example.com/trainer@sha256:01", True),
        ("example.com/trainer-gpu", False),
        ("example.com/trainer/other", False),
        ("other.example.com/trainer", False),
    ],
)
def test_a_name_without_a_tag_has_any_tag(tmp_path: Path, image: str, runs: bool) -> None:
    add(tmp_path, "example.com/trainer")
    assert (program_for(image) is not None) == runs


def test_the_most_specific_name_wins(tmp_path: Path) -> None:
    add(tmp_path, "example.com/*", "--", "python", "any.py")
    add(tmp_path, "example.com/trainer:1", "--", "python", "one.py")
    commands = {tag: getattr(program_for(f"example.com/trainer:{tag}"), "command", None) for tag in "12"}
    assert commands == {"1": ["python", "one.py"], "2": ["python", "any.py"]}


def test_a_command_may_have_options_and_the_environment_more_variables(tmp_path: Path) -> None:
    add(
        *(tmp_path, "trainer", "--at", "/src", "--env", "A=b=c", "--env", "E=", "--env", "OUT"),
        *("--", "python", "train.py", "--steps", "3"),
    )
    command = ["python", "train.py", "--steps", "3"]
    expected = LocalProgram("trainer", str(tmp_path), "/src", sys.prefix, command, {"A": "b=c", "E": ""}, ["OUT"])
    assert program.named() == [expected]


def test_naming_an_image_again_replaces_its_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(tmp_path, "trainer", "--", "python", "old.py")
    add(tmp_path, "trainer", "--", "python", "new.py")
    assert capsys.readouterr().out.splitlines()[-1] == f"trainer {tmp_path} python new.py"
    assert len(program.named()) == 1


def test_a_forgotten_image_is_simulated_again(tmp_path: Path) -> None:
    add(tmp_path, "trainer")
    assert program.main(["forget", "trainer"]) == 0
    assert program_for("trainer") is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "*", "."], "`*` alone would run the containers of every pod"),
        (["add", "trainer", "missing"], "missing is not a folder"),
        (["add", "trainer", ".", "--python", "missing"], "missing has no folder `bin`"),
        (["add", "trainer", ".", "--at", "app"], "Begin it with `/`"),
        (["add", "trainer", "."], "Add the command that may run"),
        (["add", "trainer", ".", "--", "..."], "Add the command that may run"),
        (["add", "trainer", ".", "--", "python", "..."], "would let a pod choose what runs"),
        (["add", "trainer", ".", "--", "sh", "-c", "..."], "would let a pod choose what runs"),
        (["add", "trainer", ".", "--env", "=x"], "--env =x is not of the form NAME=VALUE"),
        (["forget", "trainer"], "trainer is not named. Named images: none."),
    ],
)
def test_a_wrong_command_names_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=message.replace("*", r"\*")):
        program.main(arguments)
    assert program.named() == []
