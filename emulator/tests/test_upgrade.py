"""Only here: the upgrade of a pool in a cluster with the real eviction API and real disruption budgets."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import httpx
import pytest

from emulator import cluster
from emulator.cloud import capacity, delay
from emulator.cloud.api import MERGE_PATCH, Object, answer
from emulator.cloud.folder import Folder
from emulator.cluster import ClusterRecord, PoolRecord
from emulator.nodes import upgrade
from emulator.nodes.upgrade import StandsStill
from emulator.tests.clusters import eventually, running
from gke_ai.workspace.emulation import LEAVING, UPGRADED

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

ZONE = "us-central1-a"
CLUSTER = ClusterRecord("upgraded", "p", "us-central1", "standard", [ZONE], "1.36.1-gke.1")
POOL = PoolRecord("web", "e2-standard-4", [ZONE], nodes_per_zone=3)
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
# An hour of Google takes three seconds.
FAST = 1200.0


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A cluster with a pool of three nodes."""
    with running(tmp_path_factory.mktemp("state"), CLUSTER, POOL) as api:
        yield api


@pytest.fixture
def server(api: httpx.Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A server with two replicas on different nodes, and a budget that lets so many be unavailable."""
    name = f"s{abs(hash(request.node.name)) % 10_000}"
    labels = {"app": name}
    apart = [{"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    spec = {"containers": [{"name": "main", "image": "server"}], "affinity": affinity}
    template = {"metadata": {"labels": labels}, "spec": spec}
    deployment = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    answer(api.post(DEPLOYMENTS, json={"metadata": {"name": name}, "spec": deployment}))
    budget = {"maxUnavailable": request.param, "selector": {"matchLabels": labels}}
    answer(api.post(BUDGETS, json={"metadata": {"name": name}, "spec": budget}))
    eventually(lambda: ready(api, name) == 2)
    eventually(lambda: answer(api.get(f"{BUDGETS}/{name}"))["status"].get("currentHealthy") == 2)
    yield name
    for path in (DEPLOYMENTS, BUDGETS):
        answer(api.delete(f"{path}/{name}"))
    eventually(lambda: not pods(api, name))


def pods(api: httpx.Client, name: str) -> list[Object]:
    items: list[Object] = answer(api.get(PODS, params={"labelSelector": f"app={name}"}))["items"]
    return items


def ready(api: httpx.Client, name: str) -> int:
    return int(answer(api.get(f"{DEPLOYMENTS}/{name}"))["status"].get("readyReplicas") or 0)


def names(api: httpx.Client) -> set[str]:
    return {node["metadata"]["name"] for node in answer(api.get(NODES))["items"]}


class Seen(NamedTuple):
    replicas: set[int]
    sizes: set[int]


@contextmanager
def watched(api: httpx.Client, name: str) -> Iterator[Seen]:
    """The numbers of ready replicas and of nodes meanwhile."""
    seen, ended = Seen(set(), set()), threading.Event()

    def watch() -> None:
        while not ended.is_set():
            seen.replicas.add(ready(api, name))
            seen.sizes.add(len(names(api)))
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def upgraded(api: httpx.Client, name: str, **stated: str) -> tuple[list[str], set[int], set[int]]:
    """Upgrades the pool. Returns what it said, the numbers of ready replicas, and those of nodes meanwhile."""
    said: list[str] = []
    with watched(api, name) as seen:
        upgrade.upgrade(Folder(CLUSTER.name), POOL.name, stated, FAST, said.append)
    return said, seen.replicas, seen.sizes


@pytest.mark.parametrize("server", [1], indirect=True)
def test_a_surge_upgrade_replaces_node_by_node_and_keeps_the_budget(api: httpx.Client, server: str) -> None:
    delay.declare({"node": 0.5})
    before = names(api)
    said, replicas, sizes = upgraded(api, server)
    delay.declare({})
    assert said == ["The emulator plays GKE's upgrade of pool web, 3 nodes: surge, maxSurge=1, maxUnavailable=0."]
    assert sizes == {3, 4}, "one more node at a time"
    assert replicas <= {1, 2}, "the budget lets one replica be unavailable"
    assert len(names(api)) == 3
    assert not names(api) & before
    marks = [node for node in answer(api.get(NODES))["items"] if UPGRADED in node["metadata"]["annotations"]]
    assert marks == [], "the autoscaler may change the nodes again"


@pytest.mark.parametrize("server", [1], indirect=True)
def test_nodes_that_are_replaced_in_place_leave_the_pool_smaller_meanwhile(api: httpx.Client, server: str) -> None:
    delay.declare({"node": 1})
    before = names(api)
    _, replicas, sizes = upgraded(api, server, maxSurge="0", maxUnavailable="1")
    delay.declare({})
    assert max(sizes) <= 4
    assert replicas <= {1, 2}
    assert not names(api) & before


@pytest.mark.parametrize("server", [0], indirect=True)
def test_a_budget_that_allows_no_eviction_holds_the_upgrade_for_an_hour(api: httpx.Client, server: str) -> None:
    began = {pod["metadata"]["uid"] for pod in pods(api, server)}
    said, *_ = upgraded(api, server)
    forced = [line for line in said if "after an hour, despite its budget" in line]
    assert len(forced) >= 2, "each replica is deleted once at least"
    assert all(f"GKE deletes pod default/{server}-" in line for line in forced)
    assert not began & {pod["metadata"]["uid"] for pod in pods(api, server)}


@pytest.mark.parametrize("server", [0], indirect=True)
def test_a_blue_green_upgrade_deletes_protected_pods_with_the_old_nodes(api: httpx.Client, server: str) -> None:
    said, _, sizes = upgraded(api, server, strategy="BLUE_GREEN", batchNodeCount="2", nodePoolSoakDuration="1200s")
    assert 6 in sizes, "the new nodes exist beside the old ones"
    assert len([line for line in said if "when it deleted the old nodes" in line]) == 2
    assert len(names(api)) == 3


@pytest.mark.parametrize("server", [1], indirect=True)
def test_without_capacity_the_upgrade_stands_still_and_disturbs_nothing(api: httpx.Client, server: str) -> None:
    before = names(api)
    capacity.declare({"onDemand": False})
    try:
        with pytest.raises(StandsStill, match="no more nodes in capacity mode onDemand"):
            upgraded(api, server)
    finally:
        capacity.declare({"onDemand": True})
    assert (names(api), ready(api, server)) == (before, 2)


def test_flex_start_nodes_stay_and_an_unknown_pool_is_refused(api: httpx.Client) -> None:
    with pytest.raises(LookupError, match=r"no pool gpu\. Its pools: web\."):
        upgrade.upgrade(Folder(CLUSTER.name), "gpu", {}, FAST, print)
    flex = PoolRecord("flex", "g2-standard-4", [ZONE], gpu="nvidia-l4", gpus=1, capacity="flexStart")
    cluster.set_pool(CLUSTER.name, replace(flex, min_nodes=1, max_nodes=1))
    before, said = names(api), list[str]()
    upgrade.upgrade(Folder(CLUSTER.name), "flex", {}, FAST, said.append)
    assert [line for line in said if "1 nodes: short-lived, so existing nodes stay" in line] == said
    assert names(api) == before
    cluster.remove_pool(CLUSTER.name, flex.name)


def test_an_idle_node_is_marked_until_its_pool_needs_it(api: httpx.Client) -> None:
    def marked() -> list[bool]:
        items = [item for item in answer(api.get(NODES))["items"] if "-shrinks-" in item["metadata"]["name"]]
        return [LEAVING in item["metadata"]["annotations"] for item in items]

    pool = PoolRecord("shrinks", "e2-standard-2", [ZONE], min_nodes=1, max_nodes=2)
    delay.declare({"idle": 600})
    cluster.set_pool(CLUSTER.name, pool)
    assert marked() == [False]
    cluster.set_pool(CLUSTER.name, replace(pool, min_nodes=0))
    eventually(lambda: marked() == [True])
    cluster.set_pool(CLUSTER.name, pool)
    eventually(lambda: marked() == [False])
    cluster.remove_pool(CLUSTER.name, pool.name)
    delay.declare({})


def test_the_autoscaler_leaves_the_nodes_of_an_upgrade_alone(api: httpx.Client) -> None:
    pool = PoolRecord("grows", "e2-standard-2", [ZONE], min_nodes=1, max_nodes=2)
    cluster.set_pool(CLUSTER.name, pool)
    (name,) = [name for name in names(api) if "-grows-" in name]
    change = {"metadata": {"annotations": {UPGRADED: "new"}}}
    answer(api.patch(f"{NODES}/{name}", json=change, headers=MERGE_PATCH))
    delay.declare({"idle": 0.1})
    cluster.set_pool(CLUSTER.name, replace(pool, min_nodes=0))
    time.sleep(4)  # the provisioner looks once a second
    assert name in names(api)
    answer(api.patch(f"{NODES}/{name}", json={"metadata": {"annotations": {UPGRADED: None}}}, headers=MERGE_PATCH))
    eventually(lambda: name not in names(api))
    cluster.remove_pool(CLUSTER.name, pool.name)
    delay.declare({})


@pytest.mark.parametrize("server", [1], indirect=True)
def test_a_changed_machine_type_replaces_node_by_node_as_an_upgrade_does(api: httpx.Client, server: str) -> None:
    larger = replace(POOL, machine_type="e2-standard-8")
    before = names(api)
    with watched(api, server) as seen:
        upgrade.migrate(CLUSTER.name, larger)
        cluster.set_pool(CLUSTER.name, larger)
    assert seen.sizes == {3, 4}, "one more node at a time"
    assert seen.replicas <= {1, 2}, "the budget lets one replica be unavailable"
    items = answer(api.get(NODES))["items"]
    assert len(items) == 3
    assert not before & names(api)
    assert {item["metadata"]["labels"]["node.kubernetes.io/instance-type"] for item in items} == {"e2-standard-8"}
    assert not any(UPGRADED in item["metadata"]["annotations"] for item in items)
    upgrade.migrate(CLUSTER.name, larger)
    assert names(api) == {item["metadata"]["name"] for item in items}, "the same pool again changes nothing"
    upgrade.migrate(CLUSTER.name, POOL)
    cluster.set_pool(CLUSTER.name, POOL)
