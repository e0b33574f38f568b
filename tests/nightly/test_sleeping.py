"""Only here: what becomes of many requests to a server that sleeps, by their ends.

An eight-minute start, a start that never ends, a burst, and an endpoint picker that is replaced while requests wait:

    emulator/run pytest -s -m nightly tests/nightly/test_sleeping.py
"""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.test_sleeping import EXAMPLE, sections
from tests.support.emulator import Emulator, deployed_and_deleted, eventually
from tests.support.sleeping import asleep, delayed, loaded, replicas, window

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
