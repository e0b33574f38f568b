"""Selectors, labels, quotas and names of valid settings; and reading never fails with an exception of Python."""

import copy
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR, GKE_NODEPOOL, NVIDIA_GPU
from gke_ai.catalog.quantities import GI
from gke_ai.settings import BadConfiguration, ResolvedStack, Settings, load, reading
from gke_ai.settings.model import FineTune, Flavor, FlavorQuota, GpuPool, Queues, Section
from gke_ai.settings.resolved import Quota, needs
from gke_ai.settings.resolved.queues import flavors_of
from tests.support.mistakes import PROJECT, SECOND_POOL, base, good, on_autopilot, places, problems_of


def loaded(values: dict[str, Any]) -> ResolvedStack:
    return load(values, PROJECT)


def with_second_pool() -> dict[str, Any]:
    values = good()
    values["gpuPools"].append(SECOND_POOL)
    return values


def test_project_stands_in_every_text_numbers_are_quantities_and_an_empty_configuration_is_a_cluster() -> None:
    settings = loaded(good())
    assert settings.settings.buckets[0].name == settings.of(FineTune)[0].section.volume.bucket == "models-my-project"
    assert settings.settings.serving[0].resources.cpu == "4"
    empty = loaded({})
    assert (empty.cluster.mode, empty.settings.queues) == ("autopilot", None)
    assert loaded({"serving": None, "cluster": None}) == loaded({"hfToken": "anything"}) == empty


def test_items_know_their_path_and_cannot_be_changed() -> None:
    settings = loaded(with_second_pool())
    assert settings.pools[1].at("machineType") == "gke-ai:gpuPools[1].machineType"
    assert settings.queues.flavors[0].at("pools") == "gke-ai:queues.flavors[0].pools"
    assert settings.cluster.at("mode") == "gke-ai:cluster.mode"
    with pytest.raises(ValueError, match="frozen"):
        settings.cluster.name = "other"  # type: ignore[misc]


def sections_of(section: type[Section]) -> Iterator[type[Section]]:
    """The section, and all sections that a configuration can have in it."""
    yield section
    for field in section.model_fields.values():
        for inner in reading.section_types(field.annotation):
            yield from sections_of(inner)


def test_every_section_has_a_noun_of_its_own() -> None:
    for section in sections_of(Settings):
        assert "noun" in vars(section), f"{section.__name__} has no noun for messages"


def test_misspelled_key_of_the_maintenance_is_reported() -> None:
    values = good()
    values["cluster"]["maintenance"] = {"window": {"startTim": "2026-01-03T00:00:00Z"}, "exclusion": []}
    paths = [problem.path for problem in problems_of(values)]
    assert "gke-ai:cluster.maintenance.exclusion" in paths
    assert "gke-ai:cluster.maintenance.window.startTim" in paths


def test_namespaces_come_once_in_order_of_use_and_a_tenant_has_its_own_without_a_queue() -> None:
    values = good()
    values["queues"]["localQueues"].append({"name": "lq", "namespace": "team-a", "clusterQueue": "gpus"})
    values["buckets"][0]["grants"].append({"namespace": "elsewhere"})
    assert loaded(values).namespaces == ["llm", "team-a"]
    assert {"team-a", "team-b", "team-c", "llm"} == set(load(base("tenants"), PROJECT).namespaces)


def test_selector_is_the_gpu_type_and_the_pool_where_two_have_it_and_gpus_default_to_those_of_the_machine() -> None:
    assert loaded(good()).servers[0].node_selector == {GKE_ACCELERATOR: "nvidia-l4"}
    assert loaded(with_second_pool()).servers[0].node_selector == {GKE_ACCELERATOR: "nvidia-l4", GKE_NODEPOOL: "l4"}
    assert loaded(on_autopilot()).placed_runs[0].node_selector == {GKE_ACCELERATOR: "nvidia-l4"}
    assert GpuPool(name="p", machine_type="g2-standard-48").gpus == ("nvidia-l4", 4)
    attached = GpuPool(name="p", machine_type="n1-standard-8", accelerator="nvidia-tesla-t4", gpus_per_node=2)
    assert attached.gpus == ("nvidia-tesla-t4", 2)


def test_flavor_labels_distinguish_its_pools_and_a_stated_quota_keeps_its_words_and_order() -> None:
    by_name = {pool.section.name: pool for pool in loaded(with_second_pool()).node_pools}
    flavors = [Flavor(name="any"), Flavor(name="one", pools=["l4-big"]), Flavor(name="two", pools=["l4", "l4-big"])]
    l4 = {GKE_ACCELERATOR: "nvidia-l4"}
    labels = [flavor.labels for flavor in flavors_of(Queues(flavors=flavors), by_name)]
    assert labels == [{}, {**l4, GKE_NODEPOOL: "l4-big"}, l4]
    quota = loaded(on_autopilot()).cluster_queues[0].quotas[0].texts
    assert [*quota.items()] == [("cpu", "72"), ("memory", "288Gi"), (NVIDIA_GPU, "6"), ("ephemeral-storage", "200Gi")]


