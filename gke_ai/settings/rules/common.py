"""Helpers that several rules share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

from gke_ai.catalog.engines.engine import CURRENT, ENGINES
from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.settings.model import Hours, Pool, Section, Server, Workload
from gke_ai.settings.model.budgets import WEEK_MINUTES
from gke_ai.settings.problems import Problem, nearest, sentence
from gke_ai.settings.resolved import ResolvedStack, Routed

# Names of Services and JobSets: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#rfc-1035-label-names
BEGINS_WITH_A_LETTER = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


Item = TypeVar("Item")
OfStack = Callable[[ResolvedStack], Iterator[Problem]]
OfItem = Callable[[Item], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """A rule of a stack. It is skipped if a section that it needs is unresolved."""

    problems: OfStack
    needed: tuple[str, ...] = ()
    skips: Callable[[ResolvedStack], bool] = lambda _: False

    def check(self, stack: ResolvedStack) -> Iterator[Problem]:
        """The problems of the stack."""
        if not self.skips(stack) and not any(stack.unresolved.overlaps(section) for section in self.needed):
            yield from self.problems(stack)


def rule(problems: OfStack) -> Rule:
    """Decorates a rule across items."""
    return Rule(problems)


def each(items: Callable[[ResolvedStack], Iterable[Item]]) -> Callable[[OfItem[Item]], Rule]:
    """Decorates a rule on one item: it checks each of these in turn."""
    return lambda problems: Rule(lambda stack: chain.from_iterable(map(problems, items(stack))))


def needs(*sections: str) -> Callable[[OfStack | Rule], Rule]:
    """Decorates a rule to skip it if one of these sections could not be parsed or resolved completely."""

    def decorate(problems: OfStack | Rule) -> Rule:
        decorated = problems if isinstance(problems, Rule) else Rule(problems)
        return replace(decorated, needed=(*decorated.needed, *sections))

    return decorate


of_the_cluster = each(lambda stack: [stack.cluster])
of_the_gateway = each(lambda stack: [stack.settings.gateway] if stack.settings.gateway else [])
each_pool = each(lambda stack: stack.pools)
each_gpu_pool = each(lambda stack: stack.settings.gpu_pools)
each_tpu_pool = each(lambda stack: stack.settings.tpu_pools)
each_server = each(lambda stack: stack.settings.serving)


@dataclass(frozen=True)
class Named:
    """Items of a section that other sections name."""

    section: str
    noun: str
    names: Callable[[ResolvedStack], Iterable[str]]

    def unknown(self, stack: ResolvedStack, path: str, name: str, consequence: str) -> Iterator[Problem]:
        """A problem at `path` if no item has this name, and none that is unresolved may have it."""
        names = list(self.names(stack))
        if name not in names and not stack.unresolved.may_contain(self.section, name):
            remedy = nearest(name, names) or f"This stack has none. Add {name} to {self.section}"
            yield Problem(path, f"{self.noun} {name} does not exist. {sentence(consequence)}", remedy)


def _names(items: Iterable[Any]) -> list[str]:
    return [item.name for item in items]


BUCKETS = Named("gke-ai:buckets", "bucket", lambda stack: _names(stack.settings.buckets))
GPU_POOLS = Named("gke-ai:gpuPools", "pool", lambda stack: _names(stack.settings.gpu_pools))
TPU_POOLS = Named("gke-ai:tpuPools", "TPU pool", lambda stack: _names(stack.settings.tpu_pools))
CLASSES = Named("gke-ai:computeClasses", "compute class", lambda stack: _names(stack.settings.compute_classes))
SERVERS = Named("gke-ai:serving", "server", lambda stack: _names(stack.settings.serving))
FLAVORS = Named("gke-ai:queues.flavors", "flavor", lambda stack: _names(stack.queues.flavors))
CLUSTER_QUEUES = Named("gke-ai:queues.clusterQueues", "cluster queue", lambda s: _names(s.queues.cluster_queues))
COHORTS = Named(
    *("gke-ai:queues.cohorts", "cohort"),
    lambda s: [*_names(s.queues.cohorts), *filter(None, (queue.cohort for queue in s.queues.cluster_queues))],
)
PRIORITIES = Named("gke-ai:queues.priorityClasses", "priority class", lambda s: _names(s.queues.priority_classes))


def of_another_engine(workload: Workload, pools: Sequence[Pool], path: str, name: str) -> Problem | None:
    """A problem if a server's pool has accelerators that its engine does not run on; `path` is that of the pool."""
    others = {pool.accelerator_resource for pool in pools if pool.name == name}
    if not isinstance(workload, Server) or not others or workload.accelerator_resource in others:
        return None
    (other,) = others
    has, runs_on = ("GPUs", "TPUs") if other == NVIDIA_GPU else ("TPUs", "GPUs")
    cause = f"pool {name} has {has}, and {ENGINES[workload.engine].title} runs on {runs_on}. "
    cause += "The pods would stay pending"
    return Problem(path, cause, f"Set engine: {CURRENT[other]}, or name a {runs_on.removesuffix('s')} pool")


