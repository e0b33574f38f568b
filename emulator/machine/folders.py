"""Folders whose names and paths come from objects of a cluster: none leads out of the folder that it belongs to."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

# Names of Kubernetes and Google Cloud, and uids. Two dots in a row have no use in either.
_NAME = re.compile(r"[a-z0-9](?!.*\.\.)[a-z0-9._-]{0,252}", re.ASCII)


class Outside(ValueError):
    """A path leads out of its folder."""


def folder_name(value: object) -> str:
    """Returns the name of a file or folder for a name or a uid: itself, or a hash if it is not a plain one."""
    text = str(value)
    return text if _NAME.fullmatch(text) else f"hash-{hashlib.sha256(text.encode(errors='replace')).hexdigest()}"


def inside(folder: Path, path: str) -> Path:
    """Returns a path below a folder, which may be absolute as in a container. Raises Outside if it leads elsewhere."""
    target = folder / path.lstrip("/")
    # `..` is refused as text, and links by where they lead.
    if ".." in path.split("/") or not Path(os.path.realpath(target)).is_relative_to(os.path.realpath(folder)):
        raise Outside(f"the path {path} leads out of its folder")
    return target
