"""Rules of servers and runs, each on its own and among themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from catalog.machines import GPUS, MACHINES, NOT_BUILT, Machine, machine, machines_with
from catalog.namespaces import is_system
from catalog.quota import QUEUE_LABEL
from catalog.versions import FINE_TUNE_IMAGE
from settings.model import (
    FineTune,
    GpuPool,
    GpuServer,
    LocalQueue,
    Multislice,
    Server,
    Settings,
    Tgi,
    TpuBatch,
    Workload,
)
from settings.plan import (
    BUILT_IN_PRIORITIES,
    DEFAULT_NAMESPACE,
    bucket_runs,
    fine_tunes,
    gpu_workloads,
    gpus,
    is_autopilot,
    model_path,
    pools_of,
    run_name,
    service_name,
    token_secret_of,
    volume_of,
    workloads,
)
from settings.problems import TOKEN, Problem, nearest, unknown
from settings.rules.common import BEGINS_WITH_A_LETTER, Rule, join_names, kubernetes_labels, needs, repeated
from settings.rules.pools import not_built

_TOKEN_VARIABLES = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "HF_API_TOKEN"}
# By which the slices of a run find each other; set by GKE, or by this program.
MEGASCALE_VARIABLES = ("MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# https://huggingface.co/docs/hub/repositories: NAME or OWNER/NAME
_HUB_ID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]*(/[A-Za-z0-9][-A-Za-z0-9_.]*)?")
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]+")


def noun_of(workload: Workload) -> str:
    if isinstance(workload, Server):
        return "server"
    return "batch Job" if isinstance(workload, TpuBatch) else "training"


def _has_service(workload: Workload) -> bool:
    return not isinstance(workload, Multislice) and not (isinstance(workload, TpuBatch) and workload.service is None)


def names_are_unique(settings: Settings) -> Iterator[Problem]:
    """No two servers, no two runs and no two Services of one name in a namespace."""
    consequence = "the second could not be created"
    servers = ((one, "name", f"{one.namespace}/{one.name}") for one in settings.serving)
    yield from repeated(servers, "server", consequence)
    jobs = ((one, "name", f"{one.namespace}/{one.name}") for one in settings.training)
    yield from repeated(jobs, "training", consequence)
    batch = ((one, "name", f"{one.namespace}/{one.name}") for one in settings.batch)
    yield from repeated(batch, "batch Job", consequence)
    # Two of a kind and name are told once.
    distinct = {
        (noun_of(one), one.namespace, one.name): one for one in reversed(workloads(settings)) if _has_service(one)
    }.values()
    services = ((one, "service", f"{one.namespace}/{service_name(one)}") for one in reversed(list(distinct)))
    yield from repeated(services, "Service", f"{consequence}; it is named after the workload unless service says")


def names_become_dns_names(settings: Settings) -> Iterator[Problem]:
    """Services begin with a letter and leave Kubernetes its own; pods of a run have names of 63 characters at most."""
    for workload in workloads(settings):
        if _has_service(workload) and (workload.namespace, service_name(workload)) == (DEFAULT_NAMESPACE, "kubernetes"):
            cause = "Service kubernetes of namespace default is the API server's — the second could not be created"
            yield Problem(workload.at("service"), cause, "Choose another name")
        if _has_service(workload) and not BEGINS_WITH_A_LETTER.fullmatch(service_name(workload)):
            cause = f"{service_name(workload)} begins with a digit — Kubernetes would refuse the Service"
            key = "name" if service_name(workload) == workload.name else "service"
            yield Problem(workload.at(key), cause, "Begin with a letter, or set service")
    for job in fine_tunes(settings):
        longest = f"{run_name(job)}-{job.pods - 1}"
        if len(longest) > 63:
            cause = f"the pods of the Job would be called {longest}, {len(longest)} characters — 63 are allowed"
            yield Problem(job.at("name"), cause, f"Shorten the name by {len(longest) - 63} characters")


def namespaces_are_the_stacks_own(settings: Settings) -> Iterator[Problem]:
    """The stack makes its namespaces, so none that the cluster's own controllers live in.

    What Kueue holds by a finalizer (pods of a server, Workloads of a Job) is awaited with its namespace when a stack
    goes; so in the default namespace, which stays, there may be none. A JobSet's deletion is awaited itself.
    """
    queues = settings.queues.local_queues if settings.queues else []
    every: list[Workload | LocalQueue] = [*workloads(settings), *queues]
    for one in every:
        if isinstance(one, Workload) and one.namespace == DEFAULT_NAMESPACE:
            if one.queue is not None and not isinstance(one, Multislice):
                cause = (
                    f"the {noun_of(one)} is under a queue in namespace {DEFAULT_NAMESPACE}, which is never deleted — "
                )
                cause += "pods that Kueue still holds when the stack goes would stay for ever"
                yield Problem(one.at("namespace"), cause, "Choose a namespace of the stack's own, for example llm")
        elif is_system(one.namespace):
            cause = f"namespace {one.namespace} belongs to the cluster, and the stack makes its namespaces — "
            yield Problem(one.at("namespace"), f"{cause}it could not be created", "Choose another namespace")


def queues_exist(settings: Settings) -> Iterator[Problem]:
    """A workload's queue is a local queue of its own namespace."""
    local = settings.queues.local_queues if settings.queues else []
    for workload in workloads(settings):
        here = [queue.name for queue in local if queue.namespace == workload.namespace]
        if workload.queue is None or workload.queue in here:
            continue
        elsewhere = [queue.namespace for queue in local if queue.name == workload.queue]
        if elsewhere and workload.queue not in settings.unparsed.names:
            entry = f"{{name: {workload.queue}, namespace: {workload.namespace}, clusterQueue: …}}"
            yield Problem(
                workload.at("queue"),
                f"local queue {workload.queue} is in namespace {join_names(elsewhere)}, not in {workload.namespace}, "
                f"where the {noun_of(workload)} is — Kueue looks in the pod's own namespace and would never admit it",
                f"Add {entry} to gke-ai:queues.localQueues, or set namespace: {elsewhere[0]}",
            )
        else:
            consequence = "Kueue would never admit the pods"
            what = f"in namespace {workload.namespace}, local queue"
            path = workload.at("queue")
            section = "gke-ai:queues.localQueues"
            yield from unknown(settings, path, section, what, workload.queue, here, consequence)


