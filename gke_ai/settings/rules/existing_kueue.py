"""Rules of a Kueue or a JobSet that the cluster has from somebody else, of objects by name, and of versions."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic.alias_generators import to_camel

from gke_ai.catalog.kueue.configuration import minor
from gke_ai.catalog.kueue.namespaces import is_system
from gke_ai.catalog.kueue.operators import OPERATORS, TRAINER
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.settings.model import Flavor, LocalQueue
from gke_ai.settings.problems import Problem, nearest
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules.common import needs, rule

# The keys that configure each controller, where the stack installs it.
_KEYS = {
    "kueue": (
        *("kueue_version", "manager_replicas", "pods_ready_timeout_seconds"),
        *("fair_sharing", "admission_fair_sharing"),
    ),
    "jobset": ("jobset_version",),
}
_NAMES = {"kueue": "Kueue", "jobset": "JobSet", **{key: operator.name for key, operator in OPERATORS.items()}}
# Its predecessors write another field of TrainJobs: https://github.com/kubernetes-sigs/kueue/blob/v0.16.2/go.mod
OLDEST_KUEUE_FOR_TRAINER = (0, 18)
# First version of Kueue that stores the API version of this program's objects: https://github.com/kubernetes-sigs/kueue/releases
OLDEST_KUEUE = (0, 16)


def _existing(stack: ResolvedStack) -> list[str]:
    """The controllers that the stack does not install."""
    origins = {"kueue": stack.queues.kueue, "jobset": stack.queues.jobset, **stack.queues.operators}
    return [controller for controller, origin in origins.items() if origin == "existing"]


@needs("gke-ai:cluster.mode")
def a_new_cluster_has_no_controllers(stack: ResolvedStack) -> Iterator[Problem]:
    """Only an existing cluster can have controllers of somebody else."""
    for controller in _existing(stack) if stack.cluster.mode != "existing" else ():
        cause = f"the stack creates the cluster, which has no {_NAMES[controller]} yet. Nothing would ever start"
        yield Problem(stack.queues.at(controller), cause, "Remove it, or set gke-ai:cluster.mode to existing")


@rule
def others_configure_their_controllers(stack: ResolvedStack) -> Iterator[Problem]:
    """Keys that configure a controller are for one that the stack installs."""
    for controller in _existing(stack):
        for key in _KEYS.get(controller, ()):
            if key in stack.queues.model_fields_set:
                name = _NAMES[controller]
                cause = f"the cluster has its {name} from somebody else, and this stack does not configure it"
                yield Problem(stack.queues.at(to_camel(key)), cause, f"Remove it, and ask the owner of {name}")


@rule
def kueue_knows_the_trainer(stack: ResolvedStack) -> Iterator[Problem]:
    """Kueue is not older than the API of TrainJobs."""
    queues = stack.queues
    if queues.trainer and queues.kueue_version and minor(queues.kueue_version) < OLDEST_KUEUE_FOR_TRAINER:
        cause = f"Kueue {queues.kueue_version} does not know TrainJobs of {TRAINER.name} {TRAINER.version}"
        oldest = ".".join(map(str, OLDEST_KUEUE_FOR_TRAINER))
        yield Problem(queues.at("trainer"), f"{cause}. None would start", f"Set kueueVersion to {oldest} or newer")


@rule
def tenants_know_the_operator_of_ray(stack: ResolvedStack) -> Iterator[Problem]:
    """Tenants let controllers create pods by their service accounts. Google does not document that of its add-on."""
    if stack.queues.ray == "addon" and stack.settings.tenants:
        cause = "Google does not document the account of GKE's Ray operator. "
        cause += "The tenants' policies would refuse its pods"
        yield Problem(stack.queues.at("ray"), cause, "Write ray: install")


@needs("gke-ai:cluster.mode")
def objects_by_name_can_exist(stack: ResolvedStack) -> Iterator[Problem]:
    """Only an existing cluster has objects before the stack, and those of Kueue's kinds only with a Kueue."""
    queues = stack.queues
    of_kueue: list[Flavor | LocalQueue] = [*queues.flavors, *queues.local_queues]
    for item in of_kueue if queues.kueue == "install" else ():
        if item.mode == "existing":
            cause = f"{item.noun} can exist only in a cluster that has Kueue, and this stack installs it"
            yield Problem(item.at("mode"), cause, "Remove mode, or set kueue: existing in gke-ai:queues")
    for priority in queues.priority_classes if stack.cluster.mode != "existing" else ():
        if priority.mode == "existing":
            cause = f"the stack creates the cluster, which has no priority class {priority.name} yet"
            yield Problem(priority.at("mode"), cause, "Remove mode, or set gke-ai:cluster.mode to existing")


@needs("gke-ai:gpuPools", "gke-ai:tpuPools")
def flavors_of_queued_pools_are_created(stack: ResolvedStack) -> Iterator[Problem]:
    """A flavor whose pools use queued provisioning has an admission check of its name, which the stack creates."""
    for flavor in stack.flavors:
        if flavor.section.mode == "existing" and flavor.queued_resource:
            cause = "its pools use queued provisioning, for which the stack creates an admission check with the flavor"
            yield Problem(flavor.section.at("mode"), cause, "Remove mode, and give the flavor a name of its own")


@needs("gke-ai:cluster.mode")
def namespaces_by_name_can_exist(stack: ResolvedStack) -> Iterator[Problem]:
    """Only an existing cluster has namespaces before the stack, and the stack puts something into each of them."""
    named = stack.cluster.existing_namespaces
    path = stack.cluster.at("existingNamespaces")
    if named and stack.cluster.mode != "existing":
        cause = "the stack creates the cluster, which has no such namespaces yet"
        yield Problem(path, cause, "Remove existingNamespaces, or set mode: existing")
        return
    for name in named:
        if is_system(name):
            cause = f"namespace {name} belongs to the cluster. Workloads do not belong there"
            yield Problem(path, cause, f"Remove {name}")
        elif name not in stack.namespaces and not stack.unresolved.paths:
            cause = f"the stack has nothing in namespace {name}. The key would have no effect"
            yield Problem(path, cause, nearest(name, stack.namespaces) or f"Remove {name}")


@rule
def kueue_knows_the_objects(stack: ResolvedStack) -> Iterator[Problem]:
    """Kueue is not older than the API version of this program's objects."""
    pinned = stack.queues.kueue_version
    if pinned and minor(pinned) < OLDEST_KUEUE:
        oldest = ".".join(map(str, OLDEST_KUEUE))
        cause = f"Kueue {pinned} does not store {KUEUE_API}. Its queues would differ from the configuration"
        remedy = f"Set {oldest} or newer, or remove kueueVersion (docs/upgrading.md)"
        yield Problem("gke-ai:queues.kueueVersion", cause, remedy)
