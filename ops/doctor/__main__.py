"""Entry point of `python -m ops.doctor`."""

from __future__ import annotations

from ops.doctor.command import main
from ops.stack import run

if __name__ == "__main__":
    run(main)
