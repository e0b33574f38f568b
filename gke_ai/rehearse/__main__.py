"""Entry point of `python -m gke_ai.rehearse`."""

from __future__ import annotations

from gke_ai.ops.stack import run
from gke_ai.rehearse.command import main

if __name__ == "__main__":
    run(main)
