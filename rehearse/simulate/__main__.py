"""Entry point of `python -m rehearse.simulate`."""

from __future__ import annotations

from ops.stack import run
from rehearse.simulate.command import main

if __name__ == "__main__":
    run(main)
