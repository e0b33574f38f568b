"""Rules of runs: batch Jobs and Multislice runs on TPUs, Jobs on nodes from queued provisioning, and training jobs.

Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus (slices, Multislice),
https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest (queued provisioning),
https://cloud.google.com/kubernetes-engine/docs/concepts/autopilot-security (what Autopilot refuses),
https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity#limitations (host network)

Rules that training jobs share with other workloads are in `workloads`, `buckets`, `queues` and `fit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from gke_ai.settings.model import FineTune, Multislice, Run, TpuBatch, TpuPool, TrainingRun, Workload
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import DEFAULT_NAMESPACE, Placed, ResolvedStack, ResourceFlavor
from gke_ai.settings.rules.common import BEGINS_WITH_A_LETTER, each, join_names, needs, rule

# Pods of a JobSet: JOBSET-slice-JOB-POD-xxxxx.
_POD_SUFFIX = 6
_MAX_NAME_LENGTH = 63


@rule
def pools_and_slices_are_named_once(stack: ResolvedStack) -> Iterator[Problem]:
    """A flavor names pools or describes a slice, and a run names each of its pools once."""
    for flavor in stack.queues.flavors:
        if flavor.tpu is not None and flavor.pools:
            cause = f"flavor {flavor.name} names pools and a slice. The slice could contradict those of the pools"
            yield Problem(flavor.at("tpu"), cause, "Remove tpu or pools")
    for placed in stack.of(Multislice):
        run = placed.section
        for index, name in enumerate(run.pools):
            if name in run.pools[:index]:
                cause = f"{name} is listed twice. It has one slice, which two child Jobs cannot share"
                yield Problem(run.at(f"pools[{index}]"), cause, "List it once")


@each(lambda stack: stack.of(Multislice))
def slices_of_a_run_are_alike(placed: Placed[Multislice]) -> Iterator[Problem]:
    """All slices of a Multislice run are multi-host, of one version, topology and machine type."""
    run = placed.section
    own = [pool for pool in placed.nodes.pools if isinstance(pool, TpuPool)]
    slices = dict.fromkeys(pool.slice for pool in own)
    if len(slices) > 1 and run.tpu is None:
        descriptions = join_names(
            f"{pool.name}: {pool.version} {pool.topology} of {pool.slice.machine_type}" for pool in own
        )
        cause = f"the pools of {run.name} differ ({descriptions}). GKE would refuse Multislice over unequal slices"
        yield Problem(run.at("pools"), cause, "Name pools of one version, topology and machine type")
        return
    tpu_slice = placed.slice
    if not tpu_slice.multi_host:
        cause = f"a {tpu_slice.topology} slice of {tpu_slice.machine_type} is one machine, and Multislice needs "
        cause += "multi-host slices. GKE would refuse it"
        remedy = "Use a larger topology or a machine with 4 chips, or define a Job in gke-ai:batch for each slice"
        yield Problem(run.at("tpu" if run.tpu is not None else "pools"), cause, remedy)
        return
    modes = {pool.capacity.mode for pool in own}
    if modes == {"queuedFlexStart"} and run.slices > 1:
        # https://github.com/kubernetes-sigs/kueue/blob/main/pkg/controller/admissionchecks/provisioning/controller.go
        # merges pod sets with accelerators; Cluster Autoscaler (pkg/provisioningrequests/scaleup/orchestrator.go)
        # scales one node group for a request.
        cause = f"each slice of {run.name} is a pool with queued provisioning, and Kueue requests the nodes of all "
        cause += "slices at once. GKE provisions a request in one pool, so the run would wait forever"
        yield Problem(run.at("slices"), cause, "Set slices: 1, or use capacity {mode: flexStart} in the pools")
    elif "queuedFlexStart" in modes and len(modes) > 1:
        cause = f"some pools of {run.name} use queued provisioning and some do not. A request must cover all of them"
        yield Problem(run.at("pools"), cause, "Name pools of one capacity mode")


@needs("gke-ai:tpuPools")
@each(lambda stack: stack.of(Multislice))
def each_slice_has_a_pool(placed: Placed[Multislice]) -> Iterator[Problem]:
    """A Multislice run has a pool for each slice, as a multi-host pool is one slice."""
    run = placed.section
    own = placed.nodes.pools
    if own and all(pool.is_one_slice for pool in own) and run.slices > len(own):
        cause = f"{run.slices} slices need {run.slices} multi-host pools, and {run.name} has {len(own)}. "
        cause += "It would wait forever"
        yield Problem(run.at("slices"), cause, f"Set it to {len(own)} or less, or name more pools")


@needs("gke-ai:cluster.mode", "gke-ai:cluster.existingMode")
def autopilot_pods_are_not_privileged(stack: ResolvedStack) -> Iterator[Problem]:
    """Autopilot refuses privileged containers and the host network."""
    for run in (placed.section for placed in stack.tpu_runs) if stack.cluster.is_autopilot else ():
        if run.privileged:
            cause = "the cluster is Autopilot, which refuses privileged containers. The run could not start"
            yield Problem(run.at("privileged"), cause, "Remove it. TPUs have not needed it since GKE 1.28")
        if run.uses_host_network:
            cause = "the cluster is Autopilot, which refuses pods on the host network. The run could not start"
            yield Problem(run.at("hostNetwork"), cause, "Remove it")


@each(lambda stack: stack.of(Multislice))
def host_network_has_no_identity(placed: Placed[Multislice]) -> Iterator[Problem]:
    """Pods on the host network have the node's identity, not that of their service account."""
    run = placed.section
    if run.host_network and run.service_account != "default":
        cause = f"the pods are on the host network, where service account {run.service_account} has no "
        cause += "workload identity. They would have the node's identity, and the grants would have no effect"
        yield Problem(run.at("serviceAccount"), cause, "Remove hostNetwork or serviceAccount")
    elif run.host_network and run.volume is not None:
        cause = "the pods are on the host network, where they have no workload identity. "
        cause += "They could not mount the bucket"
        yield Problem(run.at("volume"), cause, "Remove hostNetwork or volume")


