"""Programs that fork from the warm process behave as in an interpreter of their own, and end with who started them."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from emulator.machine.paths import ROOT
from emulator.pulumi import warm
from emulator.tests.harness import eventually, fork_of, until_none

WARM = [sys.executable, "-I", "-S", warm.__file__]
# Serves without the imports of the SDKs, which take seconds.
SERVE = """
import sys
sys.path.insert(0, {root!r})
from emulator.pulumi import warm
warm.MODULES, warm.IDLE_SECONDS = ("json",), {idle}
fork = warm.serve({lock})
if fork:
    warm.become(*fork)
"""
FACTS = """
import json, os, sys
facts = [__name__, sys.argv, sys.path[0], os.getcwd(), os.environ.get("COLOR"), sys.stdin.read(), oct(os.umask(0))]
json.dump([*facts, sys.stdout.isatty(), len(os.listdir("/proc/self/fd")) < 7], sys.stdout)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a running warm process."""
    folder = tmp_path / "warm"
    folder.mkdir(mode=0o700)
    server = serve(folder, 60)
    try:
        eventually((folder / "socket").exists, "the warm process listens")
        yield folder
    finally:
        server.kill()
        server.wait()


def serve(folder: Path, idle: float) -> subprocess.Popen[bytes]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code = SERVE.format(root=str(ROOT), idle=idle, lock=lock.fileno())
        return subprocess.Popen([sys.executable, "-P", "-c", code], cwd=folder, pass_fds=[lock.fileno()])


def start(folder: Path | str, *arguments: str, **more: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE"))}
    return piped([*WARM, *arguments], {**environment, "GKE_AI_WARM": str(folder), **more})


def piped(command: Sequence[str], environment: Mapping[str, str], **more: Any) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **more)


def run(folder: Path | str, *arguments: str, stdin: str = "", **more: str) -> tuple[int, str, str]:
    process = start(folder, *arguments, **more)
    output, errors = process.communicate(stdin, timeout=30)
    return process.returncode, output, errors


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline()


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    """Writes a program. Returns its path."""

    def write(text: str) -> str:
        (tmp_path / "program.py").write_text(text)
        return str(tmp_path / "program.py")

    return write


Write = Callable[[str], str]
CHILD = "import subprocess\nprint(subprocess.Popen(['sleep', '60']).pid, flush=True)\ninput()\n"


def test_a_forked_program_sees_what_it_would_see_in_an_interpreter_of_its_own(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "program" / "facts.py"
    program.parent.mkdir()
    program.write_text(FACTS)
    (program.parent / "__main__.py").write_text(FACTS)
    calls = [(str(program), "--flag", "a b"), ("-u", str(program)), (str(program.parent), "x"), ("-P", "-m", "facts")]
    for arguments in calls:
        forked, own, alone = (
            run(where, *arguments, stdin="text", COLOR="blue", PYTHONPATH=str(program.parent))
            for where in (folder, "", "/dev/null/warm")  # at the last one, no warm process can start
        )
        assert own[0] == 0, own[2]
        assert forked == alone == own


KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
ENDS = ["pass", "raise SystemExit(7)", "raise SystemExit('a reason')", "1 / 0", "import os; os._exit(3)", KILLED]


@pytest.mark.parametrize("code", [*ENDS, "os.kill(0)"])
def test_exit_status_and_errors_are_those_of_the_program(folder: Path, program: Write, code: str) -> None:
    path = program(code)
    assert run(folder, path) == run("", path)


@pytest.mark.parametrize(
    "write", ["print('43001')", "sys.stdout.buffer.write(b'43001\\n')", "sys.stdout.write('43001\\n')"]
)
def test_unbuffered_output_is_seen_while_the_program_runs(folder: Path, program: Write, write: str) -> None:
    process = start(folder, "-u", program(f"import sys, time\n{write}\ntime.sleep(60)\n"))
    timer = threading.Timer(20, process.kill)
    timer.start()
    assert first_line(process) == "43001\n"
    timer.cancel()
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_forked_program(folder: Path, program: Write, number: signal.Signals) -> None:
    path = program(
        "import os, signal, time\n"
        f"signal.signal({int(number)}, lambda *_: os._exit(9))\nprint('ready', flush=True)\n"
        # Python can miss a signal that comes just before a long sleep.
        "for _ in range(600):\n    time.sleep(0.1)\n"
    )
    process = start(folder, path)
    assert first_line(process) == "ready\n"
    process.send_signal(number)
    assert process.wait(60) == 9
    process.communicate()


def test_a_forked_program_and_its_children_end_with_the_process_that_started_it(folder: Path, program: Write) -> None:
    process = start(folder, program(CHILD))
    ids = [int(first_line(process)), fork_of(process.pid)]
    assert process.pid not in ids
    process.kill()
    process.communicate()
    until_none(lambda: [pid for pid in ids if Path(f"/proc/{pid}").exists()], "the fork and its child end")


def test_a_forked_program_ends_when_the_parent_of_its_process_is_killed(folder: Path, program: Write) -> None:
    path = program("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    code = f"import subprocess; subprocess.run({[*WARM, path]!r})"
    parent = piped([sys.executable, "-c", code], bare(folder))
    pid = int(first_line(parent))
    parent.kill()
    parent.communicate()  # returns once no process holds the stream
    until_none(Path(f"/proc/{pid}").exists, "the fork ends")


def bare(folder: Path) -> dict[str, str]:
    return {"GKE_AI_WARM": str(folder), "PATH": os.environ["PATH"]}


def test_a_source_file_edited_between_two_runs_counts_at_once(folder: Path, tmp_path: Path, program: Write) -> None:
    path = program("import part\nprint(part.VALUE)\n")
    for value in ("first", "second and longer"):
        (tmp_path / "part.py").write_text(f"VALUE = {value!r}\n")
        assert run(folder, path)[1] == f"{value}\n"


def test_the_first_program_runs_by_itself_and_starts_a_warm_process_with_the_sdks_alone(
    tmp_path: Path, program: Write
) -> None:
    folder = tmp_path / "warm"
    path = program(
        "import json, os, sys\n"
        "modules = {name: module for name, module in sys.modules.items() if name not in ('__main__', '__mp_main__')}\n"
        "files = [getattr(module, '__file__', None) or '' for module in modules.values()]\n"
        "print(json.dumps([os.getppid(), 'pulumi_gcp.container.cluster' in sys.modules, files]))\n"
    )
    assert run(folder, path)[0] == 0
    eventually((folder / "socket").exists, "the warm process listens", 120)
    assert (folder / "log").read_text() == ""
    assert [oct(path.stat().st_mode & 0o777) for path in (folder, folder / "socket")] == ["0o700", "0o600"]
    status, output, errors = run(folder, path)
    assert status == 0, errors
    server, has_sdk, files = json.loads(output)
    try:
        assert has_sdk
        assert [file for file in files if file.startswith(str(ROOT))] == []
        assert len(os.listdir(f"/proc/{server}/task")) == 1
    finally:
        os.kill(server, signal.SIGTERM)


def test_the_warm_process_ends_when_it_is_idle(tmp_path: Path) -> None:
    assert serve(tmp_path, 0.2).wait(30) == 0
    assert not (tmp_path / "socket").exists()


def test_a_program_with_a_variable_that_acts_at_the_start_of_python_is_not_forked(folder: Path, program: Write) -> None:
    path = program("import sys\nprint(sys.flags.hash_randomization)\n")
    assert run(folder, path, PYTHONHASHSEED="0")[1] == "0\n"
    assert run(folder, path)[1] == "1\n"


def test_a_signal_also_reaches_the_children_of_a_forked_program(folder: Path, program: Write) -> None:
    process = start(folder, program(CHILD))
    child = Path(f"/proc/{first_line(process).strip()}")
    process.terminate()
    assert process.wait(30) == -signal.SIGTERM  # before its input is closed, at whose end the program would end itself
    process.communicate()
    until_none(child.exists, "the child ends")


@pytest.mark.parametrize(
    ("arguments", "forks"),
    [
        (["-m", "module"], True),
        (["-P", "-u", "program.py", "-c"], True),
        (["-c", "pass"], False),
        (["-X", "importtime", "program.py"], False),
        ([], False),
    ],
)
def test_only_arguments_that_a_fork_knows_are_forked(
    arguments: list[str], forks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("PYTHON", "COVERAGE_"))]:
        monkeypatch.delenv(name)
    for terminal in (False, True):
        monkeypatch.setattr(os, "isatty", lambda _, terminal=terminal: terminal)
        assert warm.can_fork(arguments) == (forks and not terminal)


def test_every_module_of_the_sdks_that_the_program_names_is_warm() -> None:
    named = set()
    for place in ("components", "emulator/google"):
        for file in (ROOT / place).rglob("*.py"):
            text = file.read_text()
            named |= {f"pulumi_gcp.{name}" for name in re.findall(r"\b(?:pulumi_)?gcp\.([a-z]+)[.:/\"]", text)}
            named |= {f"pulumi_kubernetes.{name}" for name in re.findall(r"\bk8s\.([a-z]+(?:\.v\d)?)\.", text)}
    assert {"pulumi_gcp.container", "pulumi_kubernetes.core.v1"} <= named
    assert named - set(warm.MODULES) == set()


def test_tests_pass_in_the_background_job_of_a_shell() -> None:
    """Such a job ignores interrupts, and so would each program that a test starts."""
    test = f"{Path(__file__)}::test_signals_reach_the_forked_program"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    ignoring = ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command]
    done = subprocess.run(ignoring, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_is_ignored_stays_ignored_in_the_forked_program(
    folder: Path, program: Write, number: signal.Signals
) -> None:
    path = program("print('ready', flush=True)\ninput()\nprint('done')\n")
    ignoring = f"trap '' {number.name[3:]}; exec \"$@\""
    process = piped(["/bin/sh", "-c", ignoring, "sh", *WARM, path], bare(folder))
    assert first_line(process) == "ready\n"
    for _ in range(2):
        process.send_signal(number)
        os.kill(fork_of(process.pid), number)
    assert process.communicate("go on\n", timeout=30)[0] == "done\n"


def test_a_signal_is_not_ignored_because_it_was_when_the_warm_process_started(tmp_path: Path, program: Write) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        server = serve(tmp_path, 60)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        eventually((tmp_path / "socket").exists, "the warm process listens")
        path = program("import signal\nprint(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n")
        assert run(tmp_path, path)[1] == "True\n"
    finally:
        server.kill()
        server.wait()


def test_a_forked_program_that_a_signal_to_its_group_stops_cleans_up_after_its_parent_has_ended(
    folder: Path, tmp_path: Path, program: Write
) -> None:
    cleaned = tmp_path / "cleaned"
    path = program(
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))\n"
        "try:\n    print('ready', flush=True)\n    for _ in range(600):\n        time.sleep(0.1)\n"
        f"finally:\n    time.sleep({5 * warm.PARENT_SECONDS})\n    pathlib.Path({str(cleaned)!r}).touch()\n"
    )
    # `true` keeps the shell as the parent.
    command = ["/bin/sh", "-c", '"$@"; true', "sh", *WARM, path]
    parent = piped(command, bare(folder), start_new_session=True)
    assert first_line(parent) == "ready\n"
    os.killpg(parent.pid, signal.SIGTERM)
    assert parent.wait(30) == -signal.SIGTERM
    eventually(cleaned.exists, "the program cleans up")
    parent.communicate()
