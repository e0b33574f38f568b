"""Names images that run as local processes in place of their pods' containers.

    emulator/run program                        list them
    emulator/run program add IMAGE FOLDER [--at /app] [--python ENVIRONMENT] [--env NAME[=VALUE] …] -- COMMAND …
    emulator/run program forget IMAGE

FOLDER has the image's program and is its working directory. COMMAND is the only one that runs, with the programs of the
Python ENVIRONMENT first on PATH. A container without a command has it, and one with another command doesn't start.
`...` at the end of COMMAND allows any further arguments. Pods that already run don't change.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from emulator.cloud.records import Damaged, read, write
from emulator.machine import paths

# The last word of a command that may have further arguments.
ANY_ARGUMENTS = "..."


@dataclass(frozen=True)
class LocalProgram:
    """What runs in place of the containers of an image.

    Attributes:
        image: Name of the image. Without a tag or digest: with any. With `*` at the end: a prefix of the name.
        folder: Folder of this machine with the program: the image's working directory.
        at: Path of that folder in the image.
        python: Python environment whose programs come first on PATH.
        command: The only command and arguments that run. With `...` at the end: with any further arguments.
        env: Environment variables, in place of the pod's variables of the same name.
        variables: Names of the pod's variables that the process gets, besides the known ones.
    """

    image: str
    folder: str
    at: str
    python: str
    command: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    variables: list[str] = field(default_factory=list)

    @property
    def any_arguments(self) -> bool:
        """Whether a container may have arguments after the command."""
        return self.command[-1:] == [ANY_ARGUMENTS]

    @property
    def words(self) -> list[str]:
        """The words of the command."""
        return self.command[:-1] if self.any_arguments else self.command

    def runs(self, image: str) -> bool:
        """Whether this program runs in place of an image."""
        return has_name(image, self.image)


def has_name(image: str, name: str) -> bool:
    """Whether an image has a name, with any tag or digest. A name with `*` at the end is a prefix."""
    if name.endswith("*"):
        return image.startswith(name[:-1])
    return image == name or image.startswith((f"{name}:", f"{name}@"))


def named() -> list[LocalProgram]:
    """The named images, the most specific first."""
    try:
        programs = [LocalProgram(**item) for item in read(_file(), "programs", [])]
    except TypeError:
        raise Damaged(_file()) from None
    return sorted(programs, key=lambda program: -len(program.image))


def program_for(image: str, programs: Iterable[LocalProgram] | None = None) -> LocalProgram | None:
    """The program that runs in place of an image, or None: its containers run nothing."""
    return next((program for program in (named() if programs is None else programs) if program.runs(image)), None)


def main(arguments: list[str]) -> int:
    """Runs one command."""
    parser = argparse.ArgumentParser(
        prog="emulator/run program", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="verb")
    add = commands.add_parser("add", help="run an image as a local process")
    add.add_argument("image")
    add.add_argument("folder", type=Path)
    add.add_argument("--at", default="/app", help="path of FOLDER in the image (default: /app)")
    add.add_argument("--python", type=Path, default=Path(sys.prefix), help="environment (default: the emulator's)")
    add.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]")
    forget = commands.add_parser("forget", help="simulate an image again")
    forget.add_argument("image")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    others = [program for program in named() if program.image != getattr(options, "image", None)]
    if options.verb == "add":
        _write([*others, _checked(options, arguments[end + 1 :])])
    elif options.verb == "forget":
        if len(others) == len(named()):
            sys.exit(f"{options.image} is not named. Named images: {_names()}.")
        _write(others)
    for program in named():
        print(program.image, program.folder, shlex.join(program.command))
    return 0


def _checked(options: argparse.Namespace, command: list[str]) -> LocalProgram:
    if not options.image.strip("*"):
        sys.exit("An image needs a name: `*` alone would run the containers of every pod on this machine.")
    if not options.folder.is_dir():
        sys.exit(f"{options.folder} is not a folder. Give the folder that has the image's program.")
    if not (options.python / "bin").is_dir():
        sys.exit(f"{options.python} has no folder `bin`. Give a Python environment, as `python3 -m venv` creates it.")
    if not options.at.startswith("/"):
        sys.exit(f"--at {options.at} is not a path of a container. Begin it with `/`.")
    env, variables = {}, []
    for variable in options.env:
        name, equals, value = variable.partition("=")
        if not name:
            sys.exit(f"--env {variable} is not of the form NAME=VALUE or NAME.")
        if equals:
            env[name] = value
        else:
            variables.append(name)
    folder, python = str(options.folder.absolute()), str(options.python.absolute())
    program = LocalProgram(options.image, folder, options.at, python, command, env, variables)
    if not program.words:
        sys.exit("Add the command that may run: `-- python train.py`, or `-- python train.py ...` with any arguments.")
    if program.any_arguments and (len(program.words) < 2 or program.words[-1].startswith("-")):
        sys.exit(
            f"`{shlex.join(command)}` would let a pod choose what runs. Name the program before `{ANY_ARGUMENTS}`."
        )
    return program


def _names() -> str:
    return ", ".join(program.image for program in named()) or "none"


def _write(programs: Iterable[LocalProgram]) -> None:
    write(_file(), {"programs": [asdict(program) for program in programs]})


def _file() -> Path:
    return paths.STATE / "programs.json"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Damaged as damaged:
        sys.exit(str(damaged))
