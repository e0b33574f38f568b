"""What a test run prints about its time."""

import subprocess
import sys
from pathlib import Path

from maintain import times
from tests.support.repository import ROOT


def test_a_run_names_its_slowest_files_and_its_cpu_time(tmp_path: Path) -> None:
    (tmp_path / "test_slow.py").write_text("import time\n\ndef test_slow():\n    time.sleep(1)\n")
    (tmp_path / "test_fast.py").write_text("def test_fast():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "maintain.times", "-n", "2", "--rootdir", str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    printed = done.stdout.partition("slowest 15 test files")[2].splitlines()
    assert printed[1].split() == ["1", "s", "test_slow.py"]
    assert printed[2].split() == ["0", "s", "test_fast.py"]
    assert "CPU-minutes of this machine" in printed[3]


def test_long_files_come_first_then_those_of_clusters(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    mark = "import pytest\n\n@pytest.mark.cluster\n"
    for name, begin in (("a_quick", ""), ("b_cluster", mark), (times.LONGEST[1], mark), (times.LONGEST[0], mark)):
        (folder / f"test_{name}.py").write_text(f"{begin}def test_it():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "maintain.times", "--co", "-q", "--rootdir", str(tmp_path)]
    done = subprocess.run([*command, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False)
    found = [line.partition("::")[0].rpartition("/")[2] for line in done.stdout.splitlines() if "::" in line]
    assert found == [f"test_{name}.py" for name in (times.LONGEST[0], times.LONGEST[1], "b_cluster", "a_quick")]


def test_the_longest_files_exist_and_are_in_make_test() -> None:
    assert [name for name in times.LONGEST if not (ROOT / f"tests/cluster/test_{name}.py").exists()] == []


def test_time_of_all_cores_only_grows() -> None:
    before = times.cpu_seconds()
    sum(range(10**7))
    assert times.cpu_seconds() > before > 0
