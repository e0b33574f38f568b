"""Keeps the order in which runs were submitted to a queue."""

import asyncio

import pulumi

from gke_ai.components.support.cluster_client import connection, in_thread, workload_of
from gke_ai.components.support.polling import Pauses, poll_until

# Kueue may be starting. After this time a run without a Workload continues without its place in the queue.
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.3


def wait_for_workload(
    name: str, namespace: str, kubeconfig: pulumi.Input[str], last: bool = False
) -> pulumi.ResourceHookBinding:
    """The hook with which a new queued run waits for its Workload, so that no later run overtakes it.

    Of Workloads of the same priority Kueue admits the oldest first, by creation time in whole seconds
    (https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/#queueing-strategy). So there is a pause of a second, except
    after the `last` run of a queue. `name` is unique in the program.
    """

    async def wait(args: pulumi.ResourceHookArgs) -> None:
        known = await pulumi.Output.from_input(kubeconfig).future()
        uid = (args.new_outputs or {}).get("metadata", {}).get("uid")
        if not known or not uid:
            return

        async def check() -> str | None:
            return None if await in_thread(has_workload, known, namespace, uid) else "no Workload"

        if await poll_until(check, PATIENCE_SECONDS, Pauses(PAUSE_SECONDS)):
            pulumi.log.warn(f"Kueue has created no Workload for {args.name} yet. Later runs may be admitted first.")
            return
        if not last:
            await asyncio.sleep(1)  # the next Workload then has a later creation time

    return pulumi.ResourceHookBinding(after_create=[pulumi.ResourceHook(f"{name}: order of creation", wait)])


def has_workload(kubeconfig: str, namespace: str, uid: str) -> bool:
    """Whether Kueue has created a Workload for the object with this uid. False while the cluster doesn't answer."""
    try:
        return connection(kubeconfig).call(lambda api: workload_of(api, namespace, uid)) is not None
    except Exception:  # noqa: BLE001  whatever the API or the plugin says, it may be over at the next try
        return False
