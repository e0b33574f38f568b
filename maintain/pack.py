"""Writes the archive of the emulator's tools, which set-up takes in place of a compiler.

    python -m maintain.pack FOLDER       prints what pins the archive in emulator/archives.json

It holds every program of `emulator/tools` for this platform, the Python packages that a stack needs, as wheels for each
Python, and the licenses of what the programs contain. The same content gives the same archive.
"""

import argparse
import dataclasses
import gzip
import hashlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement

from emulator.machine.paths import CACHE, ROOT
from emulator.machine.progress import Progress, Stop
from emulator.setup import archive
from emulator.setup.go_build import go_version, install
from emulator.setup.installation import locked
from emulator.setup.toolchain import GO_FLAGS, TOOLS, Module

LEVEL = 6  # of gzip
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
REQUIREMENTS = (ROOT / "requirements.txt", ROOT / "emulator" / "requirements.txt")
LICENSE = re.compile(r"(un)?(licen[cs]e|copying|notice|patents)\b(?!.*\.(go|ya?ml)$).*", re.I)
# Settings that Go writes into a program, with which one from elsewhere was not built.
OURS = {f"build\t{flag}" for flag in ("-trimpath=true", next(flag for flag in GO_FLAGS if "gcflags" in flag))}


def main() -> None:
    """Builds what is missing and writes the archive into a folder, with its checksum beside it."""
    parser = argparse.ArgumentParser(description="Writes the archive of the emulator's tools.")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    file = options.folder / archive.file_name()
    try:
        with TemporaryDirectory(dir=options.folder) as content:
            write_tools(Path(content))
            write_wheels(Path(content) / "wheels")
            pack(Path(content), file)
    except Stop as stop:
        sys.exit(f"{stop}")
    print(f"{file.name}#sha256={write_checksum(file)}")


def write_tools(content: Path) -> None:
    """Builds each module's programs, and copies them with the licenses of what they contain."""
    go = go_version()
    modules = {tool.module: [other for other in TOOLS if other.module is tool.module] for tool in TOOLS}
    contained: set[str] = set()
    for module, tools in modules.items():
        # Without a way to ask for the version, no program is copied from PATH.
        from_source = [dataclasses.replace(tool, version_arguments={}) for tool in tools]
        with Progress() as progress:
            step = progress.step(module.name)
            step.done(f"{install(from_source, module.folder(go), step)} in")
        contained |= write_licenses(
            module, [path for tool in tools for path in tool.programs(module.folder(go))], content / "licenses"
        )
        shutil.copytree(module.folder(go), archive.tools(content, module))
    shutil.copyfile(Path(output("go", "env", "GOROOT").strip(), "LICENSE"), content / "licenses" / "go")
    changes = [f"{tool.title}: {edit.path} has {edit.new!r}" for tool in TOOLS for edit in tool.edits]
    (content / "licenses" / "contents").write_text("\n".join([go, *sorted(contained), *changes]) + "\n")


def write_licenses(module: Module, programs: list[Path], to: Path) -> set[str]:
    """Copies the licenses of all Go modules that programs contain. Returns the modules with their versions.

    Raises:
        Stop: A program was built elsewhere or contains a path of this machine, or a Go module has no license.
    """
    names: set[str] = set()
    for program in programs:
        about = [line.strip() for line in output("go", "version", "-m", str(program)).splitlines()]
        if not OURS.issubset(about):
            raise Stop(f"{program} was not built here. Delete it, and run this again.")
        if str(CACHE).encode() in program.read_bytes():
            raise Stop(f"{program} contains the path {CACHE}. Delete it, and run this again.")
        names |= {line.split("\t")[1] for line in about if line.startswith(("mod\t", "dep\t"))}
    # One JSON object after the other.
    listing = output("go", "mod", "download", "-json", *sorted(names), cwd=module.source)
    modules = [json.loads(text) for text in re.split(r"(?<=^})\n", listing, flags=re.M) if text.strip()]
    for about_module in modules:
        source, path = Path(about_module["Dir"]), f"{about_module['Path']}@{about_module['Version']}"
        licenses = [file for file in source.rglob("*") if LICENSE.fullmatch(file.name) and file.is_file()]
        if not licenses:
            raise Stop(f"{path} has no license.")
        for file in licenses:
            if not {"testdata", "vendor"} & {*file.relative_to(source).parts}:
                copy = to / path / file.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
    return {f"{about_module['Path']} {about_module['Version']}" for about_module in modules}


def write_wheels(to: Path) -> None:
    """Downloads the packages that a stack on the emulator needs, for each Python, and compares their hashes."""
    to.mkdir()
    pins = to / "requirements.lock"
    pins.write_text(locked(needed_packages()))
    for python in PYTHONS:
        options = ["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--python-version", python]
        output(sys.executable, "-m", "pip", "download", *options, "--dest", str(to), "-r", str(pins))
    pins.unlink()


def needed_packages() -> set[str]:
    """The packages of `REQUIREMENTS`, and those that they need in turn."""
    lines = [line for file in REQUIREMENTS for line in file.read_text().splitlines()]
    waiting = [Requirement(line) for line in lines if line and not line.startswith("#")]
    names: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        package = waiting.pop()
        names.add(package.name)
        if (package.name, frozenset(package.extras)) not in seen:
            seen.add((package.name, frozenset(package.extras)))
            for requirement in map(Requirement, importlib.metadata.requires(package.name) or []):
                marker = requirement.marker
                if not marker or any(marker.evaluate({"extra": extra}) for extra in {"", *package.extras}):
                    waiting.append(requirement)
    return names


def pack(content: Path, file: Path) -> None:
    """Writes a folder into an archive that depends on its content alone.

    By gzip, which takes more room than xz and unpacks in less time: a first use waits for it.
    """

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        mode = 0o755 if member.mode & 0o100 else 0o644
        return member.replace(mtime=0, mode=mode, uid=0, gid=0, uname="", gname="", deep=False)

    with (
        file.open("wb") as to,
        gzip.GzipFile("", "wb", LEVEL, to, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", dereference=True) as tar,  # Pulumi unpacks no links
    ):
        for path in sorted(content.rglob("*")):
            if path.is_file():
                tar.add(path, path.relative_to(content), filter=plain)


def write_checksum(file: Path) -> str:
    """Writes the checksum of a file beside it, as `sha256sum --check` reads it, and returns it."""
    with file.open("rb") as content:
        checksum = hashlib.file_digest(content, "sha256").hexdigest()
    file.with_name(f"{file.name}.sha256").write_text(f"{checksum}  {file.name}\n")
    return checksum


def output(*command: str, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """Runs a command and returns its output."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        raise Stop(f"{' '.join(command[:4])} … failed: {done.stderr.strip()[-800:]}")
    return done.stdout


if __name__ == "__main__":
    main()
