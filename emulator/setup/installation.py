"""Sets up what `emulator/run` needs: the Python environment and the requested tools. Standard library only.

    python3 -m emulator.setup.installation READY [TOOL,TOOL…]     before a command; READY is written last
    python3 -m emulator.setup.installation --program PROGRAM      builds the tool that has this program and prints its
    path

READY is a shell fragment. `emulator/run` names it after a hash of everything that set-up depends on. While READY and
the Python environment in it exist, set-up runs only if a command requests tools that aren't built yet. A program that
isn't built yet has a shim on PATH; the shim builds the program on the first run. If there is an archive of the tools
(archive.py), they come from there, and so do the Python packages that a stack needs: those of tests and checks follow
when a command requests `development`, or runs one of its programs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path

from emulator.machine.paths import CACHE, LOCK
from emulator.machine.progress import Canceled, CommandFailed, Progress, Step, Stop, duration, roughly
from emulator.setup import archive
from emulator.setup.go_build import exclusive, go_version, install
from emulator.setup.toolchain import BY_NAME, KUEUE, NIGHTLY, TOOLS, WITH_CHARTS, Module, Tool
from gke_ai.workspace.emulation import INSTALLED

# Plugins in emulator/bin, each with the Python package whose version it reports.
PLUGINS = {
    "language-python": "pulumi",
    "language-go": "pulumi",
    "language-nodejs": "pulumi",
    "language-yaml": "pulumi",
    "resource-gcp": "pulumi-gcp",
    "resource-kubernetes": "pulumi-kubernetes",
}
# The Python packages of tests and checks, and their programs. An archive has only the packages that a stack needs.
DEVELOPMENT = "development"
PROGRAMS = ("coverage", "mypy", "pytest", "ruff", "zizmor")
# Names that `--tools` accepts in addition to the names of tools.
GROUPS = {
    "stack": ("kubernetes", "etcd", "kwok", "pulumi"),
    "all": (*BY_NAME, DEVELOPMENT),
    # Of `make test`: earlier releases are for the nightly tests.
    "tests": (*(name for name in BY_NAME if name not in NIGHTLY), DEVELOPMENT),
}
ENVIRONMENT_SECONDS = 140  # to create the Python environment, measured as Tool.seconds
# Modules that are built in parallel: while one is downloaded or linked, the other keeps the cores busy.
AT_ONCE = 2
SHIM = """#!/bin/sh
# Builds the tool that contains this program, then runs it.
path=$(PYTHONPATH="$GKE_AI_ROOT" "$GKE_AI_PYTHON" -P -m emulator.setup.installation --program "${0##*/}") &&
    exec "$path" "$@"
