"""A training run of any image on GPUs: a JobSet under Kueue."""

from collections.abc import Mapping
from typing import Any

import pulumi

from gke_ai.catalog import checkpoints, fuse
from gke_ai.components.runs.job import (
    RunComponent,
    fuse_annotations,
    metadata,
    options,
    pod_failure_policy,
    priority_and_account,
    queued_annotations,
    queued_tolerations,
)
from gke_ai.components.runs.multislice import ignored_failures
from gke_ai.components.runs.run_record import moves, only_once, record
from gke_ai.components.workload import SHARED_MEMORY_MOUNT, environment, resources, shared_memory
from gke_ai.settings.model import TrainingRun
from gke_ai.settings.runs import WORKERS, checkpoint_folder, ignores_disruptions, pod_host

CONTAINER = "training"
# Variables with the number of the pod.
RANKS = ("RANK", "NODE_RANK", "PET_NODE_RANK", "JAX_PROCESS_ID")
# https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


class TrainingJob(RunComponent):
    """A JobSet with one Indexed Job whose pods train one model: any image, any program.

    Every pod knows the number of pods, its own number and the address of the first pod, under the names that torchrun
    (PET_NNODES, …), PyTorch (MASTER_ADDR, …) and JAX (JAX_COORDINATOR_ADDRESS, …) use. JAX reads only the address by
    itself: pass JAX_NUM_PROCESSES and JAX_PROCESS_ID to `jax.distributed.initialize`. WORLD_SIZE and RANK count pods,
    for one process per pod; torchrun replaces them for its processes.

    Kueue admits all pods together, and after a preemption the same run again. If an admitted run's pods are not all
    ready within Kueue's `waitForPodsReady`, Kueue evicts and requeues it. That limit is off where pods wait for
    flex-start nodes, which may take days; queued provisioning creates all nodes first.

    If a pod fails, all pods restart, up to `max_restarts` times. A disruption of a pod, such as node maintenance, does
    not count, and neither does exit status 75, with which a program says that it has saved a checkpoint after SIGTERM.
    CHECKPOINT_DIR is the run's own directory in a bucket. A program that keeps the contract of docs/checkpoints.md
    resumes from its newest complete checkpoint.

    A run happens once. The JobSet has no time to live: a finished run stays until `gke-ai remove-run`,
    or its namespace, deletes it. A changed run is a new run beside the old one. A ConfigMap beside the JobSet records
    the run: with `kubeconfig`, an update refuses to create a recorded run again after its JobSet was deleted.

    The nodes are not part of a run. If `node_selector` or `queued_seconds` changes, the run moves: its pods end with
    their grace period, and the same run continues on the new nodes. A finished run stays as it is.

    Refused: by JobSet's webhook, a name that leaves no room for those of its pods; RunError for a run that was created
    before, and for one that does not end in time to move.

    Sources: https://jobset.sigs.k8s.io/docs/concepts/, https://kueue.sigs.k8s.io/docs/tasks/run/jobsets/,
    https://kueue.sigs.k8s.io/docs/tasks/manage/setup_wait_for_pods_ready/,
    https://docs.pytorch.org/docs/stable/elastic/run.html,
    https://github.com/pytorch/pytorch/blob/main/torch/distributed/argparse_util.py (PET_ variables),
    https://github.com/jax-ml/jax/blob/main/jax/_src/distributed.py,
    https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-ephemeral
    """

    job_name: pulumi.Output[str]
    """Name of the JobSet."""

    def __init__(
        self,
        name: str,
        args: TrainingRun,
        opts: pulumi.ResourceOptions | None = None,
        *,
        node_selector: Mapping[str, str] | None = None,
        queued_seconds: int | None = None,
        kubeconfig: pulumi.Input[str] | None = None,
        last_in_queue: bool = False,
    ) -> None:
        """Create the run.

        Args:
            node_selector: Labels of the nodes to run on.
            queued_seconds: Maximum seconds of the run on nodes from queued provisioning. Default: the run uses no such
                nodes.
            kubeconfig: Cluster in which the run waits for its place in the queue and is recorded. Default: neither.
            last_in_queue: The run is the last of its queue. If false, its creation takes one second longer.
        """
        super().__init__(name, opts)
        run, jobset = args, args.object_name
        created = options(run, name, self, [], kubeconfig, last_in_queue)
        if kubeconfig is not None:
            binding = only_once(f"jobset {name}", run.namespace, jobset, kubeconfig)
            created.hooks = pulumi.ResourceHookBinding.merge(created.hooks, binding)
        nodes = {"nodeSelector": dict(node_selector or {}), "tolerations": queued_tolerations(queued_seconds)}
        job = {
            **pod_failures(run),
            "completionMode": "Indexed",
            "completions": run.pods,
            "parallelism": run.pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": run.labels, "annotations": fuse_annotations(run)},
                "spec": {**pod(run), **{key: value for key, value in nodes.items() if value}},
            },
        }

        spec = {
            "suspend": run.queue is not None,  # Kueue starts it
            "network": {"enableDNSHostnames": True, "subdomain": jobset},
            "failurePolicy": {**ignored_failures(run), "maxRestarts": run.max_restarts},
            "replicatedJobs": [{"name": WORKERS, "replicas": 1, "template": {"spec": job}}],
        }
        resource = self.create_jobset(metadata(run, jobset, queued_annotations(queued_seconds)), spec, created)

        recorded = pulumi.ResourceOptions(parent=self, depends_on=[resource])
        if kubeconfig is not None:
            grace = run.termination_grace_period_seconds
            recorded.hooks = moves(f"run {name}", run.namespace, jobset, grace, kubeconfig)
        record(run.namespace, jobset, nodes, recorded)


