"""Machines in modes that Google does not offer, or that need more than this program creates: each is reported alone."""

import re
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise

import pytest

from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.gpus import GPU_TYPES
from gke_ai.catalog.machines.types import MACHINES, ONLY_IN_POOLS
from gke_ai.settings import Problem, load
from gke_ai.settings.estimates import model_memory
from gke_ai.settings.rules.pools import only_in_pools
from tests.support.mistakes import PROJECT, Configuration, base, problems_of

good = partial(base, "machines")


def test_the_machine_to_choose_instead_is_offered_in_every_mode_and_anywhere() -> None:
    (remedy,) = {only_in_pools("p", MACHINES[name]).remedy for name in ONLY_IN_POOLS}
    (name,) = re.findall(r"such as ([-a-z0-9]+)", remedy)
    assert MACHINES[name].modes == MODES.keys()
    assert name not in ONLY_IN_POOLS


WINDOW = {"startTime": "2026-01-03T00:00:00Z", "endTime": "2026-01-03T08:00:00Z", "recurrence": "FREQ=DAILY"}
EXCLUSION = {"name": "run", "startTime": "2026-03-01T00:00:00Z", "endTime": "2026-03-21T00:00:00Z"}


def every(recurrence: str, hours: int) -> Configuration:
    """The maintenance with a window of this length, from a Saturday on."""
    days, hour = divmod(hours, 24)
    window = {"startTime": "2026-01-03T00:00:00Z", "endTime": f"2026-01-{3 + days:02}T{hour:02}:00:00Z"}
    return {"window": window | {"recurrence": f"FREQ={recurrence}"}}


def months(count: int) -> list[Configuration]:
    """Exclusions of 30 days, each beginning when the one before ends."""
    first = datetime(2026, 3, 1)
    times = [f"{first + timedelta(days=30 * number):%Y-%m-%dT%H:%M:%SZ}" for number in range(count + 1)]
    return [{"name": f"e{number}", "startTime": a, "endTime": b} for number, (a, b) in enumerate(pairwise(times))]


def excluding(exclusion: Configuration) -> Configuration:
    """The maintenance with a period without upgrades."""
    return {"window": WINDOW, "exclusions": [exclusion]}


def maintained(maintenance: Configuration) -> list[Problem]:
    values = good()
    values["cluster"]["maintenance"] = maintenance
    return problems_of(values)


@pytest.mark.parametrize(
    ("maintenance", "key", "cause"),
    [
        ({"window": {**WINDOW, "endTime": "2026-01-03T03:59:59Z"}}, "window.endTime", "less than 4 hours"),
        (excluding({**EXCLUSION, "endTime": "2026-02-28T00:00:00Z"}), "exclusions[0].endTime", "ends before"),
        (excluding({**EXCLUSION, "endTime": "2026-04-01T00:00:00Z"}), "exclusions[0].endTime", "31 days"),
        *(
            ({"window": {**WINDOW, "recurrence": rule}}, "window.recurrence", "not a recurrence rule")
            for rule in ("weekly", "FREQ=SOMETIMES", "FREQ=HOURLY", "FREQ=DAILY;BYDAY=XX", "FREQ=DAILY;INTERVAL=0")
        ),
        (every("WEEKLY", 8), "window", "32 hours in some 32 days"),
        (every("WEEKLY;BYDAY=SA", 4), "window", "16 hours in some 32 days"),
        (every("MONTHLY;BYSETPOS=1;BYDAY=SA,SU", 47), "window", "0 hours in some 32 days"),
        (every("DAILY;INTERVAL=30", 24), "window", "24 hours in some 32 days"),
        (every("DAILY;COUNT=100", 8), "window", "0 hours in some 32 days"),
        (every("DAILY;BYMONTH=2;BYMONTHDAY=31", 8), "window", "0 hours in some 32 days"),
        (every("MONTHLY;BYDAY=9SU", 8), "window", "0 hours in some 32 days"),
        ({"window": WINDOW, "exclusions": months(4)}, "exclusions", "4 exclusions have scope NO_UPGRADES"),
        (every("DAILY", 8) | {"exclusions": months(3)}, "exclusions", "leave GKE 16 hours in some 92 days"),
        # Google's provider wants exactly one window.
        *(({}, "window", "window is missing"), ({"exclusions": [EXCLUSION]}, "window", "window is missing")),
    ],
)
def test_maintenance_that_gke_would_refuse_is_reported_once(maintenance: Configuration, key: str, cause: str) -> None:
    (problem,) = maintained(maintenance)
    assert problem.path == f"gke-ai:cluster.maintenance.{key}"
    assert cause in problem.cause


@pytest.mark.parametrize(
    "maintenance",
    [
        excluding(EXCLUSION),
        *(every("DAILY", 4), every("WEEKLY;BYDAY=SA,SU", 8), every("WEEKLY;INTERVAL=2;BYDAY=SA", 48)),
        *(every("DAILY;INTERVAL=3", 5), every("MONTHLY;BYMONTHDAY=1,15", 48)),
        every("WEEKLY;BYDAY=MO,TU,WE,TH", 24),  # windows that touch are one
        every("DAILY", 8) | {"exclusions": months(1)},
        every("DAILY", 8) | {"exclusions": [{**month, "scope": "NO_MINOR_UPGRADES"} for month in months(12)]},
        # No window of its own: GKE judges these rules.
        *(every("YEARLY;BYWEEKNO=2", 48), every("DAILY;UNTIL=20360101T000000Z", 8)),
        {"window": {**WINDOW, "startTime": "9999-12-01T00:00:00Z", "endTime": "9999-12-31T00:00:00Z"}},
        {"window": {**WINDOW, "endTime": "9999-12-31T00:00:00Z"}},
    ],
    ids=str,
)
def test_maintenance_with_enough_time_is_accepted(maintenance: Configuration) -> None:
    assert maintained(maintenance) == []


@pytest.mark.parametrize("machine", ["g4-standard-24", "g4-standard-48"])
def test_half_a_gpu_has_half_its_memory(machine: str) -> None:
    values = good()
    values["gpuPools"].append({"name": "part", "machineType": machine, "nodesPerZone": 1})
    values["serving"] = [{"name": "s", "model": "google/gemma-2-9b-it", "maxModelLen": 4096, "pool": "part"}]
    assert problems_of(values) == []
    (place,) = model_memory.places(load(values, PROJECT).servers[0])
    assert place.memory == GPU_TYPES["nvidia-rtx-pro-6000"].memory_gib * 2**30 / MACHINES[machine].gpu_parts


def test_capacity_modes_of_every_machine_exist() -> None:
    assert all(machine.modes and machine.modes <= set(MODES) for machine in MACHINES.values())
    assert set(MACHINES) >= ONLY_IN_POOLS
