"""Helpers that several rules share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from gke_ai.catalog.engines import CURRENT, ENGINES
from gke_ai.catalog.nodes import NVIDIA_GPU
from gke_ai.settings.model import Pool, Section, Server, Workload
from gke_ai.settings.problems import Problem, sentence
from gke_ai.settings.stack import ResolvedStack

# Names of Services and JobSets: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#rfc-1035-label-names
BEGINS_WITH_A_LETTER = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True)
class Rule:
    """A rule, and the items that it checks.

    Its parameters name sections of the configuration or items of `ResolvedStack`. With `each`, its first parameter is
    one item of that list. A rule is skipped if a section that it needs is unresolved.
    """

    problems: Callable[..., Iterator[Problem]]
    each: str = ""
    needed: tuple[str, ...] = ()
    skips: Callable[[ResolvedStack], bool] = lambda _: False

    def check(self, stack: ResolvedStack) -> Iterator[Problem]:
        """The problems of the items."""
        if self.skips(stack) or any(stack.settings.unresolved.overlaps(section) for section in self.needed):
            return
        names = list(signature(self.problems).parameters)[bool(self.each) :]
        items = {name: items_of(stack, name) for name in names}
        for first in ([item] for item in listed(items_of(stack, self.each))) if self.each else [[]]:
            yield from self.problems(*first, **items)


def items_of(stack: ResolvedStack, name: str) -> Any:
    """The items of the stack under a name: resolved ones, else the section of the configuration."""
    return getattr(stack, name) if hasattr(type(stack), name) else getattr(stack.settings, name)


def listed(items: Any) -> list[Any]:
    """A list, also of a section of which a stack has at most one."""
    return items if isinstance(items, list) else [] if items is None else [items]


def rule(problems: Callable[..., Iterator[Problem]]) -> Rule:
    """Decorates a rule across items, which its parameters name."""
    return Rule(problems)


def each(items: str) -> Callable[[Callable[..., Iterator[Problem]]], Rule]:
    """Decorates a rule on one item: its first parameter is each of these in turn."""
    return lambda problems: Rule(problems, each=items)


def needs(*sections: str) -> Callable[[Callable[..., Iterator[Problem]] | Rule], Rule]:
    """Decorates a rule to skip it if one of these sections could not be parsed or resolved completely."""

    def decorate(problems: Callable[..., Iterator[Problem]] | Rule) -> Rule:
        of_items = problems if isinstance(problems, Rule) else Rule(problems)
        return replace(of_items, needed=(*of_items.needed, *sections))

    return decorate


def of_another_engine(workload: Workload, pools: Sequence[Pool], path: str, name: str) -> Problem | None:
    """A problem if a server's pool has accelerators that its engine does not run on; `path` is that of the pool."""
    others = {pool.accelerator_resource for pool in pools if pool.name == name}
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
