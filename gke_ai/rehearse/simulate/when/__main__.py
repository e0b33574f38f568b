"""Entry point of `python -m gke_ai.rehearse.simulate.when`."""

from __future__ import annotations

from gke_ai.ops.stack import run
from gke_ai.rehearse.simulate.when.command import main

if __name__ == "__main__":
    run(main)
