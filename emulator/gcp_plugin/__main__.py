"""The process that the engine starts as `pulumi-resource-gcp`."""

from __future__ import annotations

from emulator.gcp_plugin.plugin import Gcp
from emulator.plugin import serve

serve(Gcp())
