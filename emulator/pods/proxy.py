"""An HTTP proxy on a local port, through which local processes reach pods by their addresses.

A pod's address (`10.0.0.7:8000`) leads nowhere on this machine. Endpoint pickers use the proxy (HTTP_PROXY) to read the
metrics of model servers. The Envoys of Gateways send it requests, with the pod that the picker chose in a header.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from emulator.machine.egress import CONNECT_SECONDS, pump

log = logging.getLogger(__name__)

# The picker's answer: addresses, the first choice first.
# https://github.com/kubernetes-sigs/gateway-api-inference-extension/tree/v1.5.0/docs/proposals/004-endpoint-picker-protocol
DESTINATION_HEADER = "x-gateway-destination-endpoint"
# Set by Envoy: the InferencePool, as NAMESPACE/NAME. Without a picker's answer, the proxy chooses a pod of the pool.
POOL_HEADER = "x-emulator-inference-pool"
# Headers between two hops only.
_HOP = ("connection", "proxy-connection", "keep-alive", POOL_HEADER)
MAX_HEAD_BYTES = 1 << 18
# How long a request of a gateway looks for a pod. Here a pod is Ready before its process listens. On GKE its probe
# takes care of that. A busy machine needs some seconds to start a process. The default time of a response is 30 s.
LOOK_SECONDS = 20.0
PAUSE_SECONDS = 0.1


async def serve(find: Callable[[str], int | None], endpoints: Callable[[str], list[str]]) -> asyncio.Server:
    """Listens on a free local port.

    Args:
        find: Returns the local port for a target, as `egress.resolve` does.
        endpoints: Returns the addresses of an InferencePool's ready pods.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            try:
                await _handle(reader, writer, find, endpoints)
            finally:
                writer.close()

    return await asyncio.start_server(handle, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)


async def _handle(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    find: Callable[[str], int | None],
    endpoints: Callable[[str], list[str]],
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    targets, request = rewrite(head, endpoints)
    try:
        from_pod, to_pod = await _connect(targets, find, LOOK_SECONDS if POOL_HEADER in head.lower() else 0)
    except OSError as error:
        body = f"{', '.join(targets()) or 'no pod'}: {error}\n".encode()
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return await writer.drain()
    try:
        to_pod.write(request.encode("latin-1"))
        sending = asyncio.create_task(_copy(reader, to_pod))
        try:
            await pump(from_pod, writer)  # the answer ends the connection
        finally:
            sending.cancel()
    finally:
        to_pod.close()


async def _connect(
    targets: Callable[[], list[str]], find: Callable[[str], int | None], patience: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to the first target that answers. Tries again for `patience` seconds, in which targets may change."""
    end = time.monotonic() + patience
    while True:
        error: OSError = OSError("it has no local process")
        for port in filter(None, map(find, targets())):
            try:
                return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), CONNECT_SECONDS)
            except OSError as refused:
                error = refused
        if time.monotonic() >= end:
            raise error
        await asyncio.sleep(PAUSE_SECONDS)


def rewrite(head: str, endpoints: Callable[[str], list[str]]) -> tuple[Callable[[], list[str]], str]:
    """Returns a function that lists the targets of a request, the first choice first, and the head for a target.

    A target answers one request per connection.
    """
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    method, uri, version = first.split(" ", 2)
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    parts = urlsplit(uri)
    if parts.netloc:
        chosen, pool = [parts.netloc if parts.port else f"{parts.netloc}:80"], ""
        uri = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    else:
        pool = fields.get(POOL_HEADER, "")
        chosen = [address.strip() for address in fields.get(DESTINATION_HEADER, "").split(",") if address.strip()]

    def targets() -> list[str]:
        ready = endpoints(pool)
        return list(dict.fromkeys([*chosen, *random.sample(ready, len(ready))]))

    kept = [line for line in lines if line.partition(":")[0].lower() not in _HOP]
    return targets, "\r\n".join([f"{method} {uri} {version}", *kept, "Connection: close", "", ""])


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies a request's body. The end of the client's side doesn't end the answer."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
