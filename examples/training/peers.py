"""Ends a process of a run soon after another one has died. Standard library only.

The processes that are left wait inside NCCL for one that is gone. Python handles no signal there, so SIGTERM does not
end them, and their GPUs are idle until torchrun kills them after 30 s. SIGTERM can't mean death either: a pod that is
preempted gets it too, and then every process must save.

So each process has a guard, a small process without PyTorch. The guards are a ring of TCP connections, which break when
a process dies, on any node. A guard then ends its own process, but not while that writes the marker of a checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

# What a process says to its guard, and a guard to the next one.
BUSY, FREE, LEAVE = b"+", b"-", b"."
# A process that has gathered all parts of a checkpoint gets to its marker in this time.
SECONDS = 1.0


class Peers:
    """The other processes of a run. `gather` returns the values that all processes pass to it, by rank."""

    def __init__(self, rank: int, gather: Callable[[Any], list[Any]]) -> None:
        self.guard: subprocess.Popen[bytes] | None = None
        with socket.create_server(("", 0)) as listener:
            addresses = gather((own_address(), listener.getsockname()[1]))
            if len(addresses) == 1:
                return
            host, port = addresses[(rank + 1) % len(addresses)]
            following = socket.create_connection((host, port))
            previous, _ = listener.accept()
        with following, previous:
            files = (previous.fileno(), following.fileno())
            command = [sys.executable, __file__, *map(str, (os.getpid(), *files))]
            self.guard = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=files, start_new_session=True)

    @contextlib.contextmanager
    def completing(self) -> Iterator[None]:
        """Lets this process write the marker of a checkpoint, also if another one dies meanwhile."""
        self._say(BUSY)
        yield
        self._say(FREE)

    def leave(self) -> None:
        """Ends the guard. The end of this process is no death then."""
        self._say(LEAVE)
        if self.guard:
            self.guard.wait()

    def _say(self, word: bytes) -> None:
        if self.guard and self.guard.stdin:
            with contextlib.suppress(BrokenPipeError):
                os.write(self.guard.stdin.fileno(), word)


def guard(process: int, previous: socket.socket, following: socket.socket) -> None:
    """Kills the process once the connection to the previous guard breaks, and breaks the one to the following guard."""
    watched: list[Any] = [0, previous]
    busy, end = False, float("inf")
    while True:
        wait = None if busy or end == float("inf") else max(0.0, end - time.monotonic())
        ready, _, _ = select.select(watched, [], [], wait)
        if 0 in ready:
            word = os.read(0, 1)
            if word == LEAVE:
                following.sendall(LEAVE)
            if word in (LEAVE, b""):  # without a word, the process is gone
                return
            busy = word == BUSY
        if previous in ready:
            watched = [0]
            if received(previous) != LEAVE:
                following.close()  # all guards learn it at once
                end = time.monotonic() + SECONDS
        if not busy and time.monotonic() >= end:
            print(f"Process {process} is killed, because another process of the run died.", file=sys.stderr, flush=True)
            os.kill(process, signal.SIGKILL)
            return


def own_address() -> str:
    """The IP address by which the other processes reach this one. They may not know the name of its pod."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ.get("MASTER_ADDR", "localhost"), 1))  # sends nothing
        address: str = probe.getsockname()[0]
        return address


def received(connection: socket.socket) -> bytes:
    """What a connection has, or nothing if it is broken."""
    try:
        return connection.recv(1)
    except OSError:
        return b""


if __name__ == "__main__":
    pid, *descriptors = map(int, sys.argv[1:])
    with contextlib.suppress(OSError):  # the following process may have gone first
        guard(pid, *(socket.socket(fileno=descriptor) for descriptor in descriptors))
