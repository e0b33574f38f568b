"""`gke-ai runs`, or `remove RUN`: lists the runs of a stack, and removes finished ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gke_ai.catalog.kueue.operators import BY_KIND, RAY_CLUSTER_LABEL
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.versions import JOBSET_API
from gke_ai.kube.client import ApiClient, list_objects, request
from gke_ai.kube.names import is_part
from gke_ai.kube.objects import Object, holds, label
from gke_ai.kube.pods import templates, wanted_pods
from gke_ai.kube.values import items, mapping, value
from gke_ai.ops.runs import checkpoints
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack

JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
JOB_LABEL = "batch.kubernetes.io/job-name"
# Of the pods of each kind, with the object's name. A TrainJob has a JobSet of its name.
_LABELS = {
    **dict.fromkeys(("JobSet", "TrainJob"), JOBSET_LABEL),
    **dict.fromkeys(("RayCluster", "RayJob"), RAY_CLUSTER_LABEL),
}
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
# A column of tables of runs. It wraps, because it may have the reason why a bucket can't be read.
SAVED = "newest checkpoint"
# API and plural of each kind.
Paths = Mapping[str, tuple[str, str]]
FURTHER: Paths = {kind: (f"/apis/{operator.api}", operator.kinds[kind]) for kind, operator in BY_KIND.items()}
PATHS: Paths = {"JobSet": (f"/apis/{JOBSET_API}", "jobsets"), "Job": ("/apis/batch/v1", "jobs"), **FURTHER}
# With what a run has beside its Job.
PARTS: Paths = {**PATHS, "Service": ("/api/v1", "services"), "ConfigMap": ("/api/v1", "configmaps")}


@dataclass(frozen=True)
class Run:
    """A run of a stack: its Job, JobSet, TrainJob, RayJob or RayCluster in the cluster.

    Attributes:
        name: Name of the object.
        namespace: Its namespace.
        kind: Its kind.
        run_kind: Kind in the configuration: `job`, `fineTune`, `multislice` or `tpuBatch`; empty for an earlier run.
        checkpoints: `gs://` directory of its checkpoints; empty if it is not known.
        item: The object in the cluster; None if it is gone.
    """

    name: str
    namespace: str
    kind: str
    run_kind: str = ""
    checkpoints: str = ""
    item: Object | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_configured(self) -> bool:
        """Whether the latest update of the stack contained the run. Replaced runs stay in the cluster without it."""
        return bool(self.run_kind)

    @property
    def path(self) -> str:
        """API path of the object."""
        base, plural = PATHS[self.kind]
        return f"{base}/namespaces/{self.namespace}/{plural}/{self.name}"

    @property
    def selector(self) -> str:
        """Label selector of its pods. Of a RayJob, those of its Ray cluster."""
        name = self.name
        if self.kind == "RayJob":
            name = str(value(self.item, "status", "rayClusterName") or name)
        return f"{_LABELS.get(self.kind, JOB_LABEL)}={name}"

    def pods(self, api: ApiClient) -> list[Object]:
        """Returns its pods. A RayJob has those of the Job that submits it too."""
        selectors = [self.selector, *([f"{JOB_LABEL}={self.name}"] if self.kind == "RayJob" else [])]
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        return [pod for selector in selectors for pod in list_objects(api, path, labelSelector=selector)]

    def owns(self, pod: Object) -> bool:
        """Whether this is a pod of the run."""
        metadata = pod["metadata"]
        label, _, name = self.selector.partition("=")
        labels = metadata.get("labels") or {}
        submits = self.kind == "RayJob" and labels.get(JOB_LABEL) == self.name
        return metadata["namespace"] == self.namespace and (labels.get(label) == name or submits)

    def running(self, pods: Iterable[Object]) -> int:
        """Returns how many of these pods are the run's and are running."""
        return sum(self.owns(pod) and pod.get("status", {}).get("phase") == "Running" for pod in pods)

    @property
    def end(self) -> str:
        """`Completed` or `Failed` for a run that has ended; otherwise an empty text."""
        status = mapping(self.item, "status")
        if self.kind == "JobSet":
            return str(status.get("terminalState") or "")
        if self.kind == "RayJob":
            # https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/apis/ray/v1/rayjob_types.go
            ends = {"Complete": "Completed", "Failed": "Failed", "ValidationFailed": "Failed"}
            return ends.get(str(status.get("jobDeploymentStatus")), "")
        ends = {"Complete": "Completed", "Failed": "Failed"}
        return next((end for name, end in ends.items() if holds(self.item or {}, name)), "")

    @property
    def state(self) -> str:
        """State in one word."""
        if self.item is None:
            return "Gone"
        return self.end or ("Suspended" if self.item["spec"].get("suspend") else "Started")

    @property
    def restarts(self) -> int:
        """Restarts of a JobSet that count towards `maxRestarts`; failed pods of a Job; failed tries of a RayJob.

        JobSet also counts restarts that do not, such as those after a preemption or with exit status 75.
        """
        status = mapping(self.item, "status")
        return int(status.get("restartsCountTowardsMax" if self.kind == "JobSet" else "failed") or 0)

    @property
    def wanted_pods(self) -> int:
        """Number of pods that run together."""
        return wanted_pods(self.item) if self.item else 0


