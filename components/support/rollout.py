"""Waits for the rollout of a controller's Deployment."""

from typing import Any

import pulumi

from gke_ai.components.support.cluster_client import connection, in_thread
from gke_ai.components.support.polling import Pauses, poll_until

# An Autopilot cluster may have to create a node for the new pods first.
PATIENCE_SECONDS = 600.0
PAUSE_SECONDS = 1.0


def wait_for_rollout(
    name: str, namespace: str, deployment: str, kubeconfig: pulumi.Input[str]
) -> pulumi.ResourceHookBinding:
    """The hook with which an update waits until the Deployment has rolled out.

    Helm returns earlier, and the old pods still answer webhooks with their old configuration. An update that is killed
    while it waits does not wait again at the next one. `name` is unique in the program.
    """

    async def wait(_: pulumi.ResourceHookArgs) -> None:
        known = await pulumi.Output.from_input(kubeconfig).future()
        if not known:
            return

        async def check() -> str | None:
            return None if await in_thread(rolled_out, known, namespace, deployment) else "not rolled out"

        if await poll_until(check, PATIENCE_SECONDS, Pauses(PAUSE_SECONDS)):
            raise pulumi.RunError(
                f"{deployment} has not rolled out after {PATIENCE_SECONDS / 60:.0f} minutes. Resources that depend on "
                f"it were not created. Look at `kubectl -n {namespace} get pods` and their logs, then run up again."
            )

    return pulumi.ResourceHookBinding(after_update=[pulumi.ResourceHook(f"{name}: taken over", wait)])


def rolled_out(kubeconfig: str, namespace: str, deployment: str) -> bool:
    """Whether only new pods run. False while the cluster doesn't answer."""

    def read(api: Any) -> Any:
        from kubernetes import client

        return client.AppsV1Api(api).read_namespaced_deployment(deployment, namespace)

    try:
        live = connection(kubeconfig).call(read)
    except Exception:  # noqa: BLE001  whatever the API or the plugin says, it may be over at the next try
        return False
    status, wanted = live.status, live.spec.replicas
    seen = (status.observed_generation or 0) >= live.metadata.generation
    return bool(seen and status.updated_replicas == status.replicas == status.available_replicas == wanted)
