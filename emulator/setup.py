"""Makes what `emulator/run` needs and lacks: the Python environment, and tools on request. Standard library only.

    python3 -m emulator.setup READY [TOOL,TOOL…]     before a command; READY is written last
    python3 -m emulator.setup --program PROGRAM      builds the tool that has this program and prints its path

READY is a shell fragment, named by `emulator/run` after the hash of all that decides what is set up. While it and the
Python environment that it names exist, set-up runs only for tools that a command asks for and that aren't built yet.
Each program that isn't built yet has a shim on PATH that builds it when it is first run.
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

from emulator.paths import CACHE, ROOT
from emulator.progress import Canceled, CommandFailed, Progress, Step, Stop, duration, roughly
from emulator.toolchain import BY_NAME, KUBERNETES, TOOLS, Module, Tool, exclusive, go_version, install

MIN_PYTHON = (3, 11)
LOCK = ROOT / "requirements.lock"
# Plugins that emulator/bin has, and the package whose version each has.
PLUGINS = {
    "language-python": "pulumi",
    "language-yaml": "pulumi",
    "resource-gcp": "pulumi-gcp",
    "resource-kubernetes": "pulumi-kubernetes",
}
# What `--tools` takes beside the names of tools.
GROUPS = {"stack": ("kubernetes", "etcd", "kwok", "pulumi"), "all": tuple(BY_NAME)}
ENVIRONMENT_SECONDS = 60  # of making the Python environment, measured as Tool.seconds
# Modules that are built side by side: while one is downloaded or linked, the other keeps the cores busy.
AT_ONCE = 2
SHIM = """#!/bin/sh
# Builds the tool that has this program, then becomes it.
path=$(PYTHONPATH="$GKE_AI_ROOT" "$GKE_AI_PYTHON" -P -m emulator.setup --program "${0##*/}") && exec "$path" "$@"
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
        sys.exit("\nStopped. Run this again to go on: what is built stays.")
    except OSError as error:
        sys.exit(f"Set-up can't use {error.filename or CACHE}: {error.strerror}. GKE_AI_CACHE names another folder.")


def selected(names: str) -> list[Tool]:
    """The tools of a list such as `stack,helm`, each once, in the order of `TOOLS`."""
    chosen: set[str] = set()
    for name in filter(None, re.split(r"[,\s]+", names)):
        if name not in BY_NAME and name not in GROUPS:
            raise Stop(f"{name} is no tool of the emulator. Choose from: {', '.join([*GROUPS, *BY_NAME])}.")
        chosen.update(GROUPS.get(name, (name,)))
    return [tool for tool in TOOLS if tool.name in chosen]


def path_of(program: str) -> Path:
    """The path of a program, built first if it is missing."""
    tool = next(tool for tool in TOOLS if program in tool.packages)
    go = go_version()
    make([tool], go, environment=None)
    return tool.module.folder(go) / "bin" / program


def set_up(ready: Path, tools: list[Tool]) -> None:
    """Makes the Python environment and these tools, side by side, and writes READY."""
    go, environment = go_version(), environment_folder()
    make(tools, go, environment)
    write_ready(ready, {tool.module.name: tool.module.folder(go) for tool in TOOLS}, environment)


def make(tools: list[Tool], go: str, environment: Path | None) -> None:
    """Makes what is missing of these tools and the Python environment, with progress."""
    began = time.monotonic()
    missing: dict[Module, list[Tool]] = {}
    for tool in tools:
        if not tool.exists(tool.module.folder(go)):
            missing.setdefault(tool.module, []).append(tool)
    new_environment = environment is not None and not finished(environment).exists()
    if not missing and not new_environment:
        return
    usual = sum(tool.seconds for group in missing.values() for tool in group)
    usual += ENVIRONMENT_SECONDS if new_environment else 0
    titles = [tool.title for group in missing.values() for tool in group]
    titles += ["the Python environment"] if new_environment else []
    purpose = os.environ.get("GKE_AI_PURPOSE")
    print(
        f"Set-up{f' for {purpose}' if purpose else ''}, once for each version: {', '.join(titles)}.\n"
        f"Usually {roughly(usual)} on two cores; kept in {CACHE}",
        file=sys.stderr,
    )
    with Progress(usual) as progress, ThreadPoolExecutor(AT_ONCE + 1) as pool:

        def in_step(title: str, work: Callable[[Step], str]) -> None:
            if not progress.canceled.is_set():
                step = progress.step(title)
                step.done(f"{work(step)} in")

        jobs: list[Future[None]] = []
        if environment is not None and new_environment:
            jobs.append(pool.submit(in_step, "Python environment", partial(make_environment, environment)))
        # The longest first, so that the others fit beside it.
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
    print(f"Set up in {duration(time.monotonic() - began)}", file=sys.stderr)


