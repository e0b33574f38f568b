"""Rules of all servers and runs, of their names, namespaces, queues, environment and volumes, and of those on GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from gke_ai.catalog.kueue.namespaces import is_system
from gke_ai.catalog.machines.types import GPUS, machine
from gke_ai.catalog.quantities import parse_quantity
from gke_ai.catalog.versions import FINE_TUNE_IMAGE
from gke_ai.settings.model import FineTune, GpuServer, LocalQueue, Multislice, Run, Tgi, TpuBatch, TrainingRun, Workload
from gke_ai.settings.problems import TOKEN, Problem
from gke_ai.settings.resolved import BUILT_IN_PRIORITIES, DEFAULT_NAMESPACE, Placed, ResolvedStack
from gke_ai.settings.rules import common
from gke_ai.settings.rules.pools import gpu_type_is_supported

_TOKEN_VARIABLES = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "HF_API_TOKEN"}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# https://huggingface.co/docs/hub/repositories: NAME or OWNER/NAME
_HUB_ID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]*(/[A-Za-z0-9][-A-Za-z0-9_.]*)?")
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]+")


@common.rule
def names_are_unique(stack: ResolvedStack) -> Iterator[Problem]:
    """Names of servers, runs and Services are unique in a namespace."""
    consequence = "the second could not be created"
    sections = stack.settings
    for noun, items in (("server", sections.serving), ("training", sections.training), ("batch Job", sections.batch)):
        names = ((item, "name", f"{item.namespace}/{item.name}") for item in items)
        yield from common.repeated(names, noun, consequence)
    # Report a repeated name once.
    distinct = {
        (workload.short_noun, workload.namespace, workload.name): workload
        for workload in reversed(stack.workloads)
        if workload.has_named_service
    }.values()
    services = (
        (workload, "service", f"{workload.namespace}/{workload.service_name}") for workload in reversed(list(distinct))
    )
    yield from common.repeated(
        services, "Service", f"{consequence}. A Service has the name of its workload, or that in service"
    )


@common.rule
def names_become_dns_names(stack: ResolvedStack) -> Iterator[Problem]:
    """Names of Services begin with a letter, and names of pods have at most 63 characters."""
    for workload in stack.workloads:
        if workload.has_named_service and (workload.namespace, workload.service_name) == (
            DEFAULT_NAMESPACE,
            "kubernetes",
        ):
            cause = "Service kubernetes in namespace default belongs to the API server. A second could not be created"
            yield Problem(workload.at("service"), cause, "Choose another name")
        if workload.has_named_service and not common.BEGINS_WITH_A_LETTER.fullmatch(workload.service_name):
            cause = f"{workload.service_name} begins with a digit. Kubernetes would refuse the Service"
            key = "name" if workload.service_name == workload.name else "service"
            yield Problem(workload.at(key), cause, "Begin with a letter, or set service")
    for job in (placed.section for placed in stack.of(FineTune)):
        longest = f"{job.object_name}-{job.pods - 1}"
        if len(longest) > 63:
            cause = f"the pod name {longest} would have {len(longest)} characters, and the maximum is 63"
            yield Problem(job.at("name"), cause, f"Shorten the name by {len(longest) - 63} characters")


@common.rule
def namespaces_are_the_stacks_own(stack: ResolvedStack) -> Iterator[Problem]:
    """Workloads are not in system namespaces, and queued ones not in a namespace that stays after the stack's Kueue.

    Kueue holds pods of a server and Workloads of a Job by a finalizer. The program waits for their deletion by deleting
    their namespace, which is impossible for one that the stack did not create. It waits for a JobSet's deletion
    directly. A Kueue of somebody else stays, and releases them.
    """
    items: list[Workload | LocalQueue] = [*stack.workloads, *stack.queues.local_queues]
    for item in items:
        if is_system(item.namespace):
            cause = f"namespace {item.namespace} belongs to the cluster. The stack could not create it"
            yield Problem(item.at("namespace"), cause, "Choose another namespace")
        elif isinstance(item, Workload) and _is_left_behind(item, stack):
            cause = f"the {item.short_noun} has a queue in namespace {item.namespace}, which is never deleted. "
            cause += "Pods that Kueue still holds when the stack is deleted would stay forever"
            yield Problem(item.at("namespace"), cause, "Choose a namespace of the stack's own, for example llm")


def _is_left_behind(workload: Workload, stack: ResolvedStack) -> bool:
    """Whether the workload's pods outlive the stack's Kueue."""
    held = workload.queue is not None and not workload.deletion_is_awaited and stack.queues.kueue == "install"
    return held and workload.namespace not in stack.own_namespaces


@common.rule
def queues_exist(stack: ResolvedStack) -> Iterator[Problem]:
    """A workload's queue is a local queue in its namespace."""
    local = stack.queues.local_queues
    for workload in stack.workloads:
        here = [queue.name for queue in local if queue.namespace == workload.namespace]
        if workload.queue is None or workload.queue in here:
            continue
        elsewhere = {queue.namespace: queue.cluster_queue for queue in local if queue.name == workload.queue}
        if elsewhere and workload.queue not in stack.unresolved.names:
            leads = next(iter(elsewhere.values()))
            entry = f"{{name: {workload.queue}, namespace: {workload.namespace}, clusterQueue: {leads}}}"
            # A run in the default namespace would outlive the stack: another rule refuses it.
            others = [name for name in elsewhere if name != DEFAULT_NAMESPACE or workload not in stack.runs]
            cause = f"local queue {workload.queue} is in namespace {common.join_names([*elsewhere])}, and the "
            cause += f"{workload.short_noun} is in {workload.namespace}. Kueue would never admit it"
            remedy = f"Add {entry} to gke-ai:queues.localQueues{f', or set namespace: {others[0]}' if others else ''}"
            yield Problem(workload.at("queue"), cause, remedy)
        else:
            noun = f"in namespace {workload.namespace}, local queue"
            queues = common.Named("gke-ai:queues.localQueues", noun, lambda _: here)  # noqa: B023  called at once
            consequence = "Kueue would never admit the pods"
            yield from queues.unknown(stack, workload.at("queue"), workload.queue, consequence)


