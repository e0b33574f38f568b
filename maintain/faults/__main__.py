"""`make faults`: puts each fault into a copy of the checkout, and says whether its tests find it.

A fault is found if each of its tests fails by an assertion with the expected message.
"""

import argparse
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from maintain.faults import ROOT, Fault, read

# The messages of `assert` with and without a text, and of pytest.fail and pytest.raises.
ASSERTION = re.compile(r"AssertionError|assert |Failed: ")
# Whole messages, and no cache in the copy.
REPORTED = ("-vv", "--tb=short", "-p", "no:cacheprovider")
LIMIT_SECONDS = 1200
END_SECONDS = 60
STOPS = (signal.SIGTERM, signal.SIGINT)
OF_THE_CHECKOUT = ("GKE_AI_STATE", "GKE_AI_ROOT", "PYTHONPATH", "TMPDIR")


@dataclass(frozen=True)
class Result:
    """What the tests said about a fault: `problem` is empty if they found it."""

    fault: Fault
    problem: str
    seconds: float


@dataclass(frozen=True)
class Case:
    """A case of a test, and the message with which it failed: empty if it passed."""

    test: str
    message: str

    def belongs_to(self, test: str) -> bool:
        return self.test == test or self.test.startswith(f"{test}[")


class Copy:
    """A copy of the checkout, in which one fault at a time is applied."""

    def __init__(self, folder: Path) -> None:
        self.root, self._temporary = folder / "c", folder / "t"
        self._temporary.mkdir()
        # Python compares the time of a source in whole seconds with that of its bytecode.
        self._times = itertools.count(int(time.time()))
        if not shutil.which("git"):
            sys.exit("Git is not on PATH, and it lists the files of the checkout. Install git.")
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).exists():  # not a file whose deletion is not committed
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name, follow_symlinks=False)

    @contextmanager
    def having(self, fault: Fault) -> Iterator[None]:
        file = self.root / fault.file
        text = file.read_text()
        self._write(file, fault.applied(text))
        try:
            yield
        finally:
            self._write(file, text)

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text)
        now = next(self._times)
        os.utime(file, (now, now))

    def run(self, tests: Sequence[str]) -> list[Case]:
        """Runs tests in the copy and returns their cases. Ends whatever they leave."""
        report = self.root.parent / "report.xml"
        report.unlink(missing_ok=True)
        process = subprocess.Popen(
            [self.root / "emulator" / "run", "pytest", *REPORTED, f"--junitxml={report}", *tests],
            cwd=self.root,
            env=environment() | {"TMPDIR": str(self._temporary)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C reaches it once, from here
        )
        try:
            process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"not over after {LIMIT_SECONDS} s", end=" ", flush=True)
        finally:
            self._end(process)
        return list(cases(report)) if report.exists() else []

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Ends a run, and then each process of the copy by its id."""
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # pytest then ends the emulators of its fixtures
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for how in (signal.SIGTERM, signal.SIGKILL):
            ends = time.monotonic() + 5
            while left := self._processes():
                for pid in left:
                    send(pid, how)
                if time.monotonic() > ends:
                    break
                time.sleep(0.2)

    def _processes(self) -> list[int]:
        """The processes that `emulator/run` of the copy started, directly or not."""
        mark, found = f"GKE_AI_ROOT={self.root}".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue  # it has ended, or belongs to another user
        return found


@contextmanager
def copied() -> Iterator[Copy]:
    """A copy of the checkout, deleted at the end with everything that tests wrote."""
    folder = Path(tempfile.mkdtemp(prefix="gke-ai-"))
    try:
        yield Copy(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(Path(f"{os.environ['GKE_AI_CACHE']}/bytecode/{folder}"), ignore_errors=True)


def stop(*_: object) -> None:
    """Ends the command as Ctrl-C does. Another signal does not interrupt the deletion of the copy."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def environment() -> dict[str, str]:
    """The environment of this process, without what `emulator/run` of the checkout set. The copy sets its own."""
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if ROOT not in Path(folder).parents]
    kept = {name: value for name, value in os.environ.items() if name not in OF_THE_CHECKOUT}
    return kept | {"PATH": os.pathsep.join(path)}


def send(pid: int, how: signal.Signals) -> None:
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        return