@pytest.mark.parametrize(
    ("size", "gpus"),
    [
        ({"zones": ["us-central1-a"], "nodesPerZone": 3}, "6"),
        ({"zones": ["us-central1-a", "us-central1-b"], "nodesPerZone": 2}, "8"),
        ({"nodesPerZone": 1}, "6"),  # no zones: those of a regional cluster
        ({"zones": ["us-central1-a", "us-central1-b"], "autoscaling": {"maxNodes": 5}}, "10"),  # of the whole pool
    ],
)
def test_derived_quota_counts_the_pool_at_its_largest(size: dict[str, Any], gpus: str) -> None:
    values = good()
    values["gpuPools"][0] = {"name": "l4", "machineType": "g2-standard-24"} | size
    settings = loaded(values)
    derived = Quota(FlavorQuota(flavor="l4", quota="derive"), settings.flavors[0], settings.measured)
    assert derived.texts[NVIDIA_GPU] == gpus


def test_pools_without_zones_follow_the_system_pool_and_others_have_those_for_ai_machines_too() -> None:
    values = good()
    values["cluster"]["systemPool"] = {"zones": ["us-central1-f"]}
    del values["gpuPools"][0]["zones"]
    assert loaded(values).node_pools[0].zones == ("us-central1-f",)
    values["gpuPools"][0]["zones"] = ["us-central1-ai1a"]
    assert loaded(values).node_pools[0].zones == ("us-central1-ai1a",)


def test_cluster_queue_is_found_through_the_local_queue_of_the_same_namespace() -> None:
    values = good()
    flavors = [{"flavor": "l4", "quota": {"nvidia.com/gpu": 6}}]
    values["queues"]["clusterQueues"].append({"name": "other", "flavors": flavors})
    values["queues"]["localQueues"].insert(0, {"name": "lq", "namespace": "team-a", "clusterQueue": "other"})
    queue = loaded(values).servers[0].queue
    assert queue is not None
    assert queue.section.name == "gpus"


def test_priority_is_the_classs_else_the_global_default() -> None:
    values = good()
    values["queues"]["priorityClasses"].append({"name": "default", "value": 5, "globalDefault": True})
    del values["training"][0]["priorityClass"]
    settings = loaded(values)
    assert (settings.servers[0].priority, settings.placed_runs[0].priority) == (20, 5)
    values = good()  # training may go first where the queue never preempts
    values["queues"]["priorityClasses"][0]["value"] = 30
    values["queues"]["clusterQueues"][0]["preemption"] = {"withinClusterQueue": "Never"}
    loaded(values)


def test_queue_may_borrow_from_its_cohort() -> None:
    values = on_autopilot()
    values["training"][0]["pods"] = 6
    queue = values["queues"]["clusterQueues"][0]
    lender = copy.deepcopy(queue) | {"name": "lender"}
    values["queues"]["clusterQueues"].append(lender)
    with pytest.raises(BadConfiguration, match="12 GPUs, and cluster queue gpus has at most 6 GPUs"):
        loaded(values)
    queue["cohort"] = lender["cohort"] = "all"
    loaded(values)


def test_fuse_sidecar_counts_for_the_node_and_not_for_the_queue() -> None:
    settings = loaded(good())
    job = settings.placed_runs[0]
    assert job.node_request["memory"] == 35 * GI
    assert job.pod_request == {NVIDIA_GPU: 2}
    of_server = {"cpu": Fraction(4), **dict.fromkeys(("memory", "ephemeral-storage"), 30 * GI), NVIDIA_GPU: 2}
    assert settings.servers[0].node_request == of_server


def named(**change: Any) -> str:
    values = good()
    values["training"][0] |= change
    return loaded(values).runs[0].object_name


def test_a_run_has_its_fixed_name_or_always_the_same_one() -> None:
    assert named(fixedName=True) == "finetune"
    assert named() == named(epochs=1, labels={})
    assert re.fullmatch("finetune-[0-9a-f]{6}", named())


@pytest.mark.parametrize(
    "change",
    [
        *({"epochs": 2}, {"labels": {"a": "b"}}, {"resources": {"cpu": "2"}}, {"dataset": {"limit": 10}}),
        *({"image": "registry.example/other:1"}, {"pods": 1}),
    ],
)
def test_changed_run_has_another_name(change: dict[str, Any]) -> None:
    assert named(**change) != named()


def test_kueue_waits_for_ready_pods_as_long_as_the_slowest_server_takes_and_forever_for_flex_start_nodes() -> None:
    values = good()
    assert needs.pods_ready_timeout(loaded(values)) == 3600
    values["serving"][0]["readyTimeoutSeconds"] = 7200
    assert needs.pods_ready_timeout(loaded(values)) == 7200
    del values["serving"][0]["queue"]
    assert needs.pods_ready_timeout(loaded(values)) == 3600, "Kueue does not look at a server outside its queues"
    values["queues"]["podsReadyTimeoutSeconds"] = 900
    assert needs.pods_ready_timeout(loaded(values)) == 900
    values = good()
    pool = values["gpuPools"][0]
    del pool["nodesPerZone"]
    pool |= {"autoscaling": {"maxNodes": 3}, "capacity": {"mode": "flexStart"}}
    assert needs.pods_ready_timeout(loaded(values)) == 0
    pool["capacity"] = {"mode": "spot"}
    assert needs.pods_ready_timeout(loaded(values)) == 3600


ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, 10**12, "", "x", "us-central1-a", "-"),
    *([], {}, [None], ["x", "x"], {"a": 1}, [{}], [[]]),
]


@pytest.mark.parametrize("base", [good, on_autopilot])
def test_no_odd_value_anywhere_ends_in_a_traceback(base: Any) -> None:
    for path in places(base()):
        for odd in ODD:
            values = part = base()
            for step in path[:-1]:
                part = part[step]
            part[path[-1]] = odd
            for problem in problems_of(values):
                assert all((problem.path, problem.cause, problem.remedy)), path
