"""The command `gke-ai`: one verb for each thing that one does with a stack, a cluster or a change."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from gke_ai.terminal import Stop, without_extra


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `gke-ai`. If a verb stops, prints only its message. The exit codes are in `gke-ai --help`."""
    gc.set_threshold(20_000, 20, 20)  # what a verb loads is many objects and no garbage
    if arguments is not None:
        sys.argv[1:] = arguments
    try:
        from gke_ai.cli.verbs import gke_ai

        gke_ai.main(prog_name="gke-ai")
    except Stop as stop:
        raise SystemExit(str(stop)) from None
    except ModuleNotFoundError as missing:
        raise without_extra(missing) from None
