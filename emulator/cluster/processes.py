"""The processes of one cluster, found by a mark in their environment and ended by their ids.

The mark is the cluster's folder, inherited by all that is started for the cluster. Unlike a list of ids in a file it
can't miss a process that was born just before its parent was killed, nor name a process that has since taken the id.
"""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import socket
import subprocess
import time
from collections import deque
from pathlib import Path

MARK = "GKE_AI_CLUSTER"
# What a cluster's processes may see of their starter's environment: no token, no passphrase.
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPYCACHEPREFIX")
_OWN_PREFIX = "GKE_AI_"


class MissingTool(Exception):
    """A program that the cluster is made of isn't on PATH."""


def tool(name: str) -> str:
    """The path of a program, or an error that says where it comes from."""
    path = shutil.which(name)
    if path is None:
        raise MissingTool(f"{name} is not on PATH: the emulator's cluster can't run. `make setup` builds it.")
    return path


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment for a process of the cluster."""
    kept = {key: value for key, value in os.environ.items() if key in _ENVIRONMENT or key.startswith(_OWN_PREFIX)}
    return kept | {MARK: os.path.realpath(folder)} | more


def detach(command: list[str], log: Path, env: dict[str, str], cwd: Path) -> None:
    """Start a process that outlives this one. A shell between the two leaves no zombie to its starter."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=env,
            cwd=cwd,
            check=True,
            start_new_session=True,
        )


def of(folder: Path) -> list[int]:
    """Ids of the living processes of a cluster."""
    mark = _mark(folder)
    ids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in ids if pid != os.getpid() and _carries(pid, mark)]


def end(folder: Path, timeout: float = 20) -> None:
    """End every process of a cluster and return when all have gone.

    SIGKILL at once: what they hold is thrown away. Repeated, as one may have started another meanwhile.
    """
    deadline = time.monotonic() + timeout
    while ids := of(folder):
        if time.monotonic() > deadline:
            raise TimeoutError(f"Processes {ids} of {folder} don't end. They can be ended by hand, then try again.")
        for pid in ids:
            _kill(pid, _mark(folder))


def _kill(pid: int, mark: bytes) -> None:
    """End the process of this id if it carries the mark, and wait until it has gone."""
    try:
        # A descriptor names the process itself: the id may go to another one at any moment.
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if _carries(pid, mark):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            gone = select.poll()
            gone.register(descriptor, select.POLLIN)
            gone.poll(5000)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def _mark(folder: Path) -> bytes:
    return f"{MARK}={os.path.realpath(folder)}".encode()


def _carries(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        # Gone meanwhile, or another user's.
        return False


# Ports given out lately by this process: some are not listened on yet.
_given: deque[int] = deque(maxlen=4096)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on.

    Below the range that the kernel takes for outgoing connections, so that none is taken before it is used, and at
    random, so that two clusters made at the same moment don't choose alike.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(10240, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.append(port)
            found.append(port)
    return found
