"""Why a control plane does not start: a full disk, or the last words of a component."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from emulator.machine import paths

# A new cluster uses 130 MB at once: etcd reserves two files of 64 MB for its log. One that exists started with 8 MB.
# The rest is for its database and the logs of the components, which grow.
NEW_BYTES, STARTED_BYTES = 160_000_000, 16_000_000
COMMAND_BYTES = 1_000_000  # for copies of configurations, and records


def lack_for_etcd(control_plane: Path) -> str:
    """What is wrong with the disk of a control plane's folder, which may not exist yet; empty if etcd has room."""
    return lack_of_space(control_plane, "etcd", STARTED_BYTES if (control_plane / "etcd").exists() else NEW_BYTES)


def lack_of_space(folder: Path, who: str, needed: int) -> str:
    """What is wrong with the disk of a folder, which may not exist yet; empty if there is room."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free >= needed:
        return ""
    return (
        f"{who} has no room: the disk of {existing} has {megabytes(free)} free, and {who} needs {megabytes(needed)}. "
        f"Delete files there (the largest: du -xah {paths.STATE} | sort -h | tail), or set GKE_AI_STATE to a folder "
        "on another disk. Then run this again."
    )


def megabytes(size: int) -> str:
    """Formats a size: `251 MB`."""
    return f"{size / 1e6:.0f} MB"


def last_words(log: Path) -> str:
    """The last line of a log. Of etcd's, whose lines are JSON, the message and the error."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    if not lines:
        return "its log is empty"
    try:
        entry = json.loads(lines[-1])
        return ": ".join(str(entry[key]) for key in ("msg", "error") if entry.get(key)) or lines[-1]
    except (ValueError, AttributeError):
        return lines[-1]
