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


def cluster(*names: str) -> tuple[str, ...]:
    """Files of which only some tests are nightly, by their names."""
    return tuple(f"tests/cluster/test_{name}.py" for name in names)


def nightly(*names: str) -> tuple[str, ...]:
    """Files of which every test is nightly, by their names."""
    return tuple(f"tests/nightly/test_{name}.py" for name in names)


PARTS: Mapping[str, Part] = {
    "kills": Part((*cluster("convergence", "examples", "jetstream", "token"), *nightly("trial")), "worksteal"),
    "changes": Part(nightly("rehearsed_changes"), "worksteal"),
    "forecasts": Part(
        (
            *nightly("forecasts_and_outcomes", "manifests", "rehearse_upgrades", "snapshot", "when", "worked_cases"),
            *cluster("rehearse"),
            "tests/pure/test_hostile_input.py",
        )
    ),
    "tables": Part(nightly("kueue_tables"), "worksteal"),
    "releases": Part(nightly("existing_kueue", "kueue_releases", "pod_requests", "queue_upgrade")),
    "rollouts": Part((*cluster("environments", "model_cache", "training_job"), *nightly("canary", "pool_change"))),
    "systems": Part(
        (
            *cluster("dev", "flex_start", "multislice", "upgrade"),
            *nightly("bandwidth", "gpudirect", "mixed", "monitoring", "nvlink", "queued_flex_start", "rdma"),
            *nightly("new_attacks", "rdma_class", "second_wall", "topology", "trainer_and_ray", "verify"),
            *nightly("vllm_autoscaling"),
        )
    ),
    "emulator": Part(
        (
            *nightly("large_stack"),
            *(f"emulator/tests/test_{name}.py" for name in ("cluster", "full_disk", "spare", "upgrade")),
        )
    ),
    "simulation": Part((*nightly("simulation_theory", "start"), *cluster("simulation"))),
    "tutorials": Part((*cluster("any_folder", "tutorials", "package"), *nightly("bench")), "worksteal"),
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
