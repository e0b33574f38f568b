"""Entry point of `python -m ops.verify`."""

from __future__ import annotations

from ops.stack import run
from ops.verify.command import main

if __name__ == "__main__":
    run(main)
