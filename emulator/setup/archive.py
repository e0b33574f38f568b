"""Takes the emulator's tools and Python packages from an archive, so that a first use needs no compiler.

`archives.json` lists an archive for each platform as ADDRESS#sha256=CHECKSUM. GKE_AI_ARCHIVE names another one in the
same form. The name of the file says of which tools and packages it is. A download is compared with its checksum before
anything is unpacked, and unpacked beside its folder before it is renamed: an archive is there as a whole or not at all.
`maintain/pack.py` writes archives. Standard library only.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import os
import platform
import re
import shutil
import sys
import tarfile
import tempfile
import urllib.request
import zlib
from pathlib import Path

from emulator.machine.paths import CACHE, LOCK, ROOT
from emulator.machine.progress import Progress, Step, Stop
from emulator.setup.go_build import exclusive
from emulator.setup.toolchain import TOOLS, Module

PINS = ROOT / "emulator" / "archives.json"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
FORM = re.compile(r"((?:https?|file)://\S*/([^/\s]+))#sha256=([0-9a-f]{64})")
TIMEOUT_SECONDS = 30  # without a byte
MAX_BYTES = 2 * 10**9  # several times the size of an archive; another file must not fill the disk before its checksum
BLOCK = 1 << 20
BUILD = "GKE_AI_ARCHIVE=build builds the tools instead."


class Unreachable(Exception):
    """The archive can't be fetched or unpacked on this machine. Set-up builds instead."""


def file_name() -> str:
    """Name of the archive for this checkout and platform.

    It contains a hash of all that an archive depends on, apart from the version of Go.
    """
    key = hashlib.sha256(LOCK.read_bytes())
    for tool in TOOLS:
        key.update(f"{tool.module.folder('').name} {sorted(tool.packages)} {tool.edits}".encode())
    machine = platform.machine()
    system = f"{platform.system().lower()}-{ARCHITECTURES.get(machine, machine)}"
    return f"gke-ai-tools-{key.hexdigest()[:16]}-{system}.tar.gz"


def tools(archive: Path, module: Module) -> Path:
    """Folder of a module's programs in an unpacked archive, as `Module.folder` is in the cache."""
    return archive / "tools" / module.name


def take() -> Path | None:
    """Returns the folder of this checkout's archive, which it fetches if needed, or None if the tools are to be built.

    Says on standard error what it does.

    Raises:
        Stop: The archive was refused: it is not the pinned one, or holds what it must not hold.
    """
    place = os.environ.get("GKE_AI_ARCHIVE") or pinned()
    if place in ("", "build"):
        return None
    stated = FORM.fullmatch(place)
    if not stated:
        raise Stop(f"GKE_AI_ARCHIVE is {place!r}. It has the form https://HOST/FILE#sha256=CHECKSUM. {BUILD}")
    address, name, checksum = stated.groups()
    folder = CACHE / "archives" / checksum
    try:
        if name != file_name():
            raise Unreachable(f"this checkout and platform need {file_name()}")
        with exclusive(folder):
            if not is_complete(folder):
                print(f"Set-up takes the tools from {address} and keeps them in {CACHE}", file=sys.stderr)
                with Progress() as progress:
                    install(address, checksum, folder, progress.step("Archive of the tools"))
        return folder
    except Unreachable as error:
        print(f"Set-up can't take the tools from {address}, and builds them: {error}", file=sys.stderr)
        return None


def pinned() -> str:
    """The archive of this platform, as the repository pins it. Empty if there is none."""
    pins: list[str] = json.loads(PINS.read_text())
    return next((pin for pin in pins if pin.partition("#")[0].endswith(f"/{file_name()}")), "")


def is_complete(folder: Path) -> bool:
    """Whether an unpacked archive still has every program."""
    return all(tool.exists(tools(folder, tool.module)) for tool in TOOLS)


def install(address: str, checksum: str, folder: Path, step: Step) -> None:
    """Fetches an archive, compares its checksum, unpacks it, and renames the result into place."""
    if not hasattr(tarfile, "data_filter"):
        raise Unreachable("Python 3.11.4 or newer is needed to unpack it")
    for left_over in folder.parent.glob(f".{folder.name}-*"):
        shutil.rmtree(left_over)  # left by a set-up that was killed
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        file = unfinished / "archive"
        fetched = fetch(address, file, step)
        if fetched != checksum:
            raise Stop(
                f"The archive {address} is not the pinned one: its SHA-256 is {fetched}, not {checksum}. "
                f"Nothing of it was unpacked. {BUILD}"
            )
        step.note("unpacking it")
        unpack(file, unfinished / "unpacked")
        if not is_complete(unfinished / "unpacked"):
            raise Stop(f"The archive {address} lacks tools of this checkout. Nothing of it was kept. {BUILD}")
        size = file.stat().st_size
        shutil.rmtree(folder, ignore_errors=True)  # it has lost a program
        (unfinished / "unpacked").rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    step.done(f"of {megabytes(size)} fetched, verified and unpacked in")


def fetch(address: str, to: Path, step: Step) -> str:
    """Downloads a file and returns its SHA-256."""
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer, to.open("wb") as file:
            size = int(answer.headers.get("Content-Length") or 0)
            while block := answer.read(BLOCK):
                if max(size, file.tell() + len(block)) > MAX_BYTES:
                    raise Stop(
                        f"The archive {address} is not the pinned one: it has more than {megabytes(MAX_BYTES)}. "
                        f"Nothing of it was kept. {BUILD}"
                    )
                digest.update(block)
                file.write(block)
                step.note(f"{megabytes(file.tell())} of {megabytes(size)}")
            if file.tell() < size:
                raise Unreachable(f"the download ended after {file.tell()} of {size} bytes")
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(str(error) or type(error).__name__) from None
    return digest.hexdigest()


def unpack(file: Path, to: Path) -> None:
    """Unpacks an archive of plain files and folders, and refuses everything else."""

    def plain(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        if member.name.startswith("/") or not (member.isreg() or member.isdir()):
            raise tarfile.TarError(f"{member.name} is no plain file in its folder")
        return tarfile.data_filter(member, path)

    try:
        with tarfile.open(file, "r:gz") as archive:
            archive.extractall(to, filter=plain)
    except (tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError) as error:
        raise Stop(f"The archive of the tools is refused: {error}. Nothing of it was kept. {BUILD}") from None


def megabytes(size: int) -> str:
    """Formats a size: `251 MB`."""
    return f"{size / 1e6:.0f} MB"
