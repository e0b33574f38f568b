"""The resources of the emulated cloud: one JSON file per resource in STATE/cloud, named after its REST identity.

Files are replaced atomically, under a lock that all processes of this state share: a killed process leaves the old or
the new file. A resource is recorded as PROVISIONING before its slow work and as RUNNING after it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from emulator.machine import paths
from emulator.machine.folders import folder_name

BUCKET_IAM_MEMBER = "gcp:storage/bucketIAMMember:BucketIAMMember"

PROVISIONING, RUNNING = "PROVISIONING", "RUNNING"


@dataclass(frozen=True)
class Record:
    """A resource of the cloud.

    Args:
        identity: REST name, such as `projects/P/locations/L/clusters/C`. For a bucket, its name.
        kind: Pulumi type, such as `gcp:container/cluster:Cluster`.
        project: Project that owns the resource.
        inputs: The requested values, by the provider's property names.
        facts: Values that the cloud decided: endpoint, version, zones, time of creation.
        status: PROVISIONING until the slow work is done, then RUNNING.
    """

    identity: str
    kind: str
    project: str
    inputs: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)
    status: str = PROVISIONING


class Store:
    """The resources of one emulated cloud."""

    def __init__(self, folder: Path = paths.CLOUD) -> None:
        self.folder = folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the cloud for a read and a write. Never held during slow work."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def get(self, identity: str) -> Record | None:
        """Returns the resource with this identity, or None."""
        try:
            return Record(**json.loads(self._file(identity).read_text()))
        except FileNotFoundError:
            return None

    def put(self, record: Record) -> Record:
        """Records a resource, replacing its earlier record."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self._file(record.identity), asdict(record))
        return record

    def remove(self, identity: str) -> None:
        """Removes the record of a resource if it exists."""
        self._file(identity).unlink(missing_ok=True)

    def all(self, kind: str = "", under: str = "") -> list[Record]:
        """Returns the resources of a Pulumi type whose identity begins with `under`."""
        result = []
        for file in sorted(self.folder.glob("*.json")):
            try:
                record = Record(**json.loads(file.read_text()))
            except FileNotFoundError:
                continue  # another process has just removed it
            if record.identity.startswith(under) and kind in ("", record.kind):
                result.append(record)
        return result

    # ------------------------------------------------------------------------------------------------------- projects
    def has_identity_pool(self, project: str) -> bool:
        """Whether the project ever had a cluster with workload identity.

        The identity pool outlives the cluster.
        """
        return self._project(project).exists()

    def create_identity_pool(self, project: str) -> None:
        """Records that the project's identity pool exists."""
        self._project(project).parent.mkdir(parents=True, exist_ok=True)
        _write(self._project(project), {"project": project, "number": project_number(project)})

    # -------------------------------------------------------------------------------------------------------- objects
    def bucket_folder(self, bucket: str) -> Path:
        """The folder of an existing bucket: an object is the file of its name, as Cloud Storage FUSE shows it."""
        if self.get(bucket) is None:
            raise FileNotFoundError(bucket)
        folder = self._objects(bucket)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def put_object(self, bucket: str, name: str, content: bytes) -> None:
        """Puts an object into an existing bucket. A name that ends in `/` is a folder."""
        if not {".", "..", ""}.isdisjoint(name.removesuffix("/").split("/")):
            raise ValueError(f"{name} can't be a file, so Cloud Storage FUSE doesn't show it")
        file = self.bucket_folder(bucket) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            file.mkdir(exist_ok=True)
        else:
            file.write_bytes(content)

    def objects(self, bucket: str) -> list[str]:
        """The names of a bucket's objects, and those of its empty folders with `/` at the end."""
        root = self._objects(bucket)
        found = []
        for folder, folders, files in os.walk(root):
            path = "" if Path(folder) == root else f"{Path(folder).relative_to(root)}/"
            found += [f"{path}{file}" for file in files]
            if path and not folders and not files:
                found.append(path)
        return sorted(found)

    def remove_objects(self, bucket: str) -> None:
        """Empties a bucket."""
        shutil.rmtree(self._objects(bucket), ignore_errors=True)

    def _objects(self, bucket: str) -> Path:
        return self.folder / "objects" / folder_name(bucket)

    def _project(self, project: str) -> Path:
        return self.folder / "projects" / f"{quote(project, safe='')}.json"

    def _file(self, identity: str) -> Path:
        # An IAM member's identity is longer than a file name may be, so the end of the name is a hash.
        digest = hashlib.sha256(identity.encode()).hexdigest()[:10]
        return self.folder / f"{quote(identity, safe='')[:160]}-{digest}.json"


def project_number(project: str) -> str:
    """The number of a project, derived from its id: twelve digits, as Google's are."""
    digest = hashlib.sha256(project.encode()).digest()
    return str(10**11 + int.from_bytes(digest[:8], "big") % (9 * 10**11))


def _write(file: Path, content: dict[str, Any]) -> None:
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    new.write_text(json.dumps(content, indent=1))
    os.replace(new, file)
