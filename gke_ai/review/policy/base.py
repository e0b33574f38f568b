"""Policies: a named rule over one resource or a whole stack, its violations, and waivers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gke_ai.registered.registration import RegisteredStack, Resource


@dataclass(frozen=True)
class Violation:
    """A violation of a policy: its resource (None: the stack as a whole), the cause and the consequence."""

    resource: Resource | None
    text: str


@dataclass(frozen=True)
class Policy:
    """A rule with the texts that people read.

    Attributes:
        name: Stable name in kebab case, which waivers refer to.
        description: What the policy ensures.
        remedy: How to fix a violation.
        check: Yields the violations of a stack, or of one resource.
        whole_stack: Whether the rule needs all resources at once.
        only_mandatory: Whether the policy is disabled in stacks whose policies are advisory.
    """

    name: str
    description: str
    remedy: str
    check: Callable[[RegisteredStack], Iterator[Violation]]
    whole_stack: bool
    only_mandatory: bool = False

    def violations(self, stack: RegisteredStack) -> list[Violation]:
        """Returns all violations in a stack."""
        return list(self.check(stack))

    def message(self, violation: Violation) -> str:
        """Returns the message of a violation: resource, cause and consequence, remedy."""
        where = violation.resource.path if violation.resource else "The stack"
        return f"{where}: {violation.text}. {self.remedy}."


Rule = Callable[[Resource], Iterator[str]]
StackRule = Callable[[RegisteredStack], Iterator[tuple[Resource | None, str]]]


def of_resources(remedy: str, *, only_mandatory: bool = False) -> Callable[[Rule], Policy]:
    """Creates a policy from a rule over one resource, which yields its violations."""

    def decorate(rule: Rule) -> Policy:
        def check(stack: RegisteredStack) -> Iterator[Violation]:
            return (Violation(resource, text) for resource in stack.resources for text in rule(resource))

        return Policy(*_texts(rule), remedy, check, False, only_mandatory)

    return decorate


def of_stacks(remedy: str) -> Callable[[StackRule], Policy]:
    """Creates a policy from a rule over all resources, which yields resources with their violations."""

    def decorate(rule: StackRule) -> Policy:
        def check(stack: RegisteredStack) -> Iterator[Violation]:
            return (Violation(resource, text) for resource, text in rule(stack))

        return Policy(*_texts(rule), remedy, check, True)

    return decorate


def _texts(rule: Rule | StackRule) -> tuple[str, str]:
    """The name and the description of a policy: the name of its rule, and the first line of what the rule says."""
    return rule.__name__.replace("_", "-"), (rule.__doc__ or "").partition("\n")[0].rstrip(".")


@dataclass(frozen=True)
class Waiver:
    """An exception with a reason: a policy and a pattern of resources (`Deployment llm/gemma`, `*` for all)."""

    policy: str
    resource: str
    reason: str


def waived(policy: Policy, violation: Violation, waivers: Iterable[Waiver]) -> Waiver | None:
    """Returns the waiver that covers this violation, if any."""
    where = violation.resource.path if violation.resource else ""
    of_policy = (waiver for waiver in waivers if waiver.policy == policy.name)
    return next((waiver for waiver in of_policy if fnmatchcase(where, waiver.resource)), None)
