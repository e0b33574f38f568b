"""Results of policy packs in a preview."""

from __future__ import annotations

from dataclasses import dataclass

from gke_ai.review.report.preview import Preview

MANDATORY = "mandatory"


@dataclass(frozen=True, order=True)
class Violation:
    """A violation of a policy. A mandatory one stops the deployment."""

    enforcement: str
    policy: str
    urn: str
    message: str


@dataclass(frozen=True)
class Verdict:
    """All violations, mandatory ones first, and the number of rules and resources that were checked."""

    violations: tuple[Violation, ...] = ()
    rules: int = 0
    resources: int = 0

    def count(self, mandatory: bool) -> int:
        """Returns the number of mandatory or of advisory violations."""
        return sum((violation.enforcement == MANDATORY) == mandatory for violation in self.violations)


def verdict(preview: Preview) -> Verdict:
    """Returns the policy results among the events of a preview, without duplicates."""
    violations: set[Violation] = set()
    rules: set[str] = set()
    resources: set[str] = set()
    for event in preview.events:
        if result := event.get("policyEvent"):
            # The first line is the policy's description, the same for every violation.
            first, *rest = lines(result["message"]) or [""]
            message = " ".join(rest) or first
            urn = result.get("resourceUrn") or ""
            violations.add(Violation(result["enforcementLevel"], result["policyName"], urn, message))
        for event_type in ("policyAnalyzeSummaryEvent", "policyAnalyzeStackSummaryEvent"):
            if (summed := event.get(event_type)) is not None:
                rules.update(summed.get("passed") or (), summed.get("failed") or ())
                resources.update(filter(None, [summed.get("resourceUrn")]))
    ordered = sorted(
        violations,
        key=lambda violation: (violation.enforcement != MANDATORY, violation.policy, violation.urn, violation.message),
    )
    return Verdict(tuple(ordered), len(rules | {violation.policy for violation in violations}), len(resources))


def lines(message: str) -> list[str]:
    """Returns the nonempty lines of a message."""
    return [line.strip() for line in message.splitlines() if line.strip()]
