"""Only here: GKE's upgrade of the nodes of a pool, as `make rehearse` plays it under Kueue and disruption budgets."""

from pathlib import Path

from gke_ai.forecast.outcome.interruptions import PREEMPTED
from gke_ai.forecast.result.forecast import Forecast, read
from tests.support.emulator import Emulator, clean
from tests.support.recorder import configuration

TRAINING = "examples/training-job.yaml"
SERVER = "llm/deployment/gemma"


def full(emulator: Emulator) -> Path:
    """A pool of three nodes, each used by one pod: two replicas of a server with a budget, and a run of one pod."""
    (server,), (run,) = (configuration(TRAINING)[f"gke-ai:{key}"] for key in ("serving", "training"))
    return emulator.configure(TRAINING, serving=[server | {"replicas": 2}], training=[run | {"pods": 1}])


def upgraded(emulator: Emulator, what: str, config: Path) -> tuple[str, Forecast]:
    """What the rehearsal of an upgrade prints, and its result."""
    out = emulator.state / "out.json"
    command = ("gke-ai", "rehearse", "--stack", "upgraded", "--upgrade", what, "--config", str(config))
    return " ".join(emulator.run("--tools", "all", *command, "--json", str(out)).split()), read(out)


def test_a_pool_s_upgrade_interrupts_each_pod_once_and_keeps_the_budget(emulator: Emulator) -> None:
    output, forecast = upgraded(emulator, "pool/gpupool", full(emulator))
    assert "The upgrade of pool gpupool " in output
    assert forecast.settled
    (run,) = (entry for entry in forecast.interruptions if str(entry.workload) != SERVER)
    (server,) = (entry for entry in forecast.interruptions if str(entry.workload) == SERVER)
    assert str(run.workload).startswith("llm/job")
    assert [entry.cause for entry in (run, server)] == ["node pool gpupool"] * 2
    assert (run.pods, run.times) == (1, 1)
    assert (server.pods, server.times) == (2, 2), "the budget makes GKE wait for the first replica's successor"
    assert list(forecast.interruptions) == sorted(forecast.interruptions, key=lambda entry: entry.seconds)
    assert min(run.seconds, server.seconds) >= 180, "a surge node is Ready before a node is drained"
    # A second of the emulator is a minute here: what is observed some milliseconds late is seconds off.
    assert 240 <= run.lasted < 480, "the container starts in 240 s"
    assert 700 <= server.lasted < 1200, "each replica starts in 360 s"
    (replicas,) = forecast.servers
    assert (replicas.fewest, replicas.ready_after) == (1, 2)
    (pool,) = (pool for pool in forecast.nodes if pool.pool == "gpupool")
    assert (pool.before, pool.came, pool.went, pool.after) == (3, 3, 3, 3)
    assert (forecast.evictions, forecast.ends) == ((), ())
    upgrade = "upgrade of pool gpupool, 3 nodes: surge, maxSurge=1, maxUnavailable=0."
    assert f"The emulator plays GKE's {upgrade}" in forecast.notes
    clean(emulator)


def test_without_a_surge_node_the_server_takes_the_node_of_the_run_and_the_run_waits(emulator: Emulator) -> None:
    """The pool is full. The scheduler preempts the run for a drained replica, unless the run's node is the first."""
    _, forecast = upgraded(emulator, "pool/gpupool,maxSurge=0,maxUnavailable=1", full(emulator))
    assert forecast.settled
    run = [entry for entry in forecast.interruptions if str(entry.workload) != SERVER]
    assert {entry.cause for entry in run} <= {"node pool gpupool", PREEMPTED}
    assert sum(entry.lasted for entry in run) >= 180 + 240, "a node starts, then the container"
    assert PREEMPTED in {entry.cause for entry in run}, "at least one replica is drained while the run has a node"
    (pool,) = (pool for pool in forecast.nodes if pool.pool == "gpupool")
    assert (pool.came, pool.went, pool.after) == (3, 3, 3)
    clean(emulator)
