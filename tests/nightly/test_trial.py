"""Only here: a trial from its start to its file, out of budget, and killed half-way. Nothing is left of any of them."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import yaml

from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.types import MACHINES
from tests.support.emulator import Emulator, Found, gone
from tests.support.mistakes import PROJECT

SYSTEM = "mixed-training-inference"
PRICE = 36


def words(emulator: Emulator, budget: float) -> tuple[str, ...]:
    """The command of a trial in which each machine costs the same per hour."""
    prices = emulator.state / "prices.yaml"
    prices.parent.mkdir(parents=True, exist_ok=True)
    per_hour = {f"{machine}/{mode}": PRICE for machine in MACHINES for mode in MODES}
    prices.write_text(yaml.safe_dump({"currency": "EUR", "date": "2026-11-20", "perHour": per_hour}))
    stated = ("--budget", f"{budget:.2f}", "--prices", str(prices), "--output", str(file_of(emulator)))
    return ("gke-ai", "trial", SYSTEM, *stated)


def file_of(emulator: Emulator) -> Path:
    return emulator.state / "trial.md"


def left(emulator: Emulator) -> list[Path]:
    return list((emulator.state / "trials").glob("*.json"))


def nothing_is_left(emulator: Emulator) -> None:
    gone(emulator, Found(frozenset(), frozenset()))
    assert left(emulator) == []


def test_a_trial_ends_with_its_file_and_nothing_left(emulator: Emulator) -> None:
    emulator.run(*words(emulator, 10_000))
    text = file_of(emulator).read_text()
    steps = re.findall(r"^\| (\w+) \| ([\w ]+) \| ([\w ]+) \|", text, re.M)
    results = {name: result for name, result, _ in steps}
    assert [results[name] for name in ("up", "verify", "smoke", "down")] == ["done"] * 4
    assert text.splitlines()[2] == "- Result: done. Everything is deleted."
    assert re.search(r"^\| Kubernetes \| v1\.", text, re.M)
    assert re.search(r"^\| quota \| pass \| \d+ \|", text, re.M)
    assert re.search(r"^\| [\w-]+/[\w-]+ \| .+ \| [1-9]\d* \| 0 \| ", text, re.M), "the server answered every request"
    assert [name for name in (PROJECT, "hf_", str(emulator.state)) if name in text] == []
    nothing_is_left(emulator)


def test_a_trial_ends_with_its_budget_in_a_cloud_that_is_too_slow(emulator_with: Callable[..., Emulator]) -> None:
    slow = emulator_with(GKE_AI_CLOUD_LATENCY="8")
    refused = slow.run(*words(slow, 0.01), fails=True)
    assert "so nothing was deployed" in refused
    hourly = re.search(r"cost up to ([\d.]+) EUR per hour", refused)
    assert hourly
    output = slow.run(*words(slow, float(hourly[1]) * 30 / 3600), fails=True)
    text = file_of(slow).read_text()
    assert text.splitlines()[2] == "- Result: out of budget. Everything is deleted.", output
    assert re.search(r"^\| up \| out of budget \|", text, re.M)
    assert re.search(r"^\| down \| done \|", text, re.M)
    nothing_is_left(slow)


def half_way(emulator: Emulator, number: signal.Signals) -> str:
    """Sends a signal to a trial while its nodes are created, and returns what it printed."""
    process = emulator.start(*words(emulator, 10_000))
    assert process.stdout
    seen = []
    for line in process.stdout:
        seen.append(line)
        if "NodePool" in line and "creat" in line:
            break
    (record,) = left(emulator)
    os.kill(yaml.safe_load(record.read_text())["trial"]["pid"], number)
    return "".join(seen) + process.communicate()[0]


def test_a_trial_that_is_terminated_half_way_deletes_what_it_deployed(emulator: Emulator) -> None:
    printed = half_way(emulator, signal.SIGTERM)
    assert "- Result: interrupted. Everything is deleted." in file_of(emulator).read_text(), printed
    nothing_is_left(emulator)


def test_a_killed_trial_is_refused_again_until_it_is_cleaned(emulator: Emulator) -> None:
    half_way(emulator, signal.SIGKILL)
    assert not file_of(emulator).exists()
    assert f"gke-ai trial {SYSTEM} --clean --emulator" in emulator.run(*words(emulator, 10_000), fails=True)
    emulator.run("gke-ai", "trial", SYSTEM, "--clean")
    nothing_is_left(emulator)
    assert "nothing to delete" in emulator.run("gke-ai", "trial", SYSTEM, "--clean")
