"""The provisioner reads the capacity that `emulator/run capacity` sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.cloud import capacity, delay, program
from emulator.cloud.records import Damaged
from emulator.commands import ready
from emulator.machine import paths
from gke_ai.catalog.machines.capacity import MODES


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "STATE", tmp_path / "state")


def table(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return dict(line.split() for line in capsys.readouterr().out.splitlines())


def test_all_capacity_is_available_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert capacity.unavailable() == frozenset()
    assert capacity.main([]) == 0
    assert table(capsys) == dict.fromkeys(MODES, "in")


def test_a_mode_stays_unavailable_until_it_is_set_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert capacity.main(["spot=0", "flexStart=0"]) == 0
    assert capacity.main(["onDemand=1", "flexStart=1"]) == 0
    assert capacity.unavailable() == {"spot"}
    capsys.readouterr()
    capacity.main([])
    assert table(capsys) == dict.fromkeys(MODES, "in") | {"spot": "out"}


@pytest.mark.parametrize("argument", ["sport=0", "spot", "spot=2", "=1"])
def test_an_unknown_capacity_mode_is_refused_and_changes_nothing(
    argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert capacity.main(["flexStart=0", argument]) == 2
    assert capacity.unavailable() == frozenset()
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"{argument} is not a capacity mode. Write MODE=0 or MODE=1; modes: onDemand, spot")


@pytest.mark.parametrize("content", ["", '{"out": ["sp', "[]", '{"other": 1}', "\x00"])
@pytest.mark.parametrize(
    ("name", "read"), [("capacity", capacity.unavailable), ("delays", delay.delays), ("programs", program.named)]
)
def test_a_damaged_file_of_settings_is_named_before_a_cluster_waits_for_it(
    name: str, read: Callable[[], object], content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / f"{name}.json").write_text(content)
    with pytest.raises(Damaged, match=rf"{name}\.json is damaged.*Delete the file"):
        read()
    configuration = tmp_path / "mine.yaml"
    configuration.write_text("config: {}")
    monkeypatch.setattr("sys.argv", ["ready", str(configuration)])
    with pytest.raises(SystemExit, match=rf"{name}\.json is damaged"):
        ready.main()
