"""Only here: the command of `make rehearse` from its scratch emulator to its files, and that it leaves nothing."""

import os
import signal
import subprocess
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

import pytest

from gke_ai.forecast.compare.comparison import Fact, facts
from gke_ai.forecast.result.forecast import read
from tests.support.emulator import ROOT, Emulator, clean, eventually
from tests.support.recorder import configuration
from tests.support.timelines import named

EXAMPLE = "examples/mixed-training-inference.yaml"
SERVER, RUN = "llm/deployment/tgi-gemma-deployment", "llm/job/finetune-gemma-l4"
SCALES = "scales tgi-gemma-deployment from 1 to 2 replicas."
HEADLINE = f"Merging this evicts 1 run (1 waits at the end), starts 1 replica and {SCALES}"


def changed(emulator: Emulator, **server: object) -> Path:
    servers = configuration(EXAMPLE)["gke-ai:serving"]
    servers[0] |= server
    return emulator.configure(EXAMPLE, serving=servers)


def command(config: Path, *more: str) -> tuple[str, ...]:
    """The command of `make rehearse` for a change of the example."""
    base = str(ROOT / EXAMPLE)
    return ("gke-ai", "rehearse", "--stack", "mixed", "--base", base, "--config", str(config), *more)


def test_scaling_the_server_evicts_the_run(emulator: Emulator) -> None:
    out, page, picture = (emulator.state / name for name in ("out.json", "out.md", "out.svg"))
    files = ("--json", str(out), "--markdown", str(page), "--picture", str(picture))
    output = emulator.run(*command(changed(emulator, replicas=2), *files))
    assert HEADLINE in " ".join(output.split())
    forecast = read(out)
    evicted = Fact(named(RUN), "evicted", named(SERVER), "default-flavor")
    starts = Fact(named(SERVER), "starts", named(""), "default-flavor")
    assert set(facts(forecast)) == {evicted, starts, Fact(named(RUN), "waits")}
    (server,) = forecast.servers
    assert (server.ready_before, server.fewest, server.ready_after, server.below) == (1, 1, 2, 0)
    (lane,) = [lane for lane in forecast.lanes if lane.group == "server"]
    (_, scaled, ready) = [second for second, _ in lane.steps]
    assert 350 <= ready - scaled <= 410, "the container starts in 240 s and loads its model in 120 s"
    (stake,) = forecast.stakes
    assert (stake.workload, stake.machine) == (named(RUN), "g2-standard-24")
    assert 0 < stake.hours <= stake.accelerators * (stake.seconds + 1) / 3600
    assert forecast.settled
    assert f"**{HEADLINE}**" in page.read_text()
    assert "tgi-gemma-deployment" in picture.read_text()
    clean(emulator)

    # The next rehearsal starts from the kept base. A rule refuses this change.
    output = emulator.run(*command(changed(emulator, gpus=3)), fails=True)
    assert "earlier rehearsal: started" in output
    assert "The change is refused:" in output
    assert "gke-ai:serving" in output.partition("The change is refused:")[2]
    clean(emulator)


def spot(emulator: Emulator, file: str, replicas: int) -> Path:
    """The example of a training run on Spot nodes that an autoscaler creates, two of them in use by one replica."""
    example = "examples/training-job.yaml"
    config = configuration(example)
    (pool,), (server,), (run,) = (config[f"gke-ai:{key}"] for key in ("gpuPools", "serving", "training"))
    pool |= {"capacity": {"mode": "spot"}, "autoscaling": {"maxNodes": 3}}
    del pool["nodesPerZone"]
    server["replicas"] = replicas
    run["pods"] = 1
    return emulator.configure(example, gpuPools=[pool], serving=[server], training=[run]).rename(emulator.state / file)


@pytest.mark.nightly
def test_without_spot_capacity_a_new_replica_takes_the_node_of_the_run(emulator: Emulator) -> None:
    """There is quota for both. The scheduler ends the pod of lower priority, because no node comes."""
    out = emulator.state / "out.json"
    emulator.run(
        *("gke-ai", "rehearse", "--stack", "spot", "--unavailable", "spot", "--json", str(out)),
        *("--base", str(spot(emulator, "base.yaml", 1)), "--config", str(spot(emulator, "changed.yaml", 2))),
    )
    forecast = read(out)
    (wait,) = forecast.waits
    assert (str(wait.workload).rpartition("-")[0], wait.reason, wait.count) == ("llm/jobset/pretrain", "NoNode", 1)
    assert {entry.workload for entry in forecast.interruptions} == {wait.workload}
    (pool,) = [pool for pool in forecast.nodes if pool.accelerator]
    assert (pool.capacity, pool.before, pool.came, pool.went) == ("spot", 2, 0, 0)
    assert "Google has no more nodes in capacity mode spot." in forecast.notes
    clean(emulator)


@pytest.mark.parametrize(
    "numbers", [[signal.SIGTERM], pytest.param([signal.SIGINT, signal.SIGINT], marks=pytest.mark.nightly)]
)
def test_an_interrupted_rehearsal_leaves_nothing(numbers: list[signal.Signals], emulator: Emulator) -> None:
    """The signals go to its whole group, in which make's shell ends first: from a terminal, or from a service."""
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh", str(ROOT / "emulator" / "run")]
    words, env = [*shell, *command(changed(emulator, replicas=2))], emulator.environment
    process = subprocess.Popen(
        words, cwd=ROOT, env=env, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, text=True, start_new_session=True
    )
    clusters = emulator.state / "rehearsal" / "clusters"
    eventually(lambda: list(clusters.glob("*/kubeconfig")), "the scratch emulator has a cluster", 120)
    for number in numbers:
        os.killpg(process.pid, number)
        time.sleep(0.2)
    output = process.communicate(timeout=120)[0]
    assert process.returncode != 0
    assert "The rehearsal was stopped." in output
    clean(emulator)
