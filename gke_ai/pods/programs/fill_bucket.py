"""Fills a bucket with the files of a model on Hugging Face. Standard library only: it runs in a plain Python image.

    BUCKET/OWNER/MODEL/REVISION/
      config.json, model-00001-of-00002.safetensors   each file, once its size and checksum are right
      .filling/SOURCE                                 the commit that the revision named at first
      .filling/config.json.5f0c12ab                   a file that is not complete, and its writer
      COMPLETE                                        the marker, written last: commit, sizes and checksums

Cloud Storage FUSE mounts the bucket. It uploads a new file while it is written in order, so no disk holds the model. It
would download an object again to append to it, so an interrupted file continues as the start of a new one. A file
gets its name by a rename, which is atomic for files but not for folders:
https://github.com/GoogleCloudPlatform/gcsfuse/blob/master/docs/semantics.md
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import signal
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from programs.hugging_face import (
    BLOCK,
    FILLING,
    MARKER,
    MAX_FAILURES,
    MAX_NAME_BYTES,
    FillError,
    Hub,
    Interrupted,
    ModelFile,
    needed,
    rest,
)

SOURCE = "SOURCE"
FORMAT = 1
# Cloud Storage FUSE stages files on disk if more than four are written at once on a small machine (semantics.md).
FILES_AT_ONCE = 3
MAX_DOWNLOADS = 3
PROGRESS_SECONDS = 15.0
# Time in which another process writes its record.
RECORD_TRIES, RECORD_PAUSE_SECONDS = 10, 1.0
# Exit statuses: the Job repeats the first, and nothing but another configuration fixes the second.
EXIT_FAILED, EXIT_REFUSED = 1, 3


class Stopped(FillError):
    """The download of another file has failed."""


class Output:
    """A new file, written in order. Errors of the file system are explained, and leave no file."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self._file = path, 0, -1
        with self._explained():
            for last in (False, True):
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
                    break
                except (FileNotFoundError, FileExistsError):  # a process that has finished deleted the empty folder
                    if last:
                        raise

    def write(self, data: bytes) -> None:
        """Writes all of the data."""
        self.size += len(data)
        with self._explained():
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]

    def close(self) -> None:
        """Closes the file. Cloud Storage has it only now: an error of the upload may come here."""
        with self._explained():
            self._release()

    def discard(self) -> None:
        """Closes and deletes the file."""
        with contextlib.suppress(OSError):
            self._release()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _release(self) -> None:
        """Closes the descriptor once, even if that fails: its number may then be that of another thread's file."""
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.discard()
            raise disk_error(self.path, error) from error


