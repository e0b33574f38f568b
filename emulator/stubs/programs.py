"""The stubs by name, and their entry point."""

from __future__ import annotations

import json
import sys
import threading

from emulator.stubs.engines import server, tgi
from emulator.stubs.jetstream import jetstream_http, maxengine
from emulator.stubs.node import device_plugin, metrics_api
from emulator.stubs.ray import ray_head

STUBS = {stub.__name__: stub for stub in (tgi, server, maxengine, jetstream_http, device_plugin, metrics_api, ray_head)}


def main() -> None:
    """Runs the stub named by the first argument, with the settings in the second, until the process is ended."""
    STUBS[sys.argv[1]](**json.loads(sys.argv[2]))
    threading.Event().wait()
