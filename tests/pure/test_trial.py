"""A trial: what a budget allows, what the file says and never says, and what a killed trial leaves in its record."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from gke_ai.ops.lifecycle import deploy
from gke_ai.registered.types import NODE_POOL
from gke_ai.review.report.changes import Resource
from gke_ai.terminal import Stop
from gke_ai.trial import command, record
from gke_ai.trial.budget import ON_EMULATOR, ON_GOOGLE_CLOUD, Limit, Times, hourly_cost, limit, shown
from gke_ai.trial.command import Ended, Options, cut_off, timed, written_configuration
from gke_ai.trial.outcome import (
    DONE,
    FAILED,
    INTERRUPTED,
    OUT_OF_BUDGET,
    Answers,
    Claim,
    Measured,
    Outcome,
    Step,
    reasons,
)
from gke_ai.trial.record import Process, Record, read, refusal
from gke_ai.workspace import prices
from gke_ai.workspace.stack import Stack
from tests.support.commands import gke_ai
from tests.support.recorder import ROOT, configuration, shared_record
from tests.support.registered import resources

TIMES = Times(up=600, verify=100, down=500)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state of the emulator."""
    monkeypatch.setenv("GKE_AI_STATE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("hourly", "budget", "minutes", "seconds"),
    [
        ("10", "20", 600, 7200),  # the money ends first
        ("10", "20", 60, 3600),  # the time ends first
        ("0", "0", 60, 3600),  # machines that cost nothing
        ("3", "1", 600, 1200),  # exactly one of each step
    ],
)
def test_a_trial_lasts_as_long_as_its_money_and_its_time(hourly: str, budget: str, minutes: int, seconds: int) -> None:
    found = limit(Decimal(hourly), "EUR", Decimal(budget), minutes, TIMES)
    assert (found.seconds, found.until_down) == (seconds, seconds - TIMES.down)
    assert found.cost(found.seconds) <= max(Decimal(budget), Decimal(0))


@pytest.mark.parametrize(("hourly", "budget", "minutes"), [("3.01", "1", 600), ("0", "20", 19), ("10", "0", 60)])
def test_a_budget_without_room_for_one_of_each_step_is_refused(hourly: str, budget: str, minutes: int) -> None:
    with pytest.raises(Stop, match="so nothing was deployed") as refused:
        limit(Decimal(hourly), "EUR", Decimal(budget), minutes, TIMES)
    least = re.search(r"Use --budget ([\d.]+) and --minutes (\d+), or more", str(refused.value))
    assert least
    assert limit(Decimal(hourly), "EUR", Decimal(least[1]), int(least[2]), TIMES).seconds >= TIMES.all


def test_costs_are_rounded_up_and_machines_with_and_without_accelerators_count_at_their_maximum() -> None:
    limits = Limit(Decimal("1.20"), "EUR", Decimal(20), 3600, 60)
    costs = [limits.cost(seconds) for seconds in (0, 1, 3600, 3601)]
    assert costs == [Decimal(text) for text in ("0", "0.01", "1.20", "1.21")]
    stack = {item.urn: item for item in (pool("g2-standard-24", 2), pool("e2-standard-8", 3))}
    assert hourly_cost(stack, table(g2_standard_24=5, e2_standard_8=1)) == 13
    for missing, known in (("e2-standard-8", "g2_standard_24"), ("g2-standard-24", "e2_standard_8")):
        with pytest.raises(Stop, match=f"no price of {missing}/onDemand"):
            hourly_cost(stack, table(**{known: 5}))
    registered = resources(shared_record(configuration("examples/multislice-training.yaml")))
    stack = {item.urn: item for item in registered}
    with pytest.raises(Stop) as refused:
        hourly_cost(stack, table(g2_standard_24=1))
    unknown = str(refused.value).partition("no price of ")[2].partition(", so")[0].split(", ")
    assert "ct5lp-hightpu-4t/onDemand" in unknown
    all_prices = {key: 2 if key.startswith("ct5lp") else 0 for key in unknown}
    found = prices.parse({"currency": "EUR", "date": "2026-11-20", "perHour": all_prices})
    assert hourly_cost(stack, found) == 12, "three slices of two machines each"


def pool(machine: str, count: int) -> Resource:
    """A node pool of this size in one zone."""
    inputs = {"name": "p", "location": "us-west4", "nodeLocations": ["us-west4-a"], "nodeCount": count}
    return Resource(f"urn::{machine}", NODE_POOL, "", {**inputs, "nodeConfig": {"machineType": machine}})


def table(**per_hour: int) -> prices.Prices:
    keys = {key.replace("_", "-") + "/onDemand": price for key, price in per_hour.items()}
    return prices.parse({"currency": "EUR", "date": "2026-11-20", "perHour": keys})


