"""A training run of any image on GPUs: a JobSet under Kueue."""

from typing import Literal

import pulumi

from gke_ai.components.arguments import Input, takes
from gke_ai.components.runs.job import GpuRunArguments, RunComponent
from gke_ai.components.runs.run_record import moves, only_once, record
from gke_ai.manifests import network, training_job
from gke_ai.settings.model import TrainingRun


class TrainingJobArguments(GpuRunArguments, TrainingRun):
    kind: Literal["job"] = "job"
    """The kind of the run, which the component says."""
    image: Input[str]  # type: ignore[assignment]


class TrainingJob(RunComponent[TrainingRun]):
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

    Example:
        TrainingJob("train", namespace=llm, pool=l4, image="my-registry/train:1", pods=2, gpus_per_pod=1, queue="team")
    """

    job_name: pulumi.Output[str]
    """Name of the JobSet."""

    @takes(TrainingJobArguments)
    def __init__(self, name: str, args: TrainingJobArguments) -> None:
        super().__init__(name, args, TrainingRun)
        self.needs_jobset(args)
        run, jobset, kubeconfig = self.run, self.run.object_name, args.watched()
        created = self.created_once()
        if kubeconfig is not None:
            binding = only_once(self.title, run.namespace, jobset, kubeconfig)
            created.hooks = pulumi.ResourceHookBinding.merge(created.hooks, binding)
        resource = self.create_jobset(training_job.jobset(run, self.place), created)

        recorded = pulumi.ResourceOptions(parent=self, depends_on=[resource])
        if kubeconfig is not None:
            grace = run.termination_grace_period_seconds
            recorded.hooks = moves(self.title, run.namespace, jobset, grace, kubeconfig)
        record(run.namespace, jobset, network.nodes_of(self.place), recorded)
