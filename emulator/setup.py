"""Makes what `emulator/run` needs and isn't there yet: the tools and the Python environment. Standard library only.

    python3 -m emulator.setup READY

READY is a shell fragment, named by `emulator/run` after the hash of all that decides what is set up. It is written
last: while it is there and what it names too, `emulator/run` doesn't come here.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import sys
import time
from pathlib import Path

from emulator.paths import CACHE, ROOT
from emulator.progress import CommandFailed, Step, Stop, duration
from emulator.toolchain import TOOLS, alone, go_version, install

OLDEST_PYTHON = (3, 11)
LOCK = ROOT / "requirements.lock"
# Plugins that emulator/bin has, and the package whose version each has.
PLUGINS = {
    "language-python": "pulumi",
    "language-yaml": "pulumi",
    "resource-gcp": "pulumi-gcp",
    "resource-kubernetes": "pulumi-kubernetes",
}


def main() -> None:
    """Builds what is missing, shows progress on standard error, and writes READY."""
    try:
        set_up(Path(sys.argv[1]))
    except Stop as stop:
        sys.exit(f"{stop}")
    except KeyboardInterrupt:
        sys.exit("\nStopped. Run this again to go on: what is built stays.")
    except OSError as error:
        sys.exit(f"Set-up can't use {error.filename or CACHE}: {error.strerror}. GKE_AI_CACHE names another folder.")


def set_up(ready: Path) -> None:
    began = time.monotonic()
    go = go_version()
    tools = [(tool, tool.folder(go)) for tool in TOOLS]
    environment = environment_folder()
    missing = [(tool, folder) for tool, folder in tools if not folder.exists()]
    total = len(missing) + (not finished(environment).exists())
    if total:
        print(f"Set-up, once for each version: {total} to make, kept in {CACHE}", file=sys.stderr)
    for number, (tool, folder) in enumerate(missing, 1):
        step = Step(number, total, tool.title)
        step.done(install(tool, folder, step))
    if not finished(environment).exists():
        step = Step(total, total, "Python environment")
        step.done(make_environment(environment, step))
    write_ready(ready, [folder for _, folder in tools], environment)
    if total:
        print(f"Set up in {duration(time.monotonic() - began)}", file=sys.stderr)


# --------------------------------------------------------------------------------------------------- Python environment
def environment_folder() -> Path:
    """Where the environment of this lock and this Python belongs."""
    if sys.version_info < OLDEST_PYTHON:
        raise Stop(
            f"Python {'.'.join(map(str, OLDEST_PYTHON))} or newer is needed; {sys.executable} is "
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
    with alone(folder):
        if finished(folder).exists():
            return "found, made by another set-up,"
        shutil.rmtree(folder, ignore_errors=True)  # of a set-up that was killed
        step.note("making it")
        try:
            step.run([sys.executable, "-m", "venv", str(folder)], hear=hear)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
            step.run([*pip, "install", "--require-hashes", "-r", str(LOCK)], hear=hear)
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
def write_ready(ready: Path, tools: list[Path], environment: Path) -> None:
    """What `emulator/run` reads: where everything is, after a check that it still is there."""
    python = environment / "bin" / "python"
    charts = link_charts(CACHE / "charts" / ready.name, tools)
    needed = [python, charts, *(folder / "bin" for folder in tools)]
    search = [*(folder / "bin" for folder in tools), environment / "bin"]
    locked = dict(re.findall(r"^(\S+)==(\S+)", LOCK.read_text(), re.M))
    plugins = [f"{plugin}-v{locked[package]}" for plugin, package in PLUGINS.items()]
    lines = [
        *(f"[ -x {shlex.quote(str(path))} ] || return 0" for path in needed),
        f"export GKE_AI_PYTHON={shlex.quote(str(python))}",
        f"export GKE_AI_CHARTS={shlex.quote(str(charts))}",
        f"plugins={shlex.quote(' '.join(plugins))}",
        f"tools={shlex.quote(os.pathsep.join(map(str, search)))}",
        "all_there=yes",
    ]
    ready.parent.mkdir(parents=True, exist_ok=True)
    unfinished = ready.with_name(f"{ready.name}.{os.getpid()}")
    unfinished.write_text("\n".join(lines) + "\n")
    unfinished.rename(ready)


def link_charts(charts: Path, tools: list[Path]) -> Path:
    """One folder with the charts of all tools, as there is one variable that names the place of charts."""
    charts.mkdir(parents=True, exist_ok=True)
    for chart in (chart for folder in tools for chart in (folder / "charts").glob("*")):
        unfinished = charts / f".{chart.name}.{os.getpid()}"
        unfinished.symlink_to(chart)
        unfinished.rename(charts / chart.name)
    return charts


if __name__ == "__main__":
    main()
