"""Builds the emulator's command-line tools with Go into the user's cache, on first use.

Go verifies every download against go.sum. A build happens in a folder beside its target and is renamed into place, so
an installed program is always complete. Standard library only.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from emulator.machine.paths import CACHE, ROOT
from emulator.machine.progress import CommandFailed, Step, Stop
from emulator.setup.toolchain import GO_FLAGS, TOOLS, Edit, Module, Shipped, Tool

MIN_GO = (1, 26)
# The compiler collects garbage less often, which saves a quarter of the build time. The limit is per process.
COMPILER = {"GOGC": "400", "GOMEMLIMIT": "3GiB"}


def go_version() -> str:
    """The version of the Go on PATH, such as `go1.26.8`.

    Raises:
        Stop: Go is missing or too old.
    """
    needed = ".".join(map(str, MIN_GO))
    remedy = f"Install Go {needed} or newer (go.dev/doc/install, or your distribution's package) and run this again."
    if not shutil.which("go"):
        raise Stop(f"Go isn't on PATH. The emulator builds its tools with Go. {remedy}")
    answer = _go(TOOLS[0].module, "env", "GOVERSION")
    version = answer.stdout.strip()
    numbers = re.match(r"go(\d+)\.(\d+)", version)
    if not numbers or (int(numbers[1]), int(numbers[2])) < MIN_GO:
        raise Stop(f"Go {needed} or newer is needed; this is {version or answer.stderr.strip()}. {remedy}")
    return version


@contextmanager
def exclusive(name: Path) -> Iterator[None]:
    """Holds a lock beside `name`, so that parallel set-ups build once.

    The kernel frees it if this process dies.
    """
    name.parent.mkdir(parents=True, exist_ok=True)
    with (name.parent / f".{name.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(tools: Iterable[Tool], folder: Path, step: Step) -> str:
    """Installs tools of one module into its folder.

    Returns how: built, copied from PATH, or found.

    Raises:
        Stop: Go could not build them. The text has the last lines of Go's output and a remedy.
    """
    step.note("waiting for another set-up that builds it")
    with exclusive(folder):
        missing = [tool for tool in tools if not tool.exists(folder)]
        if not missing:
            return "found, built by another set-up,"
        module = missing[0].module
        for left_over in folder.parent.glob(f".{folder.name}-*"):
            shutil.rmtree(left_over)  # left by a build that was killed
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            to_build = [tool for tool in missing if not _copy_from_path(tool, unfinished)]
            if released := [tool for tool in to_build if not tool.edits]:
                _build(module, released, unfinished, step)
            for tool in to_build:
                if tool.edits:
                    changed = _edited(module, tool.edits, unfinished / "changed")
                    _build(module, [tool], unfinished, step, source=changed)
                    shutil.rmtree(changed)
            (folder / "bin").mkdir(parents=True, exist_ok=True)
            for shipped in module.ships:
                if not (folder / shipped.to).exists():
                    _copy_shipped(module, shipped, unfinished / "shipped")
                    (folder / shipped.to).parent.mkdir(parents=True, exist_ok=True)
                    (unfinished / "shipped").rename(folder / shipped.to)
            for program in (program for tool in missing for program in tool.packages):
                (unfinished / program).rename(folder / "bin" / program)
        except CommandFailed as failure:
            names = ", ".join(tool.title for tool in missing)
            raise Stop(
                f"Go could not build {names}. Last lines of its output:\n"
                + "".join(f"    {line}\n" for line in failure.last_lines)
                + f"{_remedy(str(failure))} Then run this again. Tools that are built are kept."
            ) from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return "built" if to_build else "copied from PATH"


def _edited(module: Module, edits: tuple[Edit, ...], to: Path) -> Path:
    """Copies a Go module with changes. Returns the folder of a module that pins the copy in place of the release."""
    copy, edited = to / "edited", edits[0].module
    to.mkdir()
    _copy_shipped(module, Shipped(edited, ".", str(copy)), copy)
    for edit in edits:
        file = copy / edit.path
        text = file.read_text() if file.is_file() else ""
        if text.count(edit.old) != 1:
            raise Stop(f"{edited} has {edit.old!r} not exactly once in {edit.path}: adapt emulator/setup/toolchain.py.")
        file.write_text(text.replace(edit.old, edit.new))
    # A relative path, because Go writes it into the program.
    pins = f"{(module.source / 'go.mod').read_text()}\nreplace {edited} => ./{copy.name}\n"
    (to / "go.mod").write_text(pins)
    shutil.copyfile(module.source / "go.sum", to / "go.sum")
    return to


def _build(module: Module, tools: list[Tool], to: Path, step: Step, source: Path | None = None) -> None:
    compiled = 0

    def parse_line(line: str) -> str | None:
        nonlocal compiled
        if line.startswith("go: downloading "):
            return line.removeprefix("go: ")
        if re.fullmatch(r"[\w.~-]+(/[\w.~-]+)*", line):  # -v: a package that is being compiled
            compiled += 1
            return f"{compiled} packages compiled"
        return None

    step.note("downloading its modules")
    packages = {program: package for tool in tools for program, package in tool.packages.items()}
    run = partial(step.run, parse_line=parse_line, cwd=source or module.source, env=_go_env() | COMPILER)
    run(["go", "list", "-deps", "-f", '{{""}}', *packages.values()])  # downloads only the modules that they need
    step.note("Go's standard library")
    with exclusive(CACHE / "tools" / "standard-library"):  # otherwise two parallel builds both compile it
        run(["go", "build", *GO_FLAGS, "std"])
    # One command for all programs: shared packages compile once, and both cores stay busy while one program links.
    output = to / "go"
    output.mkdir(exist_ok=True)
    command = ["go", "build", "-v", *GO_FLAGS, "-ldflags", module.linker_flags(), "-o", f"{output}{os.sep}"]
    run([*command, *packages.values()])
    for program, package in packages.items():
        (output / _name_of(package)).rename(to / program)


def _name_of(package: str) -> str:
    """Name that Go gives to a program: the last part of its package path, without a major version."""
    *_, before, last = package.split("/")
    return before if re.fullmatch(r"v\d+", last) else last


def _copy_from_path(tool: Tool, to: Path) -> bool:
    """Copies a tool's programs from PATH if each of them has exactly the pinned version.

    It copies them because a program elsewhere may be replaced at any time. It ignores scripts, such as the shims of a
    version manager.
    """
    on_path = {name: _on_path(name, tool.version_arguments.get(name), tool.version) for name in tool.packages}
    if not all(on_path.values()):
        return False
    for name, path in on_path.items():
        shutil.copy(str(path), to / name)
    return True


def _on_path(name: str, version_arguments: tuple[str, ...] | None, version: str) -> Path | None:
    ours = (CACHE, ROOT / "emulator")
    folders = [folder for folder in os.get_exec_path() if not any(Path(folder).is_relative_to(our) for our in ours)]
    path = shutil.which(name, path=os.pathsep.join(folders))
    if not path or not version_arguments:
        return None
    with Path(path).open("rb") as program:
        if program.read(4) != b"\x7fELF":
            return None
    quiet = os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        answer = subprocess.run([path, *version_arguments], env=quiet, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # 3.18.6 matches v3.18.6+g1234567, but neither 3.18.6-rc.1 nor 3.18.60.
    exact = re.search(rf"(?<![\w.-])v?{re.escape(version.removeprefix('v'))}(?![\w.-])", answer.stdout)
    return Path(path) if answer.returncode == 0 and exact else None


def sources(module: Module, name: str) -> Path:
    """The folder of a Go module that `module` pins, in the module cache. Go fills it and verifies it against go.sum."""
    answer = _go(module, "mod", "download", "-json", name)
    if answer.returncode != 0:
        raise CommandFailed((answer.stderr or answer.stdout).strip().splitlines())
    return Path(json.loads(answer.stdout)["Dir"])


def _copy_shipped(module: Module, shipped: Shipped, to: Path) -> None:
    """Copies from the module cache."""
    source = sources(module, shipped.module) / shipped.path
    if source.is_dir():
        shutil.copytree(source, to)
        for path in (to, *to.rglob("*")):  # the module cache is read-only, and a read-only copy can't be removed
            path.chmod(0o755 if path.is_dir() else 0o644)
        if shipped.alone:
            described = (to / "Chart.yaml").read_text()
            (to / "Chart.yaml").write_text(re.sub(r"^dependencies:\n(?:[ -].*\n)*", "", described, flags=re.M))
    else:
        shutil.copyfile(source, to)
        to.chmod(0o755)


def _go(module: Module, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["go", *arguments], cwd=module.source, env=_go_env(), capture_output=True, text=True)


def _go_env() -> dict[str, str]:
    # A user's Go workspace or GOPATH mode must not change the pinned modules.
    return os.environ | {"GOWORK": "off", "GO111MODULE": "on"}


# Errors in Go's output, each with its remedy.
_REMEDIES = {
    r"no space left on device": "Free some disk space: Go's cache (`go env GOCACHE`) needs several GB.",
    r"signal: killed|cannot allocate memory": "Memory ran out: compile fewer packages at once, with GOFLAGS=-p=1.",
    r"read-only file system|permission denied|not a directory|GOCACHE is not defined|module cache not found": (
        "Go must be able to write its caches: set GOCACHE and GOMODCACHE to folders that you may write to."
    ),
    r"checksum mismatch|SECURITY ERROR": "The download doesn't match go.sum: check `go env GOPROXY`.",
    r"\b40[34]\b|dial tcp|timeout|no such host|connection re": "Go's module proxy must be reachable: `go env GOPROXY`.",
}


def _remedy(output: str) -> str:
    default = "The lines above name what is missing."
    return next((remedy for pattern, remedy in _REMEDIES.items() if re.search(pattern, output)), default)