def pods_by_run(pods: Iterable[Object]) -> Mapping[tuple[str, str], Mapping[str, Object]]:
    """Returns pods by namespace and each name of a run that their labels have, and then by their own name."""
    found: dict[tuple[str, str], dict[str, Object]] = defaultdict(dict)
    for pod in pods:
        for key in (JOB_LABEL, *_LABELS.values()):
            found[pod["metadata"]["namespace"], label(pod, key)][pod["metadata"]["name"]] = pod
    return found


def runs_of(
    outputs: Mapping[str, Any], items: Mapping[str, Sequence[Object]], shared: Collection[str] = ()
) -> list[Run]:
    """Returns the runs in a stack's outputs, and earlier ones that are still in the stack's own namespaces.

    Args:
        outputs: Outputs of the stack.
        items: The runs of the cluster by kind.
        shared: Namespaces that the stack uses and did not create, where others have runs too.
    """
    jobs = outputs.get("jobs") or []
    objects = {
        (kind, item["metadata"]["namespace"], item["metadata"]["name"]): item
        for kind, objects_of_kind in items.items()
        for item in objects_of_kind
        if not is_part(item)  # a child Job is part of its JobSet
    }
    configured = []
    for job in jobs:
        name, namespace, kind = job["name"], job["namespace"], job["kind"]
        item = objects.pop((kind, namespace, name), None)
        configured.append(Run(name, namespace, kind, job.get("runKind") or "run", job.get("checkpoints") or "", item))
    # A tenant's Jobs are no runs of the stack.
    tenants = {tenant["namespace"] for tenant in outputs.get("tenants") or []}
    namespaces = {run.namespace for run in configured} | set(outputs.get("namespaces") or []) - tenants
    earlier = [
        Run(name, namespace, kind, item=item)
        for (kind, namespace, name), item in objects.items()
        if namespace in namespaces and namespace not in shared
    ]
    return [*configured, *sorted(earlier, key=str)]


def known_runs(stack: Stack, items: Mapping[str, Sequence[Object]]) -> list[Run]:
    """Returns the runs of a stack; of a cluster alone, its JobSets and the Jobs with a queue."""
    if not stack.is_alone:
        outputs = stack.recorded_outputs
        return runs_of(outputs, items, set(outputs.get("namespaces") or []) - stack.own_namespaces)
    found = []
    for kind, objects in items.items():
        for item in objects:
            metadata = item["metadata"]
            if not is_part(item) and (kind == "JobSet" or label(item, QUEUE_LABEL)):
                directory = checkpoints.directory_of(next(templates(kind, item), {}))
                found.append(Run(metadata["name"], metadata["namespace"], kind, checkpoints=directory, item=item))
    return sorted(found, key=str)


