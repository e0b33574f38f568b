"""What a configuration should change soon, although it deploys. A preview prints it."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.engines import CURRENT, ENGINES
from settings.model import Server


def legacy_engines(serving: Sequence[Server]) -> list[str]:
    """The servers whose engine is no longer developed, each with the engine to use instead."""
    engines = [(server, ENGINES[server.engine]) for server in serving]
    return [
        f"{server.at('engine')}: {engine.title} is {engine.legacy}. It gets no new models and no fixes. "
        f"Set engine: {CURRENT[engine.accelerator]}."
        for server, engine in engines
        if engine.legacy
    ]
