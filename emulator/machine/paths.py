"""Paths of the emulator's state and cache.

Standard library only: set-up imports it before any environment exists.

The environment is read once, at import: a process belongs to one state folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from gke_ai.workspace.emulation import INSTALLED, PACKAGES

ROOT = PACKAGES
"""Root folder of the checkout, or where pip installs packages."""

LOCK = ROOT / "emulator" / "requirements.lock"
"""Every Python package that the program, the emulator and the tests use, with its hashes."""

_user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CACHE = Path(os.environ.get("GKE_AI_CACHE") or _user_cache / "gke-ai").absolute()
"""Tools and Python environments, named by a hash. All checkouts and states of this user share them."""

STATE = Path(os.environ.get("GKE_AI_STATE") or (Path.cwd() if INSTALLED else ROOT) / ".local").absolute()
"""Everything that belongs to one emulated cloud. While nothing of it runs, deleting the folder deletes the cloud."""

CLOUD = STATE / "cloud"
"""The emulated cloud's resources."""
CLUSTERS = STATE / "clusters"
"""One folder per cluster: kubeconfig, cluster.json, process ids, logs."""
