"""Only here: the commands of each tutorial, in order, print what its page shows.

In a block of `console`, a line that begins with `$ ` is a command, and the lines under it are what it prints: the words
of each, in order, in one line of the output, `…` for any of them. What only looks is asked again until it shows that.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any, NamedTuple

import pytest

from gke_ai.forecast.compare.comparison import facts
from gke_ai.forecast.result import forecast as model
from gke_ai.forecast.result import simulation
from tests.support import repository
from tests.support.emulator import ROOT, Emulator, until_none

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("[0-9]*.md"))
ON_EMULATOR = ("kubectl get", "kubectl -n llm get", "logs", "bucket ls", "gke-ai compare")
LOOKS = ("make status", "make logs", *(f"emulator/run {command}" for command in ON_EMULATOR))
PATIENCE_SECONDS = 300.0


class Step(NamedTuple):
    """A command of a tutorial, and the lines that it must print."""

    command: str
    shown: tuple[str, ...]


def steps(page: str) -> list[Step]:
    tutorial_steps: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.M | re.S):
        for command in re.split(r"^\$ ", block, flags=re.M)[1:]:
            first, *shown = command.rstrip("\n").split("\n")
            tutorial_steps.append(Step(first, tuple(line for line in shown if line.strip())))
    return tutorial_steps


def missing(step: Step, output: str) -> list[str]:
    """The expected lines that the step did not print."""
    lines = [" ".join(line.split()) for line in output.splitlines()]

    def is_there(shown: str) -> bool:
        words = r".*?(?<!\S)".join(re.escape(word).replace("…", r"\S*") for word in shown.split() if word != "…")
        return any(re.search(rf"(?<!\S){words}", line) for line in lines)

    return [line for line in step.shown if not is_there(line)]


class Shell:
    """Runs commands one after the other like a reader's shell. A failure does not show the environment."""

    def __init__(self, emulator: Emulator, folder: Path) -> None:
        self.folder = folder
        self.environment = {**emulator.environment, "COLUMNS": "250"}
        self.beside: list[subprocess.Popen[str]] = []

    def start(self, command: str, output: int) -> subprocess.Popen[str]:
        bash, env = ["bash", "-c", command], self.environment
        return subprocess.Popen(bash, cwd=self.folder, env=env, stdin=DEVNULL, stdout=output, stderr=STDOUT, text=True)

    def run(self, command: str) -> str:
        """The output of a command. Keeps variables. A command that ends with `&` continues in the background."""
        if assigned := re.fullmatch(r"export (\w+)=(\S+)", command):
            self.environment[assigned[1]] = assigned[2]
            return ""
        if command.endswith(" &"):
            self.beside.append(self.start(command.removesuffix(" &"), DEVNULL))
            return ""
        process = self.start(command, PIPE)
        output = process.communicate()[0]
        assert process.returncode == 0, f"$ {command}\nended with {process.returncode}:\n{output}"
        return output

    def close(self) -> None:
        for process in self.beside:
            process.terminate()
            process.wait()


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout, or a copy of it with the environments as shipped, if its users have edited theirs."""
    if all((ROOT / name).read_text() == repository.source(name).read_text() for name in repository.STACKS):
        return ROOT
    copy = repository.copy_to(tmp_path_factory.mktemp("checkout"))
    for name in repository.STACKS:
        shutil.copy2(repository.source(name), copy / name)
    return copy


def rehearsed(file: Path) -> Any:
    """What a rehearsal says, without seconds and nodes, which differ from run to run."""
    forecast = model.read(file)
    return forecast.stack, forecast.change, facts(forecast), [replace(server, below=0) for server in forecast.servers]


def simulated(file: Path) -> Any:
    """What a simulation has figures of. The figures themselves are of other days."""
    day = simulation.read(file)
    names = [configuration.name for configuration in day.configurations]
    return day.stack, names, [(figure.kind, figure.name, figure.key) for figure in day.figures], day.notes


# The recordings of which pages show pictures: the file that a tutorial writes, and what must be equal in both.
RECORDED: dict[str, tuple[Path, str, Callable[[Path], Any]]] = {
    "9-rehearse-a-change": (Path("/tmp/forecast.json"), "tests/data/pictures/rehearsal.json", rehearsed),
    "10-simulate-a-day": (Path("/tmp/day.json"), "tests/data/pictures/simulation.json", simulated),
}


MARKS = {page: [] if page.stem[:2] == "1-" else [pytest.mark.nightly] for page in TUTORIALS}


@pytest.mark.parametrize("page", [pytest.param(page, marks=marks, id=page.stem) for page, marks in MARKS.items()])
def test_each_command_of_a_tutorial_prints_what_its_page_shows(page: Path, emulator: Emulator, checkout: Path) -> None:
    shell = Shell(emulator, checkout)
    try:
        for step in steps(page.read_text()):
            shows(step, shell)
    finally:
        shell.close()
    until_none(emulator.processes, "no process of the emulator is left", 20)
    if page.stem in RECORDED:
        written, recording, shown = RECORDED[page.stem]
        assert shown(written) == shown(ROOT / recording), f"copy {written} to {recording}, and run make docs"


def shows(step: Step, shell: Shell) -> None:
    """Run a step and check its output. A step that only reads is repeated until it shows its output."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not_shown := missing(step, output := shell.run(step.command)):
        again = step.command.startswith(LOOKS) and time.monotonic() < end
        assert again, f"$ {step.command}\ndid not print {not_shown}:\n{output}"
        time.sleep(1)


def test_each_page_has_commands_and_output_that_lacks_a_line_is_found() -> None:
    assert len(TUTORIALS) == 10
    for page in TUTORIALS:
        assert sum(bool(step.shown) for step in steps(page.read_text())) >= 4, page.name
    step = Step("make status", ("llm/gemma 1 of 1", "pod/a-… annotated"))
    assert missing(step, "x\n llm/gemma   1 of 1   –\npod/a-12 annotated\n") == []
    assert missing(step, "llm/gemma 0 of 1\npod/a-12 annotated") == ["llm/gemma 1 of 1"]
    assert missing(step, "llm/gemma 1 of 1\npod/b-12 annotated") == ["pod/a-… annotated"]
    assert missing(step, "llm/gemma 1 of\n1\npod/a- annotated") == ["llm/gemma 1 of 1"]
