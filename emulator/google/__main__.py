"""The process that the engine starts as `pulumi-resource-gcp`."""

from __future__ import annotations

from emulator.google.plugin import Gcp
from emulator.pulumi.plugin import serve

serve(Gcp())
