"""Only here: the real Kueue places runs of four A4 nodes in two blocks, preempts, replaces lost nodes, and evicts."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gke_ai.catalog.fabric.topology import LEVELS, TOPOLOGY
from gke_ai.forecast.result.forecast import read
from gke_ai.forecast.simulate.trace import Submission, written
from gke_ai.kube.blocks import block_rows
from gke_ai.kube.objects import condition
from gke_ai.manifests.runs import objects_of, place_of
from gke_ai.settings import load
from tests.support.emulator import Emulator, Found, eventually, fresh, gone, settled
from tests.support.mistakes import PROJECT, base
from tests.support.pictures import texts_of
from tests.support.repository import ROOT
from tests.support.tenants import deployment, spec

Object = dict[str, Any]
BLOCK, SUBBLOCK = LEVELS["block"], LEVELS["subblock"]
RUN: Object = {
    "kind": "job",
    "namespace": "llm",
    "image": "example.com/train:1",
    "queue": "lq",
    "priorityClass": "low",
    "gpusPerPod": 8,
    "resources": {"cpu": 8, "memory": "32Gi"},
    "acceptSlowNetwork": True,
    "tokenSecret": None,
}
BLUE, RED = "blue-b1", "red-b1"
# What docs/topology.md shows.
RECORDED = ROOT / "tests" / "data" / "pictures" / "blocks.json"


def values(runs: list[Object], **flavor: Any) -> Object:
    """Two compact pools of five A4 nodes, each in one block, under one flavor."""
    pool = {"machineType": "a4-highgpu-8g", "nodesPerZone": 5, "zones": ["us-central1-b"], "compactPlacement": True}
    pools = [{"name": name, **pool, "capacity": {"mode": "spot"}} for name in ("blue", "red")]
    good = base("topology")
    flavors = [{"name": "b200", "pools": ["blue", "red"], **flavor}]
    cluster_queues = [{"name": "gpus", "flavors": [{"flavor": "b200", "quota": "derive"}]}]
    queues = {**good["queues"], "flavors": flavors, "clusterQueues": cluster_queues}
    return {"cluster": good["cluster"], "gpuPools": pools, "queues": queues, "training": runs}


def small(pool: str) -> Object:
    """A run that takes two nodes of a block."""
    return {**RUN, "name": f"small-{pool}", "pool": pool, "pods": 2}


def configured(emulator: Emulator, name: str, *runs: Object, **flavor: Any) -> Path:
    return emulator.written(name, **values([*runs], **flavor))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Emulator]:
    """Two blocks, each with three free nodes of five. The tests below use it in order."""
    with fresh() as emulator:
        config = configured(emulator, "topology", small("blue"), small("red"))
        emulator.run("delay", "repair=600")
        emulator.make("up", config)
        eventually(lambda: sum(blocks_of(emulator, "small").values()) == 4, "the small runs have their nodes")
        yield emulator


def submit(emulator: Emulator, name: str, **keys: Any) -> str:
    """Create a run of four nodes as the program would. Returns the name of its JobSet."""
    run = {**RUN, "name": name, "accelerator": "nvidia-b200", "pods": 4, **keys}
    (placed,) = load(values([run]), PROJECT).placed_runs
    (jobset,) = objects_of(placed.section, place_of(placed))
    file = emulator.state / f"{name}.json"
    file.write_text(json.dumps(jobset))
    emulator.kubectl("create", "-f", str(file))
    return str(jobset["metadata"]["name"])


def pods_of(emulator: Emulator, name: str) -> list[Object]:
    """The pods of runs whose names begin so that run on nodes."""
    pods = emulator.get("pods", "-n", "llm", "--field-selector=status.phase=Running")
    alive = [pod for pod in pods if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")]
    return [pod for pod in alive if pod["metadata"]["name"].startswith(name)]


def block_of(emulator: Emulator) -> dict[str, str]:
    return {node["metadata"]["name"]: node["metadata"]["labels"][BLOCK] for node in emulator.get("nodes", "-l", BLOCK)}


def blocks_of(emulator: Emulator, name: str) -> Counter[str]:
    """How many pods of a run are in each block."""
    blocks = block_of(emulator)
    return Counter(blocks.get(pod["spec"]["nodeName"], "lost") for pod in pods_of(emulator, name))


def workload(emulator: Emulator, name: str) -> Object:
    """Kueue's Workload of a run. Empty: there is none yet."""
    workloads = emulator.get("workloads", "-n", "llm")
    owners = {item["metadata"]["ownerReferences"][0]["name"]: item for item in workloads}
    return next((item for owner, item in owners.items() if owner.startswith(name)), {})


