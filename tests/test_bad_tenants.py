"""Mistakes in tenants: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

import pytest

from gke_ai.settings import load
from tests.test_bad_configuration import (
    PROJECT,
    Configuration,
    Mistake,
    both,
    drop,
    is_reported_alone,
    problems_of,
    put,
)
from tests.test_bad_configuration import good as stack

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
    # Who
    Mistake(
        "two tenants of one name",
        put("tenants.+", {"name": "team-a"}),
        "gke-ai:tenants[3].name",
        "tenant team-a is defined twice. A namespace can have only one tenant",
        "Rename one of them",
    ),
    Mistake(
        "a tenant without a name",
        drop(f"{TENANT}.name"),
        "gke-ai:tenants[0].name",
        "name is missing",
        "Add it",
    ),
    Mistake(
        "a tenant in the namespace of the cluster's controllers",
        put("tenants.1.name", "kube-system"),
        "gke-ai:tenants[1].name",
        "namespace kube-system belongs to the cluster",
        "Choose another name",
    ),
    Mistake(
        "a tenant in Kueue's namespace",
        put("tenants.1.name", "kueue-system"),
        "gke-ai:tenants[1].name",
        "namespace kueue-system belongs to the cluster",
        "Choose another name",
    ),
    Mistake(
        "a tenant in the default namespace",
        put("tenants.1.name", "default"),
        "gke-ai:tenants[1].name",
        "the stack does not manage the namespace default. It cannot belong to a tenant",
        "Choose another name",
    ),
    Mistake(
        "a name that is no namespace's",
        put("tenants.1.name", "Team B"),
        "gke-ai:tenants[1].name",
        "Team B",
        "lowercase letters",
    ),
    Mistake(
        "a member by address alone",
        put(f"{TENANT}.members.0", "ada@example.com"),
        "gke-ai:tenants[0].members[0]",
        "ada@example.com has no type: user, group or serviceAccount. It would get no access",
        "user:ada@example.com",
    ),
    Mistake(
        "everyone as a member",
        put(f"{TENANT}.members.0", "allAuthenticatedUsers"),
        "gke-ai:tenants[0].members[0]",
        "allAuthenticatedUsers has no type: user, group or serviceAccount. It would get no access",
        "user:ada@example.com",
    ),
    Mistake(
        "a member of an unknown kind",
        put(f"{TENANT}.members.1", "groups:team-a@example.com"),
        "gke-ai:tenants[0].members[1]",
        "groups is not a type of member. It would get no access",
        "Did you mean group?",
    ),
    Mistake(
        "a member without an address",
        put(f"{TENANT}.members.0", "user:ada"),
        "gke-ai:tenants[0].members[0]",
        '"ada" is not an e-mail address, by which GKE identifies members. It would get no access',
        "user:NAME@example.com",
    ),
    Mistake(
        "a service account of Kubernetes as a member",
        put(f"{TENANT}.members.2", "serviceAccount:team-b/deployer"),
        "gke-ai:tenants[0].members[2]",
        '"team-b/deployer" is not an e-mail address, by which GKE identifies members',
        "gserviceaccount.com",
    ),
    Mistake(
        "a person as a service account",
        put(f"{TENANT}.members.2", "serviceAccount:ada@example.com"),
        "gke-ai:tenants[0].members[2]",
        "ada@example.com is not a serviceAccount",
        "Write user or group",
    ),
    Mistake(
        "a service account as a person",
        put(f"{TENANT}.members.0", "user:ci@my-project.iam.gserviceaccount.com"),
        "gke-ai:tenants[0].members[0]",
        "ci@my-project.iam.gserviceaccount.com is not a user",
        "Write serviceAccount",
    ),
    Mistake(
        "groups of two domains",
        put(f"{TENANT}.members.+", "group:team-a@example.org"),
        "gke-ai:tenants[0].members[3]",
        "group:team-a@example.org is not a group of example.com, and a cluster supports groups of one domain",
        "Use a group of that domain, or users",
    ),
    Mistake(
        "a member twice",
        put(f"{TENANT}.members.+", "user:ada@example.com"),
        "gke-ai:tenants[0].members",
        "member user:ada@example.com is listed 2 times. Another member may be missing",
        "List it once",
    ),
    Mistake(
        "workloads that run as who submits",
        put("tenants.1.deployer", "workload"),
        "gke-ai:tenants[1].deployer",
        "workload is also the service account of the workloads. Any pod could submit, change and delete workloads",
        "Rename one of them",
    ),
    Mistake(
        "the account that Kubernetes makes",
        put("tenants.1.serviceAccount", "default"),
        "gke-ai:tenants[1].serviceAccount",
        "Kubernetes creates a service account default in every namespace",
        "Choose another name",
    ),
    # What
    Mistake(
        "a priority class that isn't there",
        put("tenants.1.priorityClasses", ["hihg"]),
        "gke-ai:tenants[1].priorityClasses[0]",
        "priority class hihg does not exist. The API server would refuse the pods",
        "Did you mean high?",
    ),
    Mistake(
        "the priority of the cluster's controllers",
        put("tenants.1.priorityClasses", ["system-cluster-critical"]),
        "gke-ai:tenants[1].priorityClasses[0]",
        "with system-cluster-critical the team could evict the cluster's own controllers",
        "gke-ai:queues.priorityClasses",
    ),
    Mistake(
        "a priority class twice",
        put(f"{TENANT}.priorityClasses", ["low", "low"]),
        "gke-ai:tenants[0].priorityClasses",
        "priority class low is listed 2 times. Another priority class may be missing",
        "List it once",
    ),
    Mistake(
        "a bucket that isn't there",
        put("tenants.1.buckets", ["teams-{project}"]),
        "gke-ai:tenants[1].buckets[0]",
        "bucket teams-my-project does not exist. No role could be granted",
        "Did you mean team-my-project?",
    ),
    Mistake(
        "a bucket twice",
        put(f"{TENANT}.buckets", ["team-{project}", "team-{project}"]),
        "gke-ai:tenants[0].buckets",
        "bucket team-my-project is listed 2 times. Another bucket may be missing",
        "List it once",
    ),
    Mistake(
        "a grant that the tenant has anyway",
        put("buckets.1.grants", [{"namespace": "team-a", "serviceAccount": "workload"}]),
        "gke-ai:tenants[0].buckets[0]",
        "the bucket team-my-project also grants roles/storage.objectUser to team-a/workload",
        "Remove gke-ai:buckets[1].grants[0]",
    ),
    Mistake(
        "a quota of GPUs by their name",
        put(f"{TENANT}.quota", {"nvidia.com/gpu": 8}),
        'gke-ai:tenants[0].quota["nvidia.com/gpu"]',
        "nvidia.com/gpu is not a resource that a quota can limit. Kubernetes would refuse the quota",
        "Kubernetes counts only requests of devices. Write requests.nvidia.com/gpu",
    ),
    Mistake(
        "a quota of limits of TPUs",
        put(f"{TENANT}.quota", {"limits.google.com/tpu": 8}),
        'gke-ai:tenants[0].quota["limits.google.com/tpu"]',
        "limits.google.com/tpu is not a resource that a quota can limit",
        "Kubernetes counts only requests of devices. Write requests.google.com/tpu",
    ),
    Mistake(
        "a quota of GPUs by a short name",
        put(f"{TENANT}.quota", {"gpus": 8}),
        'gke-ai:tenants[0].quota["gpus"]',
        "gpus is not a resource that a quota can limit. Kubernetes would refuse the quota",
        "Did you mean requests.nvidia.com/gpu?",
    ),
    Mistake(
        "a quota of a misspelled kind",
        put(f"{TENANT}.quota", {"loadbalancers": 0}),
        'gke-ai:tenants[0].quota["loadbalancers"]',
        "loadbalancers is not a resource that a quota can limit. Kubernetes would refuse the quota",
        "Did you mean services.loadbalancers?",
    ),
    Mistake(
        "half an object",
        put(f"{TENANT}.quota", {"count/jobs.batch": "500m"}),
        'gke-ai:tenants[0].quota["count/jobs.batch"]',
        "500m of count/jobs.batch is not a whole number",
        "Write a whole number",
    ),
    Mistake(
        "a quota below zero",
        put(f"{TENANT}.quota", {"pods": -1}),
        "gke-ai:tenants[0].quota.pods",
        "is below zero",
        "",
    ),
    Mistake(
        "a Pod Security level that there isn't",
        put(f"{TENANT}.podSecurity", "default"),
        "gke-ai:tenants[0].podSecurity",
        "default",
        "baseline",
    ),
    Mistake(
        "a tenant that may call itself",
        put(f"{TENANT}.ingressFrom", ["team-a"]),
        "gke-ai:tenants[0].ingressFrom[0]",
        "team-a is the tenant's own namespace",
        "Remove it, or name another namespace",
    ),
    Mistake(
        "a key that nobody knows",
        put(f"{TENANT}.queues", ["lq"]),
        "gke-ai:tenants[0].queues",
        "queues is not a key of a tenant. It would have no effect",
        "",
    ),
    # The stack's own work in a tenant's namespace
    Mistake(
        "a run past the queues of the tenant",
        drop("training.1.queue"),
        "gke-ai:training[1].queue",
        "namespace team-a belongs to a tenant, where pods with accelerators need a queue",
        "Set it to lq",
    ),
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
    ),
    Mistake(
        "a server where the tenant has no queue",
        both(put("serving.0.namespace", "team-c"), drop("serving.0.queue"), drop("serving.0.priorityClass")),
        "gke-ai:serving[0].queue",
        "namespace team-c belongs to a tenant, where pods with accelerators need a queue",
        "{name: …, namespace: team-c, clusterQueue: …}",
    ),
    Mistake(
        "a run with a priority that the tenant hasn't",
        drop(f"{TENANT}.priorityClasses"),
        "gke-ai:training[1].priorityClass",
        "priority class low is not allowed for tenant team-a. The API server would refuse the pods",
        "Add it to gke-ai:tenants[0].priorityClasses",
    ),
    Mistake(
        "a run as who submits",
        both(
            put("training.1.serviceAccount", "deployer"),
            put("buckets.1.grants", [{"namespace": "team-a", "serviceAccount": "deployer"}]),
        ),
        "gke-ai:training[1].serviceAccount",
        "deployer is the deployer of tenant team-a, and no pod may run as it",
        "Set it to workload",
    ),
    Mistake(
        "a level that no server meets",
        put(f"{TENANT}.podSecurity", "restricted"),
        "gke-ai:tenants[0].podSecurity",
        "own of this stack may run as root in the namespace",
        "Set it to baseline",
    ),
    Mistake(
        "a privileged run at baseline",
        put("training.2.privileged", True),
        "gke-ai:training[2].privileged",
        "tenant team-a has Pod Security level baseline, which allows no privileged containers",
        "set gke-ai:tenants[0].podSecurity to privileged",
        with_slices,
    ),
    Mistake(
        "a run on its nodes' network at baseline",
        put("training.2.hostNetwork", True),
        "gke-ai:training[2].hostNetwork",
        "tenant team-a has Pod Security level baseline, which allows no pods on the host network",
        "set gke-ai:tenants[0].podSecurity to privileged",
        with_slices,
    ),
]


def test_the_good_configurations_are_good() -> None:
    assert problems_of(good()) == []
    assert problems_of(with_slices()) == []


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake_is_reported_alone(mistake: Mistake) -> None:
    is_reported_alone(mistake, with_slices() if mistake.base is with_slices else good())


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
