"""Rules of batch Jobs and Multislice runs on TPUs, and of any Job on nodes that queued provisioning brings.

Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus (slices, Multislice),
https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest (queued provisioning),
https://cloud.google.com/kubernetes-engine/docs/concepts/autopilot-security (what Autopilot refuses),
https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity#limitations (host network)
"""

from __future__ import annotations

from collections.abc import Iterator

from catalog.quantities import parse_quantity
from settings.model import FineTune, Multislice, QueuedFlexStart, Settings, TpuBatch, TpuPool
from settings.plan import (
    DEFAULT_NAMESPACE,
    cluster_queue_of,
    flavor_pools,
    grows,
    is_autopilot,
    multislices,
    pool_of_slice,
    pool_slice,
    pools_of,
    run_name,
    service_name,
    workload_slice,
    workloads,
)
from settings.problems import Problem
from settings.rules.common import BEGINS_WITH_A_LETTER, Rule, join_names, needs
from settings.rules.workloads import noun_of

TpuRun = TpuBatch | Multislice
# Pods of a JobSet: JOBSET-slice-JOB-POD-xxxxx.
_POD_SUFFIX = 6
_MAX_NAME_LENGTH = 63


def _runs(settings: Settings) -> list[TpuRun]:
    return [one for one in workloads(settings) if isinstance(one, TpuBatch | Multislice)]


def _own_pools(run: TpuRun, settings: Settings) -> list[TpuPool]:
    return [pool for pool in pools_of(run, settings) if isinstance(pool, TpuPool)]


def slices_are_named_once(settings: Settings) -> Iterator[Problem]:
    """A flavor names pools or describes a slice, and a run names each of its pools once."""
    for flavor in settings.queues.flavors if settings.queues else []:
        if flavor.tpu is not None and flavor.pools:
            cause = (
                f"flavor {flavor.name} names pools and describes a slice — pools have theirs, and they could disagree"
            )
            yield Problem(flavor.at("tpu"), cause, "Leave out tpu, or pools")
    for run in multislices(settings):
        for index, name in enumerate(run.pools):
            if name in run.pools[:index]:
                cause = f"{name} is there twice — it is one slice, and no two child Jobs can have it"
                yield Problem(run.at(f"pools[{index}]"), cause, "Write it once")


def slices_of_a_run_are_alike(settings: Settings) -> Iterator[Problem]:
    """Multislice is over multi-host slices of one version, topology and machine."""
    for run in multislices(settings):
        own = _own_pools(run, settings)
        slices = dict.fromkeys(pool_slice(pool) for pool in own)
        if len(slices) > 1 and run.tpu is None:
            each = join_names(
                f"{pool.name}: {pool.version} {pool.topology} of {pool_slice(pool).machine_type}" for pool in own
            )
            cause = (
                f"the pools of {run.name} differ ({each}) — Multislice is over equal slices, and GKE would refuse it"
            )
            yield Problem(run.at("pools"), cause, "Name pools of one version, topology and machine type")
            continue
        tpu_slice = workload_slice(run, settings)
        if not tpu_slice.multi_host:
            yield Problem(
                run.at("tpu" if run.tpu is not None else "pools"),
                f"a {tpu_slice.topology} slice of {tpu_slice.machine_type} is one machine, and Multislice is over "
                "multi-host slices — GKE would refuse it",
                "Take a larger topology, or a machine with 4 chips; or write a Job of gke-ai:batch for each slice",
            )
            continue
        modes = {pool.capacity.mode for pool in own}
        if "queuedFlexStart" in modes and len(modes) > 1:
            cause = (
                f"some pools of {run.name} come by queued provisioning and some don't — a request is for all of them"
            )
            yield Problem(run.at("pools"), cause, "Name pools of one capacity mode")


@needs("gke-ai:tpuPools")
def there_is_a_pool_for_each_slice(settings: Settings) -> Iterator[Problem]:
    """A multi-host pool is one slice."""
    for run in multislices(settings):
        own = _own_pools(run, settings)
        if own and all(pool_slice(pool).multi_host for pool in own) and run.slices > len(own):
            cause = f"{run.slices} slices need as many pools, and {run.name} has {len(own)}: a multi-host pool is one "
            cause += "slice — it would wait for ever"
            yield Problem(run.at("slices"), cause, f"Set it to {len(own)} or less, or name more pools")