def priority_classes_exist(settings: Settings) -> Iterator[Problem]:
    """A workload's priority class is one of this stack, or built in."""
    own = [one.name for one in settings.queues.priority_classes] if settings.queues else []
    for workload in workloads(settings):
        if workload.priority_class is not None:
            yield from unknown(
                settings,
                workload.at("priorityClass"),
                "gke-ai:queues.priorityClasses",
                "priority class",
                workload.priority_class,
                own if workload.priority_class not in BUILT_IN_PRIORITIES else [workload.priority_class],
                "Kubernetes would refuse the pods",
            )


def pools_exist(settings: Settings) -> Iterator[Problem]:
    """The pool that a workload names is one of this stack."""
    pools = [pool.name for pool in settings.gpu_pools]
    autopilot = is_autopilot(settings.cluster) and not settings.unparsed.overlaps("gke-ai:cluster.mode")
    for workload in gpu_workloads(settings):
        if workload.pool is None or workload.pool in pools:
            continue
        path = workload.at("pool")
        if autopilot:
            cause = f"the cluster is Autopilot and has no pools, so no {workload.pool} — the pods would stay pending"
            yield Problem(path, cause, "Write accelerator: nvidia-l4, or another type, instead of pool")
        else:
            consequence = "the pods would stay pending"
            yield from unknown(settings, path, "gke-ai:gpuPools", "pool", workload.pool, pools, consequence)


