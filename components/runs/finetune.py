"""A fine-tuning run: a Job under Kueue whose pods train one model."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.components.runs.job import (
    RunComponent,
    fuse_annotations,
    fuse_mount,
    fuse_volume,
    options,
    pod_failure_policy,
    queued_annotations,
    queued_tolerations,
    restart_policy,
)
from gke_ai.components.workload import (
    SHARED_MEMORY_MOUNT,
    SKIP_AWAIT,
    environment,
    queue_label,
    resources,
    shared_memory,
)
from gke_ai.settings.model import FineTune
from gke_ai.settings.runs import model_path, removes_incomplete_checkpoints

REMOVE_INCOMPLETE_CHECKPOINTS = """\
if [ "$JOB_COMPLETION_INDEX" = 0 ]; then
  for checkpoint in "$MODEL_PATH"/checkpoint-*; do
    if [ -d "$checkpoint" ] && [ ! -f "$checkpoint/trainer_state.json" ]; then
      echo "$checkpoint is incomplete: deleted"
      rm -r "$checkpoint"
    fi
  done
fi
"""


class FinetuneJob(RunComponent):
    """An Indexed Job that Kueue starts, suspends and resumes, and the headless Service through which its pods connect.

    A run happens once: the Job has no time to live, so a finished Job stays and the next update finds it. A changed run
    is a new run: the names of Job and Service contain a hash of the content, so Pulumi creates the new run beside the
    old one. The old Job stays, running or finished, until its namespace or a person deletes it.

    The run writes checkpoints to its own folder and resumes from the last one after a restart; work since that
    checkpoint is repeated. The first pod deletes incomplete checkpoints beforehand. Disruptions of pods don't count as
    failures, but failures of pods that wait for a disrupted pod do. If not all pods come back, Kueue's
    `waitForPodsReady` evicts the run and queues it again.

    With `fixed_name` the name has no hash, and a changed run needs a new `name`.

    Refused: by the API, a changed run with a fixed name.

    Sources: https://kueue.sigs.k8s.io/docs/tasks/run/jobs/,
    https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-ephemeral,
    https://huggingface.co/docs/accelerate/usage_guides/fsdp
    """

    job_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        args: FineTune,
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
            kubeconfig: Cluster in which the run waits for its place in the queue. Default: no wait, so Kueue may admit
                runs that are created within a second in any order.
            last_in_queue: The run is the last of its queue. If false, its creation takes one second longer.
        """
        super().__init__(name, opts)
        run = args
        job = run.object_name
        service, headless = self.create_service(run)
        spec: Any = {
            **pod_failure_policy(run, "Ignore"),
            "backoff_limit": run.allowed_failures(run.pods),
            "completions": run.pods,
            "parallelism": run.pods,
            "completion_mode": "Indexed",
            "suspend": run.queue is not None,  # Kueue starts it
            "template": {
                "metadata": {"labels": run.labels, "annotations": fuse_annotations(run)},
                "spec": pod(run, job, service, node_selector or {}, queued_seconds),
            },
        }
        metadata = {
            "name": job,
            "namespace": run.namespace,
            "labels": queue_label(run),
            "annotations": {**SKIP_AWAIT, **queued_annotations(queued_seconds)},
        }
        self.create_job(metadata, spec, options(run, name, self, [headless], kubeconfig, last_in_queue))


def pod(
    run: FineTune, job: str, service: str, node_selector: Mapping[str, str], queued: int | None
) -> "k8s.core.v1.PodSpecArgsDict":
    """Spec of the run's pods. They connect to pod 0 by its name under the headless Service."""
    variables = {
        "EXPERIMENT": run.experiment,
        "MODEL_NAME": run.base_model,
        "NEW_MODEL": run.new_model,
        "MODEL_PATH": model_path(run),
        "DATASET_NAME": run.dataset.name,
        "DATASET_LIMIT": str(run.dataset.limit),
        "EPOCHS": str(run.epochs),
        "GRADIENT_ACCUMULATION_STEPS": str(run.gradient_accumulation_steps),
        "CHECKPOINT_SAVE_STEPS": str(run.checkpoint_steps),
    }
    container: k8s.core.v1.ContainerArgsDict = {
        "name": "gpu-job",
        "image": run.image,
        "image_pull_policy": "Always",
        "ports": [{"container_port": run.rendezvous_port}],
        "resources": resources(run, run.gpus_per_pod),
        "command": ["bash", "-c", launch(run, f"{job}-0.{service}")],
        "env": environment(run, variables, ["HF_TOKEN"]),
        "volume_mounts": [
            SHARED_MEMORY_MOUNT,
            fuse_mount(run.volume),
        ],
    }
    spec: k8s.core.v1.PodSpecArgsDict = {
        "containers": [container],
        "restart_policy": restart_policy(run, "OnFailure"),
        "service_account_name": run.service_account,
        "subdomain": service,
        "termination_grace_period_seconds": run.termination_grace_period_seconds,
        "volumes": [shared_memory(), fuse_volume(run.volume)],
    }
    if run.priority_class:
        spec["priority_class_name"] = run.priority_class
    if node_selector:
        spec["node_selector"] = node_selector
    if queued:
        spec["tolerations"] = queued_tolerations(queued)
    return spec


def launch(run: FineTune, rendezvous: str) -> str:
    """The command of every pod: one process per GPU, with the pod's index as its rank.

    Processes look for checkpoints once all of them have connected. The first pod deletes incomplete ones before it
    connects, so all processes find the same. Transformers writes `trainer_state.json` after model and optimizer, and
    cannot resume from a folder without it: https://github.com/huggingface/transformers/issues/35782
    """
    options = [
        "accelerate launch",
        "--config_file fsdp_config.yaml",
        "--debug",
        f"--main_process_ip {rendezvous}",
        f"--main_process_port {run.rendezvous_port}",
        "--machine_rank ${JOB_COMPLETION_INDEX}",
        f"--num_processes {run.pods * run.gpus_per_pod}",
        f"--num_machines {run.pods}",
        "fine_tune.py",
    ]
    training = " \\\n".join(options) + "\n"
    return REMOVE_INCOMPLETE_CHECKPOINTS + training if removes_incomplete_checkpoints(run) else training