def evictions(emulator: Emulator, name: str) -> list[str]:
    stats = workload(emulator, name).get("status", {}).get("schedulingStats", {})
    return [item["reason"] for item in stats.get("evictions", [])]


def test_the_two_pools_are_two_blocks_with_three_free_nodes_each(cluster: Emulator) -> None:
    assert Counter(block_of(cluster).values()) == {BLUE: 5, RED: 5}
    assert blocks_of(cluster, "small") == {BLUE: 2, RED: 2}
    shown = " ".join(cluster.make("status").split())
    for block, name in ((BLUE, "small-blue"), (RED, "small-red")):
        pictures = re.findall(rf"{block} (\S+) 16 of 40 llm/jobset/{name}", shown)
        assert [sorted(picture) for picture in pictures] == [sorted("■■□□□")], shown
    settled(cluster)


def remove(emulator: Emulator, name: str, kind: str = "jobset") -> None:
    emulator.kubectl("-n", "llm", "delete", kind, name)
    eventually(lambda: not pods_of(emulator, name), f"{name} is gone")


def test_a_run_of_four_nodes_is_split_in_groups_or_waits_for_a_block_as_it_says(cluster: Emulator) -> None:
    name = submit(cluster, "split")
    eventually(lambda: sum(blocks_of(cluster, name).values()) == 4, "the run has its nodes")
    assert sorted(blocks_of(cluster, name).values()) == [1, 3]
    remove(cluster, name)

    name = submit(cluster, "pairs", topology={"groups": {"pods": 2, "level": "subblock"}})
    eventually(lambda: sum(blocks_of(cluster, name).values()) == 4, "the run has its nodes")
    subblocks = {node["metadata"]["name"]: node["metadata"]["labels"].get(SUBBLOCK) for node in cluster.get("nodes")}
    index = "batch.kubernetes.io/job-completion-index"
    by_index = {pod["metadata"]["annotations"][index]: pod["spec"]["nodeName"] for pod in pods_of(cluster, name)}
    first, second, third, fourth = (subblocks[by_index[number]] for number in "0123")
    assert (first == second, third == fourth, first == third) == (True, True, False)
    remove(cluster, name)

    name = submit(cluster, "whole", topology={"required": "block"})
    reserved = partial(condition, condition_type="QuotaReserved")
    cause = "allows to fit only 3 out of 4 pod(s)"
    eventually(lambda: cause in reserved(workload(cluster, name)).get("message", ""), "Kueue says why it waits")
    assert not pods_of(cluster, name)
    remove(cluster, name)


def test_with_a_higher_priority_it_preempts_within_one_block(cluster: Emulator) -> None:
    name = submit(cluster, "urgent", topology={"required": "block"}, priorityClass="high")
    eventually(lambda: sum(blocks_of(cluster, name).values()) == 4, "the run has its nodes")
    assert len(blocks_of(cluster, name)) == 1
    assert sum(blocks_of(cluster, "small").values()) == 2, "one small run is preempted, and the other one continues"


def lose(emulator: Emulator, name: str) -> str:
    """Delete the node of a pod of a run, as if its machine were gone. Returns its name."""
    node = str(pods_of(emulator, name)[0]["spec"]["nodeName"])
    emulator.kubectl("delete", "node", node, "--wait=false")
    return node


def test_a_lost_node_is_replaced_in_its_block_or_the_run_is_evicted(cluster: Emulator) -> None:
    (block,) = blocks_of(cluster, "urgent")
    lost = lose(cluster, "urgent")
    eventually(lambda: lost not in json.dumps(workload(cluster, "urgent")["status"]["admission"]), "Kueue replaces it")
    eventually(lambda: blocks_of(cluster, "urgent") == {block: 4}, "all pods run in the block again", 180)
    assert evictions(cluster, "urgent") == []
    assert Counter(block_of(cluster).values())[block] == 4

    # The block has no spare node now. The run preempts the small one of the other block, which has five nodes.
    lose(cluster, "urgent")
    eventually(lambda: "NodeFailures" in evictions(cluster, "urgent"), "Kueue evicts the run")
    (other,) = {BLUE, RED} - {block}
    eventually(lambda: blocks_of(cluster, "urgent") == {other: 4}, "the run has the nodes of the other block", 180)

    # The pool replaces them.
    cluster.run("delay", "repair=1")
    eventually(lambda: Counter(block_of(cluster).values()) == {BLUE: 5, RED: 5}, "all nodes are back")
    labels = [node["metadata"]["labels"] for node in cluster.get("nodes", "-l", BLOCK)]
    assert len(labels) == len({tuple(own.get(level) for level in LEVELS.values()) for own in labels})


