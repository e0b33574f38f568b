"""What all runs share: a Job or JobSet that is created once and that no newer run replaces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.catalog import fuse
from gke_ai.catalog.capacity import MODES
from gke_ai.catalog.nodes import GKE_NODEPOOL
from gke_ai.catalog.tpus import GOOGLE_TPU
from gke_ai.catalog.versions import JOBSET_API
from gke_ai.components.base import Component
from gke_ai.components.queues.queue_order import wait_for_workload
from gke_ai.components.retry import kueue_hook
from gke_ai.components.workload import (
    SHARED_MEMORY_MOUNT,
    environment,
    queue_label,
    resources,
    shared_memory,
)
from gke_ai.settings.model import FineTune, FuseVolume, Multislice, Run, TpuBatch, Workload
from gke_ai.settings.runs import grace_period, ignores_disruptions
from gke_ai.settings.stack import DEFAULT_NAMESPACE

# The name of a run contains a hash of its content, and the spec of a Job is immutable: a later release of this program
# that writes the spec differently must not repeat the run.
SAME_RUN = ["spec"]
# With a fixed name: only what Kueue writes into a Job at admission and reverts at suspension. The API refuses any other
# difference.
OWNED_BY_KUEUE = {
    "Job": [
        "spec.suspend",  # false while admitted
        "spec.template.spec.nodeSelector",  # node labels of the flavor
        "spec.template.spec.tolerations",  # tolerations of the flavor
    ],
    "JobSet": [  # in the template of each child Job
        "spec.suspend",
        "spec.replicatedJobs[*].template.spec.template.spec.nodeSelector",
        "spec.replicatedJobs[*].template.spec.template.spec.tolerations",
    ],
}

# https://kueue.sigs.k8s.io/docs/concepts/admission_check/provisioning_request/
MAX_RUN_DURATION = "provreq.kueue.x-k8s.io/maxRunDurationSeconds"


class RunComponent(Component):
    """What the components of runs share: a Job or a JobSet, and the Service through which the pods of a Job connect."""

    job_name: pulumi.Output[str]

    def create_service(self, run: FineTune | TpuBatch) -> tuple[str, pulumi.Resource]:
        """The headless Service of a Job, with its name. A replaced run keeps its own."""
        name = service_of(run)
        service = k8s.core.v1.Service(
            f"{run.namespace}/{name}",
            metadata={"name": name, "namespace": run.namespace},
            spec={"cluster_ip": "None", "selector": {"job-name": run.object_name}},
            opts=pulumi.ResourceOptions(
                parent=self, retain_on_delete=outlives(run), hooks=explained(run, f"service {name}")
            ),
        )
        return name, service

    def create_job(self, metadata: Any, spec: Any, opts: pulumi.ResourceOptions) -> None:
        """The Job. Any: checking its literals against the provider's types exhausts mypy's memory."""
        job = k8s.batch.v1.Job(f"{metadata['namespace']}/{metadata['name']}", metadata=metadata, spec=spec, opts=opts)
        self.job_name = job.metadata.name.apply(lambda name: name or metadata["name"])
        self.register_outputs({"jobName": self.job_name})

    def create_jobset(self, metadata: Any, spec: Any, opts: pulumi.ResourceOptions) -> pulumi.Resource:
        """The JobSet."""
        name = f"{metadata['namespace']}/{metadata['name']}"
        jobset = k8s.apiextensions.CustomResource(
            name, api_version=JOBSET_API, kind="JobSet", metadata=metadata, spec=spec, opts=opts
        )
        # Read from the resource: known in a preview, and after the JobSet in an update.
        self.job_name = cast(Any, jobset).metadata.apply(lambda metadata: str(metadata["name"]))
        self.register_outputs({"jobName": self.job_name})
        return jobset


@dataclass(frozen=True)
class SliceNodes:
    """The nodes of a run on TPUs: keyword arguments of its component."""

    chips_per_host: int
    node_selector: Mapping[str, str]
    only_pools: Sequence[str]
    queued_seconds: int | None


def options(
    run: Run,
    name: str,
    parent: pulumi.Resource,
    depends_on: list[pulumi.Resource],
    kubeconfig: pulumi.Input[str] | None,
    last_in_queue: bool,
) -> pulumi.ResourceOptions:
    """Options of the run's Job or JobSet, which is created once and outlives a change of its configuration.

    With a kubeconfig, its creation ends once the run has its place in its queue.
    """
    binding = hooks(run, name)
    if run.queue is not None and kubeconfig is not None:
        kind = run.object_kind.lower()
        order = wait_for_workload(f"{kind} {name}", run.namespace, kubeconfig, last_in_queue)
        binding = pulumi.ResourceHookBinding.merge(binding, order)
    by_kueue = OWNED_BY_KUEUE[run.object_kind]
    return pulumi.ResourceOptions(
        parent=parent,
        depends_on=depends_on,
        retain_on_delete=outlives(run),
        # The API refuses a changed run with the same name. If Pulumi deleted the old run first, it would forget
        # it, and repeat even an unchanged run.
        delete_before_replace=False,
        ignore_changes=by_kueue if run.fixed_name else SAME_RUN,
        hooks=binding,
    )


def outlives(run: Run) -> bool:
    """Whether the run stays after its configuration is removed: a replaced run continues, a finished one stays.

    Its namespace deletes it in the end. The namespace `default` is never deleted, so Pulumi deletes its runs with the
    stack.
    """
    return run.namespace != DEFAULT_NAMESPACE


def hooks(run: Run, name: str) -> pulumi.ResourceHookBinding:
    """Hooks that retry until the run can be admitted, and explain why one that exists can't be created."""
    kind = run.object_kind.lower()
    binding = explained(run, f"{kind} {name}")
    # Kueue's webhook sees every Job and JobSet in its namespaces, with or without a queue.
    return pulumi.ResourceHookBinding.merge(binding, kueue_hook(f"{kind} {name}"))


