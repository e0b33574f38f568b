"""Pools with createBeforeDelete: names, labels, draining, and refused settings."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pulumi
import pytest

from emulator.pulumi.plugin import decode, encode
from emulator.tests.gcp_engine import NODE_POOL, Engine
from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR, GKE_NODEPOOL, POOL, node_labels
from gke_ai.components import GpuNodePool
from gke_ai.components.pools import draining
from gke_ai.settings import load
from tests.support.mistakes import PROJECT, SECOND_POOL, good
from tests.support.recorder import Record, Registration

Build = Callable[..., Record]
CLUSTER = {"project": PROJECT, "cluster": "ai", "location": "us-central1"}
NODES = {"machine_type": "g2-standard-24", "nodes_per_zone": 1, "create_before_delete": True}


def made(build: Build, **more: Any) -> Registration:
    return build(GpuNodePool, {"name": "l4", **CLUSTER, **NODES}, **more).one("NodePool")


@pytest.mark.parametrize(
    "change",
    [
        {"machine_type": "g2-standard-48"},
        {"driver": "latest"},
        {"disk_size_gb": 300},
        {"disk_type": "pd-ssd"},
        {"secondary_boot_disk": "projects/my-project/global/images/vllm", "image_streaming": True},
        {"capacity": {"mode": "spot"}},
        {"node_service_account": "nodes@my-project.iam.gserviceaccount.com"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_changed_nodes_change_the_name_in_google_cloud_but_not_in_pulumi(build: Build, change: Any) -> None:
    before, after = made(build), made(build, **change)
    assert re.fullmatch("l4-.{6}", before.inputs["name"])
    assert (before.inputs["name"] != after.inputs["name"], before.urn == after.urn) == (True, True)
    assert after.delete_before_replace is None, "the provider creates first under another name"


def test_a_pool_with_local_ssds_keeps_its_name_and_its_place(build: Build, tmp_path: Path) -> None:
    pool = made(build, machine_type="a2-ultragpu-8g")
    assert pool.inputs["name"] == "l4-a315d8", "as 0.3.0 gave it"
    new = decode(encode(pool.inputs))
    old = {**new, "nodeConfig": {**new["nodeConfig"]}}
    del old["nodeConfig"]["ephemeralStorageLocalSsdConfig"]
    answer = Engine(tmp_path).diff(NODE_POOL, old, new)
    assert (bool(answer.replaces), answer.deleteBeforeReplace, pool.delete_before_replace) == (True, True, None)


ONE_ZONE = {"machine_type": "a3-highgpu-8g", "compact_placement": True, "zones": ["us-central1-a"]}
RDMA = {"machine_type": "a4-highgpu-8g", "rdma": True, "zones": ["us-central1-b"], "capacity": {"mode": "spot"}}


@pytest.mark.parametrize(
    ("pool", "change"),
    [(ONE_ZONE, {"zones": ["us-central1-b"]}), (RDMA, {"zones": ["us-central1-c"]}), (RDMA, {"private_nodes": True})],
    ids=str,
)
def test_nodes_that_the_program_replaces_change_the_name_too(build: Build, pool: Any, change: Any) -> None:
    before, after = made(build, **pool), made(build, **{**pool, **change})
    assert before.inputs["name"] != after.inputs["name"]
    assert set(after.replace_on_changes) & {"nodeLocations", "networkConfig.enablePrivateNodes"}


@pytest.mark.parametrize(
    "change",
    [{"nodes_per_zone": 2}, {"image_streaming": True}, {"labels": {"team": "ml"}}, {"zones": ["us-central1-a"]}],
    ids=str,
)
def test_change_in_place_keeps_the_name(build: Build, change: Any) -> None:
    assert made(build, **change).inputs["name"] == made(build).inputs["name"]


def test_nothing_in_the_cluster_selects_the_changing_name(build: Build) -> None:
    values = good()
    changing = {**values["gpuPools"][0], "createBeforeDelete": True, "labels": {"team": "ml"}}
    settings = load({**values, "gpuPools": [changing, SECOND_POOL]}, PROJECT)
    pool, other = settings.settings.gpu_pools
    wanted = {GKE_ACCELERATOR: "nvidia-l4", POOL: pool.name}
    assert settings.servers[0].node_selector == wanted
    assert other.selector == {GKE_NODEPOOL: other.name}
    registered = made(build, labels={"team": "ml"}, name=pool.name).inputs["nodeConfig"]["labels"]
    assert registered == pool.node_labels == {"team": "ml", POOL: pool.name}
    # The nodes that the rules reckon with.
    assert wanted.items() <= node_labels(pool.shape("us-central1-a")).items()


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The messages that a drain logs, with a fake clock."""
    messages: list[str] = []
    monkeypatch.setattr(pulumi.log, "info", lambda text, **_: messages.append(text))
    monkeypatch.setattr(draining, "FIRST_PAUSE_SECONDS", 0.0)
    return messages


def move(nodes: mock.Mock) -> None:
    asyncio.run(draining.drain("l4", nodes, None))  # type: ignore[arg-type]


WAITING = ["llm/a (its disruption budget)"]


def test_drain_ends_when_no_pod_is_left_and_logs_each_change_once(said: list[str]) -> None:
    nodes = mock.Mock(**{"evict.side_effect": [WAITING, WAITING, ConnectionError("no"), []]})
    move(nodes)
    assert len(said) == 2
    assert WAITING[0] in said[0]
    assert "doesn't answer: no" in said[1]
    nodes.open.assert_not_called()


def test_failed_drain_fails_the_update_and_uncordons_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "DRAIN_SECONDS", 0)
    nodes = mock.Mock(**{"evict.return_value": WAITING})
    with pytest.raises(pulumi.RunError, match=r"(?s)llm/a \(its disruption budget\).*run up again.*diskSizeGb"):
        move(nodes)
    nodes.open.assert_called_once_with()


def test_drain_of_an_unreachable_cluster_ends_with_an_error_without_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "DRAIN_SECONDS", 0)
    error = ConnectionError("no")
    with pytest.raises(pulumi.RunError, match=r"(?s)doesn't answer: no.*kubectl uncordon"):
        move(mock.Mock(**{"evict.side_effect": error, "open.side_effect": error}))
