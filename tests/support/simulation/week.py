"""A week in which three teams with the weights 3, 2 and 1 always have runs waiting, and three ways to share 36 GPUs."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gke_ai.forecast.simulate.trace import Submission, Trace

HOURS, GPUS = 168.0, 36
WEIGHTS = {"team-a": 3, "team-b": 2, "team-c": 1}
# Each team asks for 60 % of the GPUs, which is more than the part of any of them, and begins with runs that wait.
DEMAND, WAITING = 0.6, 12
MEDIAN, SIGMA, LONGEST = 8.0, 0.4, 24.0
SIZES, CHECKPOINTS = (1, 2, 4), (0.0, 900.0, 3600.0, 7200.0)
PRIORITIES = ("normal",) * 6 + ("urgent",)


def trace(seed: int = 1) -> Trace:
    """The submissions of the week: as many of each team, with the same sizes, durations and checkpoints."""
    return tuple(sorted(_rows(random.Random(seed)), key=lambda row: row.time))


def _rows(chance: random.Random) -> Iterator[Submission]:
    mean = 2 ** (SIGMA**2 / 2 / 0.6931) * MEDIAN * sum(SIZES) / len(SIZES)
    for team in WEIGHTS:
        time, number = 0.0, 0
        while time < HOURS * 3600:
            yield _row(chance, team, time)
            number += 1
            time += 1.0 if number < WAITING else chance.expovariate(DEMAND * GPUS / mean / 3600)


def _row(chance: random.Random, team: str, time: float) -> Submission:
    hours = min(LONGEST, MEDIAN * chance.lognormvariate(0, SIGMA))
    gpus, priority = chance.choice(SIZES), chance.choice(PRIORITIES)
    of_pod = (gpus, 4.0 * gpus, 16.0 * gpus)
    every = chance.choice(CHECKPOINTS)
    return Submission(round(time, 3), f"{team}/gpus", priority, 1, *of_pod, round(hours * 3600, 3), every)


def quota(gpus: int) -> dict[str, str]:
    return {"cpu": str(12 * gpus), "memory": f"{48 * gpus}Gi", "nvidia.com/gpu": str(gpus)}


def fair(weight: int) -> dict[str, Any]:
    return {"fairSharing": {"weight": str(weight)}}


def configurations(weights: dict[str, int] = WEIGHTS) -> dict[str, dict[str, Any]]:
    """The queues of each configuration: by arrival, by fair sharing, and by past usage."""
    cohort = {"name": "gpus", "flavors": [{"flavor": "l4", "quota": quota(GPUS)}]}
    lent = {
        "cohort": "gpus",
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"},
        "flavors": [{"flavor": "l4", "quota": quota(0)}],
    }
    own = [{"name": "gpus", "namespace": team, "clusterQueue": team} for team in weights]
    usage: dict[str, Any] = {
        "admissionFairSharing": {
            "usageHalfLifeSeconds": 86400,
            "resourceWeights": {"nvidia.com/gpu": 1.0, "cpu": 0.0, "memory": 0.0},
        },
        "localQueues": [{**queue, "clusterQueue": "teams", **fair(weights[queue["namespace"]])} for queue in own],
    }

    teams = {
        "name": "teams",
        "admissionMode": "UsageBasedAdmissionFairSharing",
        "queueingStrategy": "StrictFIFO",  # else small runs of one team pass large ones of another
        "preemption": {"withinClusterQueue": "Never"},
        "flavors": [{"flavor": "l4", "quota": quota(GPUS)}],
    }
    return {
        "arrival": {
            "cohorts": [cohort],
            "clusterQueues": [{"name": team, **lent} for team in weights],
            "localQueues": own,
        },
        "fair": {
            "fairSharing": {},
            "cohorts": [cohort],
            "clusterQueues": [{"name": team, **lent, **fair(weight)} for team, weight in weights.items()],
            "localQueues": own,
        },
        "usage": {**usage, "clusterQueues": [teams]},
    }


def written(folder: Path) -> list[Path]:
    """Writes the configurations, and returns their files."""
    files = []
    for name, queues in configurations().items():
        classes = [{"name": "normal", "value": 1}, {"name": "urgent", "value": 2}]
        keys = {"flavors": [{"name": "l4", "accelerator": "nvidia-l4"}], "priorityClasses": classes, **queues}
        place = {"gcp:project": "my-project", "gcp:region": "us-central1"}
        cluster = {"name": "c", "mode": "standard", "location": "us-central1"}
        files.append(folder / f"{name}.yaml")
        files[-1].write_text(yaml.safe_dump({"config": {**place, "gke-ai:cluster": cluster, "gke-ai:queues": keys}}))
    return files
