"""`make test-nightly [PART=…]`: the tests that repeat, compare versions, kill or soak, in parts."""

import argparse
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from functools import partial
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


def files(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/test_{name}.py" for name in names)


# Of the files of `cluster`, only some tests are nightly.
cluster, nightly = partial(files, "tests/cluster"), partial(files, "tests/nightly")


PARTS: Mapping[str, Part] = {
    "kills": Part(
        (*cluster("convergence", "examples", "jetstream", "token"), *nightly("ledger", "trial")), "worksteal"
    ),
    "changes": Part(nightly("rehearsed_changes"), "worksteal"),
    "forecasts": Part(
        (
            *nightly("forecasts_and_outcomes", "manifests", "rehearse_upgrades", "snapshot", "when", "worked_cases"),
            *nightly("endless_preemption", "esc_verbs", "past_usage", "shared_forecasts"),
            *cluster("rehearse"),
            "tests/pure/test_hostile_input.py",
        )
    ),
    "tables": Part(nightly("kueue_tables"), "worksteal"),
    "releases": Part(nightly("existing_kueue", "kueue_releases", "plain_pulumi", "pod_requests", "queue_upgrade")),
    "rollouts": Part((*cluster("environments", "model_cache", "training_job"), *nightly("canary", "pool_change"))),
    "systems": Part(
        (
            *files("maintain/tests", "recording"),
            *cluster("flex_start", "multislice", "upgrade"),
            *nightly("autopilot", "bandwidth", "mixed", "monitoring", "nvlink", "rdma"),
            *nightly("new_attacks", "second_wall", "shares", "sleeping", "topology", "trainer_and_ray", "verify"),
            *nightly("executable_plugin", "vllm_autoscaling"),
        )
    ),
    "emulator": Part((*nightly("large_stack"), *files("emulator/tests", "cluster", "full_disk", "spare", "upgrade"))),
    "simulation": Part((*nightly("simulated_shares", "simulation_theory", "start"), *cluster("simulation"))),
    "sdks": Part(nightly("sdks")),
    "tutorials": Part((*cluster("any_folder", "tutorials", "package"), *files("maintain/tests", "bench")), "worksteal"),
}


def record(files: Iterable[str], day: date, runs: Path = RUNS) -> None:
    head, _, known = runs.read_text().partition("\n")
    # A date in two places would become an alias.
    new = {Path(file).stem: [day.replace(), KUEUE_VERSION] for file in files}
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
            options = f"-p maintain.times -p maintain.nightly -m nightly -n 3 --dist {part.at_a_time} --durations 12"
            command = [sys.executable, "-m", "pytest", *options.split(), "--timeout", "0", *part.files]
            print(f"part {name}", flush=True)
            if subprocess.run(command, check=False).returncode:
                failed.append(name)
    if failed:
        again = f"One part again:  make test-nightly PART={failed[0]}"
        sys.exit(f"Tests of these parts failed: {', '.join(failed)}. {again}")


if __name__ == "__main__":
    main()
