"""Waits until a controller's new pods have taken over from its earlier ones."""

import asyncio
import time
from typing import Any

import pulumi

from components.asking import connection, in_thread

# An Autopilot cluster may have to make a node for them first.
PATIENCE_SECONDS = 600.0
PAUSE_SECONDS = 1.0


def taken_over(name: str, namespace: str, deployment: str, kubeconfig: pulumi.Input[str]) -> pulumi.ResourceHookBinding:
    """The binding that ends an update when all pods of the Deployment are of its present form.

    Helm comes back before that, and the earlier pods go on answering webhooks by the configuration of then. An update
    that is killed while it waits does not wait again at the next one. `name` is unique in the program.
    """

    async def wait(_: pulumi.ResourceHookArgs) -> None:
        known = await pulumi.Output.from_input(kubeconfig).future()
        end = time.monotonic() + PATIENCE_SECONDS
        while known and not await in_thread(is_over, known, namespace, deployment):
            if time.monotonic() > end:
                raise pulumi.RunError(
                    f"{deployment} still runs in its earlier form after {PATIENCE_SECONDS / 60:.0f} minutes, so "
                    f"nothing was made that counts on the new one. Look at `kubectl -n {namespace} get pods` and at "
                    "their logs, then run up again."
                )
            await asyncio.sleep(PAUSE_SECONDS)

    return pulumi.ResourceHookBinding(after_update=[pulumi.ResourceHook(f"{name}: taken over", wait)])


def is_over(kubeconfig: str, namespace: str, deployment: str) -> bool:
    """Whether only new pods run; also while the cluster doesn't answer, false."""

    def read(api: Any) -> Any:
        from kubernetes import client

        return client.AppsV1Api(api).read_namespaced_deployment(deployment, namespace)

    try:
        found = connection(kubeconfig).ask(read)
    except Exception:  # noqa: BLE001  whatever the API or the plugin says, it may be over at the next try
        return False
    status, wanted = found.status, found.spec.replicas
    seen = (status.observed_generation or 0) >= found.metadata.generation
    return bool(seen and status.updated_replicas == status.replicas == status.available_replicas == wanted)