def each_says_where_it_runs(settings: Settings) -> Iterator[Problem]:
    """A workload names a pool of the stack, or a GPU type where Google or an existing cluster has the nodes."""
    pools = [pool.name for pool in settings.gpu_pools]
    for workload in gpu_workloads(settings):
        noun = noun_of(workload)
        if workload.compute_class is not None:
            continue
        if workload.pool is not None and workload.accelerator is not None:
            cause = f"the {noun} names a pool and an accelerator — the pool has its own, and the two could disagree"
            yield Problem(workload.at("accelerator"), cause, "Leave one of them out")
        elif workload.pool is None and workload.accelerator is None:
            cause = f"the {noun} asks for GPUs and does not say of which nodes — it would be put on any"
            names = f"Set pool ({join_names(pools)})" if pools else "Set accelerator, for example nvidia-l4"
            yield Problem(workload.at("pool" if pools else "accelerator"), cause, names)
        elif workload.accelerator is not None and workload.accelerator not in GPUS:
            cause = f"{workload.accelerator} is no GPU type of the catalogue — the pods would stay pending"
            yield Problem(workload.at("accelerator"), cause, nearest(workload.accelerator, GPUS))
        elif workload.accelerator is not None:
            for unbuilt in (one for one in machines_with(workload.accelerator) if one.name in NOT_BUILT):
                yield not_built(workload.at("accelerator"), unbuilt)


def runs_stay_where_nodes_reach_each_other(settings: Settings) -> Iterator[Problem]:
    """A run whose pods need several nodes gets no machine whose GPUs reach other nodes over a network of their own.

    This program sets up no such network yet, and over a node's own the GPUs would wait for each other most of the time.
    """
    for run in fine_tunes(settings):
        for machine_type in _machines_of(run, settings):
            if machine_type.fabric and run.pods * run.gpus_per_pod > machine_type.gpus:
                yield Problem(
                    run.at("pods"),
                    f"{run.pods} pods of {run.gpus_per_pod} GPUs need several nodes of {machine_type.name}, which "
                    f"reach each other by {machine_type.fabric}; this program does not set it up yet — the GPUs would "
                    "be paid for and wait for the network",
                    f"Use up to {machine_type.gpus} GPUs in all, on one node, or machines such as g2-standard-96 or "
                    "a2-ultragpu-8g",
                )
                break


def _machines_of(run: FineTune, settings: Settings) -> list[Machine]:
    """The machine types that a run may get, of its pools, its compute class or its GPU type."""
    if run.compute_class is not None:
        priorities = [one.priorities for one in settings.compute_classes if one.name == run.compute_class]
        names = [priority.machine_type for of_class in priorities for priority in of_class]
        return [MACHINES[name] for name in names if name in MACHINES and name not in NOT_BUILT]
    if pools := [pool for pool in pools_of(run, settings) if isinstance(pool, GpuPool)]:
        return [machine(pool.machine_type) for pool in pools]
    return [one for one in machines_with(run.accelerator or "") if one.name not in NOT_BUILT]


@needs("gke-ai:cluster.mode", "gke-ai:gpuPools")
def accelerators_are_in_a_pool(settings: Settings) -> Iterator[Problem]:
    """A new Standard cluster has the GPUs of its pools and no others."""
    for workload in gpu_workloads(settings):
        if settings.cluster.mode != "standard" or workload.pool is not None or workload.accelerator not in GPUS:
            continue
        if not pools_of(workload, settings):
            accelerators = dict.fromkeys(gpus(pool)[0] for pool in settings.gpu_pools)
            have = f"its pools have {join_names(accelerators)}" if accelerators else "it has no GPU pools"
            yield Problem(
                workload.at("accelerator"),
                f"no pool of the cluster has {workload.accelerator}: {have} — the pods would stay pending",
                f"Add a pool with {workload.accelerator} to gke-ai:gpuPools, or name one that is there",
            )


