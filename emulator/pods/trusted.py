"""What may reach a process of this machine from a pod.

Whoever sends a configuration or a manifest writes the pod, and the process has the rights of the emulator's user. So
the command, the working directory and the code are those that this user named. A pod only adds values: variables of
known names, arguments if the user allows them, and volumes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from emulator.cloud.program import ANY_ARGUMENTS, LocalProgram
from emulator.pods.local_spec import LOOPBACK, NotStarted, Paths
from gke_ai.catalog import checkpoints
from gke_ai.workspace.emulation import COMMAND

Object = dict[str, Any]
CONFIG_ERROR = "CreateContainerConfigError"
_ADDRESSES = ("MASTER_ADDR", "PET_MASTER_ADDR", "JAX_COORDINATOR_ADDRESS", "MEGASCALE_COORDINATOR_ADDRESS")
# Variables that no interpreter, loader or library runs code for. `--env NAME` adds others.
VARIABLES = frozenset(
    (
        *_ADDRESSES,
        *("MASTER_PORT", "PET_MASTER_PORT", "RANK", "NODE_RANK", "WORLD_SIZE", "JOB_COMPLETION_INDEX"),
        *("PET_NODE_RANK", "PET_NNODES", "PET_NPROC_PER_NODE", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
        *("MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID"),
        *(checkpoints.DIRECTORY, checkpoints.KEEP, checkpoints.RESUME_FROM, checkpoints.GRACE_SECONDS),
        *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
    )
)
_MOUNT_PATH = re.compile(r"(/[\w@.-]+)+", re.ASCII)
_PLAIN = re.compile(r"[\w@./=+-]*", re.ASCII)


def arguments(spec: Object, program: LocalProgram) -> list[str]:
    """The words of a container after those that the user named. Raises NotStarted for another command."""
    stated, named = [*spec.get("command", []), *spec.get("args", [])], program.words
    if not spec.get("command"):
        stated = [*named, *stated]
    allowed = stated[: len(named)] == named if program.any_arguments else stated == named
    if named and allowed:
        return stated[len(named) :]
    raise NotStarted(
        "CreateContainerError",
        f"the command {stated} is not one that you named for {program.image}, and the emulator runs no other. "
        f"If you trust it: {COMMAND} program add {program.image} {program.folder} -- COMMAND, "
        f"with `{ANY_ARGUMENTS}` after a command that may have any arguments",
    )


def check_folder(spec: Object, program: LocalProgram) -> None:
    """Raises NotStarted if a container wants another working directory, or a volume in place of the program."""
    working_directory = str(spec.get("workingDir") or program.at)
    if working_directory.rstrip("/") != program.at.rstrip("/"):
        raise NotStarted(
            CONFIG_ERROR,
            f"the working directory {working_directory} is not {program.at}, the folder that you named. "
            f"A file with the name of your program could be there",
        )
    for mount in spec.get("volumeMounts", []):
        path = str(mount["mountPath"])
        if not is_plain(path.rstrip("/")):
            raise NotStarted(CONFIG_ERROR, f"the mount path {path} is not an absolute path of plain names")
        if f"{program.at.rstrip('/')}/".startswith(f"{path.rstrip('/')}/"):
            raise NotStarted(CONFIG_ERROR, f"a volume at {path} would replace the program in {program.at}")


def is_plain(mount_path: str) -> bool:
    """Whether the path of a mount is absolute and in its shortest form, without characters that a shell interprets."""
    return bool(_MOUNT_PATH.fullmatch(mount_path)) and not {".", ".."} & set(mount_path.split("/"))


def check_subfolder(path: str, volume: str) -> str:
    """Returns a path in a volume. Raises NotStarted if it could be more than a path in the script of a shell."""
    if not _PLAIN.fullmatch(path):
        raise NotStarted(
            CONFIG_ERROR, f"the path {path!r} in the volume {volume} has other characters than plain names"
        )
    return path


def check_variables(environment: Iterable[str], program: LocalProgram) -> None:
    """Raises NotStarted for a variable that the user did not allow: many make a program run other code."""
    for name in sorted(set(environment) - VARIABLES - set(program.variables) - program.env.keys()):
        raise NotStarted(
            CONFIG_ERROR,
            f"the pod sets the variable {name}, which may change what runs on this machine. "
            f"If it is harmless, add it to your command: {COMMAND} program add … --env {name}",
        )


def check_addresses(environment: Mapping[str, str]) -> None:
    """Raises NotStarted if a pod would meet others elsewhere than on this machine: they exchange Python objects."""
    for name in _ADDRESSES:
        host = environment.get(name, LOOPBACK).partition(":")[0]
        if host not in (LOOPBACK, "localhost"):
            raise NotStarted(CONFIG_ERROR, f"{name} is {environment[name]}, which is no pod of the same Job")


def check_paths(texts: Iterable[str], paths: Paths) -> None:
    """Raises NotStarted if arguments or variables of a pod name a path that no volume of it has."""
    for text in texts:
        if path := paths.elsewhere(text):
            raise NotStarted(CONFIG_ERROR, f"{path} in {text!r} is in no volume of the pod, but on this machine")
