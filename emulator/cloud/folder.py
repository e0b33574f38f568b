"""The folder of a cluster, and the locks for creating and deleting clusters."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from emulator.cloud.records import ClusterRecord, read, write
from emulator.machine import paths
from emulator.machine.folders import folder_name
from emulator.machine.progress import noticed


class NoSuchCluster(Exception):
    """The emulated cloud has no such cluster."""

    def __init__(self, name: str) -> None:
        known = ", ".join(names()) or "none"
        super().__init__(
            f"The emulated cloud has no running cluster {name} (existing clusters: {known}). Deploy it with `make up`."
        )


class Folder:
    """The folder of one cluster."""

    def __init__(self, name: str) -> None:
        self.name = name = folder_name(name)
        self.path = paths.CLUSTERS / name
        self.pools = self.path / "pools"
        self.log = self.path / "log"
        self.pod_logs = self.log / "pods"
        self.sandboxes = self.path / "pods"
        self.local_pods = self.path / "local-pods"
        self.scraping = self.path / "prometheus.yaml"
        self.kubeconfig = self.path / "kubeconfig"
        self.kwok = self.path / "kwok"
        self.control_plane = self.kwok / "clusters" / name
        self.pki = self.control_plane / "pki"
        self.socket = self.control_plane / "egress.sock"
        self.pod_proxy = self.path / "pod-proxy"
        self.ray_elsewhere = self.path / "ray-elsewhere"
        self._file = self.path / "cluster.json"

    def create(self) -> None:
        """Creates the folder, for this user alone: it has keys, and sockets whose users run any program as this user.

        Closes a folder of an earlier version to other users.
        """
        for path in (paths.CLUSTERS, self.path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)

    def write(self, record: ClusterRecord, host: str, ready: bool) -> None:
        """Records the cluster.

        `ready` is only true once it has answered; an incomplete cluster is created again.
        """
        write(self._file, {"record": asdict(record), "host": host, "ready": ready})

    @property
    def ready(self) -> bool:
        """Whether the cluster was completely created."""
        return bool(read(self._file, "ready", False))

    @property
    def record(self) -> ClusterRecord:
        """The cluster as requested."""
        return ClusterRecord(**self._read()["record"])

    @property
    def host(self) -> str:
        """The API server's address, `127.0.0.1:PORT`."""
        return str(self._read()["host"])

    def _read(self) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(self._file.read_text())
        except FileNotFoundError:
            raise NoSuchCluster(self.name) from None
        return content


def names() -> list[str]:
    """Names of all completely created clusters of this emulated cloud."""
    return [path.name for path in sorted(paths.CLUSTERS.glob("[!.]*")) if Folder(path.name).ready]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Locks a folder.

    Other processes wait, and say so. The kernel releases the lock when the process ends.
    """
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with noticed(f"Waiting for another command, which creates, starts or deletes a cluster in {path}"):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """Locks a folder until this process ends.

    Returns None if another process holds the lock.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def connected(path: Path, timeout: float | None = None) -> socket.socket:
    """Connects to a Unix socket, through its folder's descriptor: the whole path may be too long. Raises OSError."""
    folder = os.open(path.parent, os.O_RDONLY)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout)
        connection.connect(f"/proc/self/fd/{folder}/{path.name}")
    except OSError:
        connection.close()
        raise
    finally:
        os.close(folder)
    return connection