def disk_error(path: Path, error: OSError) -> FillError:
    """The error of a file that can't be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "Free space, or raise the quota, and run up again" if full else "The Job tries again"
    return FillError(f"{path} can't be written: {error.strerror}. The model is not complete. {remedy}.")


class Filling:
    """One process that fills the folder of a model. Several may fill it at once: each writes files of its own."""

    def __init__(self, directory: Path, model: str, revision: str, hub: Hub) -> None:
        self.directory, self.model, self.revision = directory, model, revision
        self._hub, self._writer = hub, secrets.token_hex(4)
        self._done, self._lock, self._stopped = 0, threading.Lock(), threading.Event()

    def run(self) -> None:
        """Fills the folder, unless it is complete. Raises FillError."""
        marker = read_json(self.directory / MARKER)
        if marker and self._is_complete(marker):
            print(f"{self.model} is complete at commit {marker['commit']}", flush=True)
            return
        commit = self._commit(marker)
        if marker:
            with contextlib.suppress(FileNotFoundError):
                (self.directory / MARKER).unlink()  # a file that it lists is missing
        files = needed(self._hub.files(commit)[1])
        self._download(files, commit)
        self._complete(files, commit)

    def _is_complete(self, marker: Mapping[str, Any]) -> bool:
        files: Mapping[str, Any] = marker.get("files", {})
        return bool(files) and all(size_of(self.directory / name) == file["bytes"] for name, file in files.items())

    def _commit(self, marker: Mapping[str, Any] | None) -> str:
        """The commit of the files. The first process records it: a branch may move before the last file is there."""
        record = self.directory / FILLING / SOURCE
        if known := read_json(record):
            return str(known["commit"])
        commit = str(marker["commit"]) if marker else self._hub.files(self.revision)[0]
        content = {"model": self.model, "revision": self.revision, "commit": commit}
        # The first of two processes wins: the other gets EEXIST, or on Cloud Storage ESTALE.
        with contextlib.suppress(OSError):
            record.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                os.write(descriptor, json.dumps(content).encode())
            finally:
                os.close(descriptor)
        for _ in range(RECORD_TRIES):
            if known := read_json(record):
                return str(known["commit"])
            time.sleep(RECORD_PAUSE_SECONDS)
        with contextlib.suppress(OSError):
            record.unlink()
        raise FillError(f"{record} can't be written or read. The model is not complete. The Job tries again.")

    def _write(self, path: Path, content: Mapping[str, Any]) -> None:
        """Writes a small file under its name at once."""
        output = Output(self._partial(path.name))
        output.write(json.dumps(content, indent=1).encode())
        output.close()
        place(output.path, path, output.size)

    def _partial(self, name: str) -> Path:
        """A path for this process's part of a file."""
        return self.directory / FILLING / f"{quoted(name)}.{self._writer}{secrets.token_hex(2)}"

    def _download(self, files: list[ModelFile], commit: str) -> None:
        missing = [file for file in files if size_of(self.directory / file.name) != file.size]
        total, left = sum(file.size for file in files), sum(file.size for file in missing)
        self._done = total - left
        print(
            f"{self.model}: {len(files)} files, {gigabytes(total)}, of which {gigabytes(left)} are missing", flush=True
        )
        with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
            downloads = [threads.submit(self._file, file, commit) for file in missing]
            while pending := wait(downloads, PROGRESS_SECONDS, FIRST_EXCEPTION).not_done:
                failed = [download for download in downloads if download.done() and download.exception()]
                if failed:
                    self._stopped.set()
                    for download in pending:
                        download.cancel()
                    break
                print(f"{100 * self._done // max(total, 1)} % of {gigabytes(total)}", flush=True)
        failures = [error for download in downloads if not download.cancelled() and (error := download.exception())]
        for error in sorted(failures, key=lambda error: isinstance(error, Stopped)):
            raise error

    def _file(self, file: ModelFile, commit: str) -> None:
        """Downloads a file, from where an interrupted process stopped."""
        for attempt in range(MAX_DOWNLOADS):
            output, checksum = Output(self._partial(file.name)), file.checksum()
            try:
                if attempt == 0:
                    self._continue(file, output, checksum)
                self._fetch(file, commit, output, checksum)
            except FillError:
                # The next process continues with this part.
                with contextlib.suppress(FillError):
                    output.close()
                raise
            output.close()
            if checksum.hexdigest() == file.digest:
                place(output.path, self.directory / file.name, file.size)
                self._remove_partials(file.name)
                return
            output.discard()
            self._remove_partials(file.name)
            self._count(-output.size)
            print(f"{file.name} has another checksum than {file.digest}: downloading it again", flush=True)
        raise FillError(
            f"{file.name} had another {file.algorithm} checksum than {file.digest} {MAX_DOWNLOADS} times. The model is "
            "not complete. A proxy between the cluster and Hugging Face may change files: check it, and run up again."
        )

    def _continue(self, file: ModelFile, output: Output, checksum: Any) -> None:
        """Begins with the longest part that an interrupted process left."""
        parts = sorted((size_of(part) or 0, part) for part in self._partials(file.name) if part != output.path)
        if not parts or not parts[-1][0]:
            return
        with contextlib.suppress(FileNotFoundError), open(parts[-1][1], "rb") as part:
            while output.size < file.size and (block := part.read(min(BLOCK, file.size - output.size))):
                self._append(block, output, checksum)
        print(f"{file.name} continues after {output.size} bytes", flush=True)

    def _fetch(self, file: ModelFile, commit: str, output: Output, checksum: Any) -> None:
        failures = 0
        while output.size < file.size:
            start = output.size
            try:
                for block in self._hub.content(file.name, commit, start):
                    self._append(block[: file.size - output.size], output, checksum)
                if output.size < file.size:
                    raise Interrupted("the connection closed early")
            except Interrupted as error:
                failures = 1 if output.size > start else failures + 1
                if failures >= MAX_FAILURES:
                    raise FillError(f"{file.name}: {error}, {failures} times in a row. The Job tries again.") from None
                rest(error, failures)

    def _append(self, block: bytes, output: Output, checksum: Any) -> None:
        if self._stopped.is_set():
            raise Stopped("Another file failed.")
        output.write(block)
        checksum.update(block)
        self._count(len(block))

    def _count(self, size: int) -> None:
        with self._lock:
            self._done += size

    def _partials(self, *names: str) -> list[Path]:
        pattern = re.compile(rf"({'|'.join(re.escape(quoted(name)) for name in names)})\.[0-9a-f]+")
        with contextlib.suppress(FileNotFoundError):
            return [path for path in (self.directory / FILLING).iterdir() if pattern.fullmatch(path.name)]
        return []

    def _remove_partials(self, *names: str) -> None:
        for path in self._partials(*names):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def _complete(self, files: list[ModelFile], commit: str) -> None:
        for file in files:
            if size_of(self.directory / file.name) != file.size:
                raise FillError(f"{file.name} was changed while the folder was filled. The Job tries again.")
        content = {"format": FORMAT, "model": self.model, "revision": self.revision, "commit": commit}
        listed = {file.name: file.recorded() for file in sorted(files, key=lambda file: file.name)}
        self._write(self.directory / MARKER, {**content, "files": listed})
        self._remove_partials(*listed, MARKER)
        with contextlib.suppress(FileNotFoundError):
            (self.directory / FILLING / SOURCE).unlink()
        with contextlib.suppress(OSError):  # another process still writes there
            (self.directory / FILLING).rmdir()
        print(f"{self.model} is complete at commit {commit}", flush=True)


