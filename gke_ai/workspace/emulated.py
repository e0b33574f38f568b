"""Prepares the emulator for a command on one of its stacks.

Pulumi writes into the configuration file of its command, so every command works on a copy in the emulator's state.
This module uses the emulator only through its commands.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from gke_ai.catalog import section_files
from gke_ai.catalog.section_files import folder_of
from gke_ai.settings.secrets import is_secret
from gke_ai.terminal import Stop
from gke_ai.workspace import configuration_file
from gke_ai.workspace.configuration_file import read_configuration, read_keys, read_sections
from gke_ai.workspace.emulation import RUN
from gke_ai.workspace.stack import ROOT, Stack


def emulator(*command: str) -> str:
    """Returns what a command of the emulator prints. If it fails, this command exits with its exit code."""
    done = subprocess.run([RUN, *command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def ready(config: Path) -> dict[str, Any]:
    """Prepares the emulator for a configuration and returns its report: `emulator/run ready --help`."""
    with tempfile.TemporaryDirectory() as folder:
        if read_configuration(config).get("environment"):
            config = configuration_file.write_keys(Path(folder, config.name), read_keys(config), config)
        answer: dict[str, Any] = json.loads(emulator("ready", str(config)))
    return answer


def copies() -> Path:
    """Returns the folder of the copied configurations."""
    return state("config")


def prepare(name: str, source: Path | None, deploying: bool = False) -> Stack:
    """Returns a stack with a fresh copy of its configuration.

    The configuration is `source`, else the one of the previous command, else Pulumi.<name>.yaml. With `deploying`,
    stops if the configuration expects something that the emulator lacks, such as an existing cluster.
    """
    copy = copies() / f"Pulumi.{name}.yaml"
    remembered = copies() / f"{name}.source"
    if source is None:
        named = remembered.read_text() if remembered.exists() else ""
        source = Path(named) if named else ROOT / f"Pulumi.{name}.yaml"
    if not source.exists() and not copy.exists():
        raise configuration_file.no_configuration(source)
    chosen = source if source.exists() else copy
    try:
        read_sections(chosen, deploying)
    except Stop as broken:
        if deploying or chosen == copy or not is_readable(copy):
            raise
        print(f"{broken} This command uses the configuration of the one before.", file=sys.stderr)
        chosen = copy
    answer = ready(chosen)
    lock = lock_of(copy)
    if chosen == source:
        with suppress(BlockingIOError):  # a command that deploys uses the copy
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            write_copy(source, copy, answer["defaults"])
            remembered.write_text(str(source.absolute()))
    fcntl.flock(lock, fcntl.LOCK_SH if deploying else fcntl.LOCK_UN)
    if deploying and chosen == source and not is_copy(source, copy, answer["defaults"]):
        raise Stop(
            f"{source} is not the configuration with which another command deploys or previews {name} now. "
            "Nothing was changed. Wait until that command ends, or name another --stack."
        )
    if deploying and (missing := answer["missing"]):
        problem, command = missing["what"], missing["command"]
        raise Stop(f"{problem}; nothing was changed.\nCreate it:  {command}\nThen run this again.")
    return Stack(name, copy)


def state(*path: str) -> Path:
    """Returns a path in the emulator's state."""
    return Path(os.environ["GKE_AI_STATE"]).joinpath(*path)


def is_readable(file: Path) -> bool:
    """Whether a configuration file is valid YAML with keys."""
    try:
        return bool(read_configuration(file))
    except Stop:
        return False


@cache
def lock_of(copy: Path) -> TextIO:
    """Returns the lock of a copied configuration. Commands that deploy share it until they end."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    return copy.with_suffix(".lock").open("w")


def write_copy(source: Path, copy: Path, defaults: Mapping[str, Any]) -> None:
    """Copies a configuration and the files of its sections. A full disk leaves the copy as it is."""
    content = content_of(source, copy, defaults)
    configuration_file.write_keys(copy.with_suffix(".new"), content.pop("config"), source, content).replace(copy)


def is_copy(source: Path, copy: Path, defaults: Mapping[str, Any]) -> bool:
    """Whether the copy of a configuration and of the files of its sections is up to date."""
    sections, copied = (section_files.texts(read_keys(file), folder_of(file)) for file in (source, copy))
    return sections == copied and read_configuration(copy) == content_of(source, copy, defaults)


def content_of(source: Path, copy: Path, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a configuration with the emulator's project, and the secrets that Pulumi encrypted in the last copy.

    Secrets of the source stay out: only its own secrets provider can decrypt them, and the emulator has dummy values.
    """
    earlier = read_configuration(copy) if is_readable(copy) else {}
    if copy.exists() and not earlier:
        print(
            f"{copy} is damaged and is written again. Set its secrets again: pulumi config set --secret.",
            file=sys.stderr,
        )
    secrets = {key: value for key, value in (earlier.get("config") or {}).items() if is_secret(value)}
    config = {**defaults, **secrets, **{key: value for key, value in read_keys(source).items() if not is_secret(value)}}
    return {key: earlier[key] for key in ("encryptionsalt", "secretsprovider") if key in earlier} | {"config": config}