def pools_can_serve(settings: Settings) -> Iterator[Problem]:
    """Pools on whose nodes this stack's workloads could not run."""
    for workload in gpu_workloads(settings):
        for pool in pools_of(workload, settings) if workload.pool is not None else ():
            assert isinstance(pool, GpuPool)
            pinned = workload.image in (None, FINE_TUNE_IMAGE)
            if machine(pool.machine_type).arch == "arm64" and pinned:
                yield Problem(
                    workload.at("image"),
                    f"{pool.machine_type} has Arm processors, and the default image is for amd64 — it could not start",
                    "Choose a pool with another machine type",
                )


def environment_is_free_to_set(settings: Settings) -> Iterator[Problem]:
    """No token in the environment, no variable that a key of the workload already sets, and names that are names."""
    for workload in workloads(settings):
        set_by = _variables(workload)
        for name, value in workload.env.items():
            path = workload.at(f"env.{name}")
            if name in _TOKEN_VARIABLES or TOKEN.search(value):
                yield Problem(
                    path,
                    "a token stands in plain text — everyone who can read this file or the cluster could read it",
                    "Leave it out: run pulumi config set --secret gke-ai:hfToken, and revoke this token",
                )
            elif name in set_by:
                cause = f"{name} is set by {set_by[name]} — the container would have it twice"
                yield Problem(path, cause, f"Leave it out and set {workload.at(set_by[name])}")
            elif not _ENV_NAME.fullmatch(name):
                cause = f'"{name}" is no name of an environment variable — no shell could read it'
                yield Problem(workload.at("env"), cause, "Use letters, digits and '_', not beginning with a digit")


def _variables(workload: Workload) -> Mapping[str, str]:
    if isinstance(workload, Tgi):
        variables = {"NUM_SHARD": "gpus", "MODEL_ID": "model", workload.port_variable: "port"}
        variables["MAX_TOTAL_TOKENS"] = "maxModelLen"
        return variables | ({"QUANTIZE": "quantize"} if workload.quantize else {})
    if isinstance(workload, Multislice):
        return dict.fromkeys(MEGASCALE_VARIABLES, "slices")
    if not isinstance(workload, FineTune):
        return {}
    return {
        "EXPERIMENT": "experiment",
        "MODEL_NAME": "baseModel",
        "NEW_MODEL": "newModel",
        "MODEL_PATH": "modelPath",
        "DATASET_NAME": "dataset.name",
        "DATASET_LIMIT": "dataset.limit",
        "EPOCHS": "epochs",
        "GRADIENT_ACCUMULATION_STEPS": "gradientAccumulationSteps",
        "CHECKPOINT_SAVE_STEPS": "checkpointSteps",
    }


def labels_are_free_to_set(settings: Settings) -> Iterator[Problem]:
    """Labels are well-formed, and not those that a key of the workload already sets."""
    for workload in workloads(settings):
        yield from kubernetes_labels(workload, "labels", workload.labels)
        taken = {QUEUE_LABEL: "queue"} | ({"app": "app"} if isinstance(workload, Server) else {})
        for label in taken.keys() & workload.labels.keys():
            cause = f"label {label} is set by {taken[label]} — the pods would have it twice"
            yield Problem(workload.at("labels"), cause, f"Leave it out and set {workload.at(taken[label])}")
    for server in settings.serving:
        yield from kubernetes_labels(server, "app", {"app": server.app or server.name})


def models_are_hub_ids(settings: Settings) -> Iterator[Problem]:
    """Models and data sets are named as on Hugging Face, not by URL."""
    ids: list[tuple[Workload, str, str]] = [
        (one, "model", one.model) for one in settings.serving if isinstance(one, GpuServer)
    ]
    ids += [(job, "baseModel", job.base_model) for job in fine_tunes(settings)]
    ids += [(job, "dataset.name", job.dataset.name) for job in fine_tunes(settings)]
    for workload, key, name in ids:
        if not _HUB_ID.fullmatch(name):
            cause = f'"{name}" is no id on Hugging Face — the download would fail'
            yield Problem(workload.at(key), cause, "Write OWNER/NAME, for example google/gemma-2-9b-it")


