"""Only here: the real Kueue decides on a simulated clock, and each run starts when the theory of queues says."""

import json
import signal
import time
from dataclasses import replace

import pytest

from gke_ai.forecast.result.simulation import QUEUE, read
from gke_ai.forecast.simulate.trace import written
from tests.support.emulator import Emulator, eventually
from tests.support.simulation.replays import replayed, replayed_as_jobs
from tests.support.simulation.theory import configuration, poisson, run, starts


def test_each_run_starts_when_the_theory_of_queues_says() -> None:
    """One day of queues that share nothing, at the same time."""
    two = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    lender = {"cohort": "shared", "preemption": {"reclaimWithinCohort": "Any"}}
    queues = configuration(
        {
            "one": {"gpus": 2},
            "two": {"gpus": 2, **two},
            "strict": {"gpus": 2, "queueingStrategy": "StrictFIFO"},
            "lender": {"gpus": 1, **lender},
            "borrower": {"gpus": 1, **lender},
        },
        {"low": 1, "high": 2},
    )
    trace = [
        *poisson(seed=1, jobs=60, rate=1 / 100, mean=160.0),
        # The newest reservation of the lower priority gives way. Its last checkpoint is at 600 s.
        run(0, 2000, "two", priority="low"),
        run(0.2, 1000, "two", priority="low", checkpoint=300),
        run(700, 50, "two", priority="high"),
        # The large run does not fit and blocks the small one behind it.
        run(0, 100, "strict"),
        run(1, 100, "strict", pods=2),
        run(2, 10, "strict"),
        # The borrower uses the lender's GPU until the lender reclaims it.
        run(0, 500, "borrower"),
        run(1, 500, "borrower"),
        run(100, 50, "lender"),
    ]
    day = replayed(queues, trace)
    first = [run for run in day.runs if run.cluster_queue == "one"]
    assert [run.spans[0][0] for run in first] == pytest.approx(starts([run.row for run in first], 2))
    spans = [(run.cluster_queue, run.spans) for run in day.runs if run.cluster_queue != "one"]
    assert sorted(spans) == [
        ("borrower", [(0, 500)]),
        ("borrower", [(1, 100), (150, 650)]),
        ("lender", [(100, 150)]),
        ("strict", [(0, 100)]),
        ("strict", [(100, 200)]),
        ("strict", [(200, 210)]),
        ("two", [(0, 2000)]),
        ("two", [(0.2, 700), (750, 1150)]),
        ("two", [(700, 750)]),
    ]
    assert (day.late, all(run.ended for run in day.runs)) == (0, True), "no decision comes after the clock has moved on"


CONFIG = """
config:
  gcp:project: my-project
  gcp:region: us-central1
  gke-ai:cluster: {name: c, mode: standard, location: us-central1}
  gke-ai:queues:
    flavors: [{name: l4, accelerator: nvidia-l4}]
    clusterQueues:
      - {name: one, flavors: [{flavor: l4, quota: {cpu: "10", memory: 10Gi, nvidia.com/gpu: "2"}}]}
    localQueues: [{name: one, namespace: team, clusterQueue: one}]
"""


@pytest.fixture
def command(emulator: Emulator) -> list[str]:
    """The command that simulates a trace of three runs, of which the third waits."""
    (emulator.state / "config.yaml").write_text(CONFIG)
    (emulator.state / "trace.csv").write_text(written([run(0, 100), run(1, 100), run(2, 100)]))
    options = {name: str(emulator.state / file) for name, file in (("config", "config.yaml"), ("trace", "trace.csv"))}
    return ["gke-ai", "simulate", *(f"--{name}={path}" for name, path in options.items())]


@pytest.mark.nightly
def test_the_command_compares_two_quotas_and_writes_both_days(emulator: Emulator, command: list[str]) -> None:
    out, more = emulator.state / "out.json", emulator.state / "more.yaml"
    more.write_text(CONFIG.replace('gpu: "2"', 'gpu: "3"'))
    output = emulator.run(*command, "--compare", str(more), "--json", str(out))
    assert "With more.yaml instead of config.yaml, 90 % of the runs of one start within" in output
    result = read(out)
    wait = result.figure(QUEUE, "one", "wait_longest")
    # Two new nodes start within 410 s. The third run takes the first of them, or a third node.
    assert wait is not None
    assert wait.values == ((508.0,), (410.0,))
    assert [run.row for run in result.configurations[0].unhappiest][:1] == [3]
    first, _ = json.loads(out.read_text())["days"]
    assert [entry["ran"] for entry in first["runs"]] == [[[410, 510]], [[411, 511]], [[510, 610]]]
    assert not (emulator.state / "rehearsal").exists()
    assert not emulator.processes()


@pytest.mark.nightly
def test_an_interrupted_simulation_leaves_nothing(emulator: Emulator, command: list[str]) -> None:
    process = emulator.start(*command)
    clusters = emulator.state / "rehearsal" / "clusters"
    eventually(lambda: list(clusters.glob("*/kubeconfig")), "the control plane has started", 120)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=120)[0]
    assert "was stopped" in output
    assert not (emulator.state / "rehearsal").exists()
    assert not emulator.processes()


@pytest.mark.nightly
def test_an_hour_of_jobs_on_the_whole_emulator_is_the_hour_of_the_simulation() -> None:
    """Each admission, eviction and end is at the same time of the clock, with Jobs, pods and Kueue's release.

    Runs that reserve quota in the same second would be preempted in the order of their random uid, so runs of the
    queues that preempt have one pod.
    """
    shared = {"gpus": 1, "cohort": "shared", "preemption": {"reclaimWithinCohort": "Any"}}
    queues = configuration(
        {
            "lender": shared,
            "borrower": shared,
            "levels": {"gpus": 2, "preemption": {"withinClusterQueue": "LowerPriority"}},
            "strict": {"gpus": 2, "queueingStrategy": "StrictFIFO"},
        },
        {"low": 1, "high": 2},
    )
    trace = [
        *poisson(1, 25, 1 / 144, 250.0, ["lender", "borrower"]),
        *poisson(2, 25, 1 / 144, 250.0, "levels", ["low", "high"]),
        *(
            replace(row, pods=1 + (index % 3 == 0))
            for index, row in enumerate(poisson(3, 25, 1 / 144, 180.0, "strict"))
        ),
    ]
    began = time.monotonic()
    simulation, simulated = replayed(queues, trace), time.monotonic()
    whole, ended = replayed_as_jobs(queues, trace), time.monotonic()
    print(f"the simulation takes {simulated - began:.0f} s, the whole emulator {ended - simulated:.0f} s")
    assert sum(run.evictions for run in whole.runs) > 5
    assert simulation.late == whole.late == 0
    assert [(run.admitted, run.spans) for run in simulation.runs] == [(run.admitted, run.spans) for run in whole.runs]
