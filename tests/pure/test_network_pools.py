"""Before `down` or an update deletes pools with an accelerator network profile, they get zero nodes."""

import json
import subprocess
from typing import Any
from unittest.mock import Mock

import pytest

from gke_ai.ops.lifecycle import deploy, down, network_pools
from gke_ai.ops.lifecycle.network_pools import network_pools as pools_of
from gke_ai.ops.lifecycle.network_pools import scale_to_zero
from gke_ai.registered.types import BUCKET, NODE_POOL
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack

Object = dict[str, Any]


def pool(name: str = "b200", **more: Any) -> Object:
    """A recorded pool with a profile."""
    place = {"cluster": "projects/p/locations/us-central1/clusters/c", "location": "us-central1", "project": "p"}
    outputs = {"name": name, **place, "networkConfig": {"acceleratorNetworkProfile": "auto"}, **more}
    return {"type": NODE_POOL, "urn": f"urn::{name}", "inputs": {}, "outputs": outputs}


PLAIN = pool("l4", networkConfig={"enablePrivateNodes": True})
GROWS: Object = {"autoscaling": {"totalMaxNodeCount": 4}}
FORBIDDEN = "ResponseError: code=403, message=Required container.clusters.update"
NOT_FOUND = "ResponseError: code=404, message=Not found: node pool b200."


class Google:
    """Answers of gcloud and of the cluster: each list of nodes is one shorter than the one before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[str] = []
        self.nodes, self.error, self.is_emulated = 2, "", False
        monkeypatch.setattr(network_pools, "on_emulator", lambda: self.is_emulated)
        monkeypatch.setattr(subprocess, "run", self.run)
        monkeypatch.setattr(network_pools, "list_objects", self.list)
        monkeypatch.setattr(network_pools, "LOOK_EVERY", 0)

    def run(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.commands.append(" ".join(command))
        return subprocess.CompletedProcess(command, int(bool(self.error)), "", self.error)

    def list(self, _: object, path: str, labelSelector: str) -> list[Object]:
        assert (path, labelSelector) == ("/api/v1/nodes", "cloud.google.com/gke-nodepool=b200")
        self.nodes -= 1
        return [{"metadata": {"name": f"node-{number}"}} for number in range(self.nodes + 1)]


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Google:
    return Google(monkeypatch)


def scale(**more: Any) -> None:
    """Scales a pool with a profile, and no other."""
    others = PLAIN, {**pool("bucket"), "type": BUCKET}
    scale_to_zero(pools_of([*others, pool(**more)]), object())  # type: ignore[arg-type]


def test_a_pool_loses_its_autoscaler_then_its_nodes_and_down_waits_for_that(google: Google) -> None:
    scale(**GROWS)
    where = "--node-pool=b200 --location=us-central1 --project=p --quiet"
    assert google.commands == [
        f"gcloud container clusters update c --no-enable-autoscaling {where}",
        f"gcloud container clusters resize c --num-nodes=0 {where}",
    ]
    assert google.nodes == -1


@pytest.mark.parametrize(
    ("more", "answers", "verbs", "left"),
    [
        pytest.param({}, {"nodes": 0}, ["resize"], -1, id="a pool of fixed size has no autoscaler"),
        pytest.param(GROWS, {"error": NOT_FOUND}, ["update"], 2, id="a second down skips what the first one deleted"),
        pytest.param({}, {"is_emulated": True}, [], 2, id="the emulator deletes the nodes with their pool"),
    ],
)
def test_only_what_a_pool_needs_runs(
    more: Object, answers: Object, verbs: list[str], left: int, google: Google
) -> None:
    vars(google).update(answers)
    scale(**more)
    assert ([command.split()[3] for command in google.commands], google.nodes) == (verbs, left)


@pytest.mark.usefixtures("google")
def test_nodes_that_stay_and_a_missing_gcloud_stop_before_anything_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_pools, "GONE_SECONDS", -1)
    with pytest.raises(Stop, match=r"still has nodes .* nothing was deleted: node-0, node-1"):
        scale()
    monkeypatch.setattr(subprocess, "run", Mock(side_effect=FileNotFoundError("gcloud")))
    with pytest.raises(Stop, match="gcloud is not on PATH"):
        scale()


def step(op: str, name: str = "b200", new: Object | None = None, **old: Any) -> Object:
    """An event of a preview about a pool."""
    state, urn = pool(name, **old), f"urn::{name}"
    after = {"type": state["type"], "urn": urn, "inputs": new} if new else None
    return {"resourcePreEvent": {"metadata": {"op": op, "urn": urn, "type": state["type"], "old": state, "new": after}}}


FIRST = [step("delete-replaced"), step("replace"), step("create-replacement")]
LAST = [step("create-replacement"), step("replace"), step("delete-replaced")]
OTHERS = [{"summaryEvent": {}}, step("same"), step("update"), step("delete", networkConfig={})]


class Updates:
    """Pulumi: a preview with these events, then an update. `done` has what ran."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.stack, self.resources = Stack("prod"), [pool()]
        self.events, self.fails = FIRST, False
        monkeypatch.setattr(Stack, "preview", self.preview)
        monkeypatch.setattr(Stack, "pulumi", self.pulumi)
        monkeypatch.setattr(Stack, "api", lambda _: None)
        monkeypatch.setattr(deploy, "on_emulator", lambda: False)
        monkeypatch.setattr(deploy, "ensure", lambda _: None)
        monkeypatch.setattr(deploy, "mandatory", lambda _: False)
        monkeypatch.setattr("gke_ai.ops.status.command.show", lambda _: self.done.append("status"))

    def preview(self, *arguments: str, quiet: bool = False) -> tuple[subprocess.CompletedProcess[str], list[Object]]:
        self.done.append(" ".join(["preview", *arguments[:1], *(["quiet"] if quiet else [])]))
        return subprocess.CompletedProcess([], int(self.fails), "", ""), self.events

    def pulumi(self, *arguments: str, **_: object) -> subprocess.CompletedProcess[str]:
        if arguments == ("stack", "export"):
            return subprocess.CompletedProcess([], 0, json.dumps({"deployment": {"resources": self.resources}}), "")
        self.done.append(" ".join(arguments[:2]))
        return subprocess.CompletedProcess([], 0, "", "")


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> Updates:
    return Updates(monkeypatch)


