"""`--workdir`: packs a folder of code, and puts it into the pods of a run (docs/decisions/0017-local-code.md)."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from gke_ai.catalog.project import credentials
from gke_ai.kube.objects import Object
from gke_ai.kube.pods import templates
from gke_ai.ops.submit.ignored import file_of, is_hidden, read_rules
from gke_ai.ops.submit.member import SUBMITTED
from gke_ai.terminal import Stop

# Where the code is in the pods, and the label of pods and run with its hash.
PATH, LABEL = "/workdir", "gke-ai/workdir"
VOLUME, ARCHIVE_VOLUME, ARCHIVE, ARCHIVE_PATH = "workdir", "workdir-archive", "workdir.tar.gz", "/workdir-archive"
UNPACK = ["tar", "-xzof", f"{ARCHIVE_PATH}/{ARCHIVE}", "-C", PATH]
# All values of a ConfigMap: https://kubernetes.io/docs/concepts/configuration/configmap/
MAX_BYTES = 1024 * 1024
# Before packing, so that a home directory is not read to its end.
MAX_UNPACKED_BYTES, MAX_ENTRIES = 32 * 1024 * 1024, 10_000
# What is looked at, with what is left out, and how often a name is compared with a pattern: some seconds.
MAX_NAMES, MAX_COMPARISONS = 100_000, 2_000_000
LARGEST = 3  # files that a refusal names
NAMED = 9  # names in a list


class _TooLarge(Exception):
    """The folder has more than any archive takes, or than is looked at."""


@dataclass(frozen=True)
class Code:
    """A packed folder. The same files make the same bytes at any time and for any user."""

    folder: Path
    archive: bytes
    digest: str
    """Hash of the content, before it is compressed."""
    files: int
    hidden: Sequence[str]
    """Hidden names that the file of patterns keeps."""
    left_out: Sequence[str]
    """Names that the rules leave out, folders with all in them."""
    problems: Sequence[str]

    @property
    def summary(self) -> str:
        """What is brought along and what is not."""
        size = f"{_shown(str(self.folder))} has {self.files} files for {PATH}, packed to {_size(len(self.archive))}."
        lists = (("Hidden and brought along", self.hidden), ("Left out", self.left_out))
        return " ".join((size, *(f"{title}: {_listed(names)}." for title, names in lists if names)))

    def inside(self, objects: Sequence[Object]) -> list[dict[str, Any]]:
        """Returns the objects of a run after a ConfigMap with the code, which each pod unpacks at its start."""
        *others, run = json.loads(json.dumps(list(objects)))  # no two pods share a part
        name = f"{run['metadata']['name']}-{VOLUME}"
        for template in templates(run["kind"], run):
            self._add_to(template["spec"], name)
        # Its own hash: another release of Python may compress the same content to other bytes.
        own = {"annotations": {SUBMITTED: self.digest}}
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": run["metadata"]["namespace"], **own},
            "immutable": True,
            "binaryData": {ARCHIVE: b64encode(self.archive).decode()},
        }
        return [config_map, *others, run]

    def _add_to(self, spec: dict[str, Any], config_map: str) -> None:
        (container,) = spec["containers"]
        code = {"name": VOLUME, "mountPath": PATH}
        container["workingDir"] = PATH
        container["volumeMounts"] = [*container.get("volumeMounts", []), code]
        alike = {key: container[key] for key in ("image", "imagePullPolicy", "securityContext") if key in container}
        # Not more than the container beside which it never runs, so that the pod requests no more. It claims no NICs.
        requested = {}
        for kind in ("requests", "limits"):
            amounts = container["resources"].get(kind, {}).items()
            if kept := {name: amount for name, amount in amounts if "/" not in name}:
                requested[kind] = kept
        archive = {"name": ARCHIVE_VOLUME, "mountPath": ARCHIVE_PATH, "readOnly": True}
        unpack = {"name": VOLUME, **alike, "command": UNPACK, "resources": requested, "volumeMounts": [code, archive]}
        spec["initContainers"] = [*spec.get("initContainers", []), unpack]
        volumes = [{"name": VOLUME, "emptyDir": {}}, {"name": ARCHIVE_VOLUME, "configMap": {"name": config_map}}]
        spec["volumes"] = [*spec.get("volumes", []), *volumes]


@dataclass(frozen=True)
class _Entry:
    """A file, a folder or a link below the packed folder."""

    name: str
    path: Path
    status: os.stat_result

    @property
    def refusal(self) -> str:
        """Why it can't be brought along; empty if it can."""
        mode = self.status.st_mode
        if not self.name.isprintable():
            return "has a character that is not printable, or no UTF-8. Rename it"
        if stat.S_ISLNK(mode):
            target = os.readlink(self.path)
            inside = os.path.normpath(os.path.join(os.path.dirname(self.name), target))
            if os.path.isabs(target) or inside.split("/")[0] == "..":
                return f"is a link to {target!r}, out of the folder, which no pod has. Copy the file, or leave it out"
        elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            return "is no file, folder or link. Leave it out"
        return ""

    def packed(self) -> tuple[tarfile.TarInfo, bytes]:
        """Its entry of the archive, without what differs by user, machine and time, and its content."""
        info, content, mode = tarfile.TarInfo(self.name), b"", self.status.st_mode
        if stat.S_ISDIR(mode):
            info.type, info.mode = tarfile.DIRTYPE, 0o755
        elif stat.S_ISLNK(mode):
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, os.readlink(self.path), 0o777
        else:
            content = self.path.read_bytes()
            info.size, info.mode = len(content), 0o755 if mode & stat.S_IXUSR else 0o644
        return info, content


