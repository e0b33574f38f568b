"""Keeps the order in which runs were submitted to a queue."""

import asyncio
import time

import pulumi

from components.asking import connection, in_thread, workloads

# Kueue may have just begun to run; a run that it still doesn't know by then goes on without its place.
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.3


def place_in_line(name: str, namespace: str, kubeconfig: pulumi.Input[str]) -> pulumi.ResourceHookBinding:
    """The binding that ends the creation of a queued run when the next can't overtake it any more.

    Among equals Kueue admits the one whose Workload, which it makes of a run, is older, in whole seconds
    (https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/#queueing-strategy); of those of one second, any. `name` is
    unique in the program.
    """

    async def wait(args: pulumi.ResourceHookArgs) -> None:
        known = await pulumi.Output.from_input(kubeconfig).future()
        uid = (args.new_outputs or {}).get("metadata", {}).get("uid")
        if not known or not uid:
            return
        end = time.monotonic() + PATIENCE_SECONDS
        while not await in_thread(is_known, known, namespace, uid):
            if time.monotonic() > end:
                pulumi.log.warn(f"Kueue does not know {args.name} yet; what is submitted after it may go before it.")
                return
            await asyncio.sleep(PAUSE_SECONDS)
        await asyncio.sleep(1)  # the next has another second, then

    return pulumi.ResourceHookBinding(after_create=[pulumi.ResourceHook(f"{name}: place in line", wait)])


def is_known(kubeconfig: str, namespace: str, uid: str) -> bool:
    """Whether Kueue has made a Workload of the object with that uid; also while the cluster doesn't answer, false."""
    try:
        found = connection(kubeconfig).ask(lambda api: workloads(api, namespace))
    except Exception:  # noqa: BLE001  whatever the API or the plugin says, it may be over at the next try
        return False
    owners = (owner for one in found for owner in one["metadata"].get("ownerReferences", []))
    return any(owner["uid"] == uid for owner in owners)
