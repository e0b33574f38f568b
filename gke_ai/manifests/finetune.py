"""The Job of a fine-tuning run."""

from __future__ import annotations

from gke_ai.catalog.fabric.rdma import SETTINGS
from gke_ai.manifests import job as jobs
from gke_ai.manifests.network import annotations_of, connected
from gke_ai.manifests.workload import SHARED_MEMORY_MOUNT, environment, queue_label, resources, shared_memory
from gke_ai.settings.model import FineTune

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


def job(run: FineTune, place: jobs.Place) -> jobs.Object:
    """The Indexed Job of a fine-tuning run."""
    spec = {
        **jobs.pod_failure_policy(run, "Ignore"),
        "backoffLimit": run.allowed_failures(run.pods),
        "completions": run.pods,
        "parallelism": run.pods,
        "completionMode": "Indexed",
        "suspend": run.queue is not None,  # Kueue starts it
        "template": {
            "metadata": {"labels": run.labels, "annotations": annotations_of(run, place)},
            "spec": pod(run, place),
        },
    }
    metadata = {
        "name": run.object_name,
        "namespace": run.namespace,
        "labels": queue_label(run),
        "annotations": jobs.queued_annotations(place.queued_seconds),
    }
    return jobs.job_of(metadata, spec)


def pod(run: FineTune, place: jobs.Place) -> jobs.Object:
    """Spec of the run's pods. They connect to pod 0 by its name under the headless Service."""
    service = jobs.service_of(run)
    variables = {
        "EXPERIMENT": run.experiment,
        "MODEL_NAME": run.base_model,
        "NEW_MODEL": run.new_model,
        "MODEL_PATH": run.checkpoint_path,
        "DATASET_NAME": run.dataset.name,
        "DATASET_LIMIT": str(run.dataset.limit),
        "EPOCHS": str(run.epochs),
        "GRADIENT_ACCUMULATION_STEPS": str(run.gradient_accumulation_steps),
        "CHECKPOINT_SAVE_STEPS": str(run.checkpoint_steps),
        **place.fabric.variables,
    }
    container = {
        "name": "gpu-job",
        "image": run.image,
        "imagePullPolicy": "Always",
        "ports": [{"containerPort": run.rendezvous_port}],
        "resources": resources(run, run.gpus_per_pod),
        "command": ["bash", "-c", launch(run, f"{run.object_name}-0.{service}", bool(place.fabric.nics))],
        "env": environment(run, variables, ["HF_TOKEN"]),
        "volumeMounts": [SHARED_MEMORY_MOUNT, jobs.fuse_mount(run.volume)],
    }
    spec: jobs.Object = {
        "containers": [container],
        "restartPolicy": jobs.restart_policy(run, "OnFailure"),
        "serviceAccountName": run.service_account,
        "subdomain": service,
        "terminationGracePeriodSeconds": run.termination_grace_period_seconds,
        "volumes": [shared_memory(), jobs.fuse_volume(run.volume)],
    }
    if run.priority_class:
        spec["priorityClassName"] = run.priority_class
    return connected(spec, place)


def launch(run: FineTune, rendezvous: str, with_plugin: bool = False) -> str:
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
    if with_plugin:
        training = f"source {SETTINGS}\n{training}"
    return REMOVE_INCOMPLETE_CHECKPOINTS + training if run.removes_incomplete_checkpoints else training