def explained(run: Run, title: str) -> pulumi.ResourceHookBinding:
    """A hook that says what to do about a run that is still in the cluster, or whose fixed name was changed."""

    def explain(args: pulumi.ErrorHookArgs) -> bool:
        refusals = ("already exists", "immutable") if run.fixed_name else ("already exists",)
        if any(refusal in args.errors[0] for refusal in refusals):
            pulumi.log.error(_still_there(run))
        return False

    return pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(f"{title}: explain", explain)])


def _still_there(run: Run) -> str:
    kind, job = run.object_kind, run.object_name
    objects = f"{kind.lower()}/{job}"
    if isinstance(run, FineTune | TpuBatch):
        objects += f" service/{service_of(run)}"
    delete = f"delete the old one first: kubectl -n {run.namespace} delete --ignore-not-found {objects}"
    if run.fixed_name:
        return (
            f"The {kind} {run.namespace}/{job} already exists, and a {kind} can't be changed. To run the changed one "
            f"beside it, change its `name` or remove `fixedName`. To replace it, {delete}"
        )
    return (
        f"The {kind} {run.namespace}/{job} is still in the cluster: a run stays when it leaves the configuration. To "
        f"let it go on, remove {run.name} from the configuration again. To start it again, {delete}"
    )


def service_of(run: FineTune | TpuBatch) -> str:
    """The name of the headless Service of a run's Job."""
    return run.service_name + run.suffix


def pod_failure_policy(run: Run, action: str) -> dict[str, Any]:
    """The pod failure policy of a Job, for disruptions. Empty if disruptions count as failures.

    https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
    """
    if not ignores_disruptions(run):
        return {}
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    return {"podFailurePolicy": {"rules": [{"action": action, "onPodConditions": disrupted}]}}


def restart_policy(run: Run, otherwise: str) -> str:
    """Restart policy of the pods: `Never` with a pod failure policy, under which the Job replaces pods."""
    return "Never" if ignores_disruptions(run) else otherwise


def queued_annotations(seconds: int | None) -> dict[str, str]:
    """Annotations of a run on nodes from queued provisioning. Kueue passes the limit on with its request."""
    return {MAX_RUN_DURATION: str(seconds)} if seconds else {}


