"""Entry point of `python -m gke_ai.forecast.rehearse`."""

from __future__ import annotations

from gke_ai.forecast.rehearse.command import main
from gke_ai.ops.stack import run

if __name__ == "__main__":
    run(main)
