"""Runs a training program and kills it with SIGKILL in the middle of a save, for checks of the checkpoint contract.

    python kill_in_save.py STEP PROGRAM [ARGUMENT…]

The first process of the run to save a checkpoint of STEP or later writes half of its file and is killed.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkpoints


def main() -> None:
    """Replaces `write_file` and runs the program."""
    step, program = int(sys.argv[1]), sys.argv[2]
    complete_write = checkpoints.write_file

    def write_file(folder: Path, name: str, write: Callable[[checkpoints.HashedFile], object]) -> dict[str, Any]:
        if not folder.name.startswith("step-") or checkpoints.step_of(folder) < step:
            return complete_write(folder, name, write)
        about = complete_write(folder, name, write)
        os.truncate(folder / name, about["bytes"] // 2)
        print(f"killed while it saves step {checkpoints.step_of(folder)}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    checkpoints.write_file = write_file
    sys.argv = sys.argv[2:]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
