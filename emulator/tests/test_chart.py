"""`emulator/run chart` prints the folder of a chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator import chart

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
    earlier = tmp_path / "earlier" / "thing"
    earlier.mkdir(parents=True)
    (earlier / "Chart.yaml").write_text("name: thing\nversion: 1.0.0\n")
    monkeypatch.setenv("GKE_AI_EARLIER_CHARTS", str(earlier.parent))
    monkeypatch.setattr("sys.argv", ["chart", REFERENCE, "v1.0.0"])
    chart.main()
    assert capsys.readouterr().out == f"{earlier}\n"


def test_version_that_the_emulator_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["chart", REFERENCE, "2.0.0"])
    with pytest.raises(SystemExit, match=r"version 2\.0\.0 is requested, but the folder has version 1\.2\.3"):
        chart.main()
