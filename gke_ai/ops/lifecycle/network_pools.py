"""Scales pools with an accelerator network profile to zero nodes before `down` or an update deletes them.

Such a pool may not finish deleting while it has nodes: https://github.com/llm-d/llm-d/issues/2379. Both commands wait
for GKE, and change nothing the second time:
https://cloud.google.com/sdk/gcloud/reference/container/clusters/update
https://cloud.google.com/sdk/gcloud/reference/container/clusters/resize
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gke_ai.catalog.nodes.shape import GKE_NODEPOOL
from gke_ai.kube.client import ApiClient, list_objects
from gke_ai.registered.pools import lost_network, without_network
from gke_ai.registered.types import NODE_POOL
from gke_ai.terminal import Stop
from gke_ai.workspace.emulation import on_emulator

GONE_SECONDS, LOOK_EVERY = 600.0, 2.0
# gcloud's words for a pool that an earlier command has deleted.
NOT_FOUND = "code=404"


@dataclass(frozen=True)
class NetworkPool:
    """A recorded pool with a profile."""

    name: str
    cluster: str
    location: str
    project: str
    autoscaled: bool

    def commands(self) -> Iterator[list[str]]:
        """Yields the commands that scale it to zero nodes. The autoscaler would add nodes again."""
        where = [f"--node-pool={self.name}", f"--location={self.location}", f"--project={self.project}", "--quiet"]
        clusters = ["gcloud", "container", "clusters"]
        if self.autoscaled:
            yield [*clusters, "update", self.cluster, "--no-enable-autoscaling", *where]
        yield [*clusters, "resize", self.cluster, "--num-nodes=0", *where]


def network_pools(resources: Iterable[Mapping[str, Any]]) -> Iterator[NetworkPool]:
    """Yields the pools with a profile in a recorded state."""
    for resource in resources:
        values = {**resource.get("inputs", {}), **resource.get("outputs", {})}
        if resource["type"] == NODE_POOL and (values.get("networkConfig") or {}).get("acceleratorNetworkProfile"):
            keys = ("name", "cluster", "location", "project")
            name, cluster, location, project = (str(values.get(key, "")).rpartition("/")[2] for key in keys)
            yield NetworkPool(name, cluster, location, project, bool(values.get("autoscaling")))


def deleted(events: Iterable[Mapping[str, Any]]) -> tuple[list[NetworkPool], list[NetworkPool]]:
    """Returns the pools with a profile that a preview deletes, and those that it deletes after their replacement."""
    created, found = set[str](), []
    for step in steps(events):
        if step.get("op") == "create-replacement":
            created.add(step["urn"])
        elif step.get("op") in ("delete", "delete-replaced") and step.get("old"):
            found += [(pool, step["urn"] in created) for pool in network_pools([step["old"]])]
    return [pool for pool, later in found if not later], [pool for pool, later in found if later]


def lost_networks(events: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yields a warning for each pool that a preview replaces because nothing decides on its network any more."""
    for step in steps(events):
        if step.get("op") == "replace" and step.get("type") == NODE_POOL:
            old, new = ((step.get(side) or {}).get("inputs") or {} for side in ("old", "new"))
            if key := lost_network(old, new):
                yield f"Pool {new['name']} is replaced: {without_network(key)}"


def warnings(events: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yields what a preview means for pools with a network between nodes."""
    events = list(events)
    yield from lost_networks(events)
    first, later = deleted(events)
    ways = [(pool, "`gke-ai up` first runs") for pool in first]
    ways += [(pool, "The update creates its replacement first. If it then waits for this pool, run") for pool in later]
    for pool, way in ways:
        commands = "".join(f"\n  {shlex.join(command)}" for command in pool.commands())
        yield f"Pool {pool.name} may not finish deleting while it has nodes. {way}:{commands}"


def steps(events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yields the steps of a preview: operation, resource, and its old and new state."""
    return (event["resourcePreEvent"]["metadata"] for event in events if event.get("resourcePreEvent"))


def scale_to_zero(pools: Iterable[NetworkPool], api: ApiClient | None, verb: str = "down") -> None:
    """Scales each such pool to zero nodes and waits until they are gone. The emulator deletes such a pool with them."""
    if on_emulator():
        return
    for pool in pools:
        print(f"Pool {pool.name} has an accelerator network profile. It is scaled to zero nodes first …", flush=True)
        if all(_run(command, verb) for command in pool.commands()) and api is not None:
            _wait_for_nodes(api, pool, verb)


def _run(command: list[str], verb: str) -> bool:
    """Whether a command succeeds. False if the pool does not exist. Stops at any other error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        reason = "gcloud is not on PATH. Install it: https://cloud.google.com/sdk/docs/install"
    else:
        if done.returncode == 0:
            return True
        if NOT_FOUND in done.stderr:
            return False
        reason = done.stderr.strip() or f"gcloud exits with {done.returncode}."
    raise Stop(
        f"{shlex.join(command)} failed, and nothing was deleted: {reason}\n"
        "A pool with an accelerator network profile may not finish deleting while it has nodes. Fix the error and run "
        f"{verb} again."
    )


def _wait_for_nodes(api: ApiClient, pool: NetworkPool, verb: str) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while nodes := list_objects(api, "/api/v1/nodes", labelSelector=f"{GKE_NODEPOOL}={pool.name}"):
        if time.monotonic() > deadline:
            names = ", ".join(sorted(node["metadata"]["name"] for node in nodes))
            raise Stop(
                f"Pool {pool.name} still has nodes after {GONE_SECONDS:.0f} s, and nothing was deleted: {names}. "
                f"Delete the pods that keep them and run {verb} again."
            )
        time.sleep(LOOK_EVERY)