def test_google_cloud_gets_more_time_for_each_step_and_times_are_written_for_people() -> None:
    pairs = zip(fields(ON_GOOGLE_CLOUD), fields(ON_EMULATOR), strict=True)
    assert all(getattr(ON_GOOGLE_CLOUD, a.name) > getattr(ON_EMULATOR, b.name) > 0 for a, b in pairs)
    assert [shown(seconds) for seconds in (50.4, 250, 3900)] == ["50 s", "4 min 10 s", "1 h 05 min"]


def outcome(**changed: Any) -> Outcome:
    steps = (Step("up", DONE, 60), Step("verify", DONE, 5), Step("smoke", DONE, 5), Step("down", DONE, 50))
    servers = (Answers("default/tgi", "TGI", 8, 0, "0.20 s", "0.31 s"),)
    parts: dict[str, Any] = {"system": "mixed-training-inference", "place": "Google Cloud", "project": ""}
    parts |= {"versions": (("gke-ai", "0.4.0"),), "limit": Limit(Decimal(30), "EUR", Decimal(20), 2400, 900)}
    parts |= {"steps": steps, "claims": (Claim("allocatable", "pass", 3),), "servers": servers, "deleted": True}
    return Outcome(**{**parts, "durations": (Measured("node-ready", 92, 95, 2),), **changed})


def test_the_file_has_versions_times_results_and_costs() -> None:
    text = outcome().written()
    assert text.startswith("# Trial of mixed-training-inference on Google Cloud\n")
    for line in (
        *("- Result: done. Everything is deleted.", "- Time: 2 min 00 s of 40 min 00 s"),
        *("- Cost: at most 1.00 of 20 EUR, computed from 30 EUR per hour for all machines at their maximum",),
        *("| gke-ai | 0.4.0 |", "| up | done | 1 min 00 s |  |", "| allocatable | pass | 3 |"),
        *("| node-ready | 92 s | 95 s | 2 |", "| default/tgi | TGI | 8 | 0 | 0.20 s | 0.31 s |"),
    ):
        assert line in text.splitlines()


def test_the_file_says_what_went_wrong_and_the_project_only_if_the_user_says_so() -> None:
    steps = (Step("up", OUT_OF_BUDGET, 60, ("ZONE_RESOURCE_POOL_EXHAUSTED",)), Step("down", FAILED, 50))
    found = outcome(steps=steps, claims=(), durations=(), servers=(), deleted=False)
    text = found.written()
    assert (found.result, "## Smoke" in text) == (OUT_OF_BUDGET, False)
    assert "- Result: out of budget. NOT everything is deleted." in text
    assert "| up | out of budget | 1 min 00 s | ZONE_RESOURCE_POOL_EXHAUSTED |" in text
    assert "Project" not in outcome().written()
    assert "- Project: my-project\n" in outcome(project="my-project").written()


def test_only_known_reasons_of_a_message_reach_the_file_and_a_failed_claim_fails_its_step() -> None:
    message = (
        "googleapi: Error 403: Quota 'GPUS' exceeded in projects/secret-project for user@example.com, QUOTA_EXCEEDED; "
        "QUOTA_EXCEEDED; SECRET_TOKEN hf_canary PERMISSION_DENIED"
    )
    assert reasons(message) == ("QUOTA_EXCEEDED", "PERMISSION_DENIED")
    steps: list[Step] = []

    def refused() -> None:
        raise Stop(message)

    assert timed(steps, "up", refused) is None
    text = outcome(steps=tuple(steps)).written()
    assert [canary for canary in ("secret-project", "user@example.com", "hf_canary", "GPUS") if canary in text] == []
    steps = []
    bad = outcome(claims=(Claim("grant", "fail", 1),), servers=(Answers("a/b", "vLLM", 8, 1, "–", "–"),))
    for name in ("verify", "smoke"):
        assert timed(steps, name, lambda: bad) is bad
    assert [step.result for step in steps] == [FAILED, FAILED]


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_step_and_no_later_one_the_deletion(number: signal.Signals) -> None:
    steps: list[Step] = []
    with pytest.raises(Ended, match=INTERRUPTED), cut_off(60):
        timed(steps, "up", lambda: signal.raise_signal(number))
    signal.raise_signal(number)  # the deletion goes on
    assert [step.result for step in steps] == [INTERRUPTED]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[Step]]:
    """Runs an `up` of which the engine is a script, with a budget of one second. Returns its step."""

    def run(script: str) -> list[Step]:
        monkeypatch.setattr(Stack, "command", lambda *_, **__: ["sh", "-c", script])
        begun = Record("trial-x", "x.yaml", Process.of(os.getpid()))
        begun.create()
        steps: list[Step] = []
        try:
            with cut_off(1):
                timed(steps, "up", lambda: command.update(Stack("trial-x"), begun))
        except Ended:
            saved = read("trial-x")
            assert saved
            assert saved.update
            assert not saved.update.runs
        return steps

    return run


