"""Rules of training jobs: directories of checkpoints, mounts, shared memory and names.

Rules that training jobs share with other workloads are in `workloads`, `buckets`, `queues` and `fit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from gke_ai.settings.model import TrainingRun
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import DEFAULT_NAMESPACE, ResolvedStack
from gke_ai.settings.rules.common import BEGINS_WITH_A_LETTER, each, rule

# Kubernetes adds -xxxxx to the name of a Job's pod.
_POD_SUFFIX = 6
_MAX_NAME_LENGTH = 63

each_job = each(lambda stack: [placed.section for placed in stack.of(TrainingRun)])


@each_job
def checkpoint_directories_are_paths_in_the_bucket(run: TrainingRun) -> Iterator[Problem]:
    """Directories of checkpoints are relative paths, and a run does not resume from its own."""
    stated = {"checkpoints.path": run.checkpoints.path if run.checkpoints else None, "resumeFrom": run.resume_from}
    for key, directory in stated.items():
        if directory is None:
            continue
        path = PurePosixPath(directory)
        if "://" in directory or path.is_absolute() or ".." in path.parts or not path.parts:
            cause = f'"{directory}" is not a directory in the bucket. The run would not find its checkpoints'
            yield Problem(run.at(key), cause, "Write a path relative to the bucket, for example experiments/first")
    if run.resume_from is None:
        return
    if run.checkpoints is None:
        cause = "the run has no checkpoints, and resumeFrom is a directory in their bucket. It would have no effect"
        yield Problem(run.at("resumeFrom"), cause, "Set checkpoints: {bucket: …}, or remove resumeFrom")
    elif (run.checkpoints.bucket, PurePosixPath(run.resume_from)) == run.checkpoint_folder:
        cause = f"{run.resume_from} is the run's own directory, from which it always resumes. It would have no effect"
        yield Problem(run.at("resumeFrom"), cause, "Name the directory of another run, or remove it")


@each_job
def mounts_do_not_collide(run: TrainingRun) -> Iterator[Problem]:
    """Each bucket has a mount path of its own."""
    seen: dict[PurePosixPath, str] = {}
    for mount in run.bucket_mounts:
        first = seen.setdefault(PurePosixPath(mount.path), mount.key)
        if first != mount.key:
            cause = f"{mount.path} is also the mount path of {first}. Kubernetes would refuse the pods"
            yield Problem(run.at(f"{mount.key}.mountPath"), cause, "Write another path")


@each_job
def the_sidecar_serves_a_bucket(run: TrainingRun) -> Iterator[Problem]:
    """Resources of the FUSE sidecar are for runs that mount a bucket."""
    for key, stated in (("sidecarMemoryLimit", run.sidecar_memory_limit), ("sidecarCpu", run.sidecar_cpu)):
        if stated is not None and not run.bucket_mounts:
            cause = "the run mounts no bucket, so its pods have no FUSE sidecar. It would have no effect"
            yield Problem(run.at(key), cause, "Remove it, or set volumes or checkpoints")


@each_job
def namespaces_can_be_deleted(run: TrainingRun) -> Iterator[Problem]:
    """A training job is not in the default namespace: finished runs stay until their namespace is deleted."""
    if run.namespace == DEFAULT_NAMESPACE:
        cause = f"finished runs stay until their namespace is deleted, and namespace {DEFAULT_NAMESPACE} is never "
        cause += "deleted. They would outlive the stack"
        yield Problem(run.at("namespace"), cause, "Choose a namespace of the stack's own, for example llm")


@rule
def names_are_free_and_leave_room(stack: ResolvedStack) -> Iterator[Problem]:
    """Names of JobSets begin with a letter, leave room for those of their pods, and no other Service has them."""
    services = {
        (workload.namespace, workload.service_name): workload.name
        for workload in stack.workloads
        if not isinstance(workload, TrainingRun)
    }
    for run in (placed.section for placed in stack.of(TrainingRun)):
        jobset = run.object_name
        longest = len(run.pod_host(run.pods - 1)) + _POD_SUFFIX
        if not BEGINS_WITH_A_LETTER.fullmatch(run.name):
            yield Problem(
                run.at("name"), f"{run.name} begins with a digit. JobSet would refuse it", "Begin with a letter"
            )
        if longest > _MAX_NAME_LENGTH:
            cause = f"names of the run's pods would have {longest} characters, and the maximum is {_MAX_NAME_LENGTH}"
            yield Problem(run.at("name"), cause, f"Shorten the name by {longest - _MAX_NAME_LENGTH} characters")
        if owner := services.get((run.namespace, jobset)):
            cause = f"the headless Service of the run would be called {jobset}, like that of {owner}. "
            yield Problem(run.at("name"), f"{cause}The second could not be created", "Set another name")
