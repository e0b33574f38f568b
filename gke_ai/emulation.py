"""What the package knows of the emulator: its command, whether this process runs under it, and the marks that it sets.

The emulator imports these names from here. The package imports nothing of the emulator, which is part of a checkout
only: it runs its command.
"""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
RUN = CHECKOUT / "emulator" / "run"
# Annotations. On a node or a pod: for how long KWOK waits before it makes it ready (emulator/cluster/stages.yaml).
READY_AFTER = "emulator.gke-ai/ready-after"
# On an idle node that the autoscaler deletes unless a pod comes. GKE's sets a taint for it.
LEAVING = "emulator.gke-ai/leaving"
# On a node that an upgrade replaces or creates: its step. Meanwhile the autoscaler does not delete it.
UPGRADED = "emulator.gke-ai/upgraded"
NEW, DRAINS, WAITS, SOAKS, FORCED = "new", "drains", "waits", "soaks", "forced"
# The steps in which GKE lets time pass.
PASSES_TIME = (WAITS, SOAKS)


def on_emulator() -> bool:
    """Whether this process runs under emulator/run."""
    return "GKE_AI_STATE" in os.environ
