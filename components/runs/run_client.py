"""A training job in its cluster: how it is stopped, and how it continues on other nodes."""

from collections.abc import Callable, Mapping
from typing import Any

from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.versions import JOBSET_API, KUEUE_API
from gke_ai.components.support.cluster_client import connection, workload_of

MERGE_PATCH, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
# Spec of the pods in a JobSet with one replicated Job, as a JSON pointer.
POD = "/spec/replicatedJobs/0/template/spec/template/spec"


class RunClient:
    """A run by the name of its JobSet. Calls block: run them in a thread."""

    def __init__(self, kubeconfig: str, namespace: str, name: str) -> None:
        self._connection = connection(kubeconfig)
        self._namespace, self._name = namespace, name
        self._selector = f"jobset.sigs.k8s.io/jobset-name={name}"

    def has_record(self) -> bool:
        """Whether the cluster has the record of the run, a ConfigMap with the name of the JobSet."""
        from kubernetes import client

        found = self._find(lambda api: client.CoreV1Api(api).read_namespaced_config_map(self._name, self._namespace))
        return found is not None

    def stop(self) -> str | None:
        """Suspend the run, and take it out of its queue. Returns what it waits for, or None once its pods are gone."""
        jobset = self._jobset()
        if jobset is None or has_ended(jobset):
            return None
        workload = self._workload(jobset)
        if workload is not None and workload["spec"].get("active", True):
            # Kueue then suspends the JobSet.
            self._patch(KUEUE_API, "workloads", workload["metadata"]["name"], {"spec": {"active": False}})
            return "Kueue has not suspended it yet"
        if not jobset["spec"].get("suspend"):
            if not is_queued(jobset):
                self._patch(JOBSET_API, "jobsets", self._name, {"spec": {"suspend": True}})
            return "it is not suspended yet"
        return f"{count} pods are still ending" if (count := self._running_pods()) else None

    def move(self, nodes: Mapping[str, Any]) -> None:
        """Set the nodes of the stopped run, and let it start again. A run that has ended stays as it is."""
        jobset = self._jobset()
        if jobset is None or has_ended(jobset):
            return
        changes = [{"op": "add", "path": f"{POD}/{key}", "value": value} for key, value in nodes.items()]
        self._patch(JOBSET_API, "jobsets", self._name, changes)
        # JobSet adds the labels of the new nodes to those in an existing child Job, and creates a missing one.
        self._delete_child_jobs()
        if not is_queued(jobset):
            self._patch(JOBSET_API, "jobsets", self._name, {"spec": {"suspend": False}})
        elif workload := self._workload(jobset):
            # Kueue creates another one, which requests the new nodes.
            self._call("delete", KUEUE_API, "workloads", workload["metadata"]["name"])

    def _jobset(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._find(
            lambda api: self._custom(api, "get", JOBSET_API, "jobsets", self._name)
        )
        return found

    def _workload(self, jobset: Mapping[str, Any]) -> dict[str, Any] | None:
        if not is_queued(jobset):
            return None
        return self._connection.call(lambda api: workload_of(api, self._namespace, jobset["metadata"]["uid"]))

    def _running_pods(self) -> int:
        from kubernetes import client

        pods: Any = self._connection.call(
            lambda api: client.CoreV1Api(api).list_namespaced_pod(self._namespace, label_selector=self._selector)
        )
        return sum(1 for pod in pods.items if pod.status.phase not in ("Succeeded", "Failed"))

    def _delete_child_jobs(self) -> None:
        from kubernetes import client

        self._connection.call(
            lambda api: client.BatchV1Api(api).delete_collection_namespaced_job(
                self._namespace, label_selector=self._selector, propagation_policy="Background"
            )
        )

    def _patch(self, api_version: str, plural: str, name: str, change: object) -> None:
        content_type = JSON_PATCH if isinstance(change, list) else MERGE_PATCH
        self._call("patch", api_version, plural, name, change, _content_type=content_type)

    def _call(self, *args: Any, **options: str) -> None:
        self._connection.call(lambda api: self._custom(api, *args, **options))

    def _custom(
        self, api: Any, verb: str, api_version: str, plural: str, name: str, *body: object, **options: str
    ) -> Any:
        from kubernetes import client

        call = getattr(client.CustomObjectsApi(api), f"{verb}_namespaced_custom_object")
        return call(*api_version.split("/"), self._namespace, plural, name, *body, **options)

    def _find(self, request: Callable[[Any], Any]) -> Any:
        """Return what a request finds, or None."""
        from kubernetes import client

        try:
            return self._connection.call(request)
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise


def has_ended(jobset: Mapping[str, Any]) -> bool:
    """Whether all pods have finished, or the run has failed for good."""
    return bool(jobset.get("status", {}).get("terminalState"))


def is_queued(jobset: Mapping[str, Any]) -> bool:
    """Whether Kueue manages the run."""
    return QUEUE_LABEL in (jobset["metadata"].get("labels") or {})
