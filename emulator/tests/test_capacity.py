"""What `emulator/run capacity` declares is what the provisioner reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.capacity import MODES
from emulator import capacity, paths


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "STATE", tmp_path / "state")


def table(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return dict(line.split() for line in capsys.readouterr().out.splitlines())


def test_everything_is_to_be_had_until_somebody_says_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    assert capacity.unavailable() == frozenset()
    assert capacity.main([]) == 0
    assert table(capsys) == dict.fromkeys(MODES, "in")


def test_a_kind_stays_out_until_it_is_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert capacity.main(["spot=0", "flexStart=0"]) == 0
    assert capacity.main(["onDemand=1", "flexStart=1"]) == 0
    assert capacity.unavailable() == {"spot"}
    capsys.readouterr()
    capacity.main([])
    assert table(capsys) == dict.fromkeys(MODES, "in") | {"spot": "out"}


@pytest.mark.parametrize("argument", ["sport=0", "spot", "spot=2", "=1"])
def test_what_is_no_capacity_changes_nothing_and_is_told(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert capacity.main(["flexStart=0", argument]) == 2
    assert capacity.unavailable() == frozenset()
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"{argument} is not a capacity mode. Write MODE=0 or MODE=1; modes: onDemand, spot")
