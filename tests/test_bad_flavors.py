"""Mistakes in flavors that name a GPU type: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from tests.mistakes import Configuration, problems_of
from tests.test_bad_configuration import on_autopilot


def good() -> Configuration:
    """A valid stack with servers and runs on L4 GPUs of an Autopilot cluster, under a flavor of L4."""
    values = on_autopilot()
    values["queues"]["flavors"][0]["accelerator"] = "nvidia-l4"
    return values


def test_flavor_of_a_gpu_type_is_no_mistake() -> None:
    assert problems_of(good()) == []