@needs("gke-ai:cluster.mode", "gke-ai:cluster.existingMode")
def autopilot_lets_in_what_it_does(settings: Settings) -> Iterator[Problem]:
    """Autopilot refuses privileged containers and the network of its nodes."""
    for run in _runs(settings) if is_autopilot(settings.cluster) else []:
        if run.privileged:
            cause = "the cluster is Autopilot, which has no privileged containers — the pods would be refused"
            yield Problem(run.at("privileged"), cause, "Leave it out: TPUs need none on GKE since 1.28")
        if isinstance(run, Multislice) and run.host_network:
            cause = "the cluster is Autopilot, whose pods don't get the network of their node — they would be refused"
            yield Problem(run.at("hostNetwork"), cause, "Leave it out")


def host_network_has_no_identity(settings: Settings) -> Iterator[Problem]:
    """Pods on the network of their node get the node's identity, whatever their service account."""
    for run in multislices(settings):
        if run.host_network and run.service_account != "default":
            cause = f"the pods have the network of their node, where service account {run.service_account} has no "
            cause += "workload identity — they would act as the node, and its grants would do nothing"
            yield Problem(run.at("serviceAccount"), cause, "Leave out hostNetwork, or serviceAccount")
        elif run.host_network and run.volume is not None:
            cause = "the pods have the network of their node, where they have no workload identity — "
            cause += "they could not mount the bucket"
            yield Problem(run.at("volume"), cause, "Leave out hostNetwork, or volume")


def services_are_for_several_pods(settings: Settings) -> Iterator[Problem]:
    """A headless Service is what the pods of a multi-host Job meet by; a single pod has none to meet."""
    for run in settings.batch:
        if run.service is not None and not workload_slice(run, settings).multi_host:
            cause = f"the Job runs one pod, on a single-host slice, and service {run.service} — would not be made"
            yield Problem(run.at("service"), cause, "Leave it out, or choose a multi-host slice")


def names_do_not_collide(settings: Settings) -> Iterator[Problem]:
    """Jobs and Services that are named by the program have names that no other has."""
    jobs: dict[tuple[str, str], str] = {
        (one.namespace, run_name(one)): "training" for one in settings.training if isinstance(one, FineTune)
    }
    named = [one for one in workloads(settings) if not isinstance(one, TpuBatch | Multislice)]
    services = {(one.namespace, service_name(one)): one.name for one in named}
    services |= {(one.namespace, one.service): one.name for one in settings.batch if one.service is not None}
    for run in _runs(settings):
        if isinstance(run, TpuBatch) and (run.namespace, run_name(run)) in jobs:
            cause = f"a fine-tuning run and a batch Job are called {run_name(run)} — the second could not be created"
            yield Problem(run.at("name"), cause, "Give one another name")
            continue
        meets = isinstance(run, Multislice) or (run.service is None and workload_slice(run, settings).multi_host)
        # The Service is the JobSet's, or has the same hash in its name as the Job.
        service = run_name(run)
        if meets and (run.namespace, service) in services:
            owner = services[run.namespace, service]
            cause = f"the Service by which its pods meet would be called {service}, as that of {owner} is — "
            key = "name" if isinstance(run, Multislice) else "service"
            yield Problem(run.at(key), f"{cause}the second could not be created", f"Set another {key}")