def queued_tolerations(seconds: int | None) -> list[Any]:
    """Tolerations for the taints of nodes from queued provisioning, which keep other pods away."""
    taints = MODES["queuedFlexStart"].taints if seconds else ()
    return [{"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect} for taint in taints]


def tpu_pod(run: Multislice | TpuBatch, nodes: SliceNodes) -> dict[str, Any]:
    """Spec of a TPU run's pods, with the API's field names: the SDK has no types for a JobSet."""
    container: dict[str, Any] = {
        "name": run.container,
        "image": run.image,
        "resources": resources(run, nodes.chips_per_host, GOOGLE_TPU),
    }
    ports = [{"containerPort": port} for port in run.ports]
    volumes: list[Any] = []
    mounts: list[Any] = []
    if run.shared_memory is not None:
        volumes.append(shared_memory(run.shared_memory))
        mounts.append(SHARED_MEMORY_MOUNT)
    if run.volume is not None:
        volumes.append(fuse_volume(run.volume))
        mounts.append(fuse_mount(run.volume))
    optional = {
        "ports": ports,
        "command": run.command,
        "args": run.args,
        "env": environment(run, {}, ["HF_TOKEN"]),
        "volumeMounts": mounts,
    }
    container |= {key: value for key, value in optional.items() if value}
    if run.privileged:
        container["securityContext"] = {"privileged": True}

    pod: dict[str, Any] = {"containers": [container]}
    if nodes.node_selector:
        pod["nodeSelector"] = nodes.node_selector
    if nodes.only_pools:
        pod["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [of_pools(nodes.only_pools)]}}}
    if nodes.queued_seconds:
        pod["tolerations"] = queued_tolerations(nodes.queued_seconds)
    pod |= priority_and_account(run)
    if (grace := grace_period(run)) is not None:
        pod["terminationGracePeriodSeconds"] = grace
    if volumes:
        pod["volumes"] = volumes
    return pod


def priority_and_account(run: Run) -> dict[str, str]:
    """Priority class and service account of a run's pods, with the API's field names, unless they are the defaults."""
    account = run.service_account if run.service_account != "default" else None
    stated = {"priorityClassName": run.priority_class, "serviceAccountName": account}
    return {key: value for key, value in stated.items() if value}


def template_metadata(run: Multislice | TpuBatch) -> dict[str, Any]:
    """Metadata of the pod template of a TPU run. Empty without labels and annotations."""
    optional = {"labels": run.labels, "annotations": fuse_annotations(run)}
    known = {key: value for key, value in optional.items() if value}
    return {"metadata": known} if known else {}


FUSE_VOLUME = "gcs-fuse-csi-ephemeral"


def fuse_annotations(workload: Workload) -> dict[str, str]:
    """Annotations that add the FUSE sidecar to a pod that mounts a bucket. A limit is also the request."""
    if workload.sidecar is None:
        return {}
    sidecar = workload.sidecar
    limits = {
        "memory-limit": sidecar.memory,
        "cpu-limit": sidecar.cpu,
        "ephemeral-storage-limit": sidecar.ephemeral_storage,
    }
    return {fuse.VOLUMES: "true", **{f"{fuse.PREFIX}{limit}": amount for limit, amount in limits.items() if amount}}


def fuse_volume(volume: FuseVolume) -> Any:
    """The bucket as a volume of a pod, with the API's field names."""
    bucket = {
        "bucketName": volume.bucket,
        "mountOptions": volume.mount_options,
        "gcsfuseLoggingSeverity": volume.logging_severity,
    }
    return {"name": FUSE_VOLUME, "csi": {"driver": fuse.DRIVER, "volumeAttributes": bucket}}


def fuse_mount(volume: FuseVolume) -> Any:
    """The mount of the bucket in a container, with the API's field names."""
    return {"name": FUSE_VOLUME, "mountPath": volume.mount_path, "readOnly": False}


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def of_pools(names: Sequence[str]) -> dict[str, Any]:
    """The node selector term that matches any of these pools."""
    return {"matchExpressions": [{"key": GKE_NODEPOOL, "operator": "In", "values": list(names)}]}


def metadata(run: Run, name: str, annotations: dict[str, str]) -> Any:
    """Metadata of a run's Job or JobSet. Kueue's queue label is on the object, not on its pods."""
    optional = {"labels": queue_label(run), "annotations": annotations}
    return {"name": name, "namespace": run.namespace, **{key: value for key, value in optional.items() if value}}
