"""The record of a training job: a ConfigMap that says that the run was created, and on which nodes."""

import json
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.catalog.nodes.shape import RECORDED_NODES
from gke_ai.components.base import named
from gke_ai.components.runs.run_client import RunClient
from gke_ai.components.support.cluster_client import in_thread
from gke_ai.components.support.polling import Pauses, ProgressLog, poll_until

# In addition to the grace period of the pods. Kueue and JobSet usually need seconds.
PATIENCE_SECONDS = 300.0
PAUSE_SECONDS = 1.0


def record(
    namespace: str, jobset: str, nodes: Mapping[str, Any], opts: pulumi.ResourceOptions
) -> "k8s.core.v1.ConfigMap":
    """The record of a run, with the name of its JobSet. `nodes` are fields of the pods' spec."""
    # In an annotation: Pulumi would replace a ConfigMap whose data change.
    annotations = {RECORDED_NODES: json.dumps(nodes, sort_keys=True)}
    return k8s.core.v1.ConfigMap(
        *named(f"{namespace}/{jobset}", opts),
        metadata={"name": jobset, "namespace": namespace, "annotations": annotations},
        data={"jobset": jobset},
    )


def only_once(title: str, namespace: str, jobset: str, kubeconfig: pulumi.Input[str]) -> pulumi.ResourceHookBinding:
    """The hook of a JobSet that refuses to create it if the run has a record.

    After somebody deletes the JobSet of a finished run, `pulumi refresh` forgets it, and the next update would create
    it again. `title` is unique in the program.
    """

    async def refuse(_: pulumi.ResourceHookArgs) -> None:
        known = await pulumi.Output.from_input(kubeconfig).future()
        recorded: bool = await in_thread(RunClient(known, namespace, jobset).has_record) if known else False
        if recorded:
            raise pulumi.RunError(
                f"The run {namespace}/{jobset} was created before, and its JobSet was deleted. A run happens only "
                "once. Remove it, or give it another name to run it again."
            )

    return pulumi.ResourceHookBinding(before_create=[pulumi.ResourceHook(f"{title}: only once", refuse)])


def moves(
    title: str, namespace: str, jobset: str, grace_seconds: int, kubeconfig: pulumi.Input[str]
) -> pulumi.ResourceHookBinding:
    """The hook of a record that moves its run if the nodes in the record change. `title` is unique in the program.

    The run's pods end with their grace period, and the same JobSet starts on the new nodes. JobSet allows the change
    while it is suspended:
    https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go (ValidateUpdate)
    """

    async def move(args: pulumi.ResourceHookArgs) -> None:
        before, after = nodes_of(args.old_inputs), nodes_of(args.new_inputs)
        known = await pulumi.Output.from_input(kubeconfig).future()
        if after is None or before == after or not known:
            return
        run = RunClient(known, namespace, jobset)

        async def stop() -> str | None:
            return await in_thread(run.stop)

        log = ProgressLog(lambda reason: pulumi.log.info(f"run {namespace}/{jobset} moves: {reason}"), PAUSE_SECONDS)
        if reason := await poll_until(stop, grace_seconds + PATIENCE_SECONDS, Pauses(PAUSE_SECONDS), log):
            raise pulumi.RunError(
                f"The run {namespace}/{jobset} can't move to other nodes yet: {reason}. Run up again."
            )
        await in_thread(run.move, json.loads(after))

    return pulumi.ResourceHookBinding(before_update=[pulumi.ResourceHook(f"{title}: move", move)])


def nodes_of(inputs: Mapping[str, Any] | None) -> str | None:
    """The nodes in the inputs of a record."""
    nodes: str | None = (inputs or {}).get("metadata", {}).get("annotations", {}).get(RECORDED_NODES)
    return nodes
