"""The output of local processes as logs of their pods: `kubectl logs`, and files that outlive the pods.

The daemon serves the part of a kubelet's API that the API server reads logs from. The files have a kubelet's form and
places, under the cluster's `log` folder: https://kubernetes.io/docs/concepts/cluster-administration/logging/
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from emulator.cloud import control_plane
from emulator.cloud.folder import Folder
from emulator.machine.folders import folder_name

Object = dict[str, Any]
log = logging.getLogger(__name__)

KUBELET_PORT = 10250
FOLLOW_SECONDS = 0.2


class Line(NamedTuple):
    """A line of a container's output, with the time at which it was written."""

    time: str
    text: bytes

    @classmethod
    def parse(cls, line: bytes) -> Line:
        """Reads a line of a log file: time, stream, whether it is whole, text. A controller's has the text only."""
        match = re.fullmatch(rb"(\d{4}-\S+Z) stdout F (.*)", line, re.DOTALL)
        return cls(match[1].decode(), match[2]) if match else cls("", line)


def stamp(time: datetime) -> str:
    """A time as in log files, in UTC. Such times sort as texts."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def file_of(folder: Folder, pod: Object, container: str, restart: int) -> Path:
    """The log file of a container's start of this number, from 0."""
    return _files_of(folder, pod, container) / f"{restart}.log"


def _files_of(folder: Folder, pod: Object, container: str) -> Path:
    metadata = pod["metadata"]
    return folder.pod_logs / log_name(metadata["namespace"], metadata["name"], metadata["uid"]) / folder_name(container)


def log_name(*names: str) -> str:
    """Name of the log of something with these names, such as namespace, pod and container."""
    return "_".join(map(folder_name, names))


async def record(output: asyncio.StreamReader, file: Path, shown: Callable[[bytes], bytes]) -> None:
    """Writes a process's output to a log file until it ends. `shown` changes a line before it is written."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as sink:
        rest = b""
        while chunk := await output.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            sink.writelines(_formatted(line, shown) for line in lines)
            sink.flush()
        if rest:
            sink.write(_formatted(rest, shown))


def _formatted(line: bytes, shown: Callable[[bytes], bytes]) -> bytes:
    return f"{stamp(datetime.now(UTC))} stdout F ".encode() + shown(line) + b"\n"


def read(file: Path, offset: int = 0) -> tuple[list[Line], int]:
    """The complete lines of a log file from an offset, and the offset after them."""
    try:
        with file.open("rb") as source:
            source.seek(offset)
            content = source.read()
    except FileNotFoundError:
        return [], offset
    # Not splitlines(): a progress bar writes several `\r` in a line.
    *lines, rest = content.split(b"\n")
    return [Line.parse(line) for line in lines], offset + len(content) - len(rest)


def of_pods(folder: Folder, namespace: str, prefix: str) -> Iterator[tuple[str, Line]]:
    """The lines of all pods whose names begin with a prefix, also of deleted ones, by time, each with its pod."""
    lines = [
        (pod.name.split("_")[1], line)
        for pod in folder.pod_logs.glob(f"{namespace}_{prefix}*")
        for file in pod.glob("*/*.log")
        for line in read(file)[0]
    ]
    yield from sorted(lines, key=lambda item: item[1].time)


# --------------------------------------------------------------------------------------------------------------- server
def selected(lines: Iterable[Line], options: dict[str, str]) -> list[Line]:
    """The lines that a request selects: sinceTime, sinceSeconds, tailLines."""
    result = list(lines)
    since = options.get("sinceTime", "")
    if "sinceSeconds" in options:
        since = stamp(datetime.now(UTC) - timedelta(seconds=int(options["sinceSeconds"])))
    elif since:
        since = stamp(datetime.fromisoformat(since))
    result = [line for line in result if line.time >= since]
    if "tailLines" in options:
        result = result[max(0, len(result) - int(options["tailLines"])) :]
    return result


class LogServer:
    """Serves `GET /containerLogs/NAMESPACE/POD/CONTAINER` by HTTPS.

    Args:
        folder: Folder of the cluster.
        find_pod: Returns a pod by namespace and name, or None.
        written: The files that running processes write.
    """

    def __init__(
        self, folder: Folder, find_pod: Callable[[str, str], Object | None], written: Collection[Path]
    ) -> None:
        self._folder = folder
        self._find_pod = find_pod
        self._written = written
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int | None:
        """The local port of the server."""
        return int(self._server.sockets[0].getsockname()[1]) if self._server else None

    async def start(self) -> None:
        """Begins to listen."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder.pki / "admin.crt", self._folder.pki / "admin.key")
        if control_plane.has_client_certificate(self._folder):  # the API server alone may read
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self._folder.pki / "ca.crt")
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0, ssl=context)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split(maxsplit=2)
            url = urlsplit(request[1])
            match = re.fullmatch(r"/containerLogs/([^/]+)/([^/]+)/([^/]+)", url.path)
            pod = self._find_pod(match[1], match[2]) if match else None
            if match is None or pod is None:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
                await self._send(writer, pod, match[3], dict(parse_qsl(url.query)))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("log: %s", error)
        finally:
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter, pod: Object, container: str, options: dict[str, str]) -> None:
        file = self._file(pod, container, previous=options.get("previous") == "true")
        left = int(options.get("limitBytes", sys.maxsize))
        offset: int | None = None
        while left:
            written = file in self._written
            lines, next_offset = read(file, offset or 0)
            for line in selected(lines, options) if offset is None else lines:
                text = (f"{line.time} ".encode() if options.get("timestamps") == "true" else b"") + line.text + b"\n"
                writer.write(text[:left])
                left -= len(text[:left])
            await writer.drain()
            if options.get("follow") != "true" or not (written or lines):
                return
            offset = next_offset
            await asyncio.sleep(FOLLOW_SECONDS)

    def _file(self, pod: Object, container: str, previous: bool) -> Path:
        """The log of the container's latest start, or of the start before it."""
        metadata = pod["metadata"]
        files = sorted(_files_of(self._folder, pod, container).glob("*.log"), key=lambda file: int(file.stem))
        if not files and not previous:
            # A controller or a stub has one file, without times.
            return self._folder.log / f"{log_name(metadata['namespace'], metadata['name'], container)}.log"
        return files[-1 - previous] if len(files) > previous else Path("/dev/null")
