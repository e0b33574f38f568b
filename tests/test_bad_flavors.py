"""Mistakes in flavors that name a GPU type: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

import pytest

from tests.test_bad_configuration import (
    Configuration,
    Mistake,
    both,
    drop,
    is_reported_alone,
    on_autopilot,
    problems_of,
    put,
)

FLAVOR = "queues.flavors.0"


def good() -> Configuration:
    """A valid stack with servers and runs on L4 GPUs of an Autopilot cluster, under a flavor of L4."""
    values = on_autopilot()
    values["queues"]["flavors"][0]["accelerator"] = "nvidia-l4"
    return values


MISTAKES = [
    Mistake(
        "a flavor of a GPU type that there isn't",
        put(f"{FLAVOR}.accelerator", "nvidia-l5"),
        "gke-ai:queues.flavors[0].accelerator",
        "nvidia-l5 is not a GPU type of the catalog. No node would belong to this flavor",
        "Did you mean nvidia-l4?",
    ),
    Mistake(
        "a flavor of a GPU type and of a slice",
        put(f"{FLAVOR}.tpu", {"version": "v5e", "topology": "2x4"}),
        "gke-ai:queues.flavors[0].accelerator",
        "flavor l4 has tpu and an accelerator. They could contradict each other",
        "Remove accelerator or tpu",
    ),
    Mistake(
        "a flavor of pools, of which Autopilot has none",
        both(drop(f"{FLAVOR}.accelerator"), put(f"{FLAVOR}.pools", ["l4"])),
        "gke-ai:queues.flavors[0].pools",
        "the cluster is Autopilot and has no pools",
        "Remove pools, and set accelerator (for GPUs) or tpu",
    ),
    Mistake(
        "a flavor of another GPU type than what runs under it",
        both(put(f"{FLAVOR}.accelerator", "nvidia-h100-80gb"), drop("training")),
        "gke-ai:serving[0].queue",
        "cluster queue gpus has no quota for a flavor of the nodes, where server gemma runs",
        "flavor of cluster queue gpus",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake_in_a_flavor_is_reported_once(mistake: Mistake) -> None:
    is_reported_alone(mistake, good())


def test_flavor_of_a_gpu_type_is_no_mistake() -> None:
    assert problems_of(good()) == []
