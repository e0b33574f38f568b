"""Where the pods of runs are, by block, and workloads that Kueue can't count after a restart."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gke_ai.catalog.fabric.topology import LEVELS
from gke_ai.forecast.outcome.timeline import Observation, Timeline, histories
from gke_ai.forecast.rehearse import blocks as rehearsed
from gke_ai.forecast.rehearse import command
from gke_ai.forecast.render.rehearsal import tables
from gke_ai.forecast.result.forecast import Forecast, parse
from gke_ai.formats import blocks_picture
from gke_ai.kube.blocks import BlockNode, Use, block_nodes, block_rows, moves
from gke_ai.kube.pods import limited_only
from gke_ai.kube.workloads import uncounted_by_topology
from gke_ai.ops.status import command as status
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack
from tests.support.pictures import texts_of

GPU, FIRST = "nvidia.com/gpu", "llm/jobset/first"


def node(name: str, block: str) -> dict[str, Any]:
    labels = {LEVELS["block"]: block, LEVELS["host"]: f"{block}-{name}"} if block else {}
    ready = {"type": "Ready", "status": "True"}
    metadata = {"name": name, "uid": name, "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": {"allocatable": {GPU: "8"}, "conditions": [ready]}}


def pod(name: str, node_name: str, gpus: int = 8, phase: str = "Running", jobset: str = "") -> dict[str, Any]:
    labels = {"jobset.sigs.k8s.io/jobset-name": jobset} if jobset else {}
    container = {"name": "c", "resources": {"limits": {GPU: str(gpus)}} if gpus else {}}
    return {
        "metadata": {"name": name, "uid": f"{name}-{node_name}", "namespace": "llm", "labels": labels},
        "spec": {"containers": [container], "nodeName": node_name},
        "status": {"phase": phase},
    }


NODES = [node("n3", "b"), node("n1", "a"), node("n2", "a"), node("n4", "")]
PODS = [
    pod("first-0", "n1", jobset="first"),
    pod("first-1", "n3", jobset="first"),
    pod("small", "n2", gpus=1),
    pod("done", "n2", phase="Succeeded"),
    pod("agent", "n2", gpus=0),
    pod("other", "n4"),
]


def test_each_block_has_its_nodes_in_order_and_the_pods_of_each_run() -> None:
    nodes = block_nodes(NODES, PODS)
    used = [(node.name, node.host, node.used) for node in nodes]
    assert used == [("n1", "a-n1", 8), ("n2", "a-n2", 1), ("n3", "b-n3", 8)]
    assert nodes[1].uses == (Use("llm/pod/small", 1, 1),)
    assert [*block_rows(nodes)] == [
        ("a", "■◧", "9 of 16", f"{FIRST}: 1, llm/pod/small: 1"),
        ("b", "■", "8 of 8", f"{FIRST}: 1"),
    ]
    assert [*block_rows(block_nodes(NODES[:1], []))] == [("b", "□", "0 of 8", "–")]
    assert block_nodes(NODES[3:], PODS) == []


@pytest.mark.parametrize("change", [{"spec": {"unschedulable": True}}, {"status": {"allocatable": {GPU: "8"}}}])
def test_a_cordoned_node_or_one_that_is_not_ready_has_no_free_gpu(change: dict[str, Any]) -> None:
    nodes = block_nodes([{**NODES[1], **change}, NODES[2]], [])
    assert [row[1] for row in block_rows(nodes)] == ["×□"]
    picture = blocks_picture.of_cluster("prod", nodes)
    assert "n1, closed" in texts_of(picture)
    assert picture.count('height="17"') == 8, "the free GPUs of the other node"
    assert [row[1] for row in block_rows(block_nodes([{**NODES[1], **change}], PODS))] == ["■"]


def recorded(*observations: Observation) -> Forecast:
    """A forecast of a change with these observations."""
    before, after = rehearsed.placements(histories(Timeline(observations, 1, 4, True)))
    return Forecast("prod", "two nodes less", True, 60, 1800, placed_before=before, placed_after=after)


def moved() -> Forecast:
    """A change that moves a pod of `first` from block b to the free node of block a."""
    return recorded(
        *(Observation(-1, "Node", item, False) for item in NODES),
        *(Observation(-1, "Pod", item, False) for item in PODS[:2]),
        Observation(2, "Pod", PODS[1], True),
        Observation(3, "Pod", pod("first-1", "n2", jobset="first"), False),
    )


def rows_of(forecast: Forecast) -> Any:
    return {title: rows for title, _, rows in tables(forecast)}["Blocks"]


def test_a_rehearsal_shows_each_block_before_and_after_and_names_the_runs_that_move() -> None:
    forecast = moved()
    assert [*moves(forecast.placed_before, forecast.placed_after)] == [("llm/jobset/first", ["a", "b"], ["a"])]
    notes = rehearsed.moved(forecast.placed_before, forecast.placed_after)
    assert [*notes] == ["llm/jobset/first moves from block a and b to a."]
    assert rows_of(forecast) == [("a", "■□", f"{FIRST}: 1", "■■", f"{FIRST}: 2"), ("b", "■", f"{FIRST}: 1", "□", "–")]
    assert parse(forecast.written()) == forecast
    same = recorded(*(Observation(-1, "Node", item, False) for item in NODES), Observation(-1, "Pod", PODS[0], False))
    assert (same.placed_before, same.placed_after) == ((), ())


def test_a_block_that_a_change_adds_or_removes_has_no_nodes_before_or_after() -> None:
    lost = [Observation(-1, "Node", NODES[0], False), Observation(1, "Node", NODES[0], True)]
    forecast = recorded(*lost, Observation(2, "Node", NODES[1], False))
    assert rows_of(forecast) == [("a", "", "–", "□", "–"), ("b", "□", "–", "", "–")]
    texts = texts_of(rehearsed.picture(forecast))
    assert texts.count("no node") == texts.count("no nodes") == 2


def test_the_picture_of_a_change_has_each_node_twice_with_the_letter_of_its_run() -> None:
    picture = rehearsed.picture(moved())
    texts = texts_of(picture)
    assert texts[0] == "llm/jobset/first moves from block a and b to a."
    assert "1 pod in a, 1 pod in b → 2 pods in a" in texts
    before, after = texts.index("Before the change"), texts.index("After the change")
    block = ["A", "n1", "n2", "8 of 8 used", "Block b", "no sub-block", "A", "n3"]
    assert texts[before + 1 : after] == ["8 of 16 used", "Block a", "no sub-block", *block]
    block = ["A", "n1", "A", "n2", "0 of 8 used", "Block b", "no sub-block", "n3"]
    assert texts[after + 1 : after + 12] == ["16 of 16 used", "Block a", "no sub-block", *block]
    root = ElementTree.fromstring(picture)
    outlined = [float(item.attrib["x"]) for item in root if item.attrib.get("stroke-width") == "2"]
    assert len(outlined) == 2, "what differs after the change"
    assert min(outlined) > float(root.attrib["width"]) / 2, "both are on the side of after"


def test_rehearsal_draws_blocks_only_if_the_change_moves_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = command.Options("prod", manifests=tmp_path, picture=tmp_path / "a.svg", blocks=tmp_path / "blocks.svg")
    monkeypatch.setattr(command, "rehearse", lambda _options: replace(moved(), placed_before=(), placed_after=()))
    command.show(options)
    assert not (tmp_path / "blocks.svg").exists()
    monkeypatch.setattr(command, "rehearse", lambda _options: moved())
    command.show(options)
    assert (tmp_path / "blocks.svg").read_text() == rehearsed.picture(moved())


def test_a_replaced_node_is_in_the_place_of_the_lost_one() -> None:
    new = {**NODES[1], "metadata": {**NODES[1]["metadata"], "name": "n9", "uid": "n9"}}
    lost = [Observation(-1, "Node", NODES[1], False), Observation(1, "Node", NODES[1], True)]
    run = [Observation(-1, "Pod", PODS[0], False), Observation(1, "Pod", PODS[0], True)]
    texts = texts_of(rehearsed.picture(recorded(*lost, *run, Observation(2, "Node", new, False))))
    assert ("n1" in texts, "n9" in texts, "no node" in texts) == (True, True, False)
    assert texts[0] == "No run moves to another block."


def test_a_cluster_with_many_blocks_and_runs_shows_whole_blocks_and_says_what_it_leaves_out() -> None:
    uses = [(Use(f"llm/job/run-{n}", 1, 8),) for n in range(60)]
    nodes = [BlockNode(f"b{block}", "", f"h{n}", f"n{block}-{n}", 8, uses[n]) for block in range(5) for n in range(60)]
    texts = texts_of(blocks_picture.of_cluster("prod", nodes))
    assert texts[0] == "prod: 2400 of 2400 GPUs in blocks are used"
    assert [text for text in texts if text.startswith("Block ")] == ["Block b0", "Block b1", "Block b2", "Block b3"]
    assert texts[-2:] == ["+ is 8 other runs.", "1 more block is not shown."]
    changed = [node if node.block != "b4" else replace(node, uses=()) for node in nodes]
    texts = texts_of(blocks_picture.drawn("", {"before": nodes, "after": changed}))
    assert "Block b4" in texts, "blocks in which something changes come first"


@pytest.mark.parametrize("accelerators", [0, 1, 8, 64])
def test_a_node_with_any_number_of_gpus_fits_its_box(accelerators: int) -> None:
    nodes = [BlockNode("a", "s", "h", "n", accelerators, (Use("llm/job/run", 3, 3),))]
    root = ElementTree.fromstring(blocks_picture.of_cluster("prod", nodes))
    boxes = [item.attrib for item in root if item.tag.endswith("rect")]
    assert all(float(box["width"]) > 0 for box in boxes)
    inside = [box for box in boxes if float(box["height"]) < blocks_picture.BAR + 1 and box["x"] > "36"]
    edge = 36 + blocks_picture.CELL
    assert all(float(box["x"]) + float(box["width"]) < edge for box in inside if float(box["x"]) < edge)


def test_the_status_draws_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Stack, "cluster", lambda _stack: None)
    monkeypatch.setattr(status, "take", lambda *_of: status.ClusterObjects(nodes=NODES, pods=PODS))
    status.show(Stack("prod"), blocks=tmp_path / "blocks.svg")
    assert "prod: 17 of 24 GPUs in blocks are used" in (tmp_path / "blocks.svg").read_text()
    assert "blocks.svg" in capsys.readouterr().out
    monkeypatch.setattr(status, "take", lambda *_of: status.ClusterObjects(nodes=NODES[3:], pods=PODS))
    with pytest.raises(Stop, match="No node of prod has a label of its block"):
        status.show(Stack("prod"), blocks=tmp_path / "blocks.svg")


PLACED = {"topologyAssignment": {"levels": ["kubernetes.io/hostname"]}}


LIMITED = {"limits": {GPU: "8"}}


@pytest.mark.parametrize(
    ("resources", "assignment", "found"),
    [
        (LIMITED, PLACED, ["c"]),
        ({**LIMITED, "requests": {GPU: "8"}}, PLACED, []),
        ({"requests": {"cpu": "1"}}, PLACED, []),
        (LIMITED, {}, []),
    ],
)
def test_workloads_placed_by_topology_with_limits_and_no_requests_are_named(
    resources: dict[str, Any], assignment: dict[str, Any], found: list[str]
) -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    workload = {
        "metadata": {"name": "w", "namespace": "llm"},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": template}]},
        "status": {"admission": {"podSetAssignments": [{"name": "main", **assignment}]}},
    }
    assert [container for _, container in uncounted_by_topology([workload])] == found
    first = {"name": "first", "resources": {"limits": {"cpu": "1", GPU: "1"}, "requests": {"cpu": None}}}
    assert [*limited_only({"initContainers": [first], "containers": [{"name": "second"}]})] == [("first", ["cpu", GPU])]
