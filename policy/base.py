"""What a policy is: a rule with a name, over one resource or over all of a stack, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from policy.resources import Resource, Stack


@dataclass(frozen=True)
class Violation:
    """What a policy found: where (none: the stack as a whole), and what that leads to."""

    resource: Resource | None
    text: str


@dataclass(frozen=True)
class Policy:
    """A rule and what people read of it.

    Attributes:
        name: In kebab case; stable, waivers name it.
        description: What holds where the policy does.
        remedy: What to do about a violation.
        check: The violations in a stack, or those of one resource.
        whole_stack: Whether the rule needs all resources at once.
        only_mandatory: Whether it is meant for stacks whose policies are mandatory, and silent in others.
    """

    name: str
    description: str
    remedy: str
    check: Callable[[Stack], Iterator[Violation]]
    whole_stack: bool
    only_mandatory: bool = False

    def violations(self, stack: Stack) -> list[Violation]:
        """Every violation in a stack."""
        return list(self.check(stack))

    def message(self, violation: Violation) -> str:
        """What a person reads of one: where, cause and consequence, remedy."""
        where = violation.resource.path if violation.resource else "The stack"
        return f"{where}: {violation.text}. {self.remedy}."


Rule = Callable[[Resource], Iterator[str]]
StackRule = Callable[[Stack], Iterator[tuple[Resource | None, str]]]


def of_resources(name: str, description: str, remedy: str, *, only_mandatory: bool = False) -> Callable[[Rule], Policy]:
    """A policy from a rule over one resource, which yields what is wrong with it."""

    def decorate(rule: Rule) -> Policy:
        def check(stack: Stack) -> Iterator[Violation]:
            return (Violation(resource, text) for resource in stack.resources for text in rule(resource))

        return Policy(name, description, remedy, check, False, only_mandatory)

    return decorate


def of_stacks(
    name: str, description: str, remedy: str, *, only_mandatory: bool = False
) -> Callable[[StackRule], Policy]:
    """A policy from a rule over all resources, which yields each that something is wrong with, and what."""

    def decorate(rule: StackRule) -> Policy:
        def check(stack: Stack) -> Iterator[Violation]:
            return (Violation(resource, text) for resource, text in rule(stack))

        return Policy(name, description, remedy, check, True, only_mandatory)

    return decorate


@dataclass(frozen=True)
class Waiver:
    """An exception that someone answers for: a policy, the resources (`Deployment llm/gemma`, `*` for anything)."""

    policy: str
    resource: str
    reason: str


def waived(policy: Policy, violation: Violation, waivers: Iterable[Waiver]) -> Waiver | None:
    """The waiver that lets this violation pass, if one does."""
    where = violation.resource.path if violation.resource else ""
    return next(
        (waiver for waiver in waivers if waiver.policy == policy.name and fnmatchcase(where, waiver.resource)), None
    )