@each(lambda stack: stack.of(TpuBatch))
def services_are_for_several_pods(placed: Placed[TpuBatch]) -> Iterator[Problem]:
    """Only a multi-host Job has a headless Service, by which its pods find each other."""
    run = placed.section
    if run.service is not None and not placed.slice.multi_host:
        cause = f"the Job runs one pod on a single-host slice. Service {run.service} would not be created"
        yield Problem(run.at("service"), cause, "Remove it, or choose a multi-host slice")


@rule
def names_do_not_collide(stack: ResolvedStack) -> Iterator[Problem]:
    """Names of Jobs and Services that the program derives do not collide with others."""
    jobs: dict[tuple[str, str], str] = {
        (placed.section.namespace, placed.section.object_name): "training" for placed in stack.of(FineTune)
    }
    named = [workload for workload in stack.workloads if workload.has_named_service]
    services = {(workload.namespace, workload.service_name): workload.name for workload in named}
    for placed in stack.tpu_runs:
        run = placed.section
        if run.object_kind == "Job" and (run.namespace, run.object_name) in jobs:
            cause = f"a fine-tuning run and a batch Job are both called {run.object_name}. "
            cause += "The second could not be created"
            yield Problem(run.at("name"), cause, "Rename one of them")
            continue
        # A JobSet's Service has its name; a Job's Service has the same hash in its name as the Job.
        owner = services.get((run.namespace, run.object_name))
        if owner is not None and run.has_derived_service(placed.nodes):
            yield _has_the_service(run, run.service_key, owner)


