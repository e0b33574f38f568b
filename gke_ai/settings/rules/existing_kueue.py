"""Rules of a Kueue or a JobSet that the cluster has from somebody else."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic.alias_generators import to_camel

from gke_ai.settings.problems import Problem
from gke_ai.settings.rules.common import needs, rule
from gke_ai.settings.stack import ResolvedStack

# The keys that configure each controller, where the stack installs it.
_KEYS = {
    "kueue": ("kueue_version", "manager_replicas", "pods_ready_timeout_seconds"),
    "jobset": ("jobset_version",),
}
_NAMES = {"kueue": "Kueue", "jobset": "JobSet"}


def _existing(stack: ResolvedStack) -> list[str]:
    """The controllers that the stack does not install."""
    origins = {"kueue": stack.queues.kueue, "jobset": stack.queues.jobset}
    return [controller for controller, origin in origins.items() if origin == "existing"]


@needs("gke-ai:cluster.mode")
def a_new_cluster_has_no_controllers(stack: ResolvedStack) -> Iterator[Problem]:
    """Only an existing cluster can have a Kueue or a JobSet of somebody else."""
    for controller in _existing(stack) if stack.cluster.mode != "existing" else ():
        cause = f"the stack creates the cluster, which has no {_NAMES[controller]} yet. Nothing would ever start"
        yield Problem(stack.queues.at(controller), cause, "Remove it, or set gke-ai:cluster.mode to existing")


@rule
def others_configure_their_controllers(stack: ResolvedStack) -> Iterator[Problem]:
    """Keys that configure a controller are for one that the stack installs."""
    for controller in _existing(stack):
        for key in _KEYS[controller]:
            if key in stack.queues.model_fields_set:
                name = _NAMES[controller]
                cause = f"the cluster has its {name} from somebody else, and this stack does not configure it"
                yield Problem(stack.queues.at(to_camel(key)), cause, f"Remove it, and ask the owner of {name}")
