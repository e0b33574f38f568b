"""Keeps a copy of a scratch emulator with a deployed base, so that the next rehearsal on this base starts from it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gke_ai.forecast.rehearse import delays
from gke_ai.forecast.rehearse.progress import phase
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.rehearse.watching import Recorder
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_calibration, read_sections
from gke_ai.workspace.emulation import PACKAGES
from gke_ai.workspace.stack import ROOT

# Patience in seconds of the emulator, for the base to settle.
BASE_SETTLES = 90.0

# What decides the state after a deployment, besides the configuration.
SOURCES = (
    *(
        *("gke_ai/catalog", "gke_ai/kube", "gke_ai/manifests", "gke_ai/pods", "gke_ai/program", "gke_ai/registered"),
        *("gke_ai/formats/console.py", "gke_ai/settings", "gke_ai/terminal.py", "gke_ai/workspace"),
        "gke_ai/components",
    ),
    *("emulator", "gke_ai/ops", "gke_ai/forecast/snapshot"),
    *(f"gke_ai/forecast/rehearse/{name}.py" for name in ("beside", "plain", "reduced", "release", "sources")),
)


def bring_up(scratch: Scratch, name: str, description: str, deploy: Callable[[], None]) -> None:
    """Starts a kept copy. Else deploys the base, and keeps a copy. The cluster's controllers may still be starting."""
    with phase("look for a deployed base of an earlier rehearsal") as answer:
        is_kept = take(scratch, name)
        answer("started" if is_kept else "none")
    if not is_kept:
        with phase(description):
            deploy()
        with phase("keep it for the next rehearsal"):
            with Recorder(scratch.kubeconfig()) as recorder:
                recorder.settle(delays.QUIET_SECONDS, BASE_SETTLES)
            keep(scratch, name)


def key(stack: str, config: Path, setup: Mapping[str, Any] | None) -> str:
    """Returns a hash of a stack's name, its configuration and measurements, the program and the emulator.

    `setup` is what its cluster has before it.
    """
    measured = read_calibration(config).model_dump_json(include={"nodes", "durations"})
    program = ROOT / "__main__.py"  # a folder of manifests has none
    own, others = program.read_text() if program.is_file() else "", json.dumps(setup or {}, sort_keys=True)
    digest = hashlib.sha256(f"{stack}\n{read_sections(config)}{measured}{others}{own}".encode())
    for source in SOURCES:
        path = PACKAGES / source
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "tests" not in file.parts and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(PACKAGES)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def take(scratch: Scratch, name: str) -> bool:
    """Makes a kept copy the scratch emulator's state and starts its cluster. False if there is none that starts."""
    kept = _folder(scratch) / name
    if not kept.exists():
        return False
    scratch.discard()
    _copy(kept, scratch.state)
    try:
        _start(scratch)
    except Stop:  # for example, another process has one of its ports now
        scratch.discard()
        scratch.create()
        return False
    return True


def keep(scratch: Scratch, name: str) -> None:
    """Keeps a copy of the scratch emulator, in place of an earlier copy. The emulator stops meanwhile."""
    folder = _folder(scratch)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for cluster in scratch.run("cluster", "list").split():
        scratch.run("cluster", "stop", cluster)
    unfinished = folder / f"{name}.new"
    _copy(scratch.state, unfinished)
    unfinished.rename(folder / name)
    _start(scratch)


def _start(scratch: Scratch) -> None:
    """Starts the cluster of a deployed base."""
    scratch.run("ready", str(scratch.state / "rehearsed" / "base.yaml"))


def _folder(scratch: Scratch) -> Path:
    return scratch.state.with_name("rehearsal-base")


def _copy(source: Path, target: Path) -> None:
    """Copies a folder with its sockets and links."""
    subprocess.run(["cp", "--archive", "--reflink=auto", str(source), str(target)], check=True)
