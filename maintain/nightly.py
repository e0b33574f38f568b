"""`make test-nightly [PART=…]`: the tests that repeat, compare versions, kill or soak, in parts."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from gke_ai.catalog.versions import KUEUE_VERSION
from maintain.pages.proven_page import RUNS


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


def maintain(*names: str) -> tuple[str, ...]:
    """Files of tests of the tools of maintainers, by their names."""
    return tuple(f"maintain/tests/test_{name}.py" for name in names)


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
    "releases": Part(nightly("existing_kueue", "kueue_releases", "plain_pulumi", "pod_requests", "queue_upgrade")),
    "rollouts": Part((*cluster("environments", "model_cache", "training_job"), *nightly("canary", "pool_change"))),
    "systems": Part(
        (
            *maintain("recording"),
            *cluster("flex_start", "multislice", "upgrade"),
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
    "sdks": Part(nightly("sdks")),
    "tutorials": Part((*cluster("any_folder", "tutorials", "package"), *maintain("bench")), "worksteal"),
}


def record(files: Iterable[str], day: date, runs: Path = RUNS) -> None:
    """Writes down that these files ran whole and passed, for docs/proven.md."""
    head, _, known = runs.read_text().partition("\n")
    new = {Path(file).stem: [day, KUEUE_VERSION] for file in files}
    runs.write_text(f"{head}\n{yaml.safe_dump(yaml.safe_load(known) | new, default_flow_style=None)}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Records the files of a run of pytest in which every test passed. None was skipped, and `-k` chose none."""
    config, reporter = session.config, session.config.pluginmanager.get_plugin("terminalreporter")
    whole = not hasattr(config, "workerinput") and config.option.markexpr == "nightly" and not config.option.keyword
    if whole and exitstatus == 0 and reporter is not None and not reporter.stats.get("skipped"):
        record((file for file in config.args if file.endswith(".py")), date.today())


def main() -> None:
    """Runs a part, or all of them one after the other, and exits with 1 if a test failed."""
    parser = argparse.ArgumentParser(description="The nightly tests.")
    parser.add_argument("part", nargs="?", default="", choices=["", *PARTS])
    chosen = parser.parse_args().part
    failed = []
    for name, part in PARTS.items():
        if chosen in ("", name):
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "maintain.times",
                "-p",
                "maintain.nightly",
                "-m",
                "nightly",
                "-n",
                "3",
            ]
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