def pack(folder: Path) -> Code:
    """Packs a folder, and lists each file that can't be brought along. The folder is only read."""
    left_out: list[str] = []
    problems: list[str] = []
    sizes: dict[str, int] = {}
    content = b""
    entries: list[_Entry] = []
    try:
        entries = _entries(folder, left_out, sizes)
        problems += [f"--workdir: {entry.name!r} {entry.refusal}" for entry in entries if entry.refusal]
        content = _archive(folder, [entry for entry in entries if not entry.refusal], problems)
    except _TooLarge as error:
        problems.append(_too_large(folder, str(error), sizes))
    except Stop as stop:
        problems.append(str(stop))
    except OSError as error:
        problems.append(f"--workdir: {_shown(str(error.filename))} can't be read ({error.strerror}). Leave it out")
    packed = gzip.compress(content, mtime=0)
    if len(packed) > MAX_BYTES:
        problems.append(_too_large(folder, f"{_size(len(packed))} after packing", sizes))
    hidden = [entry.name for entry in entries if is_hidden(entry.path.name)]
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Code(folder, packed, digest, len(sizes), hidden, left_out, problems)


def _entries(folder: Path, left_out: list[str], sizes: dict[str, int]) -> list[_Entry]:
    """Returns what is below a folder and not left out, each folder before its content, by name. Raises _TooLarge."""
    waiting = [(folder, "", read_rules(folder))]
    patterns = len(waiting[0][2].rules)
    most = min(MAX_NAMES, MAX_COMPARISONS // max(patterns, 1))
    entries, names, total = list[_Entry](), 0, 0
    while waiting:
        inner, prefix, rules = waiting.pop()
        with os.scandir(inner) as scanned:
            items = sorted(islice(scanned, most - names + 1), key=lambda item: item.name)
        names += len(items)
        if names > most:
            raise _TooLarge(f"more than {most:,} files and folders to compare with {patterns} patterns")
        folders = []
        for item in items:
            entry = _Entry(f"{prefix}{item.name}", Path(item.path), item.stat(follow_symlinks=False))
            is_folder = item.is_dir(follow_symlinks=False)
            leaves_out, below = rules.leave_out(item.name, is_folder)
            if below is not None:
                folders.append((entry.path, f"{entry.name}/", below))
            if leaves_out:
                left_out += [entry.name] if below is None else []
                continue
            entries.append(entry)
            if not is_folder:
                sizes[entry.name] = entry.status.st_size
                total += entry.status.st_size
            if total > MAX_UNPACKED_BYTES or len(entries) > MAX_ENTRIES:
                raise _TooLarge(f"more than {MAX_ENTRIES:,} files and folders or {_size(MAX_UNPACKED_BYTES)}")
        waiting += reversed(folders)
    return entries


def _archive(folder: Path, entries: Sequence[_Entry], problems: list[str]) -> bytes:
    """The entries as an archive, in the one format for long names that BusyBox reads too."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive:
        for entry in entries:
            info, content = entry.packed()
            archive.addfile(info, io.BytesIO(content))
            # As one character per byte. A text of Windows has a NUL after each.
            if title := credentials.find(content.replace(b"\0", b"").decode("latin-1")):
                problems.append(
                    f"--workdir: {entry.name} has {title}, and every member can read a ConfigMap. "
                    f"Leave it out by a line in {_shown(str(file_of(folder)))}, and use a Secret"
                )
    return buffer.getvalue()


def _too_large(folder: Path, size: str, sizes: Mapping[str, int]) -> str:
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:LARGEST]
    names = ", ".join(f"{_shown(name)} ({_size(sizes[name])})" for name in largest)
    return (
        f"--workdir: {_shown(str(folder))} has {size}, and a ConfigMap takes {_size(MAX_BYTES)}. "
        f"{f'The largest files are {names}. ' if names else ''}"
        f"Leave data out by lines in {_shown(str(file_of(folder)))} and mount it with --mount, or build an image"
    )


def _shown(name: str) -> str:
    """A name, which may be a stranger's, on one line."""
    return name if name.isprintable() else repr(name)


def _listed(names: Sequence[str]) -> str:
    others = f" and {len(names) - NAMED} others" if len(names) > NAMED else ""
    return f"{', '.join(map(_shown, names[:NAMED]))}{others}"


def _size(size: int) -> str:
    return f"{size / 1024:.0f} KiB" if size < 1024 * 1024 else f"{size / 1024 / 1024:.1f} MiB"
