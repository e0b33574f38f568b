"""A run happens once: a record in the run's namespace remembers it, even after its object is deleted."""

from typing import Any

import pulumi

from catalog.versions import JOBSET_API
from components.cluster_client import connection, in_thread
from components.polling import Pauses, poll_until

# ConfigMap in each namespace with runs: the uid of the first object of each run, by the run's name.
RECORD = "gke-ai-runs"
# The API server may not answer for a moment.
PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 0.5


def once(title: str, namespace: str, run: str, kubeconfig: pulumi.Input[str]) -> pulumi.ResourceHookBinding:
    """Hooks that record a new run, and that refuse to create a recorded one again.

    After somebody deletes the JobSet of a finished run, `pulumi refresh` forgets it, and the next update would create
    it again. `title` is unique in the program.
    """

    async def refuse(_: pulumi.ResourceHookArgs) -> None:
        known = await pulumi.Output.from_input(kubeconfig).future()
        if known and await in_thread(is_recorded, known, namespace, run):
            exists = await in_thread(jobset_exists, known, namespace, run)
            raise pulumi.RunError(refusal(f"{namespace}/{run}", exists))

    async def record(args: pulumi.ResourceHookArgs) -> None:
        known = await pulumi.Output.from_input(kubeconfig).future()
        uid = (args.new_outputs or {}).get("metadata", {}).get("uid")
        if not known or not uid:
            return

        async def write() -> str | None:
            return await in_thread(try_to_write, known, namespace, run, uid)

        if reason := await poll_until(write, PATIENCE_SECONDS, Pauses(PAUSE_SECONDS)):
            pulumi.log.warn(
                f"The run {namespace}/{run} could not be recorded: {reason}. If its JobSet is deleted and the stack "
                "refreshed, an update would run it again. Remove it from gke-ai:training first."
            )

    return pulumi.ResourceHookBinding(
        before_create=[pulumi.ResourceHook(f"{title}: not again", refuse)],
        after_create=[pulumi.ResourceHook(f"{title}: record", record)],
    )


def refusal(run: str, exists: bool) -> str:
    """Why a recorded run is not created again, and what to do."""
    state = "its JobSet still exists" if exists else "its JobSet was deleted"
    return (
        f"The run {run} was created before, and {state}. A run happens only once. Remove it from gke-ai:training, or "
        "give it another name to run it again."
    )


def is_recorded(kubeconfig: str, namespace: str, run: str) -> bool:
    """Whether the run was ever created in this cluster. False if the namespace doesn't exist."""
    from kubernetes import client

    try:
        record: Any = connection(kubeconfig).call(
            lambda api: client.CoreV1Api(api).read_namespaced_config_map(RECORD, namespace)
        )
    except client.ApiException as error:
        if error.status == 404:
            return False
        raise
    return run in (record.data or {})


def jobset_exists(kubeconfig: str, namespace: str, run: str) -> bool:
    """Whether the run's JobSet is in the cluster."""
    from kubernetes import client

    group, version = JOBSET_API.split("/")
    try:
        connection(kubeconfig).call(
            lambda api: client.CustomObjectsApi(api).get_namespaced_custom_object(
                group, version, namespace, "jobsets", run
            )
        )
    except client.ApiException as error:
        if error.status == 404:
            return False
        raise
    return True


def try_to_write(kubeconfig: str, namespace: str, run: str, uid: str) -> str | None:
    """Add the run to the record. Returns why it can't, or None."""
    from kubernetes import client

    def write(api: Any) -> None:
        core, data = client.CoreV1Api(api), {run: uid}
        try:
            core.patch_namespaced_config_map(RECORD, namespace, {"data": data})
        except client.ApiException as error:
            if error.status != 404:
                raise
            core.create_namespaced_config_map(namespace, {"metadata": {"name": RECORD}, "data": data})

    try:
        connection(kubeconfig).call(write)
    except Exception as error:  # noqa: BLE001  whatever the API or the plugin says, it may be over at the next try
        return type(error).__name__
    return None