@rule
def names_leave_room(stack: ResolvedStack) -> Iterator[Problem]:
    """Names of pods, derived from that of their run, have at most 63 characters and begin with a letter."""
    for placed in stack.of(Multislice):
        run = placed.section
        last = placed.slice.hosts - 1
        index = f"{run.slices - 1}-0" if placed.pool_of_slice else f"{run.slices - 1}"
        yield from _begins_with_a_letter(run)
        yield from _fits_a_name(run, run.short_noun, len(f"{run.object_name}-slice-{index}-{last}") + _POD_SUFFIX)
    for placed_job in stack.of(TpuBatch):
        job = placed_job.section
        last = placed_job.slice.hosts - 1
        service = job.service_name
        if last and not BEGINS_WITH_A_LETTER.fullmatch(service) and job.service is None:
            cause = f"{service} begins with a digit. Kubernetes would refuse the Service of that name"
            yield Problem(job.at("name"), cause, "Begin with a letter, or set service")
        yield from _fits_a_name(job, job.short_noun, len(f"{job.object_name}-{last}"))


def _fits_a_name(run: Run, noun: str, longest: int) -> Iterator[Problem]:
    if longest > _MAX_NAME_LENGTH:
        cause = f"names of the {noun}'s pods would have {longest} characters, and the maximum is {_MAX_NAME_LENGTH}"
        yield Problem(run.at("name"), cause, f"Shorten the name by {longest - _MAX_NAME_LENGTH} characters")


def _has_the_service(run: Run, key: str, owner: str) -> Problem:
    """A problem for a run whose headless Service, which has the name of its Job or JobSet, another workload has too."""
    cause = f"the headless Service of the run would be called {run.object_name}, like that of {owner}. "
    return Problem(run.at(key), f"{cause}The second could not be created", f"Set another {key}")


@each(lambda stack: stack.tpu_runs)
def ports_are_valid(placed: Placed[Multislice | TpuBatch]) -> Iterator[Problem]:
    """Ports are numbers from 1 to 65535, each once."""
    run = placed.section
    for index, port in enumerate(run.ports):
        if not 1 <= port <= 65535:
            cause = f"{port} is not a port number. Kubernetes would refuse the pods"
            yield Problem(run.at(f"ports[{index}]"), cause, "Write a number from 1 to 65535")
        elif port in run.ports[:index]:
            cause = f"port {port} is listed twice. Kubernetes would refuse the pods"
            yield Problem(run.at(f"ports[{index}]"), cause, "List it once")


@each(lambda stack: stack.runs)
def runs_in_the_default_namespace_have_fixed_names(run: Run) -> Iterator[Problem]:
    """Runs in the default namespace have a fixed name, as replaced runs stay until their namespace is deleted."""
    if isinstance(run, TrainingRun):
        return  # namespaces_can_be_deleted
    if run.namespace == DEFAULT_NAMESPACE and not run.fixed_name:
        cause = "an old version of a run stays until its namespace is deleted, and namespace "
        cause += f"{DEFAULT_NAMESPACE} is never deleted. Nobody could tell old runs from those of others"
        remedy = "Set fixedName: true, or choose a namespace of the stack's own, for example llm"
        yield Problem(run.at("namespace"), cause, remedy)


@needs("gke-ai:queues", "gke-ai:gpuPools", "gke-ai:tpuPools")
@each(lambda stack: stack.placed)
def queued_pools_take_queued_runs(place: Placed[Workload]) -> Iterator[Problem]:
    """Workloads on a queued pool are runs in a queue with quota for the pool's flavor."""
    workload, queue = place.section, place.queue
    queued = [pool for pool in place.nodes.pools if pool.capacity.queued_seconds is not None]
    if not queued or not workload.is_bound_to_pools:
        return
    pool = queued[0]
    path = workload.at(workload.pools_key)
    cause = f"the nodes of pool {pool.name} start only for a ProvisioningRequest for a whole Job"
    if not workload.ends:
        remedy = f"Set {pool.at('capacity')} to {{mode: flexStart}}, or choose another pool"
        yield Problem(path, f"{cause}, and this is a server. Its pods would stay pending", remedy)
        return
    own = [quota for quota in queue.quotas if quota.flavor and pool.name in quota.flavor.section.pools] if queue else []
    if workload.queue is None or (queue is not None and not own):
        missing = "the run has no queue" if workload.queue is None else "its queue has no flavor with that pool"
        cause = f"{cause}, which Kueue creates, and {missing}. Its pods would stay pending"
        remedy = f"Set a queue that has quota for a flavor with pools: [{pool.name}], "
        remedy += f"or set {pool.at('capacity')} to {{mode: flexStart}}"
        yield Problem(path, cause, remedy)