def place(partial: Path, target: Path, size: int) -> None:
    """Gives a complete file its name."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(partial, target)
    except FileNotFoundError:
        pass  # another process has finished the same file, and deleted this part
    except OSError as error:
        raise disk_error(target, error) from error
    if size_of(target) != size:
        raise FillError(f"{target} does not have its {size} bytes. The model is not complete. The Job tries again.")


def quoted(name: str) -> str:
    """A file's name as one name in a folder, with room for its writer."""
    name_in_folder = urllib.parse.quote(name, safe="")
    return name_in_folder if len(name_in_folder) < MAX_NAME_BYTES - 32 else hashlib.sha256(name.encode()).hexdigest()


def size_of(path: Path) -> int | None:
    """The size of a file, or None if it does not exist."""
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of a small file, or None if it is missing or not complete."""
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return content if isinstance(content, dict) and "commit" in content else None


def gigabytes(size: int) -> str:
    """A size in words."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def main() -> int:
    """Fills the folder that the variables name."""
    # The first process of a container ignores a signal without a handler, and would be killed 30 s later.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    model, token = os.environ["MODEL"], os.environ.get("HF_TOKEN", "").strip()
    hub = Hub(os.environ.get("HF_ENDPOINT") or "https://huggingface.co", model, token)
    try:
        Filling(Path(os.environ["MODEL_DIRECTORY"]), model, os.environ["REVISION"], hub).run()
    except FillError as error:
        print(f"error: {error}", flush=True)
        return EXIT_REFUSED if error.refused else EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
