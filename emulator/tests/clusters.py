"""Clusters of the emulator in a folder of a test."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulator.cloud.api import Refused, client
from emulator.cloud.folder import Folder
from emulator.cluster import ClusterRecord, PoolRecord, create, delete, set_pool
from emulator.machine import paths


def eventually(check: Callable[[], Any], seconds: float = 120) -> Any:
    """Returns the first true result of a check. Retries while the API refuses."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if result := check():
                return result
            last: object = result
        except (Refused, httpx.HTTPError, LookupError) as error:
            last = error
        assert time.monotonic() < deadline, f"not within {seconds} s; the last answer: {last}"
        time.sleep(0.1)


@contextmanager
def clusters_in(root: Path) -> Iterator[Path]:
    """The state of the emulator in this folder. At the end its clusters are deleted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "STATE", root)
        patch.setattr(paths, "CLUSTERS", root / "clusters")
        try:
            yield root
        finally:
            for folder in (root / "clusters").glob("*"):
                delete(folder.name)


@contextmanager
def running(root: Path, record: ClusterRecord, pool: PoolRecord) -> Iterator[httpx.Client]:
    """The API of a cluster with a pool."""
    with clusters_in(root):
        create(record.name, record)
        set_pool(record.name, pool)
        with client(Folder(record.name)) as api:
            yield api