def read(stack: Stack) -> tuple[ApiClient, list[Run]]:
    """Returns a client of the stack's cluster, and the runs."""
    api = stack.cluster()
    items = {kind: list_objects(api, stack.collection(*PATHS[kind])) for kind in PATHS if kind not in FURTHER}
    return api, known_runs(stack, {**items, **further(stack, api)})


def further(stack: Stack, api: ApiClient) -> dict[str, list[Object]]:
    """Returns the objects of further kinds. Without the kind, or without the right to list it, there are none."""
    paths = {kind: stack.collection(base, plural) for kind, (base, plural) in FURTHER.items()}
    answers = {kind: request(api, "GET", path) for kind, path in paths.items()}
    return {kind: items(answer.body, "items") for kind, answer in answers.items() if answer.code == 200}


def find(stack: Stack, runs: Sequence[Run], name: str) -> Run:
    """Returns the run with this name, or the only one whose name begins so."""
    exact = [run for run in runs if name in (run.name, str(run))]
    matching = exact or [run for run in runs if run.name.startswith(name) or str(run).startswith(name)]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(map(str, matching or runs)) or "none"
    problem = f"{name} is the beginning of several names" if matching else f"{stack.name} has no run {name}"
    raise Stop(f"{problem}. Runs: {names}")


def saved(run: Run) -> tuple[str, str]:
    """Returns the name and the step of a run's newest complete checkpoint, or words in their place."""
    if not run.checkpoints:
        return "–", "–"
    try:
        newest = checkpoints.newest(run.checkpoints)
    except checkpoints.Unreadable as reason:
        return f"unknown: {reason}", "–"
    return (newest.name, str(newest.step)) if newest else ("none", "–")


def show(stack: Stack) -> None:
    """Prints the runs of a stack."""
    from gke_ai.formats.console import new_console, new_table

    _, runs = read(stack)
    columns = ("run", "kind", "state", "restarts", SAVED, "step", *([] if stack.is_alone else ["in the configuration"]))
    rows = []
    for run in runs:
        configured = [] if stack.is_alone else ["yes" if run.is_configured else "no"]
        rows.append((str(run), run.kind, run.state, str(run.restarts), *saved(run), *configured))
    new_console().print(new_table(columns, rows) if runs else f"{stack.name} has no runs.")


def remove(stack: Stack, name: str) -> None:
    """Deletes the object of a run that has ended. Its checkpoints stay."""
    api, runs = read(stack)
    run = find(stack, runs, name)
    if run.item is None:
        raise Stop(f"The {run.kind} {run} is already gone.{forget(stack, run)}")
    if not run.end:
        raise Stop(f"The run {run} has not ended (state: {run.state}). Only a run that has ended can be removed.")
    if run.is_configured and run.run_kind != "job":
        # No record keeps the next update from creating such a run again.
        raise Stop(
            f"The run {run} is in the configuration. After a refresh, the next update would run it again. Remove it "
            f"from the configuration first, and run {stack.next('up')}: its {run.kind} stays until you remove it."
        )
    answer = request(api, "DELETE", run.path, {"propagationPolicy": "Background"})
    if answer.code not in (200, 202):
        raise Stop(f"The cluster refuses to delete the {run.kind} {run}: {answer.reason}")
    print(f"Removed the {run.kind} {run}.{forget(stack, run)}")


def forget(stack: Stack, run: Run) -> str:
    """Returns what to do about a removed run that is still in the configuration."""
    if not run.is_configured:
        return ""
    return (
        f" Remove it from gke-ai:training too. Otherwise, after a refresh, {stack.next('up')} stops: it would have to "
        "create the run a second time."
    )