def names_leave_room(settings: Settings) -> Iterator[Problem]:
    """Names of pods, which follow from that of their run, are DNS names: 63 characters, beginning with a letter."""
    for run in _runs(settings):
        last = workload_slice(run, settings).hosts - 1
        if isinstance(run, Multislice):
            index = f"{run.slices - 1}-0" if pool_of_slice(run, settings) else f"{run.slices - 1}"
            longest = len(f"{run_name(run)}-slice-{index}-{last}") + _POD_SUFFIX
            if not BEGINS_WITH_A_LETTER.fullmatch(run.name):
                cause = f"{run.name} begins with a digit — JobSet would refuse it"
                yield Problem(run.at("name"), cause, "Begin with a letter")
        else:
            longest = len(f"{run_name(run)}-{last}")
            service = service_name(run)
            if last and not BEGINS_WITH_A_LETTER.fullmatch(service) and run.service is None:
                cause = f"{service} begins with a digit — Kubernetes would refuse the Service of that name"
                yield Problem(run.at("name"), cause, "Begin with a letter, or set service")
        if longest > _MAX_NAME_LENGTH:
            cause = (
                f"names of the {noun_of(run)}'s pods would have {longest} characters — {_MAX_NAME_LENGTH} are allowed"
            )
            yield Problem(run.at("name"), cause, f"Shorten the name by {longest - _MAX_NAME_LENGTH} characters")


def shared_memory_is_memory_of_the_container(settings: Settings) -> Iterator[Problem]:
    """What is written to /dev/shm counts as memory of the container.

    https://kubernetes.io/docs/concepts/storage/volumes/#emptydir
    """
    for run in _runs(settings):
        memory = run.resources.memory
        if run.shared_memory is None or memory is None:
            continue
        if parse_quantity(run.shared_memory) > parse_quantity(memory):
            cause = f"/dev/shm of {run.shared_memory} counts as memory of the container, which has {memory} — "
            cause += "a container that filled it would be killed"
            yield Problem(run.at("sharedMemory"), cause, f"Set it to less than {memory}, or raise resources.memory")


def ports_are_ports(settings: Settings) -> Iterator[Problem]:
    """Ports are numbers from 1 to 65535, each once."""
    for run in _runs(settings):
        for index, port in enumerate(run.ports):
            if not 1 <= port <= 65535:
                cause = f"{port} is no port — Kubernetes would refuse the pods"
                yield Problem(run.at(f"ports[{index}]"), cause, "Write a number from 1 to 65535")
            elif port in run.ports[:index]:
                cause = f"port {port} is there twice — Kubernetes would refuse the pods"
                yield Problem(run.at(f"ports[{index}]"), cause, "Write it once")


def runs_in_the_default_namespace_have_fixed_names(settings: Settings) -> Iterator[Problem]:
    """Runs that were replaced stay until their namespace goes, and the default namespace never does."""
    for run in [*settings.training, *settings.batch]:
        if run.namespace == DEFAULT_NAMESPACE and not run.fixed_name:
            cause = "a changed run is made beside the old, which stays until its namespace goes, and namespace "
            cause += f"{DEFAULT_NAMESPACE} never does — old runs could not be told from those of others"
            remedy = "Set fixedName: true, or choose a namespace of the stack's own, for example llm"
            yield Problem(run.at("namespace"), cause, remedy)


@needs("gke-ai:queues", "gke-ai:gpuPools", "gke-ai:tpuPools")
def queued_pools_take_queued_runs(settings: Settings) -> Iterator[Problem]:
    """Nodes of a queued pool come for a request, which Kueue makes for what it admits by a flavor of such pools."""
    for one in workloads(settings):
        queued = [pool for pool in pools_of(one, settings) if isinstance(pool.capacity, QueuedFlexStart)]
        named = isinstance(one, Multislice) or getattr(one, "pool", None) is not None
        if not queued or not named:
            continue
        pool = queued[0]
        path = one.at("pools" if isinstance(one, Multislice) else "pool")
        cause = f"the nodes of pool {pool.name} come only for a ProvisioningRequest, for all pods of a Job at once"
        if not isinstance(one, FineTune | Multislice | TpuBatch):
            remedy = f"Set {pool.at('capacity')} to {{mode: flexStart}}, or choose another pool"
            yield Problem(path, f"{cause}, and this is a server — its pods would stay pending", remedy)
            continue
        queue = cluster_queue_of(one, settings)
        flavors = settings.queues.flavors if settings.queues else []
        given = {each.flavor for each in queue.flavors} if queue else set()
        own = [flavor for flavor in flavors if flavor.name in given and pool.name in flavor.pools]
        if one.queue is None or (queue is not None and not own):
            missing = "it is under no queue" if one.queue is None else "no flavor of its queue is of that pool"
            yield Problem(
                path,
                f"{cause}, which Kueue makes, and {missing} — its pods would stay pending",
                f"Run it under a queue that gives quota of a flavor with pools: [{pool.name}], "
                f"or set {pool.at('capacity')} to {{mode: flexStart}}",
            )


