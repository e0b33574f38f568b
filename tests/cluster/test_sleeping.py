"""Only here: a server without replicas, the requests that its gateway holds, and what wakes it.

The picker, Envoy, the autoscaler, prometheus-adapter and Prometheus are real.
"""

import json
import time
from collections.abc import Iterator

import httpx
import pytest

from gke_ai.catalog.engines.inference_extension import FAIRNESS_HEADER, OBJECTIVE_HEADER
from tests.support.emulator import Emulator, deployed_and_deleted, eventually
from tests.support.sleeping import EXAMPLE, HELD, HELD_SECONDS, asleep, delayed, loaded, replicas, sections, window

BODY = {"model": "google/gemma-2-9b-it", "prompt": "Who?", "max_tokens": 1}


def address(emulator: Emulator) -> str:
    (gateway,) = emulator.get("gateways", "-n", "llm")
    return f"http://{gateway['status']['addresses'][0]['value']}/v1/completions"


@pytest.fixture(scope="module")
def deployed() -> Iterator[Emulator]:
    """The stack, whose server sleeps seconds after its last request. The tests below use it in order."""
    with deployed_and_deleted(EXAMPLE, sections()) as emulator:
        window(emulator)
        yield emulator


def test_a_server_without_requests_has_no_replica_and_no_quota(deployed: Emulator) -> None:
    asleep(deployed)
    eventually(lambda: not deployed.get("workloads", "-n", "llm"), "its quota is free")
    status = deployed.make("status")
    assert "0 to 1" in status
    assert "9223372036854" not in status


def test_as_many_requests_as_are_held_wake_it_and_are_answered_and_the_others_get_429(deployed: Emulator) -> None:
    asleep(deployed)
    assert loaded(deployed, "--burst", str(HELD + 10)) == [{"200": HELD, "429": 10}]
    assert replicas(deployed) == 1


def test_requests_that_wait_too_long_get_503_and_the_start_goes_on(deployed: Emulator) -> None:
    asleep(deployed)
    window(deployed, 60)
    with delayed(deployed, HELD_SECONDS + 15):
        late = httpx.post(address(deployed), json=BODY, timeout=2 * HELD_SECONDS, trust_env=False)
        assert (late.status_code, late.headers["Retry-After"]) == (503, "5")
        assert replicas(deployed) == 1
        eventually(lambda: loaded(deployed, "--burst", "5") == [{"200": 5}], "the next ones are answered", 90)
    window(deployed)


def test_a_server_whose_start_never_ends_sleeps_again(deployed: Emulator) -> None:
    asleep(deployed)
    with delayed(deployed, 3600):
        assert loaded(deployed, "--burst", "2") == [{"503": 2}]
        asleep(deployed)


def test_no_client_chooses_its_flow_or_its_objective(deployed: Emulator) -> None:
    headers = {FAIRNESS_HEADER: f"mine-{time.time_ns()}", OBJECTIVE_HEADER: "first", FAIRNESS_HEADER.upper(): "mine"}
    assert httpx.post(address(deployed), json=BODY, headers=headers, timeout=60, trust_env=False).status_code == 200
    flows = set()
    for pod in deployed.get("pods", "-n", "llm", "-l", "app=gemma-epp"):
        path = f"/api/v1/namespaces/llm/pods/{pod['metadata']['name']}:9090/proxy/metrics"
        lines = deployed.kubectl("get", "--raw", path).splitlines()
        counted = [line for line in lines if line.startswith("inference_extension_flow_control_queue_size{")]
        flows |= {json.dumps(line.partition('fairness_id="')[2].partition('"')[0]) for line in counted}
    assert flows == {'"llm"'}


def test_an_update_of_a_sleeping_server_ends_at_once_and_the_next_request_starts_the_new_revision(
    deployed: Emulator,
) -> None:
    asleep(deployed)
    changed = sections()
    changed["serving"][0]["env"] = {"REVISION": "2"}
    output = deployed.make("up", deployed.configure(EXAMPLE, **changed))
    assert "waits for its container" not in output
    assert replicas(deployed) == 0
    assert loaded(deployed, "--burst", "5") == [{"200": 5}]
    (pod,) = deployed.get("pods", "-n", "llm", "-l", "app=gemma")
    (container,) = pod["spec"]["containers"]
    assert {"name": "REVISION", "value": "2"} in container["env"]
