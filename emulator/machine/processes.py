"""Finds the processes of a cluster by a mark in their environment, and ends them by their ids.

The mark is the cluster's folder; child processes inherit it. Unlike a file with ids, the mark can't miss a process that
started just before its parent was killed, nor match an unrelated process with a reused id.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Collection, Container, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any

from emulator.machine.polling import poll_until

log = logging.getLogger(__name__)

STOP_SECONDS = 5
MAX_BACKOFF_SECONDS = 10.0
MARK = "GKE_AI_CLUSTER"
# The mark of a container's process and of its children: the pod's uid and the container's name.
POD_MARK = "GKE_AI_POD"
# Variables that a cluster's processes inherit: no token, no passphrase.
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPYCACHEPREFIX", "GOGC", "GOMEMLIMIT")
_OWN_PREFIX = "GKE_AI_"


class MissingTool(Exception):
    """A program that the cluster needs isn't on PATH."""


def tool(name: str) -> str:
    """Returns the path of a program. Raises MissingTool with the remedy."""
    path = shutil.which(name)
    if path is None:
        raise MissingTool(f"{name} is not on PATH. The emulator's cluster can't run without it. Run `make setup`.")
    return path


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Returns the environment for a process of the cluster."""
    kept = {key: value for key, value in os.environ.items() if key in _ENVIRONMENT or key.startswith(_OWN_PREFIX)}
    return kept | {MARK: os.path.realpath(folder)} | more


def detach(command: list[str], log: Path, env: dict[str, str], cwd: Path) -> None:
    """Starts a process that outlives this one. A shell in between avoids a zombie."""
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


async def keep_running(
    title: str,
    command: list[str],
    output: Path,
    env: dict[str, str],
    cwd: Path,
    stop_seconds: Callable[[], float] = lambda: STOP_SECONDS,
    failed: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Starts a program and restarts it whenever it ends, until canceled.

    The backoff grows if it ends soon. After SIGTERM it has `stop_seconds()` to end. It ends once `failed()` returns.
    """
    backoff = 0.5
    while True:
        log.info("%s: starting %s", title, " ".join(command))
        started = time.monotonic()
        with output.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=env,
                cwd=cwd,
                preexec_fn=end_with_parent,
            )
        probing = asyncio.create_task(_end_once(failed, process, stop_seconds)) if failed else None
        try:
            code = await process.wait()
        finally:
            if probing:
                probing.cancel()
            if process.returncode is None:
                await _stop(process, stop_seconds())
        log.warning("%s: ended with %s (see %s)", title, code, output)
        backoff = 0.5 if time.monotonic() - started > 60 else min(backoff * 2, MAX_BACKOFF_SECONDS)
        await asyncio.sleep(backoff)


async def _end_once(
    failed: Callable[[], Coroutine[Any, Any, None]],
    process: asyncio.subprocess.Process,
    stop_seconds: Callable[[], float],
) -> None:
    await failed()
    await _stop(process, stop_seconds())


async def _stop(process: asyncio.subprocess.Process, seconds: float) -> None:
    """Sends SIGTERM, and SIGKILL after some seconds or if this is canceled."""
    process.terminate()
    try:
        await asyncio.wait_for(asyncio.shield(process.wait()), seconds)
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def of(folder: Path) -> list[int]:
    """Returns the ids of a cluster's running processes."""
    marks = _marks(folder)
    ids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in ids if pid != os.getpid() and _has_mark(pid, marks)]


def command(pid: int) -> list[bytes]:
    """Returns the command line of a process, empty once it ends."""
    return _words_of(pid, "cmdline")


def end(folder: Path, timeout: float = 20, keep: Container[int | None] = ()) -> None:
    """Ends all processes of a cluster, except those to keep, and returns once they have ended.

    It uses SIGKILL, because their data is discarded.
    """
    _end_all(folder, lambda: [pid for pid in of(folder) if pid not in keep], timeout)


def end_local_pods(folder: Path, container: str = "", timeout: float = 20) -> None:
    """Ends the processes of a cluster's local pods, or those of one container (`UID/NAME`)."""
    mark = f"{POD_MARK}={container}".encode()

    def marked() -> list[int]:
        variables = ((pid, _environment_of(pid)) for pid in of(folder))
        return [
            pid
            for pid, environment in variables
            if (mark in environment if container else any(variable.startswith(mark) for variable in environment))
        ]

    _end_all(folder, marked, timeout)