def repeated(named: Iterable[tuple[Section | Routed, str, str]], noun: str, consequence: str) -> Iterator[Problem]:
    """A problem for each name that occurs more than once; `named` has section, key and name."""
    seen: Counter[str] = Counter()
    for section, key, name in named:
        seen[name] += 1
        if seen[name] == 2:
            cause = f"{noun} {name} is defined twice. {sentence(consequence)}"
            yield Problem(section.at(key), cause, "Rename one of them")


def kubernetes_labels(section: Section, key: str, labels: Mapping[str, str]) -> Iterator[Problem]:
    """Problems of label keys and values that Kubernetes would refuse."""
    for label, value in labels.items():
        prefix, slash, name = label.rpartition("/")
        if not _LABEL_NAME.fullmatch(name) or (slash and not _LABEL_PREFIX.fullmatch(prefix)) or (len(prefix) > 253):
            cause = f"{label} is not a valid label key. Kubernetes would refuse the objects"
            remedy = "Use up to 63 letters, digits, '-', '_' and '.', after an optional DNS prefix and '/'"
            yield Problem(section.at(key), cause, remedy)
        if value and not _LABEL_NAME.fullmatch(value):
            cause = f"the value of {label} is not a valid label value. Kubernetes would refuse the objects"
            remedy = "Use up to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
            yield Problem(section.at(key), cause, remedy)


def empty_labels(section: Section, labels: Mapping[str, str]) -> Iterator[Problem]:
    """Problems of labels without a value, which Google's provider does not write (`finalizeDiff` of its SDK).

    https://github.com/hashicorp/terraform-plugin-sdk/blob/v2.40.1/helper/schema/schema.go
    """
    for label, value in labels.items():
        if not value:
            cause = f"label {label} has no value. Google's provider drops such labels, or plans them in every preview"
            yield Problem(section.at("labels"), cause, "Write a value, such as true")


def join_names(values: Iterable[object]) -> str:
    """Joins values with commas, for use in a sentence."""
    return ", ".join(str(value) for value in values)


def hours_are_a_part_of_the_week(
    listed: Sequence[Hours], path: str, noun: str, use: str, whole: str
) -> Iterator[Problem]:
    """Problems of hours that are empty, overlap, or are the whole week. `whole` is the remedy for the last."""
    known: set[int] = set()
    for index, hours in enumerate(listed):
        minutes = hours.minutes()
        if not minutes:
            cause = f"start and end are both {hours.start}. The {noun} would never {use}"
            yield Problem(f"{path}[{index}]", cause, "Write 00:00 and 24:00 for a whole day")
        if minutes & known:
            cause = f"these hours overlap with others of the {noun}. One of them may be a mistake"
            yield Problem(f"{path}[{index}]", cause, "Write each hour once")
        known |= minutes
    if len(known) == WEEK_MINUTES:
        yield Problem(path, "these hours are the whole week. They have no effect", whole)
