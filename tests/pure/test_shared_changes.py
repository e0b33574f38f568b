"""Random changes in trees of cohorts, with weights and past usage, are valid and repeatable, and whole when created."""

import pytest

from tests.support.rehearsal.scenario import queue_objects
from tests.support.rehearsal.seeds import SHARING, generate_shared, shared_case
from tests.support.rehearsal.stack import configuration, problems

SEEDS = 3


@pytest.mark.parametrize("sharing", SHARING)
def test_a_seed_always_gives_the_same_allowed_change_in_a_tree_of_cohorts(sharing: str) -> None:
    cases = [shared_case(seed, sharing) for seed in range(SEEDS)]
    assert generate_shared(0, sharing) == cases[0]
    for case in cases:
        assert case.scenario != case.changed
        assert case.scenario.queues["cohorts"][0]["name"] == "c"
        weights = ["fairSharing" in queue for queue in case.scenario.queues["clusterQueues"]]
        assert all(weights) is ("fairSharing" in SHARING[sharing])
    stages = [(case.namespace, case.scenario) for case in cases]
    assert problems(stages) == "", "several seeds are one configuration, with one setting of Kueue"
    stated = configuration(stages)["gke-ai:queues"]
    assert {key: stated[key] for key in SHARING[sharing]} == SHARING[sharing]


def test_a_scenario_is_created_with_its_cohorts_weights_and_local_queues() -> None:
    case = shared_case(0, "both")
    made = [*queue_objects(case.scenario, case.namespace)]
    names = {(item["kind"], item["metadata"]["name"]) for item in made}
    prefix = f"{case.namespace}-"
    for item in made:
        spec = item.get("spec", {})
        if parent := spec.get("parentName") or spec.get("cohortName"):
            assert ("Cohort", parent) in names
        for group in spec.get("resourceGroups", ()):
            assert all(("ResourceFlavor", flavor["name"]) in names for flavor in group["flavors"])
        if item["kind"] == "ClusterQueue":
            assert spec["admissionScope"] == {"admissionMode": "UsageBasedAdmissionFairSharing"}
            assert spec["fairSharing"]["weight"] in ("1", "2", "3")
    second = [item for item in made if item["kind"] == "LocalQueue" and item["metadata"]["name"].endswith("-two")]
    assert len(second) == len(case.scenario.queues["clusterQueues"])
    assert all(item["spec"]["clusterQueue"].startswith(prefix) and item["spec"]["fairSharing"] for item in second)
