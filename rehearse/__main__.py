"""Entry point of `python -m rehearse`."""

from __future__ import annotations

from ops.stack import run
from rehearse.command import main

if __name__ == "__main__":
    run(main)