def variables_and_keys_are_names(settings: Settings) -> Iterator[Problem]:
    """The port's variable and the Secret's key have the form that Kubernetes takes."""
    for server in settings.serving:
        if isinstance(server, Tgi) and not _ENV_NAME.fullmatch(server.port_variable):
            cause = (
                f'"{server.port_variable}" is no name of an environment variable — the server would not get its port'
            )
            yield Problem(server.at("portVariable"), cause, "Use letters, digits and '_', not beginning with a digit")
    keys: dict[tuple[str, str], str] = {}
    for workload in workloads(settings):
        secret = token_secret_of(workload)
        if secret is None:
            continue
        if not _SECRET_KEY.fullmatch(secret.key):
            cause = f'"{secret.key}" is no key of a Secret — Kubernetes would refuse it'
            yield Problem(workload.at("tokenSecret.key"), cause, "Use letters, digits, '-', '_' and '.'")
        first = keys.setdefault((workload.namespace, secret.name), secret.key)
        if first != secret.key:
            cause = f"Secret {workload.namespace}/{secret.name} has key {first} for another workload, here {secret.key}"
            yield Problem(workload.at("tokenSecret.key"), cause, f"Write {first}, or give tokenSecret another name")


def paths_are_on_the_volume(settings: Settings) -> Iterator[Problem]:
    """The bucket is mounted at an absolute path, and checkpoints of fine-tuning runs are written below it."""
    for run in bucket_runs(settings):
        volume = volume_of(run)
        assert volume is not None
        mount = PurePosixPath(volume.mount_path)
        if not mount.is_absolute() or mount in (PurePosixPath("/"), PurePosixPath("/dev/shm")):
            cause = f"{mount} can't hold the bucket — it takes an absolute path other than / and /dev/shm"
            yield Problem(run.at("volume.mountPath"), cause, "Write for example /model-data")
        elif isinstance(run, FineTune):
            target = PurePosixPath(model_path(run))
            if not target.is_relative_to(mount) or ".." in target.parts:
                cause = f"{target} is not below {mount}, where the bucket is — checkpoints would be lost with the pod"
                yield Problem(run.at("modelPath"), cause, f"Write a path below {mount}")


def checkpoints_have_a_folder_each(settings: Settings) -> Iterator[Problem]:
    """No two runs write checkpoints to one folder: each would delete the other's, or go on from them."""
    seen: dict[tuple[str, PurePosixPath], FineTune] = {}
    for job in fine_tunes(settings):
        mount, target = PurePosixPath(job.volume.mount_path), PurePosixPath(model_path(job))
        if not target.is_relative_to(mount):
            continue
        first = seen.setdefault((job.volume.bucket, target.relative_to(mount)), job)
        if first is not job:
            cause = f"{first.name} writes its checkpoints to the same folder of bucket {job.volume.bucket}. "
            cause += "Each run would delete the other's, or go on from them"
            remedy = f"Write another folder below {mount}"
            remedy += "" if job.fixed_name else ", or leave it out"
            yield Problem(job.at("modelPath"), cause, remedy)


RULES: tuple[Rule, ...] = (
    names_are_unique,
    names_become_dns_names,
    namespaces_are_the_stacks_own,
    queues_exist,
    priority_classes_exist,
    pools_exist,
    each_says_where_it_runs,
    runs_stay_where_nodes_reach_each_other,
    accelerators_are_in_a_pool,
    pools_can_serve,
    environment_is_free_to_set,
    labels_are_free_to_set,
    models_are_hub_ids,
    variables_and_keys_are_names,
    paths_are_on_the_volume,
    checkpoints_have_a_folder_each,
)