"""


def main() -> None:
    """Builds what is missing, shows progress on standard error, and writes READY."""
    try:
        if sys.argv[1] == "--program":
            print(path_of(sys.argv[2]))
        else:
            set_up(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
    except Stop as stop:
        sys.exit(f"{stop}")
    except KeyboardInterrupt:
        sys.exit("\nStopped. Run this again to continue. Tools that are built are kept.")
    except OSError as error:
        sys.exit(f"Set-up can't use {error.filename or CACHE}: {error.strerror}. Set GKE_AI_CACHE to another folder.")


def requested(names: str) -> set[str]:
    """The names of a list such as `stack,helm`, without groups."""
    chosen: set[str] = set()
    for name in filter(None, re.split(r"[,\s]+", names)):
        if name not in (*BY_NAME, *GROUPS, DEVELOPMENT):
            raise Stop(f"The emulator has no tool {name}. Choose from: {', '.join([*GROUPS, *BY_NAME, DEVELOPMENT])}.")
        chosen.update(GROUPS.get(name, (name,)))
    return chosen


def selected(names: str) -> list[Tool]:
    """The tools of a list such as `stack,helm`, each once, in the order of `TOOLS`."""
    chosen = requested(names)
    return [tool for tool in TOOLS if tool.name in chosen]


def path_of(program: str) -> Path:
    """Returns the path of a program. Builds or installs the program if it is missing."""
    if program in PROGRAMS:
        environment = environment_folder()
        build_missing([], {}, environment, wheels=None)
        return environment / "bin" / program
    tool = next(tool for tool in TOOLS if program in tool.packages)
    folders = module_folders(archive.take())
    build_missing([tool], folders, environment=None, wheels=None)
    return folders[tool.module] / "bin" / program


def set_up(ready: Path, names: str) -> None:
    """Creates the Python environment and builds these tools in parallel, then writes READY."""
    tools, development = selected(names), DEVELOPMENT in requested(names)
    environment, taken = environment_folder(), archive.take()
    folders = module_folders(taken)
    wheels = taken / "wheels" if taken and not development else None
    build_missing(tools, folders, environment, wheels)
    write_ready(ready, {module.name: folder for module, folder in folders.items()}, environment)


def module_folders(taken: Path | None) -> dict[Module, Path]:
    """The folder of each module: in the archive that was taken, or where this Go builds it."""
    if taken:
        return {tool.module: archive.tools(taken, tool.module) for tool in TOOLS}
    go = go_version()
    return {tool.module: tool.module.folder(go) for tool in TOOLS}


def build_missing(
    tools: list[Tool], folders: dict[Module, Path], environment: Path | None, wheels: Path | None
) -> None:
    """Builds the missing tools and creates the Python environment if needed.

    Shows progress.

    Args:
        tools: The requested tools.
        folders: The folder of each module.
        environment: The Python environment, if it is requested.
        wheels: Packages of an archive, which are then enough.
    """
    started = time.monotonic()
    missing: dict[Module, list[Tool]] = {}
    for tool in tools:
        if not tool.exists(folders[tool.module]):
            missing.setdefault(tool.module, []).append(tool)
    new_environment = environment is not None and not is_installed(environment, wheels)
    if not missing and not new_environment:
        return
    usual_seconds = sum(tool.seconds for group in missing.values() for tool in group)
    usual_seconds += ENVIRONMENT_SECONDS if new_environment else 0
    titles = [tool.title for group in missing.values() for tool in group]
    titles += ["the Python environment"] if new_environment else []
    purpose = os.environ.get("GKE_AI_PURPOSE")
    print(
        f"Set-up{f' for {purpose}' if purpose else ''}, once for each version: {', '.join(titles)}.\n"
        f"This usually takes {roughly(usual_seconds)} on two cores. The result is kept in {CACHE}",
        file=sys.stderr,
    )
    with Progress(usual_seconds) as progress, ThreadPoolExecutor(AT_ONCE + 1) as pool:

        def in_step(title: str, work: Callable[[Step], str]) -> None:
            if not progress.canceled.is_set():
                step = progress.step(title)
                step.done(f"{work(step)} in")

        jobs: list[Future[None]] = []
        if environment is not None and new_environment:
            jobs.append(pool.submit(in_step, "Python environment", partial(create_environment, environment, wheels)))
        # Start the longest build first: the others run beside it.
        for module, group in sorted(missing.items(), key=lambda item: -sum(tool.seconds for tool in item[1])):
            title = ", ".join(tool.title for tool in group)
            jobs.append(pool.submit(in_step, title, partial(install, group, folders[module])))
        try:
            wait(jobs, return_when=FIRST_EXCEPTION)
        finally:
            progress.canceled.set()
        errors = [error for error in (job.exception() for job in jobs if job.done()) if error]
        errors.sort(key=lambda error: isinstance(error, Canceled))
        if errors:
            raise errors[0]
    print(f"Set up in {duration(time.monotonic() - started)}", file=sys.stderr)


# --------------------------------------------------------------------------------------------------- Python environment
def environment_folder() -> Path:
    """Folder of the environment for this lock file and this Python. If the emulator is installed: where it is."""
    if INSTALLED:
        return Path(sys.prefix)
    key = hashlib.sha256(f"{sys.version} {sys.base_prefix}".encode() + LOCK.read_bytes())
    return CACHE / "venv" / key.hexdigest()[:16]


def complete_marker(environment: Path) -> Path:
    """File that is written last.

    A virtual environment contains its own path, so it can't be renamed into place. If the emulator is installed, so is
    its environment.
    """
    return environment if INSTALLED else environment / "finished"


def partial_marker(environment: Path) -> Path:
    """File that is written once the packages of an archive are installed."""
    return environment / "finished-from-archive"


def is_installed(environment: Path, wheels: Path | None) -> bool:
    """Whether an environment has all packages, or at least those of an archive if these are enough."""
    return complete_marker(environment).exists() or (wheels is not None and partial_marker(environment).exists())


def create_environment(folder: Path, wheels: Path | None, step: Step) -> str:
    """Creates a virtual environment with the locked packages, or with those of an archive.

    Pip checks each against its hash.
    """

    def parse_line(line: str) -> str | None:
        match = re.match(r"\s*(Collecting|Downloading|Installing) (\S+)", line)
        return f"{match[1].lower()} {match[2]}" if match else None

    step.note("waiting for another set-up that creates it")
    with exclusive(folder):
        if is_installed(folder, wheels):
            return "found, created by another set-up,"
        try:
            if not partial_marker(folder).exists():
                shutil.rmtree(folder, ignore_errors=True)  # left by a set-up that was killed
                step.note("creating it")
                step.run([sys.executable, "-m", "venv", str(folder)], parse_line=parse_line)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
            # Without --no-compile, pip compiles all of the Google provider's package; programs import a small part.
            install_locked = [*pip, "install", "--no-compile", "--no-deps", "--require-hashes"]
            if wheels:
                needed = folder / "requirements.lock"
                needed.write_text(locked(wheel.name.partition("-")[0] for wheel in wheels.glob("*.whl")))
                from_archive = ["--no-index", "--find-links", str(wheels), "-r", str(needed)]
                with suppress(CommandFailed):  # it lacks one for this Python: all come from the index
                    step.run([*install_locked, *from_archive], parse_line=parse_line)
                    partial_marker(folder).touch()
                    return "created from the archive"
            step.run([*install_locked, "-r", str(LOCK)], parse_line=parse_line)
        except CommandFailed as failure:
            raise Stop(
                "Set-up could not create the Python environment. Last lines of the output:\n"
                + "".join(f"    {line}\n" for line in failure.last_lines)
                + (
                    "Install Python's venv module (package python3-venv on Debian and Ubuntu)."
                    if "ensurepip" in str(failure)
                    else "The Python package index must be reachable (`pip config list`)."
                )
                + " Then run this again."
            ) from None
        complete_marker(folder).touch()
        return "created"


def locked(packages: Iterable[str]) -> str:
    """The part of the lock that is about these packages, with its hashes."""

    def normalized(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    names = {normalized(package) for package in packages}
    pins = re.finditer(r"^([\w.-]+)==(?:.*\\\n)*.*\n", LOCK.read_text(), re.M)
    return "".join(pin[0] for pin in pins if normalized(pin[1]) in names)


# ---------------------------------------------------------------------------------------------------------------- ready
def write_ready(ready: Path, folders: dict[str, Path], environment: Path) -> None:
    """Writes the shell fragment that `emulator/run` reads: where everything is, and whether it still exists."""
    python = Path(sys.executable) if INSTALLED else environment / "bin" / "python"
    shims = write_shims(CACHE / "shims" / ready.name, [program for tool in TOOLS for program in tool.packages])
    # After the environment, which has them once they are installed.
    later = write_shims(CACHE / "shims" / ready.name / DEVELOPMENT, () if INSTALLED else PROGRAMS)
    search = [*(folder / "bin" for folder in folders.values()), shims, environment / "bin", later]
    locked = dict(re.findall(r"^(\S+)==(\S+)", LOCK.read_text(), re.M))
    plugins = [f"{plugin}-v{locked[package]}" for plugin, package in PLUGINS.items()]
    others = [str(folders[module.name] / "charts") for module in WITH_CHARTS]
    lines = [
        *(f"[ -x {shlex.quote(str(path))} ] || return 0" for path in (python, shims)),
        # An empty program would succeed and do nothing. Without it, the shim builds it.
        f"for program in {' '.join(shlex.quote(f'{folder}/bin/') + '*' for folder in folders.values())}; do",
        '    [ -s "$program" ] || rm -f "$program" || :',
        "done",
        f"export GKE_AI_PYTHON={shlex.quote(str(python))}",
        f"export GKE_AI_CHARTS={shlex.quote(str(folders[KUEUE.name] / 'charts'))}",
        f"export GKE_AI_OTHER_CHARTS={shlex.quote(os.pathsep.join(others))}",
        f"plugins={shlex.quote(' '.join(plugins))}",
        f"tools={shlex.quote(os.pathsep.join(map(str, search)))}",
        "built() {",
        "    case $1 in",
        *(
            f"    {tool.name}) "
            + " && ".join(f"[ -x {shlex.quote(str(path))} ]" for path in tool.programs(folders[tool.module.name]))
            + " ;;"
            for tool in TOOLS
        ),
        f"    {DEVELOPMENT}) [ -e {shlex.quote(str(complete_marker(environment)))} ] ;;",
        *(f"    {group}) built {' && built '.join(names)} ;;" for group, names in GROUPS.items()),
        "    *) false ;;",
        "    esac",
        "}",
        "complete=yes",
    ]
    ready.parent.mkdir(parents=True, exist_ok=True)
    unfinished = ready.with_name(f"{ready.name}.{os.getpid()}")
    unfinished.write_text("\n".join(lines) + "\n")
    unfinished.rename(ready)


def write_shims(folder: Path, programs: Iterable[str]) -> Path:
    """Writes one script per program into a folder.

    The script builds the program on the first run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        unfinished = folder / f".{program}.{os.getpid()}"
        unfinished.write_text(SHIM)
        unfinished.chmod(0o755)
        unfinished.rename(folder / program)
    return folder


if __name__ == "__main__":
    main()
