"""Entry point of `python -m rehearse.simulate.when`."""

from __future__ import annotations

from ops.stack import run
from rehearse.simulate.when.command import main

if __name__ == "__main__":
    run(main)
