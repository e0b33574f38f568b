"""Entry point of `python -m ops.snapshot`."""

from __future__ import annotations

from ops.snapshot.command import main
from ops.stack import run

if __name__ == "__main__":
    run(main)
