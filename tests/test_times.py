"""What a test run used is charged to the right file and program, each second once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emulator.paths import ROOT
from emulator.polling import poll_until
from maintain.times.ledger import Ledger, Reading, Use
from maintain.times.plugin import kind_of
from maintain.times.programs import (
    API_SERVER,
    ENGINE,
    OTHER,
    PLUGINS,
    PROGRAMS,
    PYTEST,
    is_engine_run,
    is_warm_server,
    program_of,
)
from maintain.times.record import BEFORE, CONTROLLER, Record, Share, merge
from maintain.times.scanner import MARK, Scanner
from maintain.times.tables import COLUMNS, markdown, plain, rows, summary

FILE = "tests/test_x.py"


def process(pid: int, own: float, waited: float = 0.0, parent: int = 1, program: str = PYTEST) -> Reading:
    """A process whose start, in ticks, is its id."""
    return Reading(pid, pid, parent, own, waited, program)


def charged(*scans: list[Reading]) -> dict[str, float]:
    """CPU time by program after these scans, without programs that used none."""
    ledger = Ledger()
    for scan in scans:
        ledger.add(FILE, scan)
    return {program: round(seconds, 6) for program, seconds in ledger.of(FILE).cpu.items() if seconds}


def test_growth_is_charged_to_the_file_of_the_moment() -> None:
    ledger = Ledger()
    ledger.add("a", [process(1, 2.0)])
    ledger.add("b", [process(1, 2.5)])
    assert {file: use.cpu[PYTEST] for file, use in ledger.uses.items()} == {"a": 2.0, "b": 0.5}


def test_child_that_was_seen_is_charged_once_and_its_last_moments_to_its_program() -> None:
    child = process(2, 1.0, parent=1, program=ENGINE)
    assert charged([process(1, 1.0), child], [process(1, 1.0, waited=1.2)]) == {PYTEST: 1.0, ENGINE: 1.2}


def test_child_that_was_never_seen_is_charged_to_other() -> None:
    assert charged([process(1, 1.0)], [process(1, 1.0, waited=0.2)]) == {PYTEST: 1.0, OTHER: 0.2}


def test_child_that_ends_after_its_parent_was_read_is_charged_once() -> None:
    child = process(2, 1.0, parent=1, program=ENGINE)
    late = [process(1, 1.0, waited=1.1)]
    assert charged([process(1, 1.0), child], [process(1, 1.0)], late) == {PYTEST: 1.0, ENGINE: 1.1}


def test_time_of_a_child_that_its_parent_does_not_count_does_not_hide_a_later_child() -> None:
    child = process(2, 1.0, parent=1, program=ENGINE)
    quiet = [process(1, 1.0)]
    assert charged([process(1, 1.0), child], quiet, quiet, [process(1, 1.0, waited=0.5)]) == {
        PYTEST: 1.0,
        ENGINE: 1.0,
        OTHER: 0.5,
    }


def test_parent_and_child_that_end_together_are_charged_once() -> None:
    first = [process(1, 1.0), process(2, 1.0, parent=1, program=ENGINE), process(3, 2.0, parent=2, program=PLUGINS)]
    assert charged(first, [process(1, 1.0, waited=3.0)]) == {PYTEST: 1.0, ENGINE: 1.0, PLUGINS: 2.0}


def test_grandchild_that_was_waited_for_before_its_parent_ended_is_charged_once() -> None:
    first = [process(1, 1.0), process(2, 1.0, parent=1, program=ENGINE), process(3, 2.0, parent=2, program=PLUGINS)]
    second = [process(1, 1.0), process(2, 1.0, waited=2.0, parent=1, program=ENGINE)]
    assert charged(first, second, [process(1, 1.0, waited=3.0)]) == {PYTEST: 1.0, ENGINE: 1.0, PLUGINS: 2.0}


def test_process_with_a_used_id_is_another_process() -> None:
    other = Reading(2, 99, 1, 0.5, 0.0, PLUGINS)
    assert charged([process(2, 1.0, program=ENGINE)], [other]) == {ENGINE: 1.0, PLUGINS: 0.5}


def test_clusters_and_engine_runs_are_counted_once_also_if_a_process_gets_its_name_later() -> None:
    ledger = Ledger()
    run = Reading(3, 3, 1, 0.1, 0.0, ENGINE, engine_run=True)
    ledger.add(FILE, [process(2, 0.0, program=OTHER), run])
    ledger.add(FILE, [process(2, 0.1, program=API_SERVER), run])
    ledger.add(FILE, [process(2, 0.2, program=API_SERVER), run])
    assert (ledger.of(FILE).clusters, ledger.of(FILE).engine_runs) == (1, 1)


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("/tools/bin/kube-apiserver --v=1", "API server"),
        ("/tools/bin/etcd", "etcd"),
        ("pulumi up --yes", "engine"),
        ("/venv/bin/python -u /tools/bin/pulumi-language-python-exec --stack=dev .", "program"),
        ("/venv/bin/python3.11 -P -m emulator.language_host 127.0.0.1:1", "program"),
        ("/venv/bin/python -u -m pulumi.policy 127.0.0.1:1 policy", "program"),
        ("/venv/bin/python -P -m emulator.gcp_plugin 127.0.0.1:1", "plugins"),
        ("/venv/bin/python -P -m emulator.kubernetes_plugin", "plugins"),
        ("/venv/bin/python -P -m emulator.cluster daemon", "emulator"),
        ("python -P -m gke_ai.cli up", "commands"),
        ("kubectl get pods", "Go tools"),
        ("/tools/bin/kueue --config x", "Go tools"),
        ("python -m pytest -q", "pytest"),
        ("/venv/bin/python /venv/bin/pytest -q", "pytest"),
        ("/bin/sh emulator/run pulumi up", "other"),
        ("python -c pass", "other"),
        ("", "other"),
    ],
)
def test_command_line_names_the_program(command: str, program: str) -> None:
    assert program_of(command.split(), []) == program
    assert program in PROGRAMS


def test_container_of_a_pod_is_named_by_its_environment_unless_it_is_a_built_tool() -> None:
    variables = [b"GKE_AI_POD=uid/name"]
    assert program_of(["python", "-m", "emulator.stubs.server"], variables) == "pods"
    assert program_of(["/tools/bin/kueue"], variables) == "Go tools"


def test_engine_run_is_a_command_that_runs_a_program_or_changes_a_stack() -> None:
    assert is_engine_run(["/tools/bin/pulumi", "preview", "--json"])
    assert is_engine_run(["pulumi", "--non-interactive", "destroy"])
    assert not is_engine_run(["pulumi", "stack", "output"])
    assert not is_engine_run(["/bin/sh", "emulator/run", "pulumi", "up"])


# Uses so many seconds of the CPU.
BURN = "import time\nwhile time.process_time() < {0}: pass\n"
WAIT = "import pathlib\nwhile not pathlib.Path('end').exists(): time.sleep(0.02)\n"
DAEMON = BURN.format(0.4) + "print(time.process_time(), flush=True)\n" + WAIT
# Children too short to be seen, one that is seen, and a daemon that its parent doesn't wait for.
TREE = f"""
import subprocess, sys, time
for code in {[BURN.format(0.03)] * 3 + [BURN.format(0.4)]!r}:
    subprocess.run([sys.executable, "-c", code])