def pod_failures(run: TrainingRun) -> dict[str, Any]:
    """The pod failure policy: disruptions, and pods that saved a checkpoint because another pod was disrupted."""
    policy = pod_failure_policy(run, "FailJob")
    if ignores_disruptions(run):
        saved = {"containerName": CONTAINER, "operator": "In", "values": [checkpoints.EXIT_SAVED]}
        policy["podFailurePolicy"]["rules"].append({"action": "FailJob", "onExitCodes": saved})
    return policy


def pod(run: TrainingRun) -> dict[str, Any]:
    """Spec of the run's pods except their nodes, with the API's field names: the SDK has no types for a JobSet."""
    volumes = buckets(run)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": run.image,
        "ports": [{"containerPort": run.rendezvous_port}],
        "resources": resources(run, run.gpus_per_pod),
        "env": [
            *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}} for name in RANKS),
            *environment(run, {**rendezvous(run), **checkpoint_variables(run)}, ["HF_TOKEN"]),
        ],
        "volumeMounts": [SHARED_MEMORY_MOUNT, *(mount for _, mount in volumes)],
    }
    container |= {key: value for key, value in {"command": run.command, "args": run.args}.items() if value}
    return {
        "containers": [container],
        "restartPolicy": "Never",  # JobSet restarts all pods together
        "terminationGracePeriodSeconds": run.termination_grace_period_seconds,
        "volumes": [shared_memory(run.shared_memory), *(volume for volume, _ in volumes)],
        **priority_and_account(run),
    }


def rendezvous(run: TrainingRun) -> dict[str, str]:
    """Variables by which the pods find each other. The first pod keeps its host name when it is replaced."""
    host, port, pods = f"{pod_host(run, 0)}.{run.object_name}", str(run.rendezvous_port), str(run.pods)
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
    folder = checkpoint_folder(run)
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
        bucket(f"bucket-{index}", volume.bucket, volume.mount_path, volume.mount_options, volume.read_only)
        for index, volume in enumerate(run.volumes)
    ]
    if run.checkpoints is not None:
        saved = run.checkpoints
        mounted.append(bucket("checkpoints", saved.bucket, saved.mount_path, fuse.MOUNT_OPTIONS, False))
    return mounted


def bucket(name: str, bucket: str, path: str, options: str, read_only: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """A bucket as a volume called `name`, and its mount at `path`."""
    csi: dict[str, Any] = {"driver": fuse.DRIVER, "readOnly": read_only}
    csi["volumeAttributes"] = {"bucketName": bucket, "mountOptions": options}
    return {"name": name, "csi": csi}, {"name": name, "mountPath": path, "readOnly": read_only}
