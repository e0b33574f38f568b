"""Drains the nodes of the old pool under disruption budgets before Pulumi deletes that pool.

While a pool is replaced, Google Cloud has two pools of different names. GKE drains a pool that is deleted, but ignores
disruption budgets, and its switch for that is reported not to work (hashicorp/terraform-provider-google#27427). So the
program drains the old pool through the eviction API. Pulumi deletes a replaced resource only after the program has
succeeded: if the drain fails, the old pool stays.

Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/node-pools,
https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
"""

from typing import Any

import pulumi

from gke_ai.catalog.nodes.shape import GKE_NODEPOOL, POOL
from gke_ai.components.support.cluster_client import connection, in_thread
from gke_ai.components.support.polling import Pauses, ProgressLog, poll_until

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 5.0
# GKE's own limit for draining a node is the same.
DRAIN_SECONDS = 3600
REFUSED, GONE = 429, 404


def drain_old_pool(
    pool: str, new_pool: pulumi.CustomResource, kubeconfig: pulumi.Input[str] | None
) -> pulumi.Output[bool]:
    """An output that is known once pods of `pool` run only on nodes of `new_pool`.

    False in a preview and without a kubeconfig, where nothing is drained. Raises RunError after an hour, with the pods
    that are left and the remedy.
    """
    if kubeconfig is None or pulumi.runtime.is_dry_run():
        return pulumi.Output.from_input(False)

    async def run(values: list[Any]) -> bool:
        # The id ends in the name in Google Cloud, which is the label of the nodes.
        await drain(pool, OldNodes(values[0], pool, str(values[1]).rpartition("/")[2]), new_pool)
        return True

    return pulumi.Output.all(kubeconfig, new_pool.id).apply(run)


class OldNodes:
    """The nodes of a pool that are not in its present pool in Google Cloud, `current`.

    Includes nodes created before the label existed, of the pool with the bare name. Calls block: run them in a thread.
    """

    def __init__(self, kubeconfig: str, pool: str, current: str) -> None:
        self._connection = connection(kubeconfig)
        self._pool, self._current = pool, current

    def evict(self) -> list[str]:
        """Cordon the nodes and evict each pod. Returns the pods that are left, with the reason."""

        def evict_all(api: Any) -> list[str]:
            from kubernetes import client

            core = client.CoreV1Api(api)
            nodes = self._nodes(core)
            for node in nodes:  # all of them first, or an evicted pod would land on the next old node
                if not node.spec.unschedulable:
                    core.patch_node(node.metadata.name, {"spec": {"unschedulable": True}})
            left = []
            for node in nodes:
                pods = core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={node.metadata.name}").items
                left += [reason for reason in (self._evict_pod(core, pod) for pod in pods) if reason]
            return left

        return self._connection.call(evict_all)

    def open(self) -> None:
        """Uncordon the nodes."""

        def uncordon(api: Any) -> None:
            from kubernetes import client

            core = client.CoreV1Api(api)
            for node in self._nodes(core):
                core.patch_node(node.metadata.name, {"spec": {"unschedulable": None}})

        self._connection.call(uncordon)

    def _nodes(self, core: Any) -> list[Any]:
        nodes = {}
        for label in (POOL, GKE_NODEPOOL):
            for node in core.list_node(label_selector=f"{label}={self._pool}").items:
                if node.metadata.labels.get(GKE_NODEPOOL) != self._current:
                    nodes[node.metadata.name] = node
        return list(nodes.values())

    @staticmethod
    def _evict_pod(core: Any, pod: Any) -> str | None:
        """Evict one pod. Returns its name and why it is still there, or None if it is gone or needs no eviction."""
        from kubernetes import client

        owners = [owner.kind for owner in pod.metadata.owner_references or []]
        if pod.status.phase in ("Succeeded", "Failed") or "DaemonSet" in owners or "Node" in owners:
            return None
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if pod.metadata.deletion_timestamp:
            return f"{name} (ending)"
        target = client.V1ObjectMeta(name=pod.metadata.name, namespace=pod.metadata.namespace)
        try:
            core.create_namespaced_pod_eviction(target.name, target.namespace, client.V1Eviction(metadata=target))
        except client.ApiException as error:
            if error.status == GONE:
                return None
            if error.status != REFUSED:
                raise
            return f"{name} (its disruption budget)"
        return f"{name} (ending)"


async def drain(pool: str, nodes: OldNodes, resource: pulumi.Resource) -> None:
    """Evict until no pod is left on the nodes. Logs the pods that are left whenever they change."""

    async def check() -> str | None:
        try:
            left = await in_thread(nodes.evict)
        except Exception as error:  # noqa: BLE001  any error of the API or the plugin may be gone at the next try
            return f"the cluster doesn't answer: {str(error).strip().splitlines()[0]}"
        return f"{len(left)} pods are still on its old nodes: {', '.join(sorted(left))}" if left else None

    state = await poll_until(
        check,
        DRAIN_SECONDS,
        Pauses(FIRST_PAUSE_SECONDS, 1.15, MAX_PAUSE_SECONDS),
        ProgressLog(lambda state: pulumi.log.info(f"pool {pool}: {state}", resource=resource)),
    )
    if state is None:
        return
    try:
        await in_thread(nodes.open)
        scheduling = "accept pods again"
    except Exception:  # noqa: BLE001  as above, and this is the last try
        scheduling = "may still be cordoned: kubectl uncordon NODE uncordons one"
    raise pulumi.RunError(
        f"Pool {pool} can't be changed yet: {state}, after {DRAIN_SECONDS} s.\n"
        f"The new nodes exist, and the old ones stay and {scheduling}. Fix what keeps the pods (a disruption budget "
        "that allows none, or new nodes that don't start), and run up again. To return to nodes like the old ones, "
        "also change diskSizeGb by one: their pool keeps its name until it is deleted."
    )