subprocess.run(["/bin/sh", "-c", '"$0" "$@" > used &', sys.executable, "-c", {DAEMON!r}])
{WAIT}"""


def test_real_process_tree_is_charged_with_what_the_kernel_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, mark := f"test-{os.getpid()}")
    scanner, ledger = Scanner(mark, worker=-1), Ledger()
    used = tmp_path / "used"
    before = os.times()
    with subprocess.Popen([sys.executable, "-c", TREE], cwd=tmp_path):

        def daemon_is_done() -> bool:
            ledger.add(FILE, scanner.scan())
            return used.exists() and used.read_text().endswith("\n")

        try:
            assert poll_until(daemon_is_done, timeout=60, pause=0.05)
            ledger.add(FILE, scanner.scan())
        finally:
            (tmp_path / "end").touch()
    after = os.times()
    waited = after.children_user + after.children_system - before.children_user - before.children_system
    assert ledger.of(FILE).cpu_seconds == pytest.approx(waited + float(used.read_text()), rel=0.1)


def test_server_that_programs_fork_from_is_no_process_of_a_worker_and_its_clients_are() -> None:
    warm = ["/venv/bin/python", "-I", "-S", "/checkout/emulator/warm.py"]
    client = [*warm, "--ends-with-parent", "-u", "-m", "emulator.gcp_plugin"]
    assert is_warm_server([*warm, "--serve", "3"])
    assert not is_warm_server(client)
    assert program_of(client, []) == PLUGINS


def test_process_that_a_server_forked_is_charged_to_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has the mark and names the forked process, which has neither the mark nor a parent with it."""
    monkeypatch.delenv(MARK, raising=False)
    with subprocess.Popen([sys.executable, "-c", BURN.format(0.3) + WAIT], cwd=tmp_path) as forked:
        name = f"import ctypes, time\nctypes.CDLL(None).prctl(15, b'fork-{forked.pid}', 0, 0, 0)\n"
        mark = f"test-{os.getpid()}"
        client = [sys.executable, "-c", name + WAIT, "-m", "emulator.gcp_plugin"]
        scanner, ledger = Scanner(mark, worker=-1), Ledger()
        with subprocess.Popen(client, cwd=tmp_path, env={**os.environ, MARK: mark}):

            def forked_is_charged() -> bool:
                ledger.add(FILE, scanner.scan())
                return ledger.of(FILE).cpu[PLUGINS] >= 0.3

            try:
                assert poll_until(forked_is_charged, timeout=60, pause=0.05)
            finally:
                (tmp_path / "end").touch()


