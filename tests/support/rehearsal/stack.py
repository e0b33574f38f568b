"""Seeded scenarios as one configuration of the program: their queues, pools and servers. Tenants submit the runs."""

from collections.abc import Iterable, Iterator
from typing import Any

from gke_ai import settings
from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.catalog.section_files import PREFIX
from tests.support.rehearsal.scenario import ACCELERATOR, Scenario

Section = dict[str, Any]
# What a server requests besides GPUs. Quota of these is never short, so that GPUs decide.
REQUESTS = {"cpu": "2", "memory": "16Gi", "ephemeralStorage": "20Gi"}
# Settings of Kueue's manager, which all scenarios of a cluster have in common.
SETTINGS = ("fairSharing", "admissionFairSharing")
PLENTY = {"cpu": "1000", "memory": "4000Gi", "ephemeral-storage": "4000Gi"}


def configuration(scenarios: Iterable[tuple[str, Scenario]]) -> Section:
    """The stack with scenarios by namespace. Everything has its namespace as a prefix."""
    scenarios = list(scenarios)
    queues = [_queues(scenario, namespace) for namespace, scenario in scenarios]
    return {
        "gke-ai:cluster": {"name": "seeds", "mode": "standard", "location": "us-central1-a"},
        "gke-ai:gpuPools": [pool for namespace, scenario in scenarios for pool in _pools(scenario, namespace)],
        "gke-ai:queues": {
            "podsReadyTimeoutSeconds": 0,
            **{key: value for key, value in scenarios[0][1].queues.items() if key in SETTINGS},
            **{key: [entry for section in queues for entry in section[key]] for key in queues[0]},
        },
        "gke-ai:serving": [server for namespace, scenario in scenarios for server in _servers(scenario, namespace)],
    }


def problems(scenarios: Iterable[tuple[str, Scenario]]) -> str:
    """What the rules of the program refuse in the configuration; empty if it is valid."""
    values = {key.removeprefix(PREFIX): value for key, value in configuration(scenarios).items()}
    try:
        settings.load(values, "my-project")
    except settings.BadConfiguration as bad:
        return str(bad)
    return ""


def _pools(scenario: Scenario, namespace: str) -> Iterator[Section]:
    for pool in scenario.pools:
        capacity = {} if pool.capacity == "onDemand" else {"capacity": {"mode": pool.capacity}}
        machine = {"machineType": "g2-standard-24", "driver": "latest", "zones": ["us-central1-a"]}
        scaling = {"autoscaling": {"maxNodes": pool.max_nodes}}
        yield {"name": f"{namespace}-{pool.name}", **machine, **scaling, **capacity}


def _queues(scenario: Scenario, namespace: str) -> Section:
    section, prefix = scenario.queues, f"{namespace}-"
    return {
        "flavors": [
            {"name": prefix + flavor["name"], "pools": [prefix + flavor["name"]]} for flavor in section["flavors"]
        ],
        "priorityClasses": [{**entry, "name": prefix + entry["name"]} for entry in section["priorityClasses"]],
        "clusterQueues": [_cluster_queue(queue, prefix) for queue in section["clusterQueues"]],
        "localQueues": [
            *(
                {"name": queue["name"], "namespace": namespace, "clusterQueue": prefix + queue["name"]}
                for queue in section["clusterQueues"]
            ),
            *(
                {**local, "namespace": namespace, "clusterQueue": prefix + local["clusterQueue"]}
                for local in section.get("localQueues", ())
            ),
        ],
        "cohorts": [_cohort(cohort, prefix) for cohort in section.get("cohorts", ())],
    }


def _cluster_queue(queue: Section, prefix: str) -> Section:
    cohort = {"cohort": prefix + queue["cohort"]} if "cohort" in queue else {}
    flavors = [
        {**flavor, "flavor": prefix + flavor["flavor"], "quota": {**PLENTY, NVIDIA_GPU: flavor["quota"][NVIDIA_GPU]}}
        for flavor in queue["flavors"]
    ]
    return {**queue, **cohort, "name": prefix + queue["name"], "flavors": flavors}


def _cohort(cohort: Section, prefix: str) -> Section:
    parent = {"parent": prefix + cohort["parent"]} if "parent" in cohort else {}
    flavors = [{**flavor, "flavor": prefix + flavor["flavor"]} for flavor in cohort.get("flavors", ())]
    return {**cohort, **parent, "name": prefix + cohort["name"], "flavors": flavors}


def _servers(scenario: Scenario, namespace: str) -> Iterator[Section]:
    for run in scenario.runs:
        if run.kind == "Deployment":
            place = {"namespace": namespace, "queue": run.queue, "priorityClass": f"{namespace}-{run.priority}"}
            model = {"accelerator": ACCELERATOR, "model": "google/gemma-2-2b-it", "gpus": run.gpus}
            yield {"name": run.name, **place, **model, "replicas": run.replicas, "resources": REQUESTS}