def test_the_end_of_the_budget_interrupts_the_update_and_kills_an_endless_one(
    shell: Callable[[str], list[Step]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (step,) = shell(f"trap 'echo > {tmp_path}/interrupted; exit 1' INT; sleep 60 & wait")
    assert (step.result, (tmp_path / "interrupted").exists()) == (OUT_OF_BUDGET, True)
    Record("trial-x", "x.yaml", Process.of(os.getpid())).remove()
    monkeypatch.setattr(command, "FINISH_SECONDS", 0.5)
    (step,) = shell("trap '' INT; sleep 60")
    assert (step.result, step.seconds < 20) == (OUT_OF_BUDGET, True)


@pytest.mark.usefixtures("handlers")
def test_a_failed_update_gives_the_reasons_that_it_printed(shell: Callable[[str], list[Step]]) -> None:
    (step,) = shell("echo error: QUOTA_EXCEEDED in secret-project; exit 255")
    assert (step.result, step.reasons) == (FAILED, ("QUOTA_EXCEEDED",))


def test_a_second_trial_is_refused_while_one_runs_and_after_a_kill(state: Path) -> None:
    config = state / "trials" / "trial-x" / "x.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("config: {}\n")
    sleeping = subprocess.Popen(["sleep", "60"])
    try:
        first = Record("trial-x", str(config), Process.of(sleeping.pid))
        first.create()
        first.update_is(Process.of(os.getpid()))
        assert read("trial-x") == Record("trial-x", str(config), first.trial, Process.of(os.getpid()))
        with pytest.raises(Stop, match=rf"A trial of x runs \(process {sleeping.pid}\)"):
            Record("trial-x", "x.yaml", Process.of(os.getpid())).create()
    finally:
        sleeping.kill()
        sleeping.wait()
    with pytest.raises(Stop, match=r"did not delete.*\n?.*gke-ai trial x --clean --emulator"):
        Record("trial-x", "x.yaml", Process.of(os.getpid())).create()
    first.remove()
    assert read("trial-x") is None
    assert not list(record.folder().glob("*"))


def test_another_process_with_the_same_id_is_not_the_trial_and_a_damaged_record_is_refused() -> None:
    assert Process.of(os.getpid()).runs
    assert not Process(os.getpid(), "1").runs
    assert "did not delete" in refusal(Record("trial-x", "x.yaml", Process(os.getpid(), "1")))
    record.folder().mkdir()
    (record.folder() / "trial-x.json").write_text("{")
    with pytest.raises(Stop, match=r"trial-x\.json is damaged\. Delete the stack trial-x with gke-ai down"):
        read("trial-x")


def options(file: Path, project: str = "") -> Options:
    return Options(file, Decimal(20), Path("p"), 60, Path("o"), print, project)


def test_nothing_of_a_trial_is_protected_or_kept_and_google_cloud_needs_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "mine.yaml"
    kept = {"gke-ai:buckets": [{"name": "a", "protect": True, "onDestroy": "keep"}]}
    source.write_text(yaml.safe_dump({"config": {**kept, "gke-ai:cluster": {"name": "c", "protect": True}}}))
    file = written_configuration(options(source, "my-project"))
    assert yaml.safe_load(file.read_text())["config"] == {
        "gcp:project": "my-project",
        "gke-ai:cluster": {"name": "c"},
        "gke-ai:buckets": [{"name": "a", "protect": False, "onDestroy": "delete"}],
    }
    monkeypatch.delenv("GKE_AI_STATE")
    monkeypatch.setattr(record, "ROOT", tmp_path)
    with pytest.raises(Stop, match="needs a project: --project my-project"):
        written_configuration(options(ROOT / "examples" / "multislice-training.yaml"))


def test_a_stack_that_is_not_the_trials_is_never_deleted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(deploy, "exists", lambda _: True)
    monkeypatch.setattr(deploy, "delete", lambda _: pytest.fail("deleted"))
    monkeypatch.setattr(command, "prepare", lambda name, config, _=False: Stack(name, config))
    file = tmp_path / "prices.yaml"
    file.write_text("{currency: EUR, date: 2026-11-20, perHour: {g2-standard-24/spot: 1}}")
    with pytest.raises(Stop, match="There is a stack trial-multislice-training already"):
        gke_ai("trial", "multislice-training", "--budget", 20, "--prices", file)
    assert read("trial-multislice-training") is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere", "--budget", "20"), "there is no system nowhere. Use one of cost-optimized-serving"),
        (("multislice-training", "--budget", "20 EUR"), "20 EUR is not an amount"),
        (("multislice-training", "--budget", "20"), "needs --budget and --prices"),
    ],
)
def test_a_trial_that_is_written_wrong_is_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(click.UsageError, match=says):
        gke_ai("trial", *words)