@pytest.mark.parametrize("events", [FIRST, [step("delete")]], ids=["replaced", "deleted"])
def test_an_update_first_scales_a_pool_that_it_deletes(events: list[Object], google: Google, updates: Updates) -> None:
    updates.events = [*OTHERS, *events]
    deploy.up(updates.stack)
    assert [command.split()[3] for command in google.commands] == ["resize"]
    assert updates.done == ["preview quiet", "up --yes", "status"]
    assert "resources" not in vars(updates.stack), "the status shows those after the update"


def test_an_update_asks_before_it_scales(google: Google, updates: Updates) -> None:
    with pytest.raises(Stop, match="Nothing was changed"):
        deploy.up(updates.stack, confirmed=False)
    assert (google.commands, updates.done) == ([], ["preview"])
    question = "Delete the nodes of b200 with their pods, then update prod?"
    deploy.up(updates.stack, confirmed=False, ask=lambda asked: asked == question)
    assert updates.done[-2:] == ["up --yes", "status"], "it does not ask twice"


@pytest.mark.parametrize("events", [LAST, OTHERS, [], None], ids=["last", "no", "none", "fails"])
def test_an_update_scales_no_other_pool(events: list[Object] | None, google: Google, updates: Updates) -> None:
    updates.events, updates.fails = FIRST if events is None else events, events is None
    deploy.up(updates.stack, confirmed=False)
    assert google.commands == []
    assert updates.done == ["preview", "up --suppress-outputs", "status"], "Pulumi asks"


def test_a_stack_without_such_pools_has_no_preview_of_its_own(updates: Updates) -> None:
    updates.resources = [PLAIN]
    deploy.up(updates.stack)
    assert updates.done == ["up --yes", "status"]


def test_a_refusal_stops_before_anything_is_deleted(google: Google, updates: Updates) -> None:
    google.error = FORBIDDEN
    for verb, run in (("up", deploy.up), ("down", down.down)):
        with pytest.raises(Stop, match=rf"resize c .*nothing was deleted: .*code=403(?s:.*)run {verb} again"):
            run(updates.stack)
    assert (len(google.commands), updates.done) == (2, ["preview quiet"])


@pytest.mark.parametrize(
    ("events", "says"),
    [(FIRST, "`gke-ai up` first runs:\n  gcloud container clusters resize c"), (LAST, "If it then waits")],
)
def test_a_preview_names_the_commands(
    events: list[Object], says: str, updates: Updates, capsys: pytest.CaptureFixture[str]
) -> None:
    updates.events = events
    with pytest.raises(SystemExit):
        deploy.preview(updates.stack)
    printed = capsys.readouterr().out
    assert says in printed
    assert "--num-nodes=0 --node-pool=b200" in printed


PROFILE: Object = {"networkConfig": {"acceleratorNetworkProfile": "auto"}}
NETWORK: Object = {**PROFILE, "nodeConfig": {"machineType": "a4-highgpu-8g"}}
INTERFACES: Object = {"networkConfig": {"additionalNodeNetworkConfigs": [{"network": "n"}]}}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (NETWORK, {**NETWORK, "networkConfig": {"enablePrivateNodes": True}}, "it has no `rdma: true`"),
        (INTERFACES, {"networkConfig": {}}, "it has no `gpuDirect: true`"),
        (NETWORK, {**NETWORK, "name": "b200-1"}, ""),
        (NETWORK, {"networkConfig": {}, "nodeConfig": {"machineType": "g2-standard-4"}}, ""),
        ({}, NETWORK, ""),
    ],
    ids=["profile", "networks", "kept", "other machine", "new"],
)
def test_preview_says_that_a_pool_is_replaced_as_no_run_needs_its_network(old: Object, new: Object, says: str) -> None:
    event = step("replace", new={"name": "b200", **new})
    event["resourcePreEvent"]["metadata"]["old"] = {"type": NODE_POOL, "inputs": {"name": "b200", **old}}
    (found,) = [*network_pools.lost_networks([event])] or [""]
    assert says in found
    assert bool(says) == bool(found)
