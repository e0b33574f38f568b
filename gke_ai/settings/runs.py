"""Settings of a run's Job: failures, grace period and checkpoint folder."""

from __future__ import annotations

from pathlib import PurePosixPath

from gke_ai.settings.model import FineTune, Run, TrainingRun


def ignores_disruptions(run: Run) -> bool:
    """Whether disruptions do not count as failures. A Job with a fixed name keeps its original behavior."""
    return not run.fixed_name if run.ignore_disruptions is None else run.ignore_disruptions


def grace_period(run: Run) -> int | None:
    """Grace period of the run's pods in seconds; None for the default of Kubernetes."""
    stated = run.termination_grace_period_seconds
    return 60 if stated is None and not run.fixed_name else stated


# Folder of the checkpoints of a run with a fixed name, below the mount path, as in its source document.
_FIXED_FOLDER = "model-gemma2/experiment"


def model_path(run: FineTune) -> str:
    """The folder of the run's checkpoints. Default: one of its own."""
    return run.model_path or str(
        PurePosixPath(run.volume.mount_path) / (_FIXED_FOLDER if run.fixed_name else run.object_name)
    )


def checkpoint_folder(run: Run) -> tuple[str, PurePosixPath] | None:
    """Bucket and folder of the run's checkpoints; None if the configuration does not say where they are."""
    if isinstance(run, TrainingRun) and run.checkpoints is not None:
        return run.checkpoints.bucket, PurePosixPath(run.checkpoints.path or run.object_name)
    if isinstance(run, FineTune):
        mount, folder = PurePosixPath(run.volume.mount_path), PurePosixPath(model_path(run))
        return (run.volume.bucket, folder.relative_to(mount)) if folder.is_relative_to(mount) else None
    return None


# Name of the replicated Job of a training job.
WORKERS = "worker"


def pod_host(run: TrainingRun, index: int) -> str:
    """Stable host name of a pod of the run in the Service of its JobSet: a replaced pod has the same one.

    https://jobset.sigs.k8s.io/docs/concepts/#jobset-naming-and-dns
    """
    return f"{run.object_name}-{WORKERS}-0-{index}"


def removes_incomplete_checkpoints(run: FineTune) -> bool:
    """Whether the run deletes incomplete checkpoints at its start. A Job with a fixed name keeps its behavior."""
    return not run.fixed_name if run.remove_incomplete_checkpoints is None else run.remove_incomplete_checkpoints