def use(seconds: float, **cpu: float) -> Use:
    """What a file used, by program."""
    return Use(seconds, cpu, clusters=1, engine_runs=2)


def record(share: Share) -> Record:
    """A run in which the machine was busy for 200 seconds."""
    return Record("abc", "2026-11-23T04:00:00+00:00", 120.0, 2, 10, 0, 200.0, share)


SHARES = (Share({"a": use(10, etcd=1, pytest=2)}, 0.5), Share({"a": use(5, pytest=3), "b": use(1, pytest=90)}, 0.25))


def test_shares_of_workers_are_added_by_file() -> None:
    total = merge(SHARES)
    assert total.sampling == 0.75
    assert total.uses == {
        "a": Use(15, {"etcd": 1, "pytest": 5}, clusters=2, engine_runs=4),
        "b": use(1, pytest=90),
    }


def test_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = record(merge(SHARES))
    written.write("test", tmp_path)
    assert Record.read("test", tmp_path) == written
    assert Record.read("part", tmp_path) is None


def test_table_begins_with_the_file_that_used_most_and_ends_with_the_total() -> None:
    lines = rows(record(merge(SHARES)))
    assert [line[:3] for line in lines] == [["b", "1", "90"], ["a", "15", "6"], ["total", "16", "96"]]
    shown = dict(zip(COLUMNS, lines[1], strict=True))
    assert (shown["etcd"], shown["pytest"], shown["clusters"], shown["engine runs"]) == ("1", "5", "2", "4")
    assert len({len(line) for line in plain(record(merge(SHARES))).splitlines()}) == 1, "the columns are aligned"


def test_table_of_a_page_has_the_remaining_files_in_one_row() -> None:
    lines = markdown(record(merge(SHARES)), files=1).splitlines()
    assert [line.split(" | ")[:3] for line in lines[2:]] == [
        ["| b", "1", "90"],
        ["| 1 others", "15", "6"],
        ["| total", "16", "96"],
    ]


def test_summary_states_the_share_that_no_file_is_charged_with() -> None:
    assert "busy for 3.3 CPU-minutes: 52% are charged to no file" in summary(record(merge(SHARES)))


def session(args: pytest.Config.ArgsSource = pytest.Config.ArgsSource.TESTPATHS, **options: object) -> Any:
    """A session with these options, otherwise as of `make test`."""
    option = SimpleNamespace(**{"markexpr": "not long", "keyword": "", "lf": False} | options)
    return SimpleNamespace(config=SimpleNamespace(option=option, args_source=args), shouldstop=False, shouldfail=False)


def test_only_a_run_of_all_tests_is_a_whole_run() -> None:
    assert kind_of(session()) == "test"
    assert kind_of(session(markexpr="")) == "test-long"
    assert kind_of(session(markexpr="cluster")) == "part"
    assert kind_of(session(keyword="token")) == "part"
    assert kind_of(session(lf=True)) == "part"
    assert kind_of(session(pytest.Config.ArgsSource.ARGS)) == "part", "files are named"
    stopped = session()
    stopped.shouldfail = "stopping after 1 failures"
    assert kind_of(stopped) == "part"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of two test files that use the CPU."""
    (tmp_path / "cases").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = cases\nmarkers = long\n")
    for name in ("a", "b"):
        code = f"import time\n\ndef test_{name}():\n    end = time.process_time() + 0.1\n"
        code += "    while time.process_time() < end: pass\n"
        (tmp_path / "cases" / f"test_{name}.py").write_text(code)
    return tmp_path


@pytest.mark.parametrize(
    ("selected", "processes", "kind", "files", "workers"),
    [
        ([], ["-p", "xdist", "-n", "2"], "test", {"cases/test_a.py", "cases/test_b.py", BEFORE, CONTROLLER}, 2),
        (["cases/test_a.py"], [], "part", {"cases/test_a.py", BEFORE}, 1),
    ],
)
def test_run_of_pytest_is_recorded(
    selected: list[str], processes: list[str], kind: str, files: set[str], workers: int, project: Path
) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "maintain.times.plugin", "-m", "not long", *processes, *selected]
    variables = {"GKE_AI_CACHE": str(project), "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=project, env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (project / "times").iterdir()
    assert file.stem == kind
    run = Record.read(kind, project / "times")
    assert run is not None
    assert ({*run.share.uses}, run.workers, run.tests, run.failed) == (files, workers, len(files) // 2 or 1, 0)
    assert run.share.uses["cases/test_a.py"].cpu[PYTEST] > 0
    assert run.busy > 0