@common.rule
def priority_classes_exist(stack: ResolvedStack) -> Iterator[Problem]:
    """A workload's priority class is in this stack. The built-in classes are for the cluster's own namespaces."""
    for workload in stack.workloads:
        if workload.priority_class in BUILT_IN_PRIORITIES:
            # GKE has a ResourceQuota for both classes in kube-system alone: openservicemesh/osm#4408, cilium#13852.
            cause = f"{workload.priority_class} is for the cluster's own controllers, and GKE allows it in kube-system "
            cause = f"{cause}only. It would refuse the pods: insufficient quota to match these scopes"
            remedy = "Define a class in gke-ai:queues.priorityClasses, and name that"
            yield Problem(workload.at("priorityClass"), cause, remedy)
        elif workload.priority_class is not None:
            path = workload.at("priorityClass")
            yield from common.PRIORITIES.unknown(
                stack, path, workload.priority_class, "Kubernetes would refuse the pods"
            )


@common.each(lambda stack: stack.workloads)
def environment_is_free_to_set(workload: Workload) -> Iterator[Problem]:
    """Environment variables have valid names, repeat no key of the workload and contain no token."""
    set_by = workload.set_variables
    for name, value in workload.env.items():
        path = workload.at(f"env.{name}")
        if name in _TOKEN_VARIABLES or TOKEN.search(value):
            cause = "the variable contains a token in plain text. Everyone who can read this file or the cluster could "
            cause += "read it"
            remedy = "Remove it, revoke the token, and set a new one with pulumi config set --secret gke-ai:hfToken"
            yield Problem(path, cause, remedy)
        elif name in set_by:
            cause = f"{set_by[name]} sets {name}. The container would have it twice"
            yield Problem(path, cause, f"Remove it and set {workload.at(set_by[name])}")
        elif not _ENV_NAME.fullmatch(name):
            cause = f'"{name}" is not a valid name of an environment variable. No shell could read it'
            yield Problem(workload.at("env"), cause, "Use letters, digits and '_', and do not begin with a digit")


