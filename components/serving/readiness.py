"""Waits for the first replica of a server, and logs why it waits.

The kubernetes plugin waits for every replica of a Deployment or for none. Under a queue neither is right: replicas that
wait for quota are no failure, but a server without any running replica is one. So the plugin does not wait, and the
program itself watches for the first replica, through the kubeconfig that it exports. A replica of an earlier revision
doesn't count: it keeps serving even if the new image can't be pulled.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.components.support.cluster_client import connection, in_thread, load_client, workloads
from gke_ai.components.support.polling import Pauses, log_waits, no_answer, poll_until
from gke_ai.kube.objects import condition
from gke_ai.settings.model import Server

FIRST_PAUSE_SECONDS, GROWTH, MAX_PAUSE_SECONDS = 0.3, 1.05, 5.0
REVISION = "deployment.kubernetes.io/revision"

Json = Mapping[str, Any]


def first_replica(
    server: Server, deployment: "k8s.apps.v1.Deployment", kubeconfig: pulumi.Input[str] | None
) -> pulumi.Output[bool]:
    """An output that is true once a replica of the current revision is ready, or false if nothing waits.

    Never waits in a preview. Raises RunError, with the reason and the remedy, after `ready_timeout_seconds`.
    """
    if kubeconfig is None or server.replicas == 0 or pulumi.runtime.is_dry_run():
        return pulumi.Output.from_input(False)
    load_client()

    async def watch(values: list[str]) -> bool:
        await wait_for(server, Cluster(values[0]), deployment)
        return True

    # The id is known once the Deployment is created or updated, so later reads see the current spec.
    return pulumi.Output.all(kubeconfig, deployment.id).apply(watch)


class Cluster:
    """The objects that the watch reads. Calls block: run them in a thread."""

    def __init__(self, kubeconfig: str) -> None:
        self._kubeconfig = kubeconfig

    def look(self, server: Server) -> tuple[Json, list[Json], list[Json], list[Json]]:
        """The server's Deployment, its ReplicaSets and pods, and the Kueue workloads of its namespace.

        The list of workloads is empty if the server has no queue.
        """

        def read_objects(api: Any) -> tuple[Json, list[Json], list[Json], list[Json]]:
            from kubernetes import client

            apps, selector = client.AppsV1Api(api), f"app={server.app or server.name}"
            deployment = apps.read_namespaced_deployment(server.name, server.namespace)
            replica_sets = apps.list_namespaced_replica_set(server.namespace, label_selector=selector)
            pods = client.CoreV1Api(api).list_namespaced_pod(server.namespace, label_selector=selector)
            plain = api.sanitize_for_serialization
            waiting = workloads(api, server.namespace) if server.queue else []
            return plain(deployment), plain(replica_sets.items), plain(pods.items), waiting

        return connection(self._kubeconfig).call(read_objects)


async def wait_for(server: Server, cluster: Cluster, deployment: pulumi.Resource) -> None:
    """Return once a replica of `server` is ready. Logs the reason when it changes, and once a minute."""
    name = f"{server.namespace}/{server.name}"

    async def check() -> str | None:
        try:
            objects = await in_thread(cluster.look, server)
            return waits_for(*objects, sleeps=server.held is not None)
        except Exception as error:  # noqa: BLE001
            return no_answer(error)

    reason = await poll_until(
        check,
        server.ready_timeout_seconds,
        Pauses(FIRST_PAUSE_SECONDS, GROWTH, MAX_PAUSE_SECONDS),
        log_waits(name, deployment),
    )
    if reason is not None:
        raise pulumi.RunError(
            f"{name} has no ready replica after {server.ready_timeout_seconds} s: it waits for {reason}.\n"
            "Everything is created and continues to wait. Fix the reason and run up again. Otherwise allow more time "
            "with `readyTimeoutSeconds`, or continue without it with `replicas: 0`."
        )


def waits_for(
    deployment: Json,
    replica_sets: Sequence[Json],
    pods: Sequence[Json],
    workloads: Sequence[Json],
    sleeps: bool = False,
) -> str | None:
    """What a server waits for, in words. None once a replica of its current revision is available.

    Also None for a server that `sleeps` and has no replica: the next request starts the current revision.
    """
    current = current_replica_set(deployment, replica_sets)
    if current is None:
        return "its Deployment to be rolled out"
    if sleeps and deployment["spec"].get("replicas") == 0:
        return None
    if current.get("status", {}).get("availableReplicas", 0) > 0:
        return None
    own = [pod for pod in pods if owned_by(pod, current) and not pod["metadata"].get("deletionTimestamp")]
    serving = "; its earlier replicas keep serving" if deployment["status"].get("availableReplicas", 0) else ""
    if not own:
        failure = condition(current, "ReplicaFailure") or condition(deployment, "ReplicaFailure")
        return f"its pods to be created{': ' + failure['message'] if failure else ''}{serving}"
    # The pod that is closest to ready says most.
    return min((stage(pod, workloads) for pod in own), key=lambda progress: progress[0])[1] + serving


def current_replica_set(deployment: Json, replica_sets: Sequence[Json]) -> Json | None:
    """The ReplicaSet of the Deployment's current revision. None until its controller has seen the spec.

    https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#checking-rollout-history-of-a-deployment
    """
    metadata = deployment["metadata"]
    if deployment.get("status", {}).get("observedGeneration", 0) < metadata.get("generation", 0):
        return None
    revision = (metadata.get("annotations") or {}).get(REVISION)
    return next(
        (
            replica_set
            for replica_set in replica_sets
            if revision is not None
            and owned_by(replica_set, deployment)
            and (replica_set["metadata"].get("annotations") or {}).get(REVISION) == revision
        ),
        None,
    )


def owned_by(item: Json, owner: Json) -> bool:
    """Whether `owner` is among the owners of an object."""
    references = item["metadata"].get("ownerReferences") or []
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def stage(pod: Json, workloads: Sequence[Json]) -> tuple[int, str]:
    """How far a pod is from ready (0: nearly ready), and what it waits for."""
    waiting = [state["state"]["waiting"] for state in containers(pod) if "waiting" in state.get("state", {})]
    if waiting:
        reason = f"{waiting[0].get('reason', '')} {waiting[0].get('message', '')}".strip()
        return 1, f"its container to start: {reason}"
    if containers(pod):
        return 0, "the model to be loaded: the container runs and does not pass its readiness probe yet"
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "True":
        return 2, f"its container to start on {pod['spec'].get('nodeName', 'its node')}"
    if pod["spec"].get("schedulingGates"):
        return 4, f"quota: {quota_message(pod, workloads)}"
    # The rest of the scheduler's message is about preemption, not capacity.
    message = str(scheduled.get("message", "")).partition(" preemption:")[0]
    return 3, f"capacity: {message or 'the pod is not scheduled yet'}"


def quota_message(pod: Json, workloads: Sequence[Json]) -> str:
    """Kueue's message about the workload of a pod."""
    for workload in workloads:
        if owned_by(workload, pod):
            reserved = condition(workload, "QuotaReserved")
            if reserved and reserved["status"] != "True" and reserved.get("message"):
                return str(reserved["message"])
    return "Kueue has not looked at the pod yet"


def containers(pod: Json) -> list[Json]:
    """Statuses of the pod's containers."""
    statuses: list[Json] = pod.get("status", {}).get("containerStatuses") or []
    return statuses
