"""Where the emulator keeps things. Standard library only: set-up reads it before any environment exists.

Read from the environment once, at import: a process belongs to one state folder.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The project's root."""

_user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CACHE = Path(os.environ.get("GKE_AI_CACHE") or _user_cache / "gke-ai").absolute()
"""Tools and Python environments, by content: shared by every checkout and every state of this user."""

STATE = Path(os.environ.get("GKE_AI_STATE") or ROOT / ".local").absolute()
"""All that one emulated cloud knows. Removing it while nothing of it runs leaves nothing behind."""

CLOUD = STATE / "cloud"
"""The emulated cloud's resources."""
CLUSTERS = STATE / "clusters"
"""One folder a cluster: kubeconfig, cluster.json, process ids, logs."""
