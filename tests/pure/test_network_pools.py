"""Before `down` or an update deletes pools with an accelerator network profile, they get zero nodes."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from gke_ai.ops.lifecycle import deploy, down, network_pools
from gke_ai.ops.lifecycle.network_pools import network_pools as pools_of
from gke_ai.ops.lifecycle.network_pools import scale_to_zero
from gke_ai.registered.types import NODE_POOL
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack

Object = dict[str, Any]


def pool(name: str = "b200", **more: Any) -> Object:
    """A recorded pool with a profile."""
    outputs = {
        "name": name,
        "cluster": "projects/p/locations/us-central1/clusters/c",
        "location": "us-central1",
        "project": "p",
        "networkConfig": {"acceleratorNetworkProfile": "auto"},
        **more,
    }
    return {"type": "gcp:container/nodePool:NodePool", "urn": f"urn::{name}", "inputs": {}, "outputs": outputs}


PLAIN = pool("l4", networkConfig={"enablePrivateNodes": True})
GROWS: Object = {"autoscaling": {"totalMaxNodeCount": 4}}


class Google:
    """Answers of gcloud and of the cluster: each list of nodes is one shorter than the one before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nodes: int = 2, error: str = "") -> None:
        self.commands: list[str] = []
        self.nodes, self.error = nodes, error
        monkeypatch.setattr(network_pools, "on_emulator", lambda: False)
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


def test_only_pools_with_a_profile_are_scaled() -> None:
    (found,) = pools_of([PLAIN, pool(), {"type": "gcp:storage/bucket:Bucket"}])
    assert (found.name, found.cluster, found.location, found.project) == ("b200", "c", "us-central1", "p")


def test_a_pool_loses_its_autoscaler_then_its_nodes_and_down_waits_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    google = Google(monkeypatch)
    scale_to_zero(pools_of([PLAIN, pool(**GROWS)]), object())  # type: ignore[arg-type]
    where = "--node-pool=b200 --location=us-central1 --project=p --quiet"
    assert google.commands == [
        f"gcloud container clusters update c --no-enable-autoscaling {where}",
        f"gcloud container clusters resize c --num-nodes=0 {where}",
    ]
    assert google.nodes == -1


def test_a_pool_of_fixed_size_has_no_autoscaler(monkeypatch: pytest.MonkeyPatch) -> None:
    google = Google(monkeypatch, nodes=0)
    scale_to_zero(pools_of([pool()]), object())  # type: ignore[arg-type]
    assert [command.split()[3] for command in google.commands] == ["resize"]


def test_a_second_down_goes_on_after_a_pool_that_the_first_one_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    google = Google(monkeypatch, nodes=1, error="ResponseError: code=404, message=Not found: node pool b200.")
    scale_to_zero(pools_of([pool(**GROWS)]), object())  # type: ignore[arg-type]
    assert (len(google.commands), google.nodes) == (1, 1)


def test_a_refusal_stops_before_anything_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    google = Google(monkeypatch, error="ResponseError: code=403, message=Required container.clusters.update")
    stack = Stack("prod")
    vars(stack)["resources"] = [pool()]
    monkeypatch.setattr(Stack, "pulumi", lambda *_, **__: pytest.fail("something was deleted"))
    with pytest.raises(Stop, match=r"resize c .*nothing was deleted: .*code=403(?s:.*)run down again"):
        down.down(stack)
    assert len(google.commands) == 1


def test_nodes_that_stay_stop_before_anything_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    Google(monkeypatch, nodes=2)
    monkeypatch.setattr(network_pools, "GONE_SECONDS", -1)
    with pytest.raises(Stop, match=r"still has nodes .* nothing was deleted: node-0, node-1"):
        scale_to_zero(pools_of([pool()]), object())  # type: ignore[arg-type]


def test_without_gcloud_it_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    Google(monkeypatch)

    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("gcloud")

    monkeypatch.setattr(subprocess, "run", missing)
    with pytest.raises(Stop, match="gcloud is not on PATH"):
        scale_to_zero(pools_of([pool()]), None)


def test_the_emulator_deletes_such_a_pool_with_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    google = Google(monkeypatch)
    monkeypatch.setattr(network_pools, "on_emulator", lambda: True)
    scale_to_zero(pools_of([pool()]), object())  # type: ignore[arg-type]
    assert google.commands == []


# ------------------------------------------------------------------------------------------------------------- updates
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

    def __init__(self, monkeypatch: pytest.MonkeyPatch, events: list[Object], fails: bool = False) -> None:
        self.done: list[str] = []
        self.stack, self.resources = Stack("prod"), [pool()]
        self.events, self.fails = events, fails
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


@pytest.mark.parametrize("events", [FIRST, [step("delete")]], ids=["replaced", "deleted"])
def test_an_update_first_scales_a_pool_that_it_deletes(events: list[Object], monkeypatch: pytest.MonkeyPatch) -> None:
    google, updates = Google(monkeypatch), Updates(monkeypatch, [*OTHERS, *events])
    deploy.up(updates.stack)
    assert [command.split()[3] for command in google.commands] == ["resize"]
    assert updates.done == ["preview quiet", "up --yes", "status"]
    assert "resources" not in vars(updates.stack), "the status shows those after the update"


def test_an_update_asks_before_it_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    google, updates = Google(monkeypatch), Updates(monkeypatch, FIRST)
    with pytest.raises(Stop, match="Nothing was changed"):
        deploy.up(updates.stack, confirmed=False)
    assert (google.commands, updates.done) == ([], ["preview"])
    question = "Delete the nodes of b200 with their pods, then update prod?"
    deploy.up(updates.stack, confirmed=False, ask=lambda asked: asked == question)
    assert updates.done[-2:] == ["up --yes", "status"], "it does not ask twice"


@pytest.mark.parametrize(
    ("events", "fails"),
    [(LAST, False), (OTHERS, False), ([], False), (FIRST, True)],
    ids=["last", "no", "none", "fails"],
)
def test_an_update_scales_no_other_pool(events: list[Object], fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    google, updates = Google(monkeypatch), Updates(monkeypatch, events, fails)
    deploy.up(updates.stack, confirmed=False)
    assert google.commands == []
    assert updates.done == ["preview", "up --suppress-outputs", "status"], "Pulumi asks"


def test_a_stack_without_such_pools_has_no_preview_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    updates = Updates(monkeypatch, FIRST)
    updates.resources = [PLAIN]
    deploy.up(updates.stack)
    assert updates.done == ["up --yes", "status"]


def test_a_refusal_stops_before_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    Google(monkeypatch, error="ResponseError: code=403, message=Required container.clusters.update")
    updates = Updates(monkeypatch, FIRST)
    with pytest.raises(Stop, match=r"nothing was deleted: .*code=403(?s:.*)run up again"):
        deploy.up(updates.stack)
    assert updates.done == ["preview quiet"]


@pytest.mark.parametrize(
    ("events", "says"),
    [(FIRST, "`gke-ai up` first runs:\n  gcloud container clusters resize c"), (LAST, "If it then waits")],
)
def test_a_preview_names_the_commands(
    events: list[Object], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    updates = Updates(monkeypatch, events)
    with pytest.raises(SystemExit):
        deploy.preview(updates.stack)
    printed = capsys.readouterr().out
    assert says in printed
    assert "--num-nodes=0 --node-pool=b200" in printed


NETWORK: Object = {
    "networkConfig": {"acceleratorNetworkProfile": "auto"},
    "nodeConfig": {"machineType": "a4-highgpu-8g"},
}
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
