"""What a policy pack says of a preview."""

from __future__ import annotations

from dataclasses import dataclass

from report.preview import Preview

MANDATORY = "mandatory"


@dataclass(frozen=True, order=True)
class Violation:
    """A rule that a resource breaks; a mandatory one stops the deployment."""

    enforcement: str
    policy: str
    urn: str
    message: str


@dataclass(frozen=True)
class Verdict:
    """Every violation, mandatory ones first, and how many rules were held to how many resources."""

    violations: tuple[Violation, ...] = ()
    rules: int = 0
    resources: int = 0

    def count(self, mandatory: bool) -> int:
        """How many violations are mandatory, or are not."""
        return sum((one.enforcement == MANDATORY) == mandatory for one in self.violations)


def verdict(preview: Preview) -> Verdict:
    """The policy results among a preview's events; each once, however often the engine asked."""
    violations: set[Violation] = set()
    rules: set[str] = set()
    resources: set[str] = set()
    for event in preview.events:
        if result := event.get("policyEvent"):
            # First comes what the policy is for, the same for every violation.
            first, *rest = lines(result["message"]) or [""]
            message = " ".join(rest) or first
            urn = result.get("resourceUrn") or ""
            violations.add(Violation(result["enforcementLevel"], result["policyName"], urn, message))
        for event_type in ("policyAnalyzeSummaryEvent", "policyAnalyzeStackSummaryEvent"):
            if (summed := event.get(event_type)) is not None:
                rules.update(summed.get("passed") or (), summed.get("failed") or ())
                resources.update(filter(None, [summed.get("resourceUrn")]))
    ordered = sorted(violations, key=lambda one: (one.enforcement != MANDATORY, one.policy, one.urn, one.message))
    return Verdict(tuple(ordered), len(rules | {one.policy for one in violations}), len(resources))


def lines(message: str) -> list[str]:
    """A message's lines that say something."""
    return [line.strip() for line in message.splitlines() if line.strip()]
