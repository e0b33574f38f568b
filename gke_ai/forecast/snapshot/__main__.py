"""Entry point of `python -m gke_ai.forecast.snapshot`."""

from __future__ import annotations

from gke_ai.forecast.snapshot.command import main
from gke_ai.ops.stack import run

if __name__ == "__main__":
    run(main)
