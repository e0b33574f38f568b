"""A run happens once, and on other nodes it continues: the record of a run beside its JobSet, and the hooks on both."""

import json
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from catalog.versions import JOBSET_API, KUEUE_API
from components.cluster_client import connection, in_thread, workloads
from components.polling import Pauses, ProgressLog, poll_until

# Annotation of the record with the nodes of the run. Pulumi would replace a ConfigMap whose data change.
NODES = "gke-ai/nodes"
MERGE_PATCH, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
# Beyond the grace period of the pods: Kueue and JobSet usually need seconds.
PATIENCE_SECONDS = 300.0
PAUSE_SECONDS = 1.0


class Run:
    """A run in a cluster, by the name of its JobSet. Calls block: run them in a thread."""

    def __init__(self, kubeconfig: str, namespace: str, name: str) -> None:
        self.namespace, self.name = namespace, name
        self._connection = connection(kubeconfig)

    def is_recorded(self) -> bool:
        """Whether the cluster has the record of the run."""
        from kubernetes import client

        return self._exists(lambda api: client.CoreV1Api(api).read_namespaced_config_map(self.name, self.namespace))

    def jobset(self) -> dict[str, Any] | None:
        """The JobSet, or None if it is gone."""
        found: list[dict[str, Any]] = []
        self._exists(lambda api: found.append(self._custom(api, "get", JOBSET_API, "jobsets", self.name)))
        return found[0] if found else None

    def stop(self) -> str | None:
        """Suspend the run, and take it out of its queue. Returns what it waits for, or None once its pods are gone."""
        jobset = self.jobset()
        if jobset is None or has_ended(jobset):
            return None
        workload = self._workload(jobset)
        if workload is not None and workload["spec"].get("active", True):
            # Kueue then suspends the JobSet, and returns its quota once the pods are gone.
            self._patch(KUEUE_API, "workloads", workload["metadata"]["name"], {"spec": {"active": False}})
            return "Kueue has not suspended it yet"
        if not jobset["spec"].get("suspend"):
            if workload is None:
                self._patch(JOBSET_API, "jobsets", self.name, {"spec": {"suspend": True}})
            return "its pods still run"
        return f"{count} pods are still ending" if (count := self._pods()) else None

    def move(self, nodes: Mapping[str, Any]) -> None:
        """Set the nodes of the stopped run, and return it to its queue. A run that has ended stays as it is."""
        jobset = self.jobset()
        if jobset is None or has_ended(jobset):
            return
        pod = "/spec/replicatedJobs/0/template/spec/template/spec"
        changes = [{"op": "add", "path": f"{pod}/{key}", "value": value} for key, value in nodes.items()]
        self._patch(JOBSET_API, "jobsets", self.name, changes)
        # JobSet adds the labels of the new nodes to those in an existing child Job, and creates a missing one.
        self._delete_child_jobs()
        workload = self._workload(jobset)
        if workload is not None:  # Kueue creates another one, for the new nodes
            self._connection.call(
                lambda api: self._custom(api, "delete", KUEUE_API, "workloads", workload["metadata"]["name"])
            )
        else:
            self._patch(JOBSET_API, "jobsets", self.name, {"spec": {"suspend": False}})

    def _workload(self, jobset: Mapping[str, Any]) -> dict[str, Any] | None:
        uid = jobset["metadata"]["uid"]
        existing = self._connection.call(lambda api: workloads(api, self.namespace))
        owned = (one for one in existing if uid in [o["uid"] for o in one["metadata"].get("ownerReferences", [])])
        return next(owned, None)

    def _pods(self) -> int:
        from kubernetes import client

        selector = f"jobset.sigs.k8s.io/jobset-name={self.name}"
        pods: Any = self._connection.call(
            lambda api: client.CoreV1Api(api).list_namespaced_pod(self.namespace, label_selector=selector)
        )
        return sum(1 for pod in pods.items if pod.status.phase not in ("Succeeded", "Failed"))

    def _delete_child_jobs(self) -> None:
        from kubernetes import client

        selector = f"jobset.sigs.k8s.io/jobset-name={self.name}"
        self._connection.call(
            lambda api: client.BatchV1Api(api).delete_collection_namespaced_job(
                self.namespace, label_selector=selector, propagation_policy="Background"
            )
        )

    def _patch(self, api_version: str, plural: str, name: str, change: object) -> None:
        kind = JSON_PATCH if isinstance(change, list) else MERGE_PATCH
        self._connection.call(
            lambda api: self._custom(api, "patch", api_version, plural, name, change, _content_type=kind)
        )

    def _custom(
        self, api: Any, verb: str, api_version: str, plural: str, name: str, *body: object, **options: str
    ) -> Any:
        from kubernetes import client

        group, version = api_version.split("/")
        call = getattr(client.CustomObjectsApi(api), f"{verb}_namespaced_custom_object")
        return call(group, version, self.namespace, plural, name, *body, **options)

    def _exists(self, request: Any) -> bool:
        from kubernetes import client

        try:
            self._connection.call(request)
        except client.ApiException as error:
            if error.status == 404:
                return False
            raise
        return True


