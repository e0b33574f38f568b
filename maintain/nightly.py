"""`make test-nightly [PART=…]`: the tests that repeat, compare versions, kill or soak, in parts."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple


class Part(NamedTuple):
    """Test files, and what a worker takes at a time: a test, or all tests of a file, which share what they set up."""

    files: tuple[str, ...]
    at_a_time: str = "loadfile"


def end_to_end(*names: str) -> tuple[str, ...]:
    """The paths of test files by their names."""
    return tuple(f"tests/end_to_end/test_{name}.py" for name in names)


PARTS: Mapping[str, Part] = {
    "kills": Part(end_to_end("convergence", "examples", "jetstream", "token"), "worksteal"),
    "changes": Part(end_to_end("rehearsed_changes"), "worksteal"),
    "forecasts": Part(
        (
            *end_to_end("forecasts_and_outcomes", "kueue_tables", "manifests", "queue_upgrade", "rehearse"),
            *end_to_end("rehearse_upgrades", "snapshot", "when", "worked_cases"),
            "tests/test_hostile_input.py",
        )
    ),
    "systems": Part(end_to_end("dev", "mixed", "upgrade", "vllm_autoscaling")),
    "simulation": Part(end_to_end("simulation_theory", "simulation", "start")),
    "tutorials": Part(end_to_end("any_folder", "tutorials", "package", "bench"), "worksteal"),
}


def main() -> None:
    """Runs a part, or all of them one after the other, and exits with 1 if a test failed."""
    parser = argparse.ArgumentParser(description="The nightly tests.")
    parser.add_argument("part", nargs="?", default="", choices=["", *PARTS])
    chosen = parser.parse_args().part
    failed = []
    for name, part in PARTS.items():
        if chosen in ("", name):
            command = [sys.executable, "-m", "pytest", "-p", "maintain.times", "-m", "nightly", "-n", "3"]
            command += ["--dist", part.at_a_time, "--durations", "12", *part.files]
            print(f"part {name}", flush=True)
            if subprocess.run(command, check=False).returncode:
                failed.append(name)
    if failed:
        sys.exit(
            f"Tests of these parts failed: {', '.join(failed)}. One part again:  make test-nightly PART={failed[0]}"
        )


if __name__ == "__main__":
    main()
