"""Helpers that several rules share."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from catalog.engines import CURRENT, ENGINES
from catalog.nodes import NVIDIA_GPU
from settings.model import Cluster, Gateway, Monitoring, Queues, Section, Server, Settings, Workload
from settings.problems import Problem, sentence

Rule = Callable[[Settings], Iterator[Problem]]
Item = TypeVar("Item")

# Names of Services and JobSets: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#rfc-1035-label-names
BEGINS_WITH_A_LETTER = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def needs(*sections: str) -> Callable[[Rule], Rule]:
    """Decorates a rule to skip it if one of these sections could not be parsed completely."""

    def decorate(rule: Rule) -> Rule:
        @functools.wraps(rule)
        def guarded(settings: Settings) -> Iterator[Problem]:
            unparsed = settings.unparsed
            if not any(unparsed.overlaps(section) for section in sections):
                yield from rule(settings)

        return guarded

    return decorate


def each(
    items: Callable[[Settings], Iterable[Item]],
) -> Callable[[Callable[[Item], Iterator[Problem]]], Rule]:
    """Decorates a rule on one item: as a rule of the settings, it checks each of these."""

    def decorate(rule: Callable[[Item], Iterator[Problem]]) -> Rule:
        @functools.wraps(rule)
        def of_all(settings: Settings) -> Iterator[Problem]:
            for item in items(settings):
                yield from rule(item)

        return of_all

    return decorate


def the_cluster(settings: Settings) -> list[Cluster]:
    """Returns the cluster, as the only one of a list."""
    return [settings.cluster]


def the_gateway(settings: Settings) -> list[Gateway]:
    """Returns the gateway, if the stack has one."""
    return [settings.gateway] if settings.gateway else []


def the_monitoring(settings: Settings) -> list[Monitoring]:
    """Returns the monitoring, if the stack has it."""
    return [settings.monitoring] if settings.monitoring else []


def queues_of(settings: Settings) -> Queues:
    """Returns the section of queues; an empty one if the stack has none."""
    return settings.queues or Queues()


def of_another_engine(workload: Workload, settings: Settings, path: str, name: str) -> Problem | None:
    """A problem if a server's pool has accelerators that its engine does not run on; `path` is that of the pool."""
    others = {pool.accelerator_resource for pool in settings.pools if pool.name == name}
    if not isinstance(workload, Server) or not others or workload.accelerator_resource in others:
        return None
    (other,) = others
    has, runs_on = ("GPUs", "TPUs") if other == NVIDIA_GPU else ("TPUs", "GPUs")
    cause = (
        f"pool {name} has {has}, and {ENGINES[workload.engine].title} runs on {runs_on}. The pods would stay pending"
    )
    kind = {"GPUs": "GPU", "TPUs": "TPU"}[runs_on]
    return Problem(path, cause, f"Set engine: {CURRENT[other]}, or name a {kind} pool")


def repeated(named: Iterable[tuple[Section, str, str]], noun: str, consequence: str) -> Iterator[Problem]:
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
            yield Problem(
                section.at(key),
                f"{label} is not a valid label key. Kubernetes would refuse the objects",
                "Use up to 63 letters, digits, '-', '_' and '.', after an optional DNS prefix and '/'",
            )
        if value and not _LABEL_NAME.fullmatch(value):
            yield Problem(
                section.at(key),
                f"the value of {label} is not a valid label value. Kubernetes would refuse the objects",
                "Use up to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
            )


def join_names(values: Iterable[object]) -> str:
    """Joins values with commas, for use in a sentence."""
    return ", ".join(str(value) for value in values)