@needs("gke-ai:gpuPools", "gke-ai:tpuPools")
def flavors_are_queued_or_not(settings: Settings) -> Iterator[Problem]:
    """All pools of a flavor come by queued provisioning, or none: its admission check is for all of its nodes."""
    for flavor in settings.queues.flavors if settings.queues else []:
        own = flavor_pools(flavor, settings)
        queued = [pool.name for pool in own if isinstance(pool.capacity, QueuedFlexStart)]
        if queued and len(queued) < len(own):
            cause = f"of the pools of flavor {flavor.name}, {join_names(queued)} come by queued provisioning and the "
            cause += "others don't — Kueue would ask for nodes of all of them, or of none"
            yield Problem(flavor.at("pools"), cause, "Make a flavor of each kind")


@needs("gke-ai:tpuPools")
def bounds_of_runs_fit_their_pools(settings: Settings) -> Iterator[Problem]:
    """A bound of the run is for queued provisioning, and no longer than the nodes live."""
    for run in settings.batch:
        if run.max_run_duration_seconds is None:
            continue
        modes = [pool.capacity for pool in pools_of(run, settings)]
        queued = [mode for mode in modes if isinstance(mode, QueuedFlexStart)]
        path = run.at("maxRunDurationSeconds")
        if not queued:
            cause = "only queued provisioning asks how long a run takes — on these nodes nothing would read it"
            yield Problem(path, cause, "Leave it out, or run on a pool with capacity: {mode: queuedFlexStart}")
            continue
        longest = min(mode.max_run_duration_seconds for mode in queued)
        if run.max_run_duration_seconds > longest:
            cause = (
                f"the run may take {run.max_run_duration_seconds} s, and the nodes of its pool live for {longest} s — "
            )
            yield Problem(path, f"{cause}the request would be refused", f"Set it to {longest} or less")


@needs("gke-ai:queues", "gke-ai:tpuPools")
def shared_growing_pools_are_counted_each(settings: Settings) -> Iterator[Problem]:
    """Runs that share pools which grow from zero have quota of each pool by itself.

    Such a run names the pool of each slice, and a flavor of several pools can't say which of them is free: two runs
    would be let in for pools that each has one of, and wait for the other's.
    """
    seen: dict[str, Multislice] = {}
    for run in multislices(settings):
        queue = cluster_queue_of(run, settings)
        own = [pool for pool in _own_pools(run, settings) if grows(pool)]
        shared = [pool.name for pool in own if pool.name in seen]
        for pool in own:
            seen.setdefault(pool.name, run)
        if not shared or queue is None or settings.queues is None:
            continue
        given = {each.flavor for each in queue.flavors}
        several = [
            flavor
            for flavor in settings.queues.flavors
            if flavor.name in given and (len(flavor.pools) > 1) and set(flavor.pools) & set(shared)
        ]
        if several:
            cause = (
                f"{seen[shared[0]].name} and {run.name} share pools that grow from zero, each slice has its pool by "
            )
            cause += (
                f"name, and flavor {several[0].name} counts {join_names(several[0].pools)} as one — both could be let "
            )
            cause += "in and wait for a pool that the other has"
            yield Problem(run.at("pools"), cause, "Make a flavor of each pool, or give the runs pools of their own")
            return


RULES: tuple[Rule, ...] = (
    slices_are_named_once,
    slices_of_a_run_are_alike,
    there_is_a_pool_for_each_slice,
    autopilot_lets_in_what_it_does,
    host_network_has_no_identity,
    services_are_for_several_pods,
    names_do_not_collide,
    names_leave_room,
    shared_memory_is_memory_of_the_container,
    ports_are_ports,
    runs_in_the_default_namespace_have_fixed_names,
    queued_pools_take_queued_runs,
    flavors_are_queued_or_not,
    bounds_of_runs_fit_their_pools,
    shared_growing_pools_are_counted_each,
)
