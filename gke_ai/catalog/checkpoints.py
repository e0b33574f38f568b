"""The checkpoint contract between a run and its training program (docs/checkpoints.md): variables and file names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Directory of the run's own, in the container.
DIRECTORY = "CHECKPOINT_DIR"
# Number of complete checkpoints to keep.
KEEP = "CHECKPOINT_KEEP"
# Directory of another run, whose newest checkpoint a run without one starts from.
RESUME_FROM = "CHECKPOINT_RESUME_FROM"
# Seconds between SIGTERM and SIGKILL.
GRACE_SECONDS = "CHECKPOINT_GRACE_SECONDS"

# Exit status of a program that saved a checkpoint after SIGTERM and wants to be started again: EX_TEMPFAIL.
EXIT_SAVED = 75

# A checkpoint is complete if its folder `step-STEP-WRITER` contains this file, which is written last.
MARKER = "COMPLETE"
# The same in the image of fine-tuning runs: https://github.com/huggingface/transformers/issues/35782
MARKER_OF_TRANSFORMERS = "trainer_state.json"
_COMPLETE = re.compile(rf"(?P<name>step-(?P<step>\d+)-(?P<writer>\d+)(-[0-9a-f]+)?)/{MARKER}")
_COMPLETE_OF_TRANSFORMERS = re.compile(
    rf"(?P<name>checkpoint-(?P<step>\d+)(?P<writer>))/{re.escape(MARKER_OF_TRANSFORMERS)}"
)


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint in a run's directory."""

    name: str
    step: int


def newest(names: Iterable[str]) -> Checkpoint | None:
    """The newest complete checkpoint among file names relative to a run's directory."""
    complete = [
        match for name in names if (match := _COMPLETE.fullmatch(name) or _COMPLETE_OF_TRANSFORMERS.fullmatch(name))
    ]
    latest = max(complete, key=lambda match: (int(match["step"]), int(match["writer"] or 0)), default=None)
    return Checkpoint(latest["name"], int(latest["step"])) if latest else None
