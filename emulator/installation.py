"""Sets up what `emulator/run` needs: the Python environment and the requested tools. Standard library only.

    python3 -m emulator.installation READY [TOOL,TOOL…]     before a command; READY is written last
    python3 -m emulator.installation --program PROGRAM      builds the tool that has this program and prints its path

READY is a shell fragment. `emulator/run` names it after a hash of everything that set-up depends on. While READY and
the Python environment in it exist, set-up runs only if a command requests tools that aren't built yet. A program that
isn't built yet has a shim on PATH; the shim builds the program on the first run.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

from emulator.go_build import exclusive, go_version, install
from emulator.paths import CACHE, ROOT
from emulator.progress import Canceled, CommandFailed, Progress, Step, Stop, duration, roughly
from emulator.toolchain import BY_NAME, EARLIER, KUBERNETES, TOOLS, Module, Tool

LOCK = ROOT / "requirements.lock"
# Plugins in emulator/bin, each with the Python package whose version it reports.
PLUGINS = {
    "language-python": "pulumi",
    "language-yaml": "pulumi",
    "resource-gcp": "pulumi-gcp",
    "resource-kubernetes": "pulumi-kubernetes",
}
# Names that `--tools` accepts in addition to the names of tools.
GROUPS = {
    "stack": ("kubernetes", "etcd", "kwok", "pulumi"),
    "all": tuple(BY_NAME),
    # Of `make test`: earlier releases are for the nightly tests.
    "tests": tuple(name for name in BY_NAME if name != "previous"),
}
ENVIRONMENT_SECONDS = 60  # to create the Python environment, measured as Tool.seconds
# Modules that are built in parallel: while one is downloaded or linked, the other keeps the cores busy.
AT_ONCE = 2
SHIM = """#!/bin/sh
# Builds the tool that contains this program, then runs it.
path=$(PYTHONPATH="$GKE_AI_ROOT" "$GKE_AI_PYTHON" -P -m emulator.installation --program "${0##*/}") && exec "$path" "$@"
"""


def main() -> None:
    """Builds what is missing, shows progress on standard error, and writes READY."""
    try:
        if sys.argv[1] == "--program":
            print(path_of(sys.argv[2]))
        else:
            set_up(Path(sys.argv[1]), selected(sys.argv[2] if len(sys.argv) > 2 else ""))
    except Stop as stop:
        sys.exit(f"{stop}")
    except KeyboardInterrupt:
        sys.exit("\nStopped. Run this again to continue. Tools that are built are kept.")
    except OSError as error:
        sys.exit(f"Set-up can't use {error.filename or CACHE}: {error.strerror}. Set GKE_AI_CACHE to another folder.")


def selected(names: str) -> list[Tool]:
    """The tools of a list such as `stack,helm`, each once, in the order of `TOOLS`."""
    chosen: set[str] = set()
    for name in filter(None, re.split(r"[,\s]+", names)):
        if name not in BY_NAME and name not in GROUPS:
            raise Stop(f"The emulator has no tool {name}. Choose from: {', '.join([*GROUPS, *BY_NAME])}.")
        chosen.update(GROUPS.get(name, (name,)))
    return [tool for tool in TOOLS if tool.name in chosen]


def path_of(program: str) -> Path:
    """Returns the path of a program. Builds the program if it is missing."""
    tool = next(tool for tool in TOOLS if program in tool.packages)
    go = go_version()
    build_missing([tool], go, environment=None)
    return tool.module.folder(go) / "bin" / program


def set_up(ready: Path, tools: list[Tool]) -> None:
    """Creates the Python environment and builds these tools in parallel, then writes READY."""
    go, environment = go_version(), environment_folder()
    build_missing(tools, go, environment)
    write_ready(ready, {tool.module.name: tool.module.folder(go) for tool in TOOLS}, environment)


def build_missing(tools: list[Tool], go: str, environment: Path | None) -> None:
    """Builds the missing tools and creates the Python environment if needed.

    Shows progress.
    """
    started = time.monotonic()
    missing: dict[Module, list[Tool]] = {}
    for tool in tools:
        if not tool.exists(tool.module.folder(go)):
            missing.setdefault(tool.module, []).append(tool)
    new_environment = environment is not None and not complete_marker(environment).exists()
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
            jobs.append(pool.submit(in_step, "Python environment", partial(create_environment, environment)))
        # Start the longest build first: the others run beside it.
        for module, group in sorted(missing.items(), key=lambda item: -sum(tool.seconds for tool in item[1])):
            title = ", ".join(tool.title for tool in group)
            jobs.append(pool.submit(in_step, title, partial(install, group, module.folder(go))))
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
    """Folder of the environment for this lock file and this Python."""
    key = hashlib.sha256(f"{sys.version} {sys.base_prefix}".encode() + LOCK.read_bytes())
    return CACHE / "venv" / key.hexdigest()[:16]


def complete_marker(environment: Path) -> Path:
    """File that is written last.

    A virtual environment contains its own path, so it can't be renamed into place.
    """
    return environment / "finished"


def create_environment(folder: Path, step: Step) -> str:
    """Creates a virtual environment with the locked packages.

    Pip checks each against its hash.
    """

    def parse_line(line: str) -> str | None:
        match = re.match(r"\s*(Collecting|Downloading|Installing) (\S+)", line)
        return f"{match[1].lower()} {match[2]}" if match else None

    step.note("waiting for another set-up that creates it")
    with exclusive(folder):
        if complete_marker(folder).exists():
            return "found, created by another set-up,"
        shutil.rmtree(folder, ignore_errors=True)  # left by a set-up that was killed
        step.note("creating it")
        try:
            step.run([sys.executable, "-m", "venv", str(folder)], parse_line=parse_line)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
            # Without --no-compile, pip compiles all of the Google provider's package; programs import a small part.
            step.run(
                [*pip, "install", "--no-compile", "--no-deps", "--require-hashes", "-r", str(LOCK)],
                parse_line=parse_line,
            )
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


# ---------------------------------------------------------------------------------------------------------------- ready
def write_ready(ready: Path, folders: dict[str, Path], environment: Path) -> None:
    """Writes the shell fragment that `emulator/run` reads: where everything is, and whether it still exists."""
    python = environment / "bin" / "python"
    shims = write_shims(CACHE / "shims" / ready.name)
    search = [*(folder / "bin" for folder in folders.values()), shims, environment / "bin"]
    locked = dict(re.findall(r"^(\S+)==(\S+)", LOCK.read_text(), re.M))
    plugins = [f"{plugin}-v{locked[package]}" for plugin, package in PLUGINS.items()]
    lines = [
        *(f"[ -x {shlex.quote(str(path))} ] || return 0" for path in (python, shims)),
        # An empty program would succeed and do nothing. Without it, the shim builds it.
        f"for program in {' '.join(shlex.quote(f'{folder}/bin/') + '*' for folder in folders.values())}; do",
        '    [ -s "$program" ] || rm -f "$program" || :',
        "done",
        f"export GKE_AI_PYTHON={shlex.quote(str(python))}",
        f"export GKE_AI_CHARTS={shlex.quote(str(folders[KUBERNETES.name] / 'charts'))}",
        f"export GKE_AI_EARLIER_CHARTS={shlex.quote(str(folders[EARLIER.name] / 'charts'))}",
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


def write_shims(folder: Path) -> Path:
    """Writes one script per program into a folder.

    The script builds the program on the first run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for program in (program for tool in TOOLS for program in tool.packages):
        unfinished = folder / f".{program}.{os.getpid()}"
        unfinished.write_text(SHIM)
        unfinished.chmod(0o755)
        unfinished.rename(folder / program)
    return folder


if __name__ == "__main__":
    main()
