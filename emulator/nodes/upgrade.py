"""Upgrades the nodes of a pool as GKE does, with drains by the real eviction API: a simulation of Google's part.

    emulator/run upgrade POOL [KEY=VALUE,…] [--compression 60] [--cluster NAME]

Without settings, the pool's own count. Keys: maxSurge, maxUnavailable, or batchNodeCount, batchPercentage,
batchSoakDuration and nodePoolSoakDuration. Durations of Google, such as the hour of a drain, run --compression times
as fast. Pods of simulated nodes end at once, so grace periods take no time. The order of nodes is that of their zones
and names. Prints what was done, one sentence a line.

https://docs.cloud.google.com/kubernetes-engine/docs/concepts/node-pool-upgrade-strategies
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from emulator.cloud import capacity, delay
from emulator.cloud.api import MERGE_PATCH, Object, Refused, answer, client
from emulator.cloud.folder import Folder
from emulator.cloud.folder import names as cluster_names
from emulator.cloud.records import PoolRecord, read_pools, write_pool
from emulator.machine.polling import poll_until
from emulator.nodes import objects as nodes
from emulator.nodes import upgrades
from emulator.nodes.pools import READY_SECONDS, NoCapacity, remove
from emulator.nodes.provisioner import keeps_node
from emulator.nodes.upgrades import Window
from gke_ai.catalog.nodes.shape import POOL, ZONE
from gke_ai.catalog.nodes.upgrades import (
    BLUE_GREEN,
    DRAIN_SECONDS,
    SHORT_LIVED,
    BadUpgradeSettings,
    UpgradeSettings,
    read_settings,
    settings,
)
from gke_ai.kube.nodes import capacity_mode
from gke_ai.workspace.emulation import DRAINS, FORCED, NEW, SOAKS, UPGRADED, WAITS

_NODES = "/api/v1/nodes"
# How many times as fast Google's durations run, unless a command says otherwise.
COMPRESSION = 60.0
# Between two tries to evict a pod.
PAUSE = 0.2
# For pods that are deleted at once to be gone.
ENDED_SECONDS = 60
# Until a recorder has seen a mark before its consequence.
SEEN = 0.3
TOO_MANY, SEVERAL_BUDGETS, NOT_FOUND = 429, 500, 404


class StandsStill(Exception):
    """Google has no node for the upgrade, so GKE waits for one."""


@dataclass
class Upgrade:
    """The upgrade of one pool. `say` gets a sentence beside the plan, `new` returns the node that replaces a node."""

    api: httpx.Client
    compression: float
    mode: str
    say: Callable[[str], None]
    new: Callable[[Object], Object] = upgrades.replacement

    def run(self, present: list[Object], own: UpgradeSettings) -> None:
        """Replaces these nodes by the strategy of their pool."""
        if own.strategy == BLUE_GREEN and nodes.slice_size(present[0]) == 1:
            batches = upgrades.batches(present, own)
            self.blue_green(batches, upgrades.soaks(len(batches), own))
        else:
            self.surge(upgrades.windows(present, own))
        for node in answer(self.api.get(_NODES))["items"]:
            if UPGRADED in node["metadata"].get("annotations", {}):
                self.api.patch(_node(node), json={"metadata": {"annotations": {UPGRADED: None}}}, headers=MERGE_PATCH)

    def surge(self, windows: Iterable[Window]) -> None:
        """Replaces the nodes of one window after the other."""
        for window in windows:
            if window.together:
                self._recreate(window)
                continue
            queue = deque(window.nodes)

            def work(replace: Callable[[Object], None], queue: deque[Object] = queue) -> None:
                while queue:
                    try:
                        node = queue.popleft()
                    except IndexError:
                        return
                    replace(node)

            workers = [self._with_surge] * window.surge + [self._in_place] * window.in_place
            with ThreadPoolExecutor(len(workers)) as threads:
                list(threads.map(work, workers))

    def blue_green(self, batches: list[list[Object]], soaks: list[int]) -> None:
        """Creates all new nodes, drains the old ones in batches, soaks, and deletes the old ones with what is left."""
        blue = [node for batch in batches for node in batch]
        self._wait([self._create(node) for node in blue])
        for node in blue:
            self._mark(node, "drains", unschedulable=True)
        drained: list[Object] = []
        for batch, seconds in zip(batches, soaks, strict=False):
            drained += batch
            self._evict_all(drained)
            self._soak(drained, seconds)
        self._soak(drained, soaks[-1])
        for node in blue:
            self._force(node, "when it deleted the old nodes")
            self._delete(node)

    def _with_surge(self, node: Object) -> None:
        if not self._exists(node):
            return
        created = self._create(node)
        if self.mode != "spot":  # GKE doesn't wait for Spot nodes
            self._wait([created])
        self._drain(node)
        self._delete(node)

    def _in_place(self, node: Object) -> None:
        if not self._exists(node):
            return
        self._drain(node)
        # Before the deletion: the emulated autoscaler would create nodes for the pods meanwhile.
        created = self._create(node)
        self._delete(node)
        self._wait([created])

    def _recreate(self, window: Window) -> None:
        """Recreates a multi-host slice. GKE publishes no more than that it is one step: it is drained as others are."""
        for node in window.nodes:
            self._mark(node, "drains", unschedulable=True)
        with ThreadPoolExecutor(len(window.nodes)) as threads:
            list(threads.map(self._drain, window.nodes))
        created = [self._create(node) for node in window.nodes]
        for node in window.nodes:
            self._delete(node)
        self._wait(created)

    def _drain(self, node: Object) -> None:
        """Evicts the pods of a node, and deletes those that a disruption budget still protects after an hour."""
        self._mark(node, "drains", unschedulable=True)
        waits, passed, before = False, 0.0, time.monotonic()
        while pods := self._pods(node):
            refused = False in [self._evict(pod) for pod in pods]
            if refused != waits:
                waits = refused
                self._mark(node, WAITS if waits else DRAINS)
            time.sleep(PAUSE)
            now = time.monotonic()
            passed, before = passed + (now - before) * (self.compression if waits else 1), now
            if passed >= DRAIN_SECONDS:
                self._force(node, "after an hour")

    def _force(self, node: Object, when: str) -> None:
        """Deletes the pods of a node, whatever their disruption budgets say."""
        if pods := self._pods(node):
            self._mark(node, FORCED)
            time.sleep(SEEN)
            for pod in pods:
                metadata = pod["metadata"]
                if not metadata.get("deletionTimestamp"):
                    self.say(f"GKE deletes pod {metadata['namespace']}/{metadata['name']} {when}, despite its budget.")
                self.api.delete(f"{_path(pod)}?gracePeriodSeconds=0")
            poll_until(lambda: not self._pods(node), ENDED_SECONDS)

    def _soak(self, drained: list[Object], seconds: int) -> None:
        """Waits, and asks again to evict the pods whose budget refused it before."""
        end = time.monotonic() + seconds / self.compression
        for node in drained if seconds else []:
            self._mark(node, SOAKS)
        while (left := end - time.monotonic()) > 0:
            self._evict_all(drained)
            time.sleep(min(PAUSE, left))
        for node in drained if seconds else []:
            self._mark(node, "drains")

    def _evict_all(self, drained: Iterable[Object]) -> None:
        for node in drained:
            for pod in self._pods(node):
                self._evict(pod)

    def _evict(self, pod: Object) -> bool:
        """Whether a pod is or will be gone. False if a disruption budget refuses its eviction."""
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            return True
        name = {key: metadata[key] for key in ("name", "namespace")}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": name}
        response = self.api.post(f"{_path(pod)}/eviction", json=body)
        if response.status_code in (TOO_MANY, SEVERAL_BUDGETS):
            return False
        if response.status_code != NOT_FOUND:
            answer(response)
        return True

    def _pods(self, node: Object) -> list[Object]:
        """The pods that a drain evicts: not those of DaemonSets, nor finished ones."""
        on_node = {"fieldSelector": f"spec.nodeName={node['metadata']['name']}"}
        return [pod for pod in answer(self.api.get("/api/v1/pods", params=on_node))["items"] if keeps_node(pod)]

    def _create(self, node: Object) -> Object:
        if self.mode in capacity.unavailable():
            raise StandsStill(f"Google has no more nodes in capacity mode {self.mode}, so GKE's upgrade stands still.")
        return answer(self.api.post(_NODES, json=delay.hold_back(self.new(node))))

    def _wait(self, created: list[Object]) -> None:
        """Waits until new nodes are Ready."""
        patience = READY_SECONDS + max((delay.of(node) for node in created), default=0.0)

        def ready() -> bool:
            return all(nodes.is_ready(answer(self.api.get(_node(node)))) for node in created)

        if not poll_until(ready, patience):
            raise TimeoutError(f"{', '.join(upgrades.names(created))}: not Ready after {patience:.0f} s")

    def _mark(self, node: Object, state: str, **spec: bool) -> None:
        change = {"metadata": {"annotations": {UPGRADED: state}}, **({"spec": spec} if spec else {})}
        response = self.api.patch(_node(node), json=change, headers=MERGE_PATCH)
        if response.status_code != NOT_FOUND:
            answer(response)

    def _exists(self, node: Object) -> bool:
        return self.api.get(_node(node)).status_code != NOT_FOUND

    def _delete(self, node: Object) -> None:
        remove(self.api, node)


def _node(node: Object) -> str:
    return f"{_NODES}/{node['metadata']['name']}"


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def upgrade(folder: Folder, pool: str, stated: dict[str, str], compression: float, say: Callable[[str], None]) -> None:
    """Upgrades the nodes of a pool of a cluster. `stated` are settings instead of those of the pool.

    Raises:
        BadUpgradeSettings: GKE has no such settings, or the emulator does not simulate them.
        LookupError: The cluster has no such pool.
        StandsStill: Google has no node for it.
    """
    with client(folder) as api:
        every = answer(api.get(_NODES))["items"]
        present = [node for node in every if pool in (nodes.label(node, POOL), nodes.pool_of(node))]
        records = [record for record in read_pools(folder.pools) if record.labels.get(POOL, record.name) == pool]
        if not present and not records:
            known = {nodes.label(node, POOL) or nodes.pool_of(node) for node in every}
            raise LookupError(f"The cluster has no pool {pool}. Its pools: {', '.join(sorted(known - {''}))}.")
        own = settings(stated or (records[0].upgrade if records else {}))
        mode = capacity_mode(present[0]) if present else records[0].capacity
        running = Upgrade(api, compression, mode, say)
        say(f"The emulator plays GKE's upgrade of pool {pool}, {len(present)} nodes: {_kind(own, mode, present)}")
        if not present or _is_short_lived(own, mode):
            return
        running.run(present, own)


def migrate(name: str, pool: PoolRecord) -> None:
    """Replaces the nodes of a pool whose machine or disk has changed, by its upgrade strategy, as GKE does.

    https://github.com/googleapis/googleapis/blob/master/google/container/v1/cluster_service.proto
    (UpdateNodePoolRequest: a machine type or a disk starts an upgrade operation that migrates the nodes)
    """
    folder = Folder(name)
    own, zones = settings(pool.upgrade), set(pool.zones)
    with client(folder) as api:
        every = answer(api.get(_NODES))["items"]
        present = [node for node in every if nodes.pool_of(node) == pool.name and nodes.label(node, ZONE) in zones]
        outdated = [node for node in present if not nodes.is_current(node, pool)]
        if not outdated or _is_short_lived(own, pool.capacity):
            return
        write_pool(folder.pools, pool)  # the new nodes are those that the autoscaler expects

        def new(node: Object) -> Object:
            zone = nodes.label(node, ZONE)
            created = nodes.node_object(folder.record, pool.shape(zone), nodes.new_name(name, pool), pool.taints)
            created["metadata"]["annotations"] = {**created["metadata"]["annotations"], UPGRADED: NEW}
            return created

        try:
            Upgrade(api, COMPRESSION, pool.capacity, lambda _: None, new).run(outdated, own)
        except StandsStill:
            raise NoCapacity(pool, len(outdated)) from None


def _is_short_lived(own: UpgradeSettings, mode: str) -> bool:
    return own.strategy == SHORT_LIVED or mode in ("flexStart", "queuedFlexStart")


def _kind(own: UpgradeSettings, mode: str, present: list[Object]) -> str:
    if _is_short_lived(own, mode):
        return "short-lived, so existing nodes stay until their run time ends, within 7 days. New nodes are upgraded."
    if present and nodes.slice_size(present[0]) > 1:
        return "a multi-host slice, which GKE recreates as a whole whatever the settings say."
    if own.strategy == BLUE_GREEN:
        size = f"batchPercentage={own.batch_share}" if own.batch_share else f"batchNodeCount={own.batch_nodes}"
        return f"blue-green, {size}, batchSoakDuration={own.batch_soak}s, nodePoolSoakDuration={own.pool_soak}s."
    return f"surge, maxSurge={own.max_surge}, maxUnavailable={own.max_unavailable}."


def main(arguments: list[str]) -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        prog="emulator/run upgrade", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pool")
    parser.add_argument("settings", nargs="?", default="", help="such as maxSurge=2,maxUnavailable=1")
    parser.add_argument("--compression", type=float, default=COMPRESSION)
    parser.add_argument("--cluster", help="name of the cluster. Default: the only one")
    options = parser.parse_args(arguments)
    known = cluster_names()
    if options.cluster is None and len(known) != 1:
        print(f"Name the cluster: {', '.join(known) or 'there is none'}", file=sys.stderr)
        return 2

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        stated = read_settings(options.settings)
        upgrade(Folder(options.cluster or known[0]), options.pool, stated, options.compression, say)
    except (BadUpgradeSettings, LookupError, StandsStill, TimeoutError, Refused) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
