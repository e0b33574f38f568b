"""Checkpoints that survive a kill at any moment. Standard library only; the contract is in docs/checkpoints.md.

    CHECKPOINT_DIR/
      writers/000003-5f0c12ab             the process that saves; a restarted run is a new writer
      step-00000120-000003-5f0c12ab/      a checkpoint: its step and its writer
        rank-00000.npz                    files of the training program
        COMPLETE                          the marker, written last: size and SHA-256 of every file

The directory may be in a bucket that Cloud Storage FUSE mounts. So no file is written twice, renamed, linked or locked,
and what is there follows from the names in a listing and from contents, never from times of change.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

MARKER = "COMPLETE"
WRITERS = "writers"
FORMAT = 1
# EX_TEMPFAIL of sysexits.h. The program exits with it after SIGTERM, once the checkpoint is complete: run it again.
EXIT_SAVED = 75


class CheckpointError(Exception):
    """A checkpoint can't be saved or restored."""


class Unfinished(CheckpointError):
    """The save of a checkpoint was interrupted: it has no marker, or part of one."""


class SecondWriter(CheckpointError):
    """A newer process writes the checkpoints of this run."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    folder: Path
    step: int
    world_size: int
    files: Mapping[str, Mapping[str, Any]] = field(repr=False)

    def path(self, name: str) -> Path:
        """The path of one of its files."""
        if name not in self.files:
            raise CheckpointError(f"{self.folder} has no file {name}. Its files are: {', '.join(self.files)}.")
        return self.folder / name

    def require_world_size(self, processes: int) -> None:
        """Refuses another number of processes, for programs that write one shard per process."""
        if self.world_size != processes:
            raise CheckpointError(
                f"{self.folder} has the shards of {self.world_size} processes, and {processes} are running. "
                f"They can't be divided otherwise. Start {self.world_size} processes, or a new run."
            )


class StopSignal:
    """Remembers SIGTERM. The training loop polls `received` after each step."""

    def __init__(self) -> None:
        self.received = False
        signal.signal(signal.SIGTERM, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 (the signature is given)
        self.received = True


class Checkpoints:
    """The checkpoints of one run. Process 0 alone calls the methods that write; every process may write a shard."""

    def __init__(self, directory: Path, keep: int = 2, grace_seconds: int = 0, resume_from: Path | None = None) -> None:
        if keep < 1:
            raise CheckpointError(f"CHECKPOINT_KEEP is {keep}. No checkpoint would be left. Keep at least one.")
        self.directory = directory
        self.keep = keep
        self.grace_seconds = grace_seconds
        self.resume_from = resume_from
        self.claim: str | None = None
        self.began = 0.0

    @classmethod
    def from_environment(cls) -> Checkpoints:
        """The run's checkpoints, as the variables of the container say."""
        directory, resume_from = os.environ.get("CHECKPOINT_DIR"), os.environ.get("CHECKPOINT_RESUME_FROM")
        if not directory:
            raise CheckpointError("CHECKPOINT_DIR is not set. Set it to a directory that only this run uses.")
        keep, grace = os.environ.get("CHECKPOINT_KEEP") or "2", os.environ.get("CHECKPOINT_GRACE_SECONDS") or "0"
        for name, value in (("CHECKPOINT_KEEP", keep), ("CHECKPOINT_GRACE_SECONDS", grace)):
            if not value.isdecimal():
                raise CheckpointError(f"{name} is {value!r}. Set it to a whole number.")
        return cls(Path(directory), int(keep), int(grace), Path(resume_from) if resume_from else None)

    def resume(self) -> Checkpoint | None:
        """Makes this process the writer of the run, and returns the checkpoint to continue from, if there is one."""
        self.start_writing()
        newest = self.newest()
        if newest and newest.folder.parent == self.directory:
            # Newer ones are damaged. They would count as the newest when old checkpoints are removed.
            for folder in newest_first(self.directory):
                if folder == newest.folder:
                    break
                self._require_claim()
                if not is_unfinished(folder):
                    remove(folder)
        return newest

    def start_writing(self) -> None:
        """Makes this process the writer of the run, and removes what earlier writers left unfinished.

        The newest writer wins: Kubernetes may replace a pod while its node can't be reached, and the pod that is lost
        must not write any longer. Cloud Storage FUSE has no locks, so an earlier writer notices when it saves.
        """
        os.makedirs(self.directory / WRITERS, exist_ok=True)
        number = max((int(claim.split("-")[0]) for claim in self._claims()), default=0) + 1
        self.claim = f"{number:06d}-{secrets.token_hex(4)}"
        about = {"host": socket.gethostname(), "process": os.getpid(), "started": time.time()}
        write_file(self.directory / WRITERS, self.claim, lambda file: file.write(json.dumps(about).encode()))
        self._require_claim()
        for claim in self._claims():
            if claim < self.claim:
                remove_file(self.directory / WRITERS / claim)
        for folder in newest_first(self.directory):
            if writer_of(folder) < self.claim and is_unfinished(folder):
                remove(folder)

    def newest(self) -> Checkpoint | None:
        """The newest complete checkpoint whose contents match its marker, or none for a run that begins.

        A run without one continues from CHECKPOINT_RESUME_FROM, which stays as it is. An error of the file system is
        raised: the restarted run reads again, and falls back on no older checkpoint.
        """
        for directory in filter(None, [self.directory, self.resume_from]):
            damaged = []
            for folder in newest_first(directory):
                try:
                    checkpoint = read_marker(folder)
                    verify(checkpoint)
                except CheckpointError as error:
                    print(f"{folder} is skipped: {error}.", file=sys.stderr, flush=True)
                    damaged += [] if isinstance(error, Unfinished) else [folder]
                else:
                    return checkpoint
            if damaged or directory == self.resume_from:
                raise CheckpointError(
                    f"{directory} has no intact checkpoint, and {len(damaged)} damaged. The run would begin at step 0. "
                    "Restore the directory, or give the run another one."
                )
        return None

    def save(self, step: int, files: Mapping[str, Callable[[HashedFile], object]], world_size: int = 1) -> Checkpoint:
        """Saves a checkpoint that one process writes alone."""
        folder = self.begin(step)
        return self.complete(
            folder, {name: write_file(folder, name, write) for name, write in files.items()}, world_size
        )

    def begin(self, step: int) -> Path:
        """Creates the folder of a checkpoint. Every process then writes its files to it with `write_file`."""
        self._require_claim()
        assert self.claim is not None
        self.began = time.monotonic()
        folder = self.directory / f"step-{step:08d}-{self.claim}"
        if folder.exists():  # a save of this process that failed
            remove(folder)
        os.mkdir(folder)
        return folder

    def complete(self, folder: Path, files: Mapping[str, Mapping[str, Any]], world_size: int = 1) -> Checkpoint:
        """Writes the marker, once every process has written its files, and removes old checkpoints."""
        step = step_of(folder)
        marker = {"format": FORMAT, "step": step, "world_size": world_size, "files": dict(files)}
        self._require_claim()
        write_file(folder, MARKER, lambda file: file.write(json.dumps(marker, indent=1).encode()))
        seconds = time.monotonic() - self.began
        if self.grace_seconds and seconds > self.grace_seconds / 2:
            print(
                f"Saving step {step} took {seconds:.0f} s. A pod is killed {self.grace_seconds} s after SIGTERM, "
                "so it may not be able to save then. Set a longer grace period.",
                file=sys.stderr,
                flush=True,
            )
        self._prune()
        return Checkpoint(folder, step, world_size, files)

    def _prune(self) -> None:
        """Removes what is older than the complete checkpoints to keep."""
        kept = 0
        for folder in newest_first(self.directory):
            if kept == self.keep:
                self._require_claim()
                remove(folder)
            elif is_complete(folder):
                kept += 1

    def _claims(self) -> list[str]:
        """The names of the run's writers, the newest last."""
        return sorted(name for name in os.listdir(self.directory / WRITERS) if re.fullmatch(r"\d{6,}-[0-9a-f]+", name))

    def _require_claim(self) -> None:
        """Refuses to write if a newer process writes the checkpoints of this run."""
        if self.claim is None:
            raise CheckpointError("start_writing was not called. Only process 0 of a run saves checkpoints.")
        claims = self._claims()
        if not claims or claims[-1] != self.claim:
            newer = ", ".join(claims[-1:]) or "removed by hand"
            raise SecondWriter(
                f"Another process, writer {newer}, saves checkpoints in {self.directory}. This one, {self.claim}, "
                "stops without saving. Give every run a CHECKPOINT_DIR of its own."
            )