def has_ended(jobset: Mapping[str, Any]) -> bool:
    """Whether all pods have finished, or the run has failed for good."""
    return bool(jobset.get("status", {}).get("terminalState"))


def not_again(title: str, namespace: str, name: str, kubeconfig: pulumi.Input[str]) -> pulumi.ResourceHookBinding:
    """The hook of a JobSet that refuses to create it while the record of its run exists.

    After somebody deletes the JobSet of a finished run, `pulumi refresh` forgets it, and the next update would create
    it again. `title` is unique in the program.
    """

    async def refuse(_: pulumi.ResourceHookArgs) -> None:
        known = await pulumi.Output.from_input(kubeconfig).future()
        is_recorded: bool = await in_thread(Run(known, namespace, name).is_recorded) if known else False
        if is_recorded:
            raise pulumi.RunError(
                f"The run {namespace}/{name} was created before, and its JobSet was deleted. A run happens only once. "
                "Remove it from gke-ai:training, or give it another name to run it again."
            )

    return pulumi.ResourceHookBinding(before_create=[pulumi.ResourceHook(f"{title}: not again", refuse)])


def moves(
    title: str, namespace: str, name: str, grace_seconds: int, kubeconfig: pulumi.Input[str]
) -> pulumi.ResourceHookBinding:
    """The hook of a record that moves its run if the nodes in the record change. `title` is unique in the program.

    The run's pods end with their grace period, and the same JobSet starts on the new nodes. JobSet allows the change
    while it is suspended:
    https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go (ValidateUpdate)
    """

    async def move(args: pulumi.ResourceHookArgs) -> None:
        before, after = (
            (inputs or {}).get("metadata", {}).get("annotations", {}).get(NODES)
            for inputs in (args.old_inputs, args.new_inputs)
        )
        known = await pulumi.Output.from_input(kubeconfig).future()
        if before == after or not known:
            return
        run = Run(known, namespace, name)

        async def stop() -> str | None:
            return await in_thread(run.stop)

        log = ProgressLog(lambda reason: pulumi.log.info(f"run {namespace}/{name} moves: {reason}"), PAUSE_SECONDS)
        if reason := await poll_until(stop, grace_seconds + PATIENCE_SECONDS, Pauses(PAUSE_SECONDS), log):
            raise pulumi.RunError(f"The run {namespace}/{name} can't move to other nodes yet: {reason}. Run up again.")
        await in_thread(run.move, json.loads(after))

    return pulumi.ResourceHookBinding(before_update=[pulumi.ResourceHook(f"{title}: move", move)])


def record(
    namespace: str,
    name: str,
    nodes: Mapping[str, Any],
    opts: pulumi.ResourceOptions,
) -> "k8s.core.v1.ConfigMap":
    """The record of a run: that it was created, and the nodes that it runs on."""
    return k8s.core.v1.ConfigMap(
        f"{namespace}/{name}",
        metadata={
            "name": name,
            "namespace": namespace,
            "annotations": {NODES: json.dumps(nodes, sort_keys=True)},
        },
        data={"jobset": name},
        opts=opts,
    )
