"""Before anything is deleted, pools with an accelerator network profile get zero nodes."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from gke_ai.ops import down, network_pools
from gke_ai.ops.network_pools import network_pools as pools_of
from gke_ai.ops.network_pools import scale_to_zero
from gke_ai.ops.stack import Stack
from gke_ai.terminal import Stop

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


def test_a_pool_loses_its_autoscaler_then_its_nodes_and_down_waits_until_they_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    google = Google(monkeypatch)
    scale_to_zero([PLAIN, pool(**GROWS)], object())  # type: ignore[arg-type]
    where = "--node-pool=b200 --location=us-central1 --project=p --quiet"
    assert google.commands == [
        f"gcloud container clusters update c --no-enable-autoscaling {where}",
        f"gcloud container clusters resize c --num-nodes=0 {where}",
    ]
    assert google.nodes == -1


def test_a_pool_of_fixed_size_has_no_autoscaler(monkeypatch: pytest.MonkeyPatch) -> None:
    google = Google(monkeypatch, nodes=0)
    scale_to_zero([pool()], object())  # type: ignore[arg-type]
    assert [command.split()[3] for command in google.commands] == ["resize"]


def test_a_second_down_goes_on_after_a_pool_that_the_first_one_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    google = Google(monkeypatch, nodes=1, error="ResponseError: code=404, message=Not found: node pool b200.")
    scale_to_zero([pool(**GROWS)], object())  # type: ignore[arg-type]
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
        scale_to_zero([pool()], object())  # type: ignore[arg-type]


def test_without_gcloud_it_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    Google(monkeypatch)

    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("gcloud")

    monkeypatch.setattr(subprocess, "run", missing)
    with pytest.raises(Stop, match="gcloud is not on PATH"):
        scale_to_zero([pool()], None)


def test_the_emulator_deletes_such_a_pool_with_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    google = Google(monkeypatch)
    monkeypatch.setattr(network_pools, "on_emulator", lambda: True)
    scale_to_zero([pool()], object())  # type: ignore[arg-type]
    assert google.commands == []
