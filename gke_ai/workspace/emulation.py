"""What the package knows of the emulator: its command, whether this process runs under it, and the marks that it sets.

The emulator imports these names from here. The package imports nothing of the emulator: it runs its command. The folder
`emulator` lies beside `gke_ai` in a checkout, and where pip has installed both wheels.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# The folder with `gke_ai` and `emulator`: a checkout, or where pip installs packages.
PACKAGES = Path(__file__).resolve().parents[2]
INSTALLED = not (PACKAGES / "pyproject.toml").is_file()
RUN = PACKAGES / "emulator" / "run"
# The command of the emulator, as a person types it.
COMMAND = "gke-ai-emulator" if INSTALLED else "emulator/run"
# Annotations. On a node or a pod: for how long KWOK waits before it makes it ready (emulator/cluster/stages.yaml).
READY_AFTER = "emulator.gke-ai/ready-after"
# Taint of a node of Autopilot, which only the pod for which it was created tolerates.
ALONE = "emulator.gke-ai/gpus"
# On an idle node that the autoscaler deletes unless a pod comes. GKE's sets a taint for it.
LEAVING = "emulator.gke-ai/leaving"
# On a node: the capacity mode of its pool. GKE's labels don't tell a reservation from standard capacity.
CAPACITY = "emulator.gke-ai/capacity"
# On a node that an upgrade replaces or creates: its step. Meanwhile the autoscaler does not delete it.
UPGRADED = "emulator.gke-ai/upgraded"
NEW, DRAINS, WAITS, SOAKS, FORCED = "new", "drains", "waits", "soaks", "forced"
# The steps in which GKE lets time pass.
PASSES_TIME = (WAITS, SOAKS)


def on_emulator() -> bool:
    """Whether this process runs under emulator/run."""
    return "GKE_AI_STATE" in os.environ


def enter(*command: str) -> None:
    """Replaces this process by a command under emulator/run: `--tools NAMES gke-ai status`."""
    if INSTALLED:  # its packages are those of the emulator; a checkout has an environment of its own
        os.environ["GKE_AI_INTERPRETER"] = sys.executable
    os.execv(RUN, [str(RUN), *command])