def write_file(folder: Path, name: str, write: Callable[[HashedFile], object]) -> dict[str, Any]:
    """Writes a new file and returns its size and checksum. A file is durable only once it is closed without an error.

    Cloud Storage FUSE uploads while the file is written and finishes the object when the file is closed:
    https://github.com/GoogleCloudPlatform/gcsfuse/blob/master/docs/semantics.md#streaming-writes
    """
    path = folder / name
    try:
        file = HashedFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        try:
            write(file)
            os.fsync(file.descriptor)
        finally:
            os.close(file.descriptor)
    except OSError as error:
        raise CheckpointError(
            f"{path} can't be written: {error.strerror}. Complete checkpoints are unchanged, and a restarted run "
            "resumes from the newest one. Free space in the directory, or lower CHECKPOINT_KEEP."
        ) from error
    return {"bytes": file.bytes, "sha256": file.checksum.hexdigest()}


class HashedFile(io.RawIOBase):
    """A new file, written in order, that computes the checksum of its content. torch.save and numpy.savez accept it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.checksum = hashlib.sha256()
        self.bytes = 0

    def writable(self) -> bool:
        """The file can be written, but not read."""
        return True

    def write(self, data: Buffer, /) -> int:
        """Writes all of the data."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        self.checksum.update(rest)
        self.bytes += size
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]
        return size


