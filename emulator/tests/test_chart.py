"""`emulator/run chart` prints the folder of a chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.commands import chart

REFERENCE = "oci://registry.example/charts/thing"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a chart of version 1.2.3."""
    chart_folder = tmp_path / "thing"
    chart_folder.mkdir()
    (chart_folder / "Chart.yaml").write_text("name: thing\nversion: 1.2.3\n")
    monkeypatch.setenv("GKE_AI_CHARTS", str(tmp_path))
    return chart_folder


def test_folder_of_the_chart_is_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["chart", REFERENCE, "1.2.3"])
    chart.main()
    assert capsys.readouterr().out == f"{folder}\n"


def test_the_chart_of_an_earlier_version_is_found_beside_the_pinned_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = {version: tmp_path / version / "thing" for version in ("1.0.0", "1.1.0")}
    for version, folder in earlier.items():
        folder.mkdir(parents=True)
        (folder / "Chart.yaml").write_text(f"name: thing\nversion: {version}\n")
    folders = [*(str(folder.parent) for folder in earlier.values()), str(tmp_path / "not-built")]
    monkeypatch.setenv("GKE_AI_OTHER_CHARTS", ":".join(folders))
    for version, folder in earlier.items():
        monkeypatch.setattr("sys.argv", ["chart", REFERENCE, f"v{version}"])
        chart.main()
        assert capsys.readouterr().out == f"{folder}\n"


def test_version_that_the_emulator_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["chart", REFERENCE, "2.0.0"])
    with pytest.raises(SystemExit, match=r"version 2\.0\.0 is requested, but the folder has version 1\.2\.3"):
        chart.main()
