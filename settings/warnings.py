"""What a configuration should change soon, although it deploys. A preview prints it."""

from __future__ import annotations

from catalog.engines import CURRENT, ENGINES
from settings.model import Settings


def legacy_engines(settings: Settings) -> list[str]:
    """The servers whose engine is no longer developed, each with the engine to use instead."""
    engines = [(server, ENGINES[server.engine]) for server in settings.serving]
    return [
        f"{server.at('engine')}: {engine.title} is {engine.legacy}. It gets no new models and no fixes. "
        f"Set engine: {CURRENT[engine.accelerator]}."
        for server, engine in engines
        if engine.legacy
    ]
