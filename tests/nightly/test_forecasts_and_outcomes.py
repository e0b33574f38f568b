"""Only here: forecasts of random changes are compared with what the same change then does.

The original is changed, and a copy that was restored from its snapshot forecasts what happens. Compared are the sets of
(workload, outcome, preemptor, flavor), and the nodes. Print the shares and every disagreement of 100 changes:

    emulator/run pytest -s -m nightly tests/nightly/test_forecasts_and_outcomes.py
"""

import json
from contextlib import ExitStack
from pathlib import Path

import yaml

from gke_ai.forecast.outcome.outcome import outcome
from gke_ai.forecast.rehearse.watching import Recorder
from gke_ai.forecast.result.forecast import parse
from tests.support.emulator import Emulator, fresh
from tests.support.rehearsal import places
from tests.support.rehearsal.outcomes import differences
from tests.support.rehearsal.scenario import run_object
from tests.support.rehearsal.seeds import SeededCase, random_case
from tests.support.rehearsal.stack import configuration
from tests.support.rehearsal.verdicts import Verdict, in_the_end, judge, report

SEEDS, TOGETHER, GOAL = 100, 25, 99
# Changes of the configuration, in scenarios whose servers keep a replica: an `up` waits for each server's first.
CONFIGURED = (1, 3, 46, 50, 85)


def test_of_100_forecasts_99_agree_with_what_happens() -> None:
    """Changes are applied directly: the objects with the specs that the program's components write, and node pools.

    An `up` for each would take hours. Two copies of each snapshot show what Kueue leaves to chance.
    """
    verdicts: list[Verdict] = []
    with ExitStack() as emulators:
        clusters = places.create([emulators.enter_context(fresh()) for _ in range(3)])
        for first in range(0, SEEDS, TOGETHER):
            cases = [random_case(seed) for seed in range(first, first + TOGETHER)]
            # What happens in the original is compared with the forecast of a copy, and with that of another copy.
            original, *copies = clusters
            happened, forecast, again = places.compare(original, copies, cases, print)
            verdicts += [judge(case, *(each[case.namespace] for each in (happened, forecast, again))) for case in cases]
            print(report(verdicts))
            places.clear(clusters, cases)
    assert sum(verdict.kind in ("agrees", "recreated") for verdict in verdicts) >= GOAL, report(verdicts)
    assert not [verdict for verdict in verdicts if verdict.kind == "differs"], report(verdicts)


def test_a_rehearsal_with_the_real_engine_says_what_an_up_then_does(emulator: Emulator) -> None:
    """Five seeded scenarios in one stack: one snapshot, one rehearsal, one `up`, five changes."""
    cases = [random_case(seed) for seed in CONFIGURED]
    assert all(case.is_configured for case in cases)
    base, changed = (write(emulator, cases, stage) for stage in ("base", "changed"))
    emulator.make("up", base)
    with Recorder(emulator.certified()) as recorder:
        submit(emulator, cases, recorder)
        snapshot = emulator.snapshot()
        emulator.run(
            *("gke-ai", "rehearse", "--stack", emulator.stack),
            *("--base", str(base), "--config", str(changed)),
            *("--snapshot", str(snapshot), "--json", str(emulator.state / "forecast.json")),
        )
        recorder.begin()
        emulator.make("up", changed)
        assert recorder.settle(places.NODES_SETTLE, 300)
        happened = outcome(recorder.timeline(settled=True), emulator.stack)
    forecast = parse((emulator.state / "forecast.json").read_text())
    assert forecast.evictions, "the seeds are of interest only if somebody is evicted"
    # An idle node may be deleted and created again.
    assert in_the_end(forecast) == in_the_end(happened), differences(forecast, happened)


def write(emulator: Emulator, cases: list[SeededCase], stage: str) -> Path:
    scenarios = [(case.namespace, case.scenario if stage == "base" else case.changed) for case in cases]
    path = emulator.state / f"{stage}.yaml"
    path.write_text(yaml.safe_dump({"config": configuration(scenarios)}, sort_keys=False))
    return path


def submit(emulator: Emulator, cases: list[SeededCase], recorder: Recorder) -> None:
    """Submit the runs of the tenants: one of each scenario at a time."""
    runs = {case.namespace: [run for run in case.scenario.runs if run.kind == "Job"] for case in cases}
    for number in range(max(map(len, runs.values()))):
        items = [run_object(run, namespace) for namespace, own in runs.items() for run in own[number : number + 1]]
        (emulator.state / "runs.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        emulator.kubectl("apply", "-f", str(emulator.state / "runs.json"))
        assert recorder.settle(2, 90)
    assert recorder.settle(places.NODES_SETTLE, 240)
