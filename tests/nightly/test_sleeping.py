"""Only here: what becomes of many requests to a server that sleeps, by their ends.

An eight-minute start, a start that never ends, a burst, and an endpoint picker that is replaced while requests wait:

    emulator/run pytest -s -m nightly tests/nightly/test_sleeping.py
"""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gke_ai.forecast.result.forecast import read
from gke_ai.kube.objects import condition, holds
from tests.support.emulator import Emulator, deployed_and_deleted, eventually
from tests.support.sleeping import EXAMPLE, asleep, delayed, loaded, replicas, sections, window
from tests.support.tenants import job, spec

pytestmark = pytest.mark.nightly
REQUESTS, HELD, HELD_SECONDS = 500, 400, 120
START_SECONDS = 480
ROLLOUTS = 20


@pytest.fixture(scope="module")
def deployed() -> Iterator[Emulator]:
    stated = sections()
    stated["serving"][0]["held"] = {"requests": HELD, "seconds": HELD_SECONDS}
    with deployed_and_deleted(EXAMPLE, stated) as emulator:
        window(emulator)
        yield emulator


def test_a_rehearsal_of_a_waking_says_which_run_gives_way_and_then_it_does(deployed: Emulator, tmp_path: Path) -> None:
    asleep(deployed)
    run = job(spec(2, priorityClassName="training"), "team", "run", namespace="llm")
    deployed.kubectl("apply", "-f", written(tmp_path / "run.json", run))
    eventually(lambda: holds(workload_of(deployed, "run"), "Admitted"), "the run has the GPUs", 120)
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text(deployed.run("gke-ai", "snapshot", "--stack", deployed.stack))
    (server,) = deployed.get("deployments", "-n", "llm", "--field-selector=metadata.name=gemma")
    for folder, wanted in (("base", 0), ("change", 1)):
        plain = {key: server["metadata"][key] for key in ("name", "namespace", "labels")}
        spec_of_server = {**server["spec"], "replicas": wanted}
        awake = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": plain, "spec": spec_of_server}
        (tmp_path / folder).mkdir()
        written(tmp_path / folder / "gemma.json", awake)
    out = tmp_path / "out.json"
    folders = ("--base", str(tmp_path / "base"), "--manifests", str(tmp_path / "change"))
    print(deployed.run("gke-ai", "rehearse", *folders, "--snapshot", str(snapshot), "--json", str(out)))
    forecast = read(out)
    (evicted,) = forecast.evictions
    assert (str(evicted.workload), str(evicted.preemptor)) == ("llm/job/run", "llm/deployment/gemma")
    assert [str(entry.workload) for entry in forecast.starts] == ["llm/deployment/gemma"]
    config = deployed.configure(EXAMPLE, **sections())
    question = ("gke-ai", "when", "--server", "gemma", "--config", str(config), "--snapshot", str(snapshot))
    print(answer := deployed.run(*question))
    assert "A replica of llm/gemma starts once 1 preempted run has ended" in answer
    assert "Kueue preempts llm/job/run of local queue team" in answer
    assert "Cold start: llm/gemma wakes within about" in answer

    window(deployed, 120)
    with delayed(deployed, 8):
        assert loaded(deployed, "--burst", "5") == [{"200": 5}]
    # The parts of the start, as measured, beside what the preview says.
    print(deployed.make("preview", config), deployed.make("status"), smoke := deployed.make("smoke"))
    ((_, container, _, total),) = re.findall(r"llm/gemma" + r"\s+(\d+) s" * 4, smoke)
    assert 7 <= int(container) <= int(total)
    window(deployed)
    happened = condition(workload_of(deployed, "run"), "Evicted")
    assert (happened["status"], happened["reason"]) == ("True", "Preempted")
    deployed.kubectl("-n", "llm", "delete", "job", "run")


def written(file: Path, content: dict[str, Any]) -> str:
    file.write_text(json.dumps(content))
    return str(file)


def workload_of(emulator: Emulator, run: str) -> dict[str, Any]:
    found = emulator.get("workloads", "-n", "llm")
    return next((item for item in found if item["metadata"]["ownerReferences"][0]["name"] == run), {})


def test_500_requests_at_zero(deployed: Emulator) -> None:
    asleep(deployed)
    found = loaded(deployed, "--burst", str(REQUESTS))
    print("500 at once, at zero:", found)
    assert found == [{"200": HELD, "429": REQUESTS - HELD}]


def test_a_burst_of_200_while_it_runs(deployed: Emulator) -> None:
    found = loaded(deployed, "--burst", "200")
    print("200 at once, with a replica:", found)
    assert found == [{"200": 200}]


def test_a_start_of_eight_minutes_answers_503_until_it_ends(deployed: Emulator) -> None:
    """Clients that try again get 503 until the replica is ready, and 200 then. It is never deleted."""
    asleep(deployed)
    window(deployed, 900)
    with delayed(deployed, START_SECONDS):
        begun, ends = time.monotonic(), Counter[str]()
        while not ends["200"]:
            ends.update(*loaded(deployed, "--burst", "10"))
        took = time.monotonic() - begun
    print(f"a start of {START_SECONDS} s: {dict(ends)} after {took:.0f} s")
    assert ends.keys() == {"503", "200"}
    assert START_SECONDS <= took < START_SECONDS + 60, "one start was enough: no replica was deleted"
    assert replicas(deployed) == 1
    window(deployed)


def test_a_start_that_never_ends_answers_503_alone(deployed: Emulator) -> None:
    asleep(deployed)
    with delayed(deployed, 3600):
        found = loaded(deployed, "--burst", "20")
        print("a start that never ends:", found)
        assert found == [{"503": 20}]
    eventually(lambda: replicas(deployed) == 0, "it sleeps again", 120)


def test_requests_that_wait_while_the_picker_is_replaced_get_500_and_none_hangs(deployed: Emulator) -> None:
    """No picker hands its requests to the next one: the only answer beside the three that the pages state."""
    asleep(deployed)
    total = Counter[str]()
    with delayed(deployed, 3600), ThreadPoolExecutor(1) as background:
        for _ in range(ROLLOUTS):
            waiting = background.submit(loaded, deployed, "--burst", "5", others=True)
            time.sleep(3)
            deployed.kubectl("-n", "llm", "rollout", "restart", "deployment/gemma-epp")
            total.update(waiting.result()[0])
            deployed.kubectl("-n", "llm", "rollout", "status", "deployment/gemma-epp", "--timeout=60s")
    print(f"{ROLLOUTS} rollouts of the picker, 5 requests each: {dict(total)}")
    assert sum(total.values()) == 5 * ROLLOUTS
    assert total.keys() <= {"500", "503", "200"}