def test_a_server_without_a_topology_runs_in_the_same_queue_and_down_deletes_all(cluster: Emulator) -> None:
    server = deployment(spec(gpus=8, nodeSelector={}), "lq", "server", namespace="llm")
    server["spec"]["replicas"] = 2
    file = cluster.state / "server.json"
    file.write_text(json.dumps(server))
    cluster.kubectl("create", "-f", str(file))
    eventually(lambda: sum(blocks_of(cluster, "server").values()) == 2, "both replicas have nodes")
    remove(cluster, "server", "deployment")
    cluster.make("down")
    gone(cluster, Found(frozenset(), frozenset()))


def test_a_flavor_gets_its_topology_while_its_runs_go_on(emulator: Emulator) -> None:
    runs = [small("blue"), small("red")]
    emulator.make("up", configured(emulator, "without", *runs, topology=False))
    eventually(lambda: sum(blocks_of(emulator, "small").values()) == 4, "the small runs have their nodes")
    before = {pod["metadata"]["uid"] for pod in pods_of(emulator, "small")}
    emulator.make("up", configured(emulator, "with", *runs))
    (flavor,) = emulator.get("resourceflavors")
    assert flavor["spec"]["topologyName"] == TOPOLOGY
    name = submit(emulator, "new")
    eventually(lambda: sum(blocks_of(emulator, name).values()) == 4, "a new run has the free nodes")
    assert {pod["metadata"]["uid"] for pod in pods_of(emulator, "small")} == before
    assert evictions(emulator, "small-blue") == evictions(emulator, "small-red") == []


def test_a_simulated_day_places_runs_in_blocks_and_draws_them(emulator: Emulator) -> None:
    submit = partial(Submission, queue="llm/lq", priority="low", accelerators=8, cpu=8.0, memory=32.0, spot=True)
    trace = [
        submit(0, pods=3, duration=10_000.0, topology="required=block"),
        submit(1, pods=3, duration=20_000.0, topology="required=block"),
        # The quota has room for both, but each block has two free nodes.
        submit(2, pods=4, duration=1000.0, topology="required=block"),
        submit(3, pods=4, duration=500.0),
    ]
    config = configured(emulator, "day")
    trace_file, out, picture = (emulator.state / name for name in ("trace.csv", "day.json", "blocks.svg"))
    trace_file.write_text(written(trace))
    files_of_day = ("--trace", str(trace_file), "--json", str(out), "--blocks", str(picture))
    emulator.run("gke-ai", "simulate", "--stack", "t", "--config", str(config), *files_of_day)
    (day,) = json.loads(out.read_text())["days"]
    admitted = [[round(start) for start, _ in run["admitted"]] for run in day["runs"]]
    assert admitted == [[0], [1], [round(day["runs"][0]["ran"][-1][1])], [3]]
    texts = texts_of(picture.read_text())
    assert "80 of 80" in " ".join(texts[:2])
    places = [f"3 pods in {BLUE}", f"3 pods in {RED}", f"2 pods in {BLUE}, 2 pods in {RED}"]
    assert sorted(text for text in texts if "pods in" in text) == sorted(places)


def test_a_rehearsal_says_which_run_moves_to_another_block(emulator: Emulator) -> None:
    waiting = {**RUN, "name": "pretrain", "accelerator": "nvidia-b200", "pods": 4, "topology": {"required": "block"}}
    base = configured(emulator, "base", small("blue"), small("red"), waiting)
    change = configured(emulator, "change", {**small("blue"), "pool": "red"}, small("red"), waiting)
    out, picture = emulator.state / "out.json", emulator.state / "blocks.svg"
    files = ("--json", str(out), "--blocks", str(picture))
    emulator.run("gke-ai", "rehearse", "--stack", "t", "--base", str(base), "--config", str(change), *files)
    forecast, recorded = read(out), read(RECORDED)
    assert any("small-blue" in note and f"moves from block {BLUE} to {RED}" in note for note in forecast.notes)
    assert "moves from block" in picture.read_text()
    for side in ("placed_before", "placed_after"):
        shown, drawn = ([row[::3] for row in block_rows(getattr(item, side))] for item in (forecast, recorded))
        assert shown == drawn, f"the picture of docs/topology.md is of another placement. Copy {out} to {RECORDED}"