def read_marker(folder: Path) -> Checkpoint:
    """The checkpoint that a folder's marker describes.

    Refuses a marker that is missing, damaged or from another folder, and files that are missing or of another size.
    """
    try:
        marker = json.loads((folder / MARKER).read_bytes())
    except FileNotFoundError as error:
        raise Unfinished("it has no marker") from error
    except ValueError as error:
        raise Unfinished("its marker is not complete") from error
    try:
        if (marker["format"], marker["step"]) != (FORMAT, step_of(folder)):
            raise CheckpointError("its marker belongs to another checkpoint or format")
        checkpoint = Checkpoint(folder, marker["step"], int(marker["world_size"]), dict(marker["files"]))
        for name, about in checkpoint.files.items():
            if os.stat(folder / name).st_size != about["bytes"]:
                raise CheckpointError(f"{name} does not have the size in the marker")
    except FileNotFoundError as error:
        raise CheckpointError(f"{Path(str(error.filename)).name} is missing") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(f"its marker is damaged ({error!r})") from error
    return checkpoint


def verify(checkpoint: Checkpoint) -> None:
    """Reads every file and compares its checksum with the marker's."""
    for name, about in checkpoint.files.items():
        try:
            with open(checkpoint.folder / name, "rb") as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError as error:
            raise CheckpointError(f"{name} is missing") from error
        if checksum != about["sha256"]:
            raise CheckpointError(f"{name} does not have the checksum in the marker")


def is_complete(folder: Path) -> bool:
    """Returns whether the marker is there and every file has its size."""
    try:
        read_marker(folder)
    except CheckpointError:
        return False
    return True


def is_unfinished(folder: Path) -> bool:
    """Returns whether the save of a checkpoint was interrupted."""
    try:
        read_marker(folder)
    except Unfinished:
        return True
    except CheckpointError:
        return False
    return False


def remove(folder: Path) -> None:
    """Removes a checkpoint, its marker first: killed half-way, it leaves no checkpoint that looks complete."""
    try:
        names = sorted(os.listdir(folder), key=lambda name: name != MARKER)
    except FileNotFoundError:
        return
    for name in names:
        remove_file(folder / name)
    try:
        os.rmdir(folder)
    except OSError as error:  # an earlier writer still writes there, or the listing is old; the next start tries again
        print(f"{folder} can't be removed: {error.strerror}", file=sys.stderr, flush=True)


def remove_file(path: Path) -> None:
    """Removes a file that may have been removed already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def newest_first(directory: Path) -> list[Path]:
    """The folders of checkpoints, complete or not, by step and then by writer."""
    if not directory.is_dir():
        return []
    folders = [directory / name for name in os.listdir(directory) if re.fullmatch(r"step-\d+-\d+-[0-9a-f]+", name)]
    return sorted(folders, key=lambda folder: (step_of(folder), writer_of(folder)), reverse=True)


def step_of(folder: Path) -> int:
    """The step in the name of a checkpoint's folder."""
    return int(folder.name.split("-")[1])


def writer_of(folder: Path) -> str:
    """The writer in the name of a checkpoint's folder."""
    return folder.name.split("-", 2)[2]