@needs("gke-ai:gpuPools", "gke-ai:tpuPools")
@each(lambda stack: stack.flavors)
def flavors_are_queued_or_not(resolved: ResourceFlavor) -> Iterator[Problem]:
    """All pools of a flavor use queued provisioning, or none, as its admission check covers all of its nodes."""
    flavor, own = resolved.section, [pool.section for pool in resolved.pools]
    queued = [pool.name for pool in own if pool.capacity.queued_seconds is not None]
    if queued and len(queued) < len(own):
        cause = f"in flavor {flavor.name} only {join_names(queued)} use queued provisioning. "
        cause += "Kueue would request nodes of all pools of the flavor, or of none"
        yield Problem(flavor.at("pools"), cause, "Define a flavor for each capacity mode")


@needs("gke-ai:tpuPools")
@each(lambda stack: stack.of(TpuBatch))
def bounds_of_runs_fit_their_pools(placed: Placed[TpuBatch]) -> Iterator[Problem]:
    """A run's maximum duration is for queued provisioning, and not longer than the nodes' lifetime."""
    run = placed.section
    if run.max_run_duration_seconds is None:
        return
    lifetimes = [pool.capacity.queued_seconds for pool in placed.nodes.pools]
    queued = [seconds for seconds in lifetimes if seconds is not None]
    path = run.at("maxRunDurationSeconds")
    if not queued:
        cause = "only queued provisioning uses the maximum duration. On these nodes it would have no effect"
        yield Problem(path, cause, "Remove it, or use a pool with capacity: {mode: queuedFlexStart}")
        return
    longest = min(queued)
    if run.max_run_duration_seconds > longest:
        cause = f"the run may take {run.max_run_duration_seconds} s, and the nodes of its pool live for {longest} s. "
        yield Problem(path, f"{cause}GKE would refuse the request", f"Set it to {longest} or less")


@needs("gke-ai:queues", "gke-ai:tpuPools")
def shared_growing_pools_have_their_own_flavors(stack: ResolvedStack) -> Iterator[Problem]:
    """Runs that share pools which grow from zero have separate quota for each pool.

    Such a run names the pool of each slice, and a flavor of several pools does not show which pool is free. Kueue could
    admit two runs that each hold a pool and wait for the other's.
    """
    seen: dict[str, Multislice] = {}
    for placed in stack.of(Multislice):
        run = placed.section
        own = [pool for pool in placed.nodes.pools if pool.grows]
        shared = [pool.name for pool in own if pool.name in seen]
        for pool in own:
            seen.setdefault(pool.name, run)
        several = [
            quota.flavor.section
            for quota in (placed.queue.quotas if placed.queue and shared else ())
            if quota.flavor and len(quota.flavor.section.pools) > 1 and set(quota.flavor.section.pools) & set(shared)
        ]
        if several:
            cause = f"{seen[shared[0]].name} and {run.name} share pools that grow from zero, and flavor "
            cause += f"{several[0].name} counts {join_names(several[0].pools)} as one. Kueue could admit both, and "
            cause += "each would wait for a pool that the other holds"
            yield Problem(run.at("pools"), cause, "Define a flavor for each pool, or use different pools for the runs")
            return


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
        yield from _begins_with_a_letter(run)
        yield from _fits_a_name(run, "run", len(run.pod_host(run.pods - 1)) + _POD_SUFFIX)
        if owner := services.get((run.namespace, run.object_name)):
            yield _has_the_service(run, "name", owner)


def _begins_with_a_letter(run: Run) -> Iterator[Problem]:
    if not BEGINS_WITH_A_LETTER.fullmatch(run.name):
        cause = f"{run.name} begins with a digit. JobSet would refuse it"
        yield Problem(run.at("name"), cause, "Begin with a letter")
