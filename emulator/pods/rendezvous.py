"""Connects local processes by the stable names of their pods.

All processes share this machine's loopback address, so a port of a pod is a free local port: two runs may use the same
number. A process that serves at its own name gets its pod's port. Any other process gets a port of the daemon, which
forwards each connection to the pod that has the name at that time, as DNS would. So a replaced pod is found, also while
the pod before it still ends.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from typing import Any

from emulator.machine import processes
from emulator.machine.egress import pump
from emulator.pods.local_spec import LOOPBACK, hostname

Object = dict[str, Any]
log = logging.getLogger(__name__)

# How long a connection waits for the pod that has the name: its process may still be starting.
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.1


class Rendezvous:
    """The pods of a cluster whose containers are local processes, by name."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}

    def join(self, pod: Object) -> Member:
        """Adds a pod, which gets the connections to its name from now on."""
        uid = pod["metadata"]["uid"]
        self._members[uid] = Member(self, pod)
        return self._members[uid]

    def leave(self, pod: Object) -> None:
        """Removes a pod. Its own connections stay until it is closed."""
        self._members.pop(pod["metadata"]["uid"], None)

    def local_port(self, name: tuple[str, str, str], port: int) -> int | None:
        """The local port of the newest pod with a name, or None."""
        found = [member for member in self._members.values() if member.name == name]
        return found[-1].own_port(port) if found else None


class Member:
    """A pod's place among the others."""

    def __init__(self, rendezvous: Rendezvous, pod: Object) -> None:
        self._rendezvous = rendezvous
        metadata, spec = pod["metadata"], pod["spec"]
        self.name = (metadata["namespace"], spec.get("subdomain", ""), hostname(pod))
        self._own: dict[int, int] = {}
        self._forwarded: dict[tuple[str, int], int] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def own_port(self, port: int) -> int:
        """The local port of a port at the pod's own name."""
        if port not in self._own:
            self._own[port] = processes.free_ports(1)[0]
        return self._own[port]

    def port(self, host: str, port: int) -> int:
        """The local port that leads to a pod of the same Service. The same at every call."""
        namespace, subdomain, own_host = self.name
        if host == own_host:
            return self.own_port(port)
        if (host, port) not in self._forwarded:
            listener = socket.create_server((LOOPBACK, 0))
            self._tasks.append(asyncio.create_task(self._forward(listener, (namespace, subdomain, host), port)))
            self._forwarded[host, port] = listener.getsockname()[1]
        return self._forwarded[host, port]

    def close(self) -> None:
        """Ends the pod's connections to others."""
        for task in self._tasks:
            task.cancel()

    async def _forward(self, listener: socket.socket, name: tuple[str, str, str], port: int) -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                from_pod, to_pod = await self._connect(name, port)
            except OSError as error:
                log.info("%s:%s: %s", ".".join(reversed(name)), port, error)
            else:
                await asyncio.gather(pump(reader, to_pod), pump(from_pod, writer), return_exceptions=True)
            finally:
                writer.close()

        server = await asyncio.start_server(handle, sock=listener)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()

    async def _connect(
        self, name: tuple[str, str, str], port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                local = self._rendezvous.local_port(name, port)
                if local is None:
                    raise OSError("no pod has this name")
                return await asyncio.open_connection(LOOPBACK, local)
            except OSError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)