def cases(report: Path) -> Iterator[Case]:
    for case in ElementTree.parse(report).iter("testcase"):
        failures = [*case.iter("failure"), *case.iter("error")]
        module = case.get("classname", "").replace(".", "/")
        message = "\n".join(message_of(failure.text or "") for failure in failures)
        yield Case(f"{module}.py::{case.get('name')}", message)


def message_of(failure: str) -> str:
    """The message of the last exception in pytest's account of a failure: its last lines with an E."""
    blocks = itertools.groupby(failure.splitlines(), key=lambda line: line == "E" or line.startswith("E  "))
    messages = [[*lines] for is_message, lines in blocks if is_message]
    last = [line.removeprefix("E").removeprefix("   ") for line in messages[-1]] if messages else []
    return "\n".join(last) if messages else "it failed without a message"


def problem_of(fault: Fault, found: Sequence[Case]) -> str:
    for test in fault.tests:
        own = [case for case in found if case.belongs_to(test)]
        failed = [case for case in own if case.message]
        if not own:
            return f"{test} did not run"
        if not failed:
            return f"{test} passes"
        for case in failed:
            if not ASSERTION.match(case.message):
                return f"{case.test} fails by no assertion: {shortened(case.message)}"
        if not any(re.search(fault.expected, case.message) for case in failed):
            return f"{test} fails with another message: {shortened(failed[0].message)}"
    return ""


def shortened(message: str) -> str:
    """A message in one line: its beginning, and its end, where commands print their error."""
    line = " ".join(message.split())
    return line if len(line) < 500 else f"{line[:200]} … {line[-300:]}"


def failing_without_fault(copy: Copy, faults: Sequence[Fault]) -> list[str]:
    """The named tests that do not pass in the copy without a fault."""
    tests = list(dict.fromkeys(test for fault in faults for test in fault.tests))
    found = copy.run(tests)
    own = {test: [case for case in found if case.belongs_to(test)] for test in tests}
    return [test for test, of_test in own.items() if not of_test or any(case.message for case in of_test)]


def looked_for(copy: Copy, faults: Sequence[Fault]) -> Iterator[Result]:
    """Puts each fault into the copy in turn, and runs its tests."""
    for number, fault in enumerate(faults, 1):
        print(f"{number}/{len(faults)} {fault.name} …", end=" ", flush=True)
        began = time.monotonic()
        with copy.having(fault):
            problem = problem_of(fault, copy.run(fault.tests))
        seconds = time.monotonic() - began
        print(f"{f'NOT FOUND: {problem}' if problem else 'found'} ({seconds:.0f} s)", flush=True)
        yield Result(fault, problem, seconds)


def table(results: Sequence[Result]) -> str:
    rows = [("fault", "where", "tests", "result", "s")]
    for result in results:
        fault, found = result.fault, "NOT FOUND" if result.problem else "found"
        files = dict.fromkeys(test.partition("::")[0].rpartition("/")[2] for test in fault.tests)
        rows.append((fault.name, fault.file, ", ".join(files), found, f"{result.seconds:.0f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, f"{sum(not result.problem for result in results)} of {len(results)} faults are found."])


def main() -> int:
    """Looks for the faults. Returns 1 unless the tests find all of them."""
    parser = argparse.ArgumentParser(prog="python -m maintain.faults", description=__doc__.partition("\n")[0])
    parser.add_argument("--fault", default="", help="only the faults with this text in their name")
    parser.add_argument("--without-cluster", action="store_true", help="only the faults that quick tests find")
    parser.add_argument("--passing", action="store_true", help="first check that the tests pass without a fault")
    options = parser.parse_args()
    named = [fault for fault in read() if options.fault in fault.name]
    faults = [fault for fault in named if not (options.without_cluster and fault.end_to_end)]
    if not faults:
        sys.exit(f"No fault has {options.fault!r} in its name. maintain/faults/faults.yaml lists them.")
    for number in STOPS:  # in the background, SIGINT would be ignored here and in pytest
        signal.signal(number, stop)
    results: list[Result] = []
    try:
        with copied() as copy:
            if options.passing and (failing := failing_without_fault(copy, faults)):
                print("These tests fail without any fault, so they would find nothing:", *failing, sep="\n  ")
                return 1
            for result in looked_for(copy, faults):
                results.append(result)
    except KeyboardInterrupt:
        print("stopped")
        return 130
    finally:
        if results:
            print(f"\n{table(results)}")
    return int(any(result.problem for result in results))


if __name__ == "__main__":
    sys.exit(main())
