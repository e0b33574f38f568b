"""An HTTP CONNECT proxy on a Unix socket, through which the API server reaches pods.

A simulated pod has no network. If a local process runs in place of its container, the proxy connects to that process,
also for a Service with the pod as an endpoint. For all other targets it answers 502, as for a pod that is down.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Object = dict[str, Any]
log = logging.getLogger(__name__)

CONNECT_SECONDS = 10


def resolve(
    target: str,
    services: Iterable[Object],
    slices: Iterable[Object],
    pods: Iterable[Object],
    served: Mapping[str, Mapping[int, int]],
) -> int | None:
    """Finds the local port that serves a target, or None.

    Args:
        target: `ADDRESS:PORT`. The address is a Service's cluster IP or DNS name, or a pod's IP.
        services: Services of the cluster.
        slices: EndpointSlices of the cluster.
        pods: Pods of the cluster.
        served: The local port by container port, for each pod uid with a local process.
    """
    address, _, port = target.rpartition(":")
    if not port.isdigit():
        return None
    for service in services:
        if address == service["spec"].get("clusterIP") or address in _dns_names(service):
            return next((local for _, local in through_service(service, int(port), slices, served)), None)
    for pod in pods:
        if address == pod.get("status", {}).get("podIP"):
            local = served.get(pod["metadata"]["uid"], {}).get(int(port))
            if local is not None:
                return local
    return None


def _dns_names(service: Object) -> tuple[str, str]:
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    return f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local"


def through_service(
    service: Object, port: int, slices: Iterable[Object], served: Mapping[str, Mapping[int, int]]
) -> Iterator[tuple[str, int]]:
    """The pods behind a port of a Service that have a local process: uid and local port of each."""
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    port_name = next((p.get("name", "") for p in service["spec"].get("ports", []) if p["port"] == port), None)
    for part in slices:
        metadata = part["metadata"]
        owner = metadata.get("labels", {}).get("kubernetes.io/service-name")
        if (metadata["namespace"], owner) != (namespace, name):
            continue
        # For each port of the Service, the slice has the number of the pod's port, also for named ports.
        targets = [p["port"] for p in part.get("ports") or [] if (p.get("name") or "") == port_name]
        for endpoint in part.get("endpoints") or []:
            uid = endpoint.get("targetRef", {}).get("uid", "")
            if endpoint.get("conditions", {}).get("ready", True):
                for target in targets:
                    if target in served.get(uid, {}):
                        yield uid, served[uid][target]


async def serve(path: Path, find: Callable[[str], int | None]) -> asyncio.Server:
    """Listens at the socket `path`.

    `find` returns the local port for a target, as `resolve` does.
    """

    # The last logged error by target: an API server tries again many times per second.
    last_errors: dict[str, str] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _handle(reader, writer, find, last_errors)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("connection ended: %s", error)
        finally:
            writer.close()

    path.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        # Through the folder's descriptor, because the whole path may be too long for a socket.
        return await asyncio.start_unix_server(handle, f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


async def _handle(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    find: Callable[[str], int | None],
    last_errors: dict[str, str],
) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    method, target = head.decode("latin-1").split(maxsplit=2)[:2]
    if method != "CONNECT":
        writer.write(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
        return await writer.drain()
    port = find(target)
    try:
        if port is None:
            raise OSError("it has no local process")
        connecting = asyncio.open_connection("127.0.0.1", port)
        from_pod, to_pod = await asyncio.wait_for(connecting, CONNECT_SECONDS)
    except (OSError, TimeoutError) as error:
        if last_errors.get(target) != str(error):
            log.info("CONNECT %s: %s", target, error)
        last_errors[target] = str(error)
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        return await writer.drain()
    if last_errors.pop(target, None):
        log.info("CONNECT %s: answers", target)
    try:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pump(reader, to_pod), pump(from_pod, writer))
    finally:
        to_pod.close()


async def forward(target: str, find: Callable[[str], int | None]) -> asyncio.Server:
    """Listens on a local port that forwards to a target as in `resolve`, looked up at each connection.

    Returns once something answers at the target.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_pod, to_pod = await asyncio.open_connection("127.0.0.1", find(target) or 0)
            try:
                await asyncio.gather(pump(reader, to_pod), pump(from_pod, writer))
            finally:
                to_pod.close()
        except OSError as error:
            log.debug("%s: %s", target, error)
        finally:
            writer.close()

    while True:
        try:
            _, probe = await asyncio.open_connection("127.0.0.1", find(target) or 0)
        except OSError:
            await asyncio.sleep(0.2)
            continue
        probe.close()
        return await asyncio.start_server(handle, "127.0.0.1", 0)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies data until one side ends, then closes the other."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        # When one side ends, close the other. Otherwise a watch would outlive its client.
        writer.close()
