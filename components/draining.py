"""Moves what runs on a pool's earlier nodes to its present ones, under disruption budgets, before that pool goes.

A pool that is replaced has two pools in Google Cloud for a while, told apart by their names alone. GKE drains a pool
that is deleted, but without regard to disruption budgets, and its own switch for that is reported not to be one
(hashicorp/terraform-provider-google#27427). So the program does it, through the eviction API. Pulumi deletes a replaced
resource only after the program has ended well: a drain that fails leaves the earlier pool as it is.

Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/node-pools,
https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
"""

import asyncio
import time
from typing import Any

import pulumi

from catalog.nodes import GKE_NODEPOOL, POOL
from components.asking import connection, in_thread

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 5.0
# The longest that GKE gives a node to drain, too.
DRAIN_SECONDS = 3600
REFUSED, GONE = 429, 404


def moved(pool: str, made: pulumi.CustomResource, kubeconfig: pulumi.Input[str] | None) -> pulumi.Output[bool]:
    """An output that is known once nothing runs on nodes of `pool` that another than `made` has brought.

    False where that isn't awaited: in a preview, and without a kubeconfig. Raises RunError, with the pods that are left
    and the way out, after an hour.
    """
    if kubeconfig is None or pulumi.runtime.is_dry_run():
        return pulumi.Output.from_input(False)

    async def watch(known: list[Any]) -> bool:
        # The id ends in the name in Google Cloud, which is the label of the nodes.
        await drained(pool, EarlierNodes(known[0], pool, str(known[1]).rpartition("/")[2]), made)
        return True

    return pulumi.Output.all(kubeconfig, made.id).apply(watch)


class EarlierNodes:
    """The nodes of a pool that its present pool in Google Cloud, `current`, has not made.

    Those that carry the label, and those of before the label: of the pool that had the bare name. Calls block, and
    belong into a thread.
    """

    def __init__(self, kubeconfig: str, pool: str, current: str) -> None:
        self._connection = connection(kubeconfig)
        self._pool, self._current = pool, current

    def evict(self) -> list[str]:
        """Closes the nodes to new pods and asks each pod to go; the pods that are still there, with the reason."""

        def evicted(api: Any) -> list[str]:
            from kubernetes import client

            core = client.CoreV1Api(api)
            nodes = self._nodes(core)
            for node in nodes:  # all first, or a pod would go from one to the next
                if not node.spec.unschedulable:
                    core.patch_node(node.metadata.name, {"spec": {"unschedulable": True}})
            found = []
            for node in nodes:
                on_it = core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={node.metadata.name}").items
                found += [left for left in (self._asked(core, pod) for pod in on_it) if left]
            return found

        return self._connection.ask(evicted)

    def open(self) -> None:
        """Opens the nodes to pods again."""

        def opened(api: Any) -> None:
            from kubernetes import client

            core = client.CoreV1Api(api)
            for node in self._nodes(core):
                core.patch_node(node.metadata.name, {"spec": {"unschedulable": None}})

        self._connection.ask(opened)

    def _nodes(self, core: Any) -> list[Any]:
        found = {}
        for label in (POOL, GKE_NODEPOOL):
            for node in core.list_node(label_selector=f"{label}={self._pool}").items:
                if node.metadata.labels.get(GKE_NODEPOOL) != self._current:
                    found[node.metadata.name] = node
        return list(found.values())

    @staticmethod
    def _asked(core: Any, pod: Any) -> str | None:
        """Asks one pod to go; why it is still there, none for one that nobody waits for."""
        from kubernetes import client

        owners = [owner.kind for owner in pod.metadata.owner_references or []]
        if pod.status.phase in ("Succeeded", "Failed") or "DaemonSet" in owners or "Node" in owners:
            return None
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if pod.metadata.deletion_timestamp:
            return f"{name} (ending)"
        whom = client.V1ObjectMeta(name=pod.metadata.name, namespace=pod.metadata.namespace)
        try:
            core.create_namespaced_pod_eviction(whom.name, whom.namespace, client.V1Eviction(metadata=whom))
        except client.ApiException as error:
            if error.status == GONE:
                return None
            if error.status != REFUSED:
                raise
            return f"{name} (its disruption budget)"
        return f"{name} (ending)"


async def drained(pool: str, nodes: EarlierNodes, resource: pulumi.Resource) -> None:
    """Returns once nothing is left on the nodes; says what is when that changes."""
    begun, said, pause = time.monotonic(), "", FIRST_PAUSE_SECONDS
    while True:
        try:
            left = await in_thread(nodes.evict)
            what = f"{len(left)} pods are still on its earlier nodes: {', '.join(sorted(left))}"
        except Exception as error:  # noqa: BLE001  whatever the API or the plugin says, it may be over at the next try
            left, what = ["?"], f"the cluster doesn't answer: {str(error).strip().splitlines()[0]}"
        if not left:
            return
        if time.monotonic() - begun > DRAIN_SECONDS:
            try:
                await in_thread(nodes.open)
                opened = "are open to pods again"
            except Exception:  # noqa: BLE001  as above, and this is the last try
                opened = "may be closed to pods: kubectl uncordon NODE opens one"
            raise pulumi.RunError(
                f"Pool {pool} can't be changed yet: {what}, after {DRAIN_SECONDS} s.\n"
                f"The new nodes are there, and the earlier ones stay and {opened}. See to what keeps the "
                "pods (a disruption budget without room, or new nodes that don't come), and run up again. To have "
                "nodes as the earlier ones again, change diskSizeGb by one too: their pool has its name until it goes."
            )
        if what != said:
            pulumi.log.info(f"pool {pool}: {what}", resource=resource)
            said = what
        await asyncio.sleep(pause)
        pause = min(pause * 1.15, LONGEST_PAUSE_SECONDS)
