"""On Autopilot, Kueue counts the ephemeral storage that GKE adds to a container that requests none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.mistakes import good, problems_of

QUOTA = {"cpu": "72", "memory": "288Gi", "nvidia.com/gpu": 6}
MULTISLICE = {
    "queues": {
        "flavors": [{"name": "tpus", "tpu": {"version": "v5e", "topology": "2x4", "machineType": "ct5lp-hightpu-4t"}}],
        "clusterQueues": [{"name": "tpus", "flavors": [{"flavor": "tpus", "quota": {"google.com/tpu": 24}}]}],
        "localQueues": [{"name": "lq", "namespace": "llm", "clusterQueue": "tpus"}],
    },
    "training": [
        {
            "kind": "multislice",
            "name": "slices",
            "namespace": "llm",
            "queue": "lq",
            "slices": 3,
            "tpu": {"version": "v5e", "topology": "2x4", "machineType": "ct5lp-hightpu-4t"},
            "command": ["sleep", "60"],
        }
    ],
}


def with_quota(**more: Any) -> dict[str, Any]:
    """A server and a run, neither of which requests ephemeral storage, on Autopilot."""
    stack = good("on_autopilot")
    stack["queues"]["clusterQueues"][0]["flavors"][0]["quota"] = {**QUOTA, **more}
    del stack["serving"][0]["resources"]["ephemeralStorage"]
    return stack


def test_a_quota_without_ephemeral_storage_is_refused() -> None:
    problems = problems_of(with_quota())
    assert {problem.path for problem in problems} == {"gke-ai:queues.clusterQueues[0].flavors[0].quota"}
    assert [problem.cause for problem in problems] == [
        f"cluster queue gpus has no quota for ephemeral-storage, which {workload} requests. Kueue would never admit it"
        for workload in ("server gemma", "training finetune")
    ]


@pytest.mark.parametrize(("storage", "enough"), [("1Gi", False), ("2Gi", True)])
def test_each_pod_of_a_run_counts_one_gibibyte(storage: str, enough: bool) -> None:
    stack = with_quota(**{"ephemeral-storage": storage})
    del stack["serving"]
    assert (problems_of(stack) == []) is enough


def test_another_cluster_adds_nothing() -> None:
    stack = with_quota()
    stack["cluster"] = {"name": "c", "mode": "existing", "location": "us-central1"}
    assert problems_of(stack) == []


def test_the_template_of_a_jobset_gets_nothing() -> None:
    assert problems_of({"cluster": {"name": "c", "location": "us-west4"}, **MULTISLICE}) == []
