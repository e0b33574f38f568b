"""What the Jobs and JobSets of all runs share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gke_ai.catalog.engines import fuse
from gke_ai.catalog.fabric.fabrics import DEFAULT_NETWORK, Fabric
from gke_ai.catalog.fabric.topology import GROUP_SIZE, GROUPS, LEVELS, PREFERRED, REQUIRED
from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.nodes.shape import GKE_NODEPOOL
from gke_ai.catalog.versions import JOBSET_API
from gke_ai.manifests.workload import SHARED_MEMORY_MOUNT, environment, queue_label, resources, shared_memory
from gke_ai.settings.model import FineTune, FuseVolume, GpuRun, Multislice, Run, TpuBatch, Workload

Object = dict[str, Any]
# https://kueue.sigs.k8s.io/docs/concepts/admission_check/provisioning_request/
MAX_RUN_DURATION = "provreq.kueue.x-k8s.io/maxRunDurationSeconds"


@dataclass(frozen=True)
class Place:
    """The nodes of a run, and the network between them."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    queued_seconds: int | None = None
    hosts: int = 1
    chips_per_host: int = 0
    only_pools: Sequence[str] = ()
    pool_of_slice: Sequence[str] = ()
    fabric: Fabric = DEFAULT_NETWORK


def service_of(run: FineTune | TpuBatch) -> str:
    """The name of the headless Service of a run's Job."""
    return run.service_name + run.suffix


def pod_failure_policy(run: Run, action: str) -> dict[str, Any]:
    """The pod failure policy of a Job, for disruptions. Empty if disruptions count as failures.

    https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
    """
    if not run.ignores_disruptions:
        return {}
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    return {"podFailurePolicy": {"rules": [{"action": action, "onPodConditions": disrupted}]}}


def restart_policy(run: Run, otherwise: str) -> str:
    """Restart policy of the pods: `Never` with a pod failure policy, under which the Job replaces pods."""
    return "Never" if run.ignores_disruptions else otherwise


def queued_annotations(seconds: int | None) -> dict[str, str]:
    """Annotations of a run on nodes from queued provisioning. Kueue passes the limit on with its request."""
    return {MAX_RUN_DURATION: str(seconds)} if seconds else {}


def queued_tolerations(seconds: int | None) -> list[Any]:
    """Tolerations for the taints of nodes from queued provisioning, which keep other pods away."""
    taints = MODES["queuedFlexStart"].taints if seconds else ()
    return [{"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect} for taint in taints]


def tpu_pod(run: Multislice | TpuBatch, place: Place) -> dict[str, Any]:
    """Spec of a TPU run's pods, with the API's field names: the SDK has no types for a JobSet."""
    container: dict[str, Any] = {
        "name": run.container,
        "image": run.image,
        "resources": resources(run, place.chips_per_host, GOOGLE_TPU),
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
    if place.node_selector:
        pod["nodeSelector"] = place.node_selector
    if place.only_pools:
        pod["affinity"] = {"nodeAffinity": {DURING_SCHEDULING: {"nodeSelectorTerms": [of_pools(place.only_pools)]}}}
    if place.queued_seconds:
        pod["tolerations"] = queued_tolerations(place.queued_seconds)
    pod |= priority_and_account(run)
    if (grace := run.grace_seconds) is not None:
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


def topology_annotations(run: GpuRun) -> dict[str, str]:
    """Annotations of the pod template by which Kueue places the pods. Empty without a topology."""
    if run.topology is None:
        return {}
    groups = run.topology.groups
    levels = {
        REQUIRED: run.topology.required,
        PREFERRED: run.topology.preferred,
        GROUPS: groups.level if groups else None,
    }
    stated = {name: LEVELS[level] for name, level in levels.items() if level is not None}
    return {**stated, **({GROUP_SIZE: str(groups.pods)} if groups else {})}


FUSE_VOLUME = "gcs-fuse-csi-ephemeral"


def fuse_annotations(workload: Workload) -> dict[str, str]:
    """Annotations that add the FUSE sidecar to a pod that mounts a bucket. A limit is also the request."""
    if workload.sidecar is None:
        return {}
    limits = workload.sidecar.stated
    return {fuse.VOLUMES: "true", **{f"{fuse.PREFIX}{name}-limit": amount for name, amount in limits.items()}}


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


DURING_SCHEDULING = "requiredDuringSchedulingIgnoredDuringExecution"


def of_pools(names: Sequence[str]) -> dict[str, Any]:
    """The node selector term that matches any of these pools."""
    return {"matchExpressions": [{"key": GKE_NODEPOOL, "operator": "In", "values": list(names)}]}


def headless_service(run: FineTune | TpuBatch) -> Object:
    """The Service through which the pods of a Job connect."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service_of(run), "namespace": run.namespace},
        "spec": {"clusterIP": "None", "selector": {"job-name": run.object_name}},
    }


def job_of(metadata: Object, spec: Object) -> Object:
    """The Job of a run."""
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def jobset_of(metadata: Object, spec: Object) -> Object:
    """The JobSet of a run."""
    return {"apiVersion": JOBSET_API, "kind": "JobSet", "metadata": metadata, "spec": spec}


def metadata(run: Run, name: str, annotations: dict[str, str]) -> Any:
    """Metadata of a run's Job or JobSet. Kueue's queue label is on the object, not on its pods."""
    optional = {"labels": queue_label(run), "annotations": annotations}
    return {"name": name, "namespace": run.namespace, **{key: value for key, value in optional.items() if value}}
