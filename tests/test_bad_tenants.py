"""Mistakes in tenants: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from gke_ai.settings import load
from tests.mistakes import PROJECT, Configuration, Mistake, both, drop, problems_of
from tests.mistakes import good as stack

TENANT = "tenants.0"
TRAINING = {"name": "own", "namespace": "team-a", "pool": "l4", "volume": {"bucket": "team-{project}"}}
# A run over several slices, in the tenant's namespace.
SLICES = {
    "name": "slices",
    "kind": "multislice",
    "namespace": "team-a",
    "queue": "tpus",
    "slices": 1,
    "pools": ["v5e"],
}


def good() -> Configuration:
    """Two teams beside the stack's own work, one of which the stack runs a Job for; nothing is wrong."""
    values = stack()
    values["buckets"].append({"name": "team-{project}"})
    values["queues"]["localQueues"] += [
        {"name": "lq", "namespace": team, "clusterQueue": "gpus"} for team in ("team-a", "team-b")
    ]
    values["tenants"] = [
        {
            "name": "team-a",
            "members": [
                "user:ada@example.com",
                "group:team-a@example.com",
                "serviceAccount:ci@my-project.iam.gserviceaccount.com",
            ],
            "priorityClasses": ["low"],
            "buckets": ["team-{project}"],
            "quota": {
                "pods": 100,
                "requests.cpu": "500m",
                "requests.nvidia.com/gpu": 8,
                "count/jobs.batch": 50,
                "premium-rwo.storageclass.storage.k8s.io/requests.storage": "1Ti",
            },
            "ingressFrom": ["llm", "team-b"],
        },
        # Without accelerators, priorities and buckets a team has a namespace all the same.
        {"name": "team-b"},
        {"name": "team-c", "members": ["user:ada@example.com"], "buckets": ["team-{project}"]},
    ]
    values["training"].append({**TRAINING, "queue": "lq", "priorityClass": "low", "serviceAccount": "workload"})
    return values


def with_slices() -> Configuration:
    """The same with TPUs, on which the stack runs for the team."""
    values = good()
    values["cluster"]["location"] = "us-west4"
    values["gpuPools"][0]["zones"] = ["us-west4-a"]
    values["tpuPools"] = [{"name": "v5e", "version": "v5e", "topology": "4x4", "zones": ["us-west4-a"]}]
    values["queues"]["flavors"].append({"name": "v5e", "pools": ["v5e"]})
    values["queues"]["clusterQueues"].append({"name": "tpus", "flavors": [{"flavor": "v5e", "quota": "derive"}]})
    values["queues"]["localQueues"].append({"name": "tpus", "namespace": "team-a", "clusterQueue": "tpus"})
    values["training"].append({**SLICES})
    return values


MISTAKES = [
    Mistake(
        "a run past several queues of the tenant",
        both(
            drop("training.1.queue"),
            lambda values: values["queues"]["localQueues"].append(
                {**values["queues"]["localQueues"][0], "name": "second", "namespace": "team-a"}
            ),
        ),
        "gke-ai:training[1].queue",
        "namespace team-a belongs to a tenant, where pods with accelerators need a queue",
        "Set it to lq or second",
        good,
    ),
]


def test_the_good_configurations_are_good() -> None:
    assert problems_of(good()) == []
    assert problems_of(with_slices()) == []


def test_a_privileged_run_has_its_place_where_the_tenant_may_have_it() -> None:
    values = with_slices()
    values["training"][2] |= {"privileged": True, "hostNetwork": True}
    values["tenants"][0]["podSecurity"] = "privileged"
    assert problems_of(values) == []


def test_a_mistyped_tenant_is_no_second_mistake() -> None:
    values = good()
    values["tenants"][0]["podSecurity"] = "none"
    values["queues"]["priorityClasses"][0]["value"] = "much"
    values["buckets"][1]["softDeleteDays"] = -1
    assert [problem.path for problem in problems_of(values)] == [
        "gke-ai:buckets[1].softDeleteDays",
        "gke-ai:queues.priorityClasses[0].value",
        "gke-ai:tenants[0].podSecurity",
    ]


def test_a_tenant_has_its_namespace_without_a_queue() -> None:
    assert {"team-a", "team-b", "team-c", "llm"} == set(load(good(), PROJECT).namespaces)