def end_state(state: Path, programs: Path, timeout: float = 20) -> None:
    """Ends what runs on a state and the states inside it, except this process and those that started it.

    These are the processes of clusters, and those that run a program below a folder.
    """
    own = {os.getpid(), *_parents(os.getpid())}

    def marks(pid: int) -> list[bytes]:
        found = _marks_within(pid, MARK, os.path.realpath(state))
        return found or (_marks_within(pid, "GKE_AI_STATE", str(state)) if _runs_below(pid, programs) else [])

    def left() -> dict[int, list[bytes]]:
        ids = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()} - own
        return {pid: found for pid in ids if (found := marks(pid))}

    def none_left() -> bool:
        ids = left()
        for pid, found in ids.items():
            _kill(pid, found)
        return not ids

    if not poll_until(none_left, timeout, pause=0):
        raise TimeoutError(f"Processes {sorted(left())} of {state} don't end. End them by hand, then try again.")


def _marks_within(pid: int, name: str, folder: str) -> list[bytes]:
    """A process's variable of this name, if its value is the folder or inside it."""
    mark = f"{name}={folder}".encode()
    return [variable for variable in _environment_of(pid) if variable == mark or variable.startswith(mark + b"/")]


def _runs_below(pid: int, programs: Path) -> bool:
    """Whether a process runs a program below a folder, as its executable or as a word of its command."""
    try:
        executable = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False
    return executable.startswith(f"{programs}/") or f"{programs}/".encode() in b" ".join(command(pid))


def _parents(pid: int) -> Iterator[int]:
    """The processes that started a process, from its parent on."""
    status = b"\n".join(_words_of(pid, "status"))
    words = status.partition(b"PPid:")[2].split(None, 1)
    if words and (parent := int(words[0])):
        yield parent
        yield from _parents(parent)


def _end_all(folder: Path, find: Callable[[], list[int]], timeout: float) -> None:
    """Kills the processes that `find` returns, and those that they started meanwhile."""

    def none_left() -> bool:
        ids = find()
        for pid in ids:
            _kill(pid, _marks(folder))
        return not ids

    if not poll_until(none_left, timeout, pause=0):
        raise TimeoutError(f"Processes {find()} of {folder} don't end. End them by hand, then try again.")


_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def end_with_parent() -> None:
    """Lets the kernel kill this process when its parent ends, for whatever reason."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with_parent_and_give_way() -> None:
    """As `end_with_parent`, and the control plane goes first: this process may keep every core busy."""
    end_with_parent()
    os.nice(10)


def _kill(pid: int, marks: Collection[bytes]) -> None:
    """Ends the process of this id if it has one of the marks, and waits for its end."""
    try:
        # A descriptor identifies the process itself; the kernel may reuse the id at any time.
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if _has_mark(pid, marks):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            end_of_process = select.poll()
            end_of_process.register(descriptor, select.POLLIN)
            end_of_process.poll(5000)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def _marks(folder: Path) -> list[bytes]:
    # A control plane outside the cluster's folder (spare.py) has a mark of its own, which it keeps in the next cluster.
    outside = [path for path in folder.glob("kwok/clusters/*") if path.is_symlink()]
    return [f"{MARK}={os.path.realpath(path)}".encode() for path in (folder, *outside)]


def _has_mark(pid: int, marks: Iterable[bytes]) -> bool:
    environment = _environment_of(pid)
    return any(mark in environment for mark in marks)


def _environment_of(pid: int) -> list[bytes]:
    return _words_of(pid, "environ")


def _words_of(pid: int, file: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
    except OSError:
        # The process has ended or belongs to another user.
        return []


# Ports that this process returned lately: some have no listener yet.
_returned: deque[int] = deque(maxlen=4096)


def free_ports(count: int) -> list[int]:
    """Returns free ports of this machine.

    They are below the kernel's range for outgoing connections, so that no connection uses them first. They are random,
    so that two clusters that are created at the same time get different ports.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(10240, 32000)
        if port not in _returned and is_free(port):
            _returned.append(port)
            ports.append(port)
    return ports


def is_free(port: int) -> bool:
    """Whether no process of this machine uses a port."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))  # some programs listen on all addresses
        except OSError:
            return False
    return True
