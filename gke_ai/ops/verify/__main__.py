"""Entry point of `python -m gke_ai.ops.verify`."""

from __future__ import annotations

from gke_ai.ops.stack import run
from gke_ai.ops.verify.command import main

if __name__ == "__main__":
    run(main)