@common.rule
def labels_are_free_to_set(stack: ResolvedStack) -> Iterator[Problem]:
    """Labels are valid, and repeat no key of the workload."""
    for workload in stack.workloads:
        yield from common.kubernetes_labels(workload, "labels", workload.labels)
        taken = workload.set_labels
        for label in taken.keys() & workload.labels.keys():
            cause = f"{taken[label]} sets the label {label}. The pods would have it twice"
            yield Problem(workload.at("labels"), cause, f"Remove it and set {workload.at(taken[label])}")
    for server in stack.settings.serving:
        yield from common.kubernetes_labels(server, "app", {"app": server.app or server.name})


@common.rule
def models_are_hub_ids(stack: ResolvedStack) -> Iterator[Problem]:
    """Models and datasets are ids on Hugging Face, not URLs."""
    ids = [(workload, key, name) for workload in stack.workloads for key, name in workload.hub_ids.items()]
    for workload, key, name in ids:
        if not _HUB_ID.fullmatch(name):
            cause = f'"{name}" is not an id on Hugging Face. The download would fail'
            yield Problem(workload.at(key), cause, "Write OWNER/NAME, for example google/gemma-2-9b-it")


@common.rule
def variables_and_secret_keys_are_valid(stack: ResolvedStack) -> Iterator[Problem]:
    """The port variable and the key of the Secret are valid names."""
    for server in stack.settings.serving:
        if isinstance(server, Tgi) and not _ENV_NAME.fullmatch(server.port_variable):
            cause = f'"{server.port_variable}" is not a valid name of an environment variable. '
            cause += "The server would not get its port"
            remedy = "Use letters, digits and '_', and do not begin with a digit"
            yield Problem(server.at("portVariable"), cause, remedy)
    keys: dict[tuple[str, str], str] = {}
    for workload in stack.workloads:
        secret = workload.token
        if secret is None:
            continue
        if not _SECRET_KEY.fullmatch(secret.key):
            cause = f'"{secret.key}" is not a valid key of a Secret. Kubernetes would refuse it'
            yield Problem(workload.at("tokenSecret.key"), cause, "Use letters, digits, '-', '_' and '.'")
        first = keys.setdefault((workload.namespace, secret.name), secret.key)
        if first != secret.key:
            cause = f"another workload uses key {first} of Secret {workload.namespace}/{secret.name}, not {secret.key}"
            yield Problem(workload.at("tokenSecret.key"), cause, f"Write {first}, or set another tokenSecret.name")


@common.rule
def paths_are_on_the_volume(stack: ResolvedStack) -> Iterator[Problem]:
    """The mount path is valid, and fine-tuning runs write their checkpoints below it."""
    for run, volume in stack.bucket_mounts:
        mount = PurePosixPath(volume.path)
        if not mount.is_absolute() or mount in (PurePosixPath("/"), PurePosixPath("/dev/shm")):
            cause = f"{mount} is not a valid mount path. It must be absolute, and not / or /dev/shm"
            yield Problem(run.at(f"{volume.key}.mountPath"), cause, "Write for example /model-data")
        elif isinstance(run, FineTune):
            target = PurePosixPath(run.checkpoint_path)
            if not target.is_relative_to(mount) or ".." in target.parts:
                cause = f"{target} is not below {mount}, the mount path of the bucket. The checkpoints would be lost "
                cause += "with the pod"
                yield Problem(run.at("modelPath"), cause, f"Write a path below {mount}")


@common.rule
def runs_have_separate_checkpoint_folders(stack: ResolvedStack) -> Iterator[Problem]:
    """No two runs write checkpoints to the same folder."""
    seen: dict[tuple[str, PurePosixPath], Run] = {}
    for run in stack.settings.training:
        folder = run.checkpoint_folder
        first = run if folder is None else seen.setdefault(folder, run)
        if folder is not None and first is not run:
            cause = f"{first.name} writes its checkpoints to the same folder of bucket {folder[0]}. "
            cause += "Each run would delete the other's, or continue from them"
            key, remedy = "checkpoints.path", "Write another path"
            if isinstance(run, FineTune):
                key, remedy = "modelPath", f"Write another folder below {run.volume.mount_path}"
            yield Problem(run.at(key), cause, remedy + ("" if run.fixed_name else ", or remove it"))


