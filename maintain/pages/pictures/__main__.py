"""Writes the pictures of a recorded run, rehearsal and simulation."""

import json
from collections.abc import Callable

from gke_ai.forecast.rehearse import blocks
from gke_ai.forecast.render import rehearsal_picture, shares, simulation_picture
from gke_ai.forecast.result import simulation
from gke_ai.forecast.result.forecast import read
from maintain.pages import write
from maintain.pages.pictures import FOLDER, RECORDINGS, loss, timeline
from maintain.pages.pictures.record import RECORDING


def pictures() -> dict[str, Callable[[], str]]:
    return {
        "blocks.svg": lambda: blocks.picture(read(RECORDINGS / "blocks.json")),
        "mixed-preemption.svg": lambda: timeline.drawn(json.loads(RECORDING.read_text())),
        "rehearsal.svg": lambda: rehearsal_picture.drawn(read(RECORDINGS / "rehearsal.json")),
        "shares.svg": lambda: shares.drawn(simulation.read(RECORDINGS / "shares.json")),
        "simulation.svg": lambda: simulation_picture.drawn(simulation.read(RECORDINGS / "simulation.json")),
        "training-resumes.svg": lambda: loss.drawn(json.loads(loss.RECORDING.read_text())),
    }


if __name__ == "__main__":
    write(FOLDER, pictures())
