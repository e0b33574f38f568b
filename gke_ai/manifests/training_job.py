"""The JobSet of a training run of any image."""

from __future__ import annotations

from typing import Any

from gke_ai.catalog import checkpoints
from gke_ai.catalog.engines import fuse
from gke_ai.manifests import job as jobs
from gke_ai.manifests.multislice import ignored_failures
from gke_ai.manifests.network import annotations_of, connected
from gke_ai.manifests.workload import SHARED_MEMORY_MOUNT, bucket_volume, environment, resources, shared_memory
from gke_ai.settings.model import TrainingRun
from gke_ai.settings.model.training import WORKERS

CONTAINER = "training"


# Variables with the number of the pod.
RANKS = ("RANK", "NODE_RANK", "PET_NODE_RANK", "JAX_PROCESS_ID")


# https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def jobset(run: TrainingRun, place: jobs.Place) -> jobs.Object:
    """The JobSet of a training job."""
    job = {
        **pod_failures(run),
        "completionMode": "Indexed",
        "completions": run.pods,
        "parallelism": run.pods,
        "backoffLimit": 0,
        "template": {
            "metadata": {"labels": run.labels, "annotations": annotations_of(run, place)},
            "spec": pod(run, place),
        },
    }
    spec = {
        "suspend": run.queue is not None,  # Kueue starts it
        "network": {"enableDNSHostnames": True, "subdomain": run.object_name},
        "failurePolicy": {**ignored_failures(run), "maxRestarts": run.max_restarts},
        "replicatedJobs": [{"name": WORKERS, "replicas": 1, "template": {"spec": job}}],
    }
    return jobs.jobset_of(jobs.metadata(run, run.object_name, jobs.queued_annotations(place.queued_seconds)), spec)


def pod_failures(run: TrainingRun) -> dict[str, Any]:
    """The pod failure policy: disruptions, and pods that saved a checkpoint because another pod was disrupted."""
    policy = jobs.pod_failure_policy(run, "FailJob")
    if run.ignores_disruptions:
        saved = {"containerName": CONTAINER, "operator": "In", "values": [checkpoints.EXIT_SAVED]}
        policy["podFailurePolicy"]["rules"].append({"action": "FailJob", "onExitCodes": saved})
    return policy


def pod(run: TrainingRun, place: jobs.Place) -> dict[str, Any]:
    """Spec of the run's pods, with the API's field names: the SDK has no types for a JobSet."""
    volumes = buckets(run)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": run.image,
        "ports": [{"containerPort": run.rendezvous_port}],
        "resources": resources(run, run.gpus_per_pod),
        "env": [
            *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}} for name in RANKS),
            *environment(run, {**rendezvous(run), **checkpoint_variables(run), **place.fabric.variables}, ["HF_TOKEN"]),
        ],
        "volumeMounts": [SHARED_MEMORY_MOUNT, *(mount for _, mount in volumes)],
    }
    container |= {key: value for key, value in {"command": run.command, "args": run.args}.items() if value}
    spec = {
        "containers": [container],
        "restartPolicy": "Never",  # JobSet restarts all pods together
        "terminationGracePeriodSeconds": run.termination_grace_period_seconds,
        "volumes": [shared_memory(run.shared_memory), *(volume for volume, _ in volumes)],
        **jobs.priority_and_account(run),
    }
    return connected(spec, place)


def rendezvous(run: TrainingRun) -> dict[str, str]:
    """Variables by which the pods find each other. The first pod keeps its host name when it is replaced."""
    host, port, pods = f"{run.pod_host(0)}.{run.object_name}", str(run.rendezvous_port), str(run.pods)
    return {
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "WORLD_SIZE": pods,
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": port,
        "PET_NNODES": pods,
        "PET_NPROC_PER_NODE": str(run.gpus_per_pod),
        "JAX_COORDINATOR_ADDRESS": f"{host}:{port}",
        "JAX_NUM_PROCESSES": pods,
    }


def checkpoint_variables(run: TrainingRun) -> dict[str, str]:
    """Variables of the checkpoint contract (docs/checkpoints.md). Empty for a run without checkpoints."""
    folder = run.checkpoint_folder
    if run.checkpoints is None or folder is None:
        return {}
    return {
        checkpoints.DIRECTORY: run.in_container(str(folder[1])),
        checkpoints.KEEP: str(run.checkpoints.keep),
        checkpoints.GRACE_SECONDS: str(run.termination_grace_period_seconds),
        **({checkpoints.RESUME_FROM: run.in_container(run.resume_from)} if run.resume_from else {}),
    }


def buckets(run: TrainingRun) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each bucket as a volume of the pod, and its mount in the container."""
    mounted = [
        (f"bucket-{index}", volume.bucket, volume.mount_path, volume.mount_options, volume.read_only)
        for index, volume in enumerate(run.volumes)
    ]
    if (saved := run.checkpoints) is not None:
        mounted.append(("checkpoints", saved.bucket, saved.mount_path, fuse.MOUNT_OPTIONS, False))
    return [
        (bucket_volume(name, bucket, options, read_only), {"name": name, "mountPath": path, "readOnly": read_only})
        for name, bucket, path, options, read_only in mounted
    ]