@common.rule
def shared_memory_is_memory_of_the_container(stack: ResolvedStack) -> Iterator[Problem]:
    """/dev/shm is not larger than the memory of the container, of which it is a part.

    https://kubernetes.io/docs/concepts/storage/volumes/#emptydir
    """
    runs: list[Multislice | TpuBatch | TrainingRun] = [
        *(placed.section for placed in stack.tpu_runs),
        *(placed.section for placed in stack.of(TrainingRun)),
    ]
    for run in runs:
        memory = run.resources.memory
        if run.shared_memory is None or memory is None:
            continue
        if parse_quantity(run.shared_memory) > parse_quantity(memory):
            cause = f"/dev/shm of {run.shared_memory} counts toward the memory of the container, which has {memory}. "
            cause += "Kubernetes would kill a container that fills it"
            yield Problem(run.at("sharedMemory"), cause, f"Set it to less than {memory}, or raise resources.memory")


@common.rule
def pools_exist(stack: ResolvedStack) -> Iterator[Problem]:
    """The pool of a workload is in this stack."""
    known = [pool.name for pool in stack.settings.gpu_pools]
    autopilot = stack.cluster.is_autopilot and not stack.unresolved.overlaps("gke-ai:cluster.mode")
    for workload in (placed.section for placed in stack.gpu_workloads):
        if workload.pool is None or workload.pool in known:
            continue
        path = workload.at("pool")
        if problem := common.of_another_engine(workload, stack.pools, path, workload.pool):
            yield problem
        elif autopilot:
            cause = "the cluster is Autopilot and has no pools. The pods would stay pending"
            yield Problem(path, cause, "Set accelerator instead of pool, for example accelerator: nvidia-l4")
        else:
            yield from common.GPU_POOLS.unknown(stack, path, workload.pool, "the pods would stay pending")


@common.rule
def workloads_have_a_pool_or_an_accelerator(stack: ResolvedStack) -> Iterator[Problem]:
    """A GPU workload names a pool of the stack or a GPU type, not both."""
    pools = [pool.name for pool in stack.settings.gpu_pools]
    for workload in (placed.section for placed in stack.gpu_workloads):
        noun = workload.short_noun
        if workload.compute_class is not None:
            continue
        if workload.pool is not None and workload.accelerator is not None:
            cause = f"the {noun} names a pool and an accelerator. The accelerator could contradict that of the pool"
            yield Problem(workload.at("accelerator"), cause, "Remove one of them")
        elif workload.pool is None and workload.accelerator is None:
            cause = f"the {noun} requests GPUs and names no pool or GPU type. It would run on any node"
            names = f"Set pool ({common.join_names(pools)})" if pools else "Set accelerator, for example nvidia-l4"
            yield Problem(workload.at("pool" if pools else "accelerator"), cause, names)
        elif workload.accelerator is not None:
            path, consequence = workload.at("accelerator"), "The pods would stay pending"
            yield from gpu_type_is_supported(path, workload.accelerator, consequence)


@common.needs("gke-ai:cluster.mode", "gke-ai:gpuPools")
def accelerators_are_in_a_pool(stack: ResolvedStack) -> Iterator[Problem]:
    """A new Standard cluster has only the GPUs of its pools."""
    for placed in stack.gpu_workloads:
        workload = placed.section
        if stack.cluster.mode != "standard" or workload.pool is not None or workload.accelerator not in GPUS:
            continue
        if not placed.pools:
            accelerators = dict.fromkeys(pool.gpus[0] for pool in stack.settings.gpu_pools)
            have = f"its pools have {common.join_names(accelerators)}" if accelerators else "it has no GPU pools"
            cause = f"no pool of the cluster has {workload.accelerator}: {have}. The pods would stay pending"
            remedy = f"Add a pool with {workload.accelerator} to gke-ai:gpuPools, or name another GPU type"
            yield Problem(workload.at("accelerator"), cause, remedy)


@common.each(lambda stack: stack.gpu_workloads)
def pools_can_serve(placed: Placed[GpuServer | FineTune | TrainingRun]) -> Iterator[Problem]:
    """The default image runs on the processors of the workload's pool."""
    workload = placed.section
    for pool in placed.nodes.pools if workload.pool is not None else ():
        pinned = workload.image in (None, FINE_TUNE_IMAGE)
        machine_type = machine(pool.node_machine_type)
        if machine_type.arch == "arm64" and pinned:
            cause = f"{machine_type.name} has Arm processors, and the default image is for amd64. It could not start"
            yield Problem(workload.at("image"), cause, "Choose a pool with another machine type")
