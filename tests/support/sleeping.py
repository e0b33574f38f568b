"""A server that sleeps on an emulator: how long its start takes, whether it sleeps, and loads on its gateway."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.emulator import Emulator, eventually
from tests.support.recorder import configuration

EXAMPLE = "examples/sleeping-server.yaml"
SERVER, NAMESPACE = "gemma", "llm"
HELD, HELD_SECONDS = 40, 40
WINDOW_SECONDS = 3


def sections() -> dict[str, Any]:
    """The example without warm hours, with less time and room for requests that wait."""
    config = configuration(EXAMPLE)
    (server,), (scaler,) = config["gke-ai:serving"], config["gke-ai:autoscaling"]
    del scaler["warmHours"]
    return {
        "serving": [{**server, "held": {"requests": HELD, "seconds": HELD_SECONDS}}],
        "autoscaling": [{**scaler, "scrapeIntervalSeconds": 5}],
    }


def window(emulator: Emulator, seconds: int = WINDOW_SECONDS) -> None:
    """Lets the server sleep so long after its last request. The rules demand a window as long as its start."""
    behavior = json.dumps({"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": seconds}}}})
    emulator.kubectl("-n", NAMESPACE, "patch", "hpa", SERVER, "--type=merge", "-p", behavior)


def replicas(emulator: Emulator) -> int:
    (deployment,) = emulator.get("deployments", "-n", NAMESPACE, f"--field-selector=metadata.name={SERVER}")
    return int(deployment["spec"]["replicas"])


def asleep(emulator: Emulator) -> None:
    """Waits until the server has no replica."""
    eventually(lambda: replicas(emulator) == 0, "the server sleeps", 180)


@contextmanager
def delayed(emulator: Emulator, seconds: float) -> Iterator[None]:
    """Replicas are ready after that time."""
    emulator.run("delay", f"server={seconds}")
    try:
        yield
    finally:
        emulator.run("delay", "none")


def loaded(emulator: Emulator, *words: str, others: bool = False) -> list[dict[str, int]]:
    """How the requests of each rate of a load ended. With `others`, some may end otherwise than the pages say."""
    file = emulator.state / "load.json"
    command = ("gke-ai", "load", "--stack", emulator.stack, "--json", str(file), *words)
    emulator.run(*command, fails=None if others else False)
    steps: list[dict[str, Any]] = json.loads(file.read_text())
    return [step["kinds"] for step in steps]