# --------------------------------------------------------------------------------------------------- Python environment
def environment_folder() -> Path:
    """Where the environment of this lock and this Python belongs."""
    if sys.version_info < MIN_PYTHON:
        raise Stop(
            f"Python {'.'.join(map(str, MIN_PYTHON))} or newer is needed; {sys.executable} is "
            f"{sys.version.split()[0]}. Install it with its venv module, so that python3.11 or python3 on PATH is it."
        )
    key = hashlib.sha256(f"{sys.version} {sys.base_prefix}".encode() + LOCK.read_bytes())
    return CACHE / "venv" / key.hexdigest()[:16]


def finished(environment: Path) -> Path:
    """Written last: a virtual environment names its own path, so it can't be made elsewhere and renamed."""
    return environment / "finished"


def make_environment(folder: Path, step: Step) -> str:
    """Makes a virtual environment of the locked packages, each checked against the hash in the lock."""

    def hear(line: str) -> str | None:
        found = re.match(r"\s*(Collecting|Downloading|Installing) (\S+)", line)
        return f"{found[1].lower()} {found[2]}" if found else None

    step.note("waiting for another set-up that makes it")
    with exclusive(folder):
        if finished(folder).exists():
            return "found, made by another set-up,"
        shutil.rmtree(folder, ignore_errors=True)  # of a set-up that was killed
        step.note("making it")
        try:
            step.run([sys.executable, "-m", "venv", str(folder)], hear=hear)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
            # Python compiles what is imported, once: a small part of the Google provider's package.
            step.run([*pip, "install", "--no-compile", "--require-hashes", "-r", str(LOCK)], hear=hear)
        except CommandFailed as failure:
            raise Stop(
                "The Python environment could not be made. What was said last:\n"
                + "".join(f"    {line}\n" for line in failure.said)
                + (
                    "Install Python's venv module (package python3-venv on Debian and Ubuntu)."
                    if "ensurepip" in str(failure)
                    else "The Python package index must be reachable (`pip config list`)."
                )
                + " Then run this again."
            ) from None
        finished(folder).touch()
        return "made"


# ---------------------------------------------------------------------------------------------------------------- ready
def write_ready(ready: Path, folders: dict[str, Path], environment: Path) -> None:
    """What `emulator/run` reads: where everything is, and whether it is still there."""
    python = environment / "bin" / "python"
    shims = write_shims(CACHE / "shims" / ready.name)
    search = [*(folder / "bin" for folder in folders.values()), shims, environment / "bin"]
    locked = dict(re.findall(r"^(\S+)==(\S+)", LOCK.read_text(), re.M))
    plugins = [f"{plugin}-v{locked[package]}" for plugin, package in PLUGINS.items()]
    lines = [
        *(f"[ -x {shlex.quote(str(path))} ] || return 0" for path in (python, shims)),
        f"export GKE_AI_PYTHON={shlex.quote(str(python))}",
        f"export GKE_AI_CHARTS={shlex.quote(str(folders[KUBERNETES.name] / 'charts'))}",
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
        "all_there=yes",
    ]
    ready.parent.mkdir(parents=True, exist_ok=True)
    unfinished = ready.with_name(f"{ready.name}.{os.getpid()}")
    unfinished.write_text("\n".join(lines) + "\n")
    unfinished.rename(ready)


def write_shims(folder: Path) -> Path:
    """A folder with a script for each program, which builds the program when it is first run."""
    folder.mkdir(parents=True, exist_ok=True)
    for program in (program for tool in TOOLS for program in tool.packages):
        unfinished = folder / f".{program}.{os.getpid()}"
        unfinished.write_text(SHIM)
        unfinished.chmod(0o755)
        unfinished.rename(folder / program)
    return folder


if __name__ == "__main__":
    main()
