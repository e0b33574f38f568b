"""Records the comparison of two quotas of the production stack, for the picture in docs/simulation.md.

    make simulate STACK=prod JOBS=120 SEEDS=3 COMPARE=/tmp/six-and-six.yaml JSON=/tmp/simulation.json
    emulator/run python -m maintain.pages.pictures.record_simulation /tmp/simulation.json
    make pictures

Tutorial 10 writes the second configuration. The recording leaves out the runs of each day, which the picture does not
show.
"""

import sys
from pathlib import Path

from gke_ai.forecast.result.simulation import read
from maintain.pages.pictures import RECORDINGS

RECORDING = RECORDINGS / "simulation.json"


if __name__ == "__main__":
    RECORDING.write_text(read(Path(sys.argv[1])).written())
