"""Stubs of programs that can't run here: model servers, the TPU device plugin, the Stackdriver adapter.

A stub serves the part of the real program's HTTP API that this product uses, on 127.0.0.1; no model answers. Every
replica has a process, so starting one must be cheap: this package imports only the standard library and itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from emulator.stubs.programs import main; main()"


def command(name: str, settings: Mapping[str, object]) -> list[str]:
    """The command line of a stub. `settings` are the keyword arguments of its function."""
    # Without site packages a stub starts in at most a tenth of a second.
    return [sys.executable, "-I", "-S", "-c", _START, str(Path(__file__).parents[2]), name, json.dumps(settings)]
