"""Mistakes in tenants: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

import pytest

from settings import load
from tests.test_bad_configuration import PROJECT, Configuration, Mistake, both, drop, is_told_alone, problems_of, put
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
        "tenant team-a is there twice — a namespace has one team",
        "Give one another name",
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
        "namespace default is in every cluster",
        "Choose another name",
    ),
    Mistake(
        "a name that is no namespace's",
        put("tenants.1.name", "Team B"),
        "gke-ai:tenants[1].name",
        "Team B",
        "small letters",
    ),
    Mistake(
        "a member by address alone",
        put(f"{TENANT}.members.0", "ada@example.com"),
        "gke-ai:tenants[0].members[0]",
        "ada@example.com does not say whether it is a user, a group or a service account",
        "user:ada@example.com",
    ),
    Mistake(
        "everyone as a member",
        put(f"{TENANT}.members.0", "allAuthenticatedUsers"),
        "gke-ai:tenants[0].members[0]",
        "allAuthenticatedUsers does not say whether it is a user",
        "user:ada@example.com",
    ),
    Mistake(
        "a member of an unknown kind",
        put(f"{TENANT}.members.1", "groups:team-a@example.com"),
        "gke-ai:tenants[0].members[1]",
        "groups is no kind of member",
        "Did you mean group?",
    ),
    Mistake(
        "a member without an address",
        put(f"{TENANT}.members.0", "user:ada"),
        "gke-ai:tenants[0].members[0]",
        '"ada" is no e-mail address',
        "user:NAME@example.com",
    ),
    Mistake(
        "a service account of Kubernetes as a member",
        put(f"{TENANT}.members.2", "serviceAccount:team-b/deployer"),
        "gke-ai:tenants[0].members[2]",
        '"team-b/deployer" is no e-mail address',
        "gserviceaccount.com",
    ),
    Mistake(
        "a person as a service account",
        put(f"{TENANT}.members.2", "serviceAccount:ada@example.com"),
        "gke-ai:tenants[0].members[2]",
        "ada@example.com is no serviceAccount",
        "Write user or group",
    ),
    Mistake(
        "a service account as a person",
        put(f"{TENANT}.members.0", "user:ci@my-project.iam.gserviceaccount.com"),
        "gke-ai:tenants[0].members[0]",
        "is no user",
        "Write serviceAccount",
    ),
    Mistake(
        "groups of two domains",
        put(f"{TENANT}.members.+", "group:team-a@example.org"),
        "gke-ai:tenants[0].members[3]",
        "group:team-a@example.org is of another domain than groups of example.com, and a cluster knows groups of one",
        "Name a group of that domain",
    ),
    Mistake(
        "a member twice",
        put(f"{TENANT}.members.+", "user:ada@example.com"),
        "gke-ai:tenants[0].members",
        "member user:ada@example.com is there 2 times",
        "Leave the others out",
    ),
    Mistake(
        "workloads that run as who submits",
        put("tenants.1.deployer", "workload"),
        "gke-ai:tenants[1].deployer",
        "workload is also the service account of the workloads — whatever runs in a pod could submit",
        "another name",
    ),
    Mistake(
        "the account that Kubernetes makes",
        put("tenants.1.serviceAccount", "default"),
        "gke-ai:tenants[1].serviceAccount",
        "Kubernetes makes the service account default",
        "Choose another name",
    ),
    # What
    Mistake(
        "a priority class that isn't there",
        put("tenants.1.priorityClasses", ["hihg"]),
        "gke-ai:tenants[1].priorityClasses[0]",
        "priority class hihg does not exist — the API server would refuse the pods",
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
        "priority class low is there 2 times",
        "Leave the others out",
    ),
    Mistake(
        "a bucket that isn't there",
        put("tenants.1.buckets", ["teams-{project}"]),
        "gke-ai:tenants[1].buckets[0]",
        "bucket teams-my-project does not exist — nothing could be granted",
        "Did you mean team-my-project?",
    ),
    Mistake(
        "a bucket twice",
        put(f"{TENANT}.buckets", ["team-{project}", "team-{project}"]),
        "gke-ai:tenants[0].buckets",
        "bucket team-my-project is there 2 times",
        "Leave the others out",
    ),
    Mistake(
        "a grant that the tenant has anyway",
        put("buckets.1.grants", [{"namespace": "team-a", "serviceAccount": "workload"}]),
        "gke-ai:tenants[0].buckets[0]",
        "roles/storage.objectUser on team-my-project is also granted to team-a/workload by the bucket",
        "Leave it out of gke-ai:buckets[1].grants[0]",
    ),
    Mistake(
        "a quota of GPUs by their name",
        put(f"{TENANT}.quota", {"nvidia.com/gpu": 8}),
        'gke-ai:tenants[0].quota["nvidia.com/gpu"]',
        "nvidia.com/gpu is nothing that Kubernetes counts in a namespace",
        "write requests.nvidia.com/gpu",
    ),
    Mistake(
        "a quota of limits of TPUs",
        put(f"{TENANT}.quota", {"limits.google.com/tpu": 8}),
        'gke-ai:tenants[0].quota["limits.google.com/tpu"]',
        "limits.google.com/tpu is nothing that Kubernetes counts",
        "write requests.google.com/tpu",
    ),
    Mistake(
        "a quota of GPUs by a short name",
        put(f"{TENANT}.quota", {"gpus": 8}),
        'gke-ai:tenants[0].quota["gpus"]',
        "gpus is nothing that Kubernetes counts",
        "Did you mean requests.nvidia.com/gpu?",
    ),
    Mistake(
        "a quota of a misspelt kind",
        put(f"{TENANT}.quota", {"loadbalancers": 0}),
        'gke-ai:tenants[0].quota["loadbalancers"]',
        "loadbalancers is nothing that Kubernetes counts",
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
        "Leave it out",
    ),
    Mistake(
        "a key that nobody knows",
        put(f"{TENANT}.queues", ["lq"]),
        "gke-ai:tenants[0].queues",
        "queues is no key of a tenant",
        "",
    ),
    # The stack's own work in a tenant's namespace
    Mistake(
        "a run past the queues of the tenant",
        drop("training.1.queue"),
        "gke-ai:training[1].queue",
        "namespace team-a is a tenant's, where accelerators are only under a queue",
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
        "namespace team-a is a tenant's, where accelerators are only under a queue",
        "Set it to lq or second",
    ),
    Mistake(
        "a server where the tenant has no queue",
        both(put("serving.0.namespace", "team-c"), drop("serving.0.queue"), drop("serving.0.priorityClass")),
        "gke-ai:serving[0].queue",
        "namespace team-c is a tenant's",
        "{name: …, namespace: team-c, clusterQueue: …}",
    ),
    Mistake(
        "a run with a priority that the tenant hasn't",
        drop(f"{TENANT}.priorityClasses"),
        "gke-ai:training[1].priorityClass",
        "priority class low is not for tenant team-a — the API server would refuse the pods",
        "Add it to gke-ai:tenants[0].priorityClasses",
    ),
    Mistake(
        "a run as who submits",
        both(
            put("training.1.serviceAccount", "deployer"),
            put("buckets.1.grants", [{"namespace": "team-a", "serviceAccount": "deployer"}]),
        ),
        "gke-ai:training[1].serviceAccount",
        "deployer is the account by which tenant team-a submits",
        "Set it to workload",
    ),
    Mistake(
        "a level that no server meets",
        put(f"{TENANT}.podSecurity", "restricted"),
        "gke-ai:tenants[0].podSecurity",
        "own of this stack run in the namespace as their images do",
        "Set it to baseline",
    ),
    Mistake(
        "a privileged run at baseline",
        put("training.2.privileged", True),
        "gke-ai:training[2].privileged",
        "tenant team-a has Pod Security level baseline, which has no privileged containers",
        "set gke-ai:tenants[0].podSecurity to privileged",
        with_slices,
    ),
    Mistake(
        "a run on its nodes' network at baseline",
        put("training.2.hostNetwork", True),
        "gke-ai:training[2].hostNetwork",
        "which has no pods on the network of their node",
        "set gke-ai:tenants[0].podSecurity to privileged",
        with_slices,
    ),
]


def test_the_good_configurations_are_good() -> None:
    assert problems_of(good()) == []
    assert problems_of(with_slices()) == []


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake_is_told_alone(mistake: Mistake) -> None:
    is_told_alone(mistake, with_slices() if mistake.base is with_slices else good())


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
    from settings.plan import namespaces

    assert {"team-a", "team-b", "team-c", "llm"} == set(namespaces(load(good(), PROJECT)))
