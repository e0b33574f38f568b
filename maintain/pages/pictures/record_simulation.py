"""Records simulations for pictures: of two quotas of the production stack, and of three ways to share a week.

    make simulate STACK=prod JOBS=120 SEEDS=3 COMPARE=/tmp/six-and-six.yaml JSON=/tmp/simulation.json
    emulator/run python -m maintain.pages.pictures.record_simulation simulation /tmp/simulation.json
    make pictures

Tutorial 10 writes the second configuration of the first. `tests/support/simulation/week.py` has the trace and the three
configurations of the other, `shares`. A recording leaves out the runs of each day, which no picture shows.
"""

import sys
from pathlib import Path

from gke_ai.forecast.result.simulation import read
from maintain.pages.pictures import RECORDINGS

if __name__ == "__main__":
    name, result = sys.argv[1:]
    (RECORDINGS / f"{name}.json").write_text(read(Path(result)).written())
