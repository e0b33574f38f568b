"""Only here: what Autopilot changes at admission is in no plan, and the real Kueue counts what pods then request."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from gke_ai.catalog.quantities import parse_quantities
from gke_ai.kube.objects import holds
from gke_ai.kube.queues import held
from tests.support.emulator import Emulator, begun, eventually, gone, settled

EXAMPLES = ["flex-start-tpu", "mixed-training-inference", "multislice-training"]
MARK = "autopilot.gke.io/warden-version"
# What Kueue counts of a JobSet is its template, which Autopilot does not change.
FROM_TEMPLATES = {"multislice-training"}
pytestmark = pytest.mark.nightly


def requested(emulator: Emulator) -> Counter[str]:
    """What all pods with accelerators request, by resource."""
    total: Counter[str] = Counter()
    for pod in emulator.get("pods", "-A"):
        for container in pod["spec"]["containers"]:
            requests = parse_quantities(container["resources"].get("requests", {}))
            if {"nvidia.com/gpu", "google.com/tpu"} & requests.keys():
                total.update({name: int(amount * 1000) for name, amount in requests.items()})
    return total


def counted(emulator: Emulator) -> Counter[str]:
    """What Kueue has reserved for workloads, by resource, in the same unit."""
    total: Counter[str] = Counter()
    for workload in emulator.get("workloads", "-A"):
        if holds(workload, "QuotaReserved"):
            for (_, resource), amount in held(workload).items():
                total[resource] += int(Fraction(amount) * 1000)
    return total


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_second_preview_is_empty_and_kueue_counts_the_final_requests(name: str, emulator: Emulator) -> None:
    config = emulator.configure(f"examples/{name}-autopilot.yaml")
    before = begun(emulator, config)
    emulator.make("up", config)
    emulator.pulumi("preview", "--expect-no-changes")

    changed = [*emulator.get("deployments", "-A"), *emulator.get("jobs", "-A")]
    assert changed
    assert [item["metadata"]["name"] for item in changed if MARK not in item["metadata"]["annotations"]] == []
    if name == "mixed-training-inference":
        eventually(lambda: counted(emulator)["nvidia.com/gpu"] == 6_000, "the server and the run are admitted")
        eventually(lambda: counted(emulator) == requested(emulator), "Kueue counts what the pods request")
        assert counted(emulator)["ephemeral-storage"] == 32 * 1024**3 * 1000
    if name in FROM_TEMPLATES:
        assert counted(emulator).keys() == {"google.com/tpu"}
    settled(emulator)
    emulator.make("down")
    gone(emulator, before)
