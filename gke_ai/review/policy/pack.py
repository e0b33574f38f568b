"""The policy pack as Pulumi runs it: policies with their enforcement levels, and waivers.

The key `PROJECT:policies` of a stack sets whether a violation stops a deployment (`mandatory`) or is only reported
(`advisory`, the default). `PROJECT:waivers` lists exceptions. The pack reports each violation that a waiver covers,
with its reason.

The engine sends the configuration of the stack, and which values are secret, to the analyzer. pulumi_policy 1.21 passes
neither on to policies (pulumi_policy.policy), so `Analyzer` reads both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import json_format
from pulumi.runtime.rpc import _special_secret_sig, _special_sig_key

from gke_ai.kube.values import SECRET, UNKNOWN
from gke_ai.registered.registration import RegisteredStack, Resource
from gke_ai.review.policy.base import Policy, Violation, Waiver, waived
from gke_ai.review.policy.rules import POLICIES
from gke_ai.terminal import without_extra

try:
    from pulumi_policy import EnforcementLevel, ReportViolation, StackValidationArgs, StackValidationPolicy, proxy
    from pulumi_policy import policy as sdk
except ModuleNotFoundError as missing:
    raise without_extra(missing) from None

NAME = "gke-ai"
WAIVED, WAIVED_DESCRIPTION = "waived", "Reports each waived violation with the reason of its waiver"
UNDERSTOOD = "configuration-is-understood"
UNDERSTOOD_DESCRIPTION = "The policy settings of the configuration are valid, and every waiver covers a violation"
_UNKNOWNS = frozenset(text for name, text in vars(proxy).items() if name.startswith("UNKNOWN_"))


@dataclass
class Context:
    """State of one run: the policy settings of the stack, and its resources."""

    project: str = NAME
    mandatory: bool = False
    waivers: tuple[Waiver, ...] = ()
    configuration: dict[str, Any] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)
    inputs: dict[str, Resource] = field(default_factory=dict)
    resources: list[Resource] = field(default_factory=list)
    used: list[tuple[Waiver, Violation]] = field(default_factory=list)

    def read(self, project: str, configuration: Mapping[str, str], secrets: Iterable[str]) -> None:
        """Reads the configuration of a stack by full key, without the values of secret keys."""
        self.project = project
        hidden = set(secrets)
        self.configuration = {key: SECRET if key in hidden else text for key, text in configuration.items()}
        level, waivers_text = (self.configuration.get(f"{project}:{key}") for key in ("policies", "waivers"))
        # Treat unknown values as mandatory.
        self.mandatory = level not in (None, "advisory")
        self.waivers = tuple(waivers(waivers_text))
        if level not in (None, "advisory", "mandatory"):
            self.mistakes.append(f"{project}:policies is {level}. It counts as mandatory. Set mandatory or advisory.")
        if waivers_text is not None and len(self.waivers) != len(parsed(waivers_text)):
            self.mistakes.append(
                f"{project}:waivers has entries without policy, resource or reason. They have no effect. Set all three."
            )

    def level(self, policy: Policy) -> EnforcementLevel:
        """Returns the enforcement level of a policy in this stack."""
        if self.mandatory:
            return EnforcementLevel.MANDATORY
        return EnforcementLevel.DISABLED if policy.only_mandatory else EnforcementLevel.ADVISORY

    def unused(self) -> Iterator[Waiver]:
        """Yields the waivers that cover no violation of a policy that is enabled in this stack."""
        silent = {policy.name for policy in POLICIES if self.level(policy) == EnforcementLevel.DISABLED}
        used = {waiver for waiver, _ in self.used}
        return (waiver for waiver in self.waivers if waiver not in used and waiver.policy not in silent)


def waivers(text: object) -> Iterator[Waiver]:
    """Yields the valid waivers of a configuration: those with policy, resource and reason."""
    for entry in parsed(text):
        if isinstance(entry, Mapping) and all(entry.get(key) for key in ("policy", "resource", "reason")):
            yield Waiver(str(entry["policy"]), str(entry["resource"]), str(entry["reason"]))


def parsed(text: object) -> list[Any]:
    """Returns the entries of a JSON list in the configuration. Any other value is a single entry."""
    try:
        entries = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        entries = text
    return entries if isinstance(entries, list) else [] if entries is None else [entries]


def plain(props: object) -> Any:
    """Converts properties from the engine to plain data, with markers for secrets and unknown values."""
    if isinstance(props, str):
        return UNKNOWN if props in _UNKNOWNS else props
    if isinstance(props, Mapping):
        if props.get(_special_sig_key) == _special_secret_sig:
            return SECRET
        return {key: plain(inner) for key, inner in props.items()}
    return [plain(inner) for inner in props] if isinstance(props, list) else props


def resource(request: Any) -> Resource:
    """Returns the resource of a request from the engine."""
    return Resource(
        urn=request.urn,
        type=request.type,
        name=request.name,
        props=plain(json_format.MessageToDict(request.properties)),
        protect=request.options.protect,
        delete_before_replace=request.options.deleteBeforeReplace,
    )


def report_violation(policy: Policy, violation: Violation, context: Context, report: ReportViolation) -> None:
    """Reports a violation, or records it as waived."""
    if waiver := waived(policy, violation, context.waivers):
        context.used.append((waiver, violation))
    else:
        report(policy.message(violation), violation.resource.urn if violation.resource else None)


def of_pulumi(policy: Policy, context: Context) -> sdk.Policy:
    """Converts a policy of this pack to a policy of Pulumi's SDK."""

    def resources(args: sdk.ResourceValidationArgs, report: ReportViolation) -> None:
        for violation in policy.violations(RegisteredStack([context.inputs[args.urn]])):
            report_violation(policy, violation, context, report)

    def stacks(_: StackValidationArgs, report: ReportViolation) -> None:
        for violation in policy.violations(RegisteredStack(context.resources, context.configuration)):
            report_violation(policy, violation, context, report)

    steps = f"{policy.remedy}."
    if policy.whole_stack:
        return StackValidationPolicy(policy.name, policy.description, stacks, remediation_steps=steps)
    return sdk.ResourceValidationPolicy(policy.name, policy.description, resources, remediation_steps=steps)


def of_waivers(context: Context) -> list[sdk.Policy]:
    """Returns the policies about waivers: one reports waived violations, one refuses unused waivers.

    They run after all other policies.
    """

    def report_waived(_: StackValidationArgs, report: ReportViolation) -> None:
        for waiver, violation in context.used:
            where = violation.resource
            path = where.path if where else "The stack"
            text = f"{path}: {violation.text}. Waived from {waiver.policy}: {waiver.reason}"
            report(text, where.urn if where else None)

    def report_mistakes(_: StackValidationArgs, report: ReportViolation) -> None:
        for mistake in context.mistakes:
            report(mistake, None)
        for unused in context.unused():
            report(unused_waiver(unused, context.project), None)

    return [
        StackValidationPolicy(WAIVED, WAIVED_DESCRIPTION, report_waived, EnforcementLevel.ADVISORY),
        StackValidationPolicy(UNDERSTOOD, UNDERSTOOD_DESCRIPTION, report_mistakes),
    ]


def unused_waiver(waiver: Waiver, project: str = NAME) -> str:
    """Returns the message about a waiver that covers no violation."""
    names = [policy.name for policy in POLICIES]
    if waiver.policy not in names:
        return (
            f"{project}:waivers: there is no policy {waiver.policy}. The waiver has no effect. Use one of: "
            f"{', '.join(names)}."
        )
    return (
        f"{project}:waivers: no resource that {waiver.resource} matches violates {waiver.policy}. The waiver would "
        "hide a later violation. Remove it, or correct its resource (such as Deployment llm/gemma)."
    )


def run() -> None:
    """Serves the policy pack to the engine that started it."""
    context = Context()
    by_name = {policy.name: of_pulumi(policy, context) for policy in POLICIES}
    shown, unused = of_waivers(context)

    # Its methods and their arguments have no types.
    service: Any = sdk._PolicyAnalyzerServicer

    class Analyzer(service):  # type: ignore[misc]
        """Extends the service of pulumi_policy with the configuration and the inputs of the engine's requests."""

        def ConfigureStack(self, request: Any, context_: Any) -> Any:
            context.read(request.project, request.config, request.config_secret_keys)
            for policy in POLICIES:
                by_name[policy.name].enforcement_level = context.level(policy)
            unused.enforcement_level = EnforcementLevel.MANDATORY if context.mandatory else EnforcementLevel.ADVISORY
            return super().ConfigureStack(request, context_)

        def Analyze(self, request: Any, context_: Any) -> Any:
            context.inputs[request.urn] = resource(request)
            request.ClearField("properties")  # else the base class unpacks them once per policy
            return super().Analyze(request, context_)

        def AnalyzeStack(self, request: Any, context_: Any) -> Any:
            # Prefer inputs: in a preview before its cluster exists, an object has no outputs.
            context.resources = [context.inputs.get(sent.urn) or resource(sent) for sent in request.resources]
            request.ClearField("resources")
            return super().AnalyzeStack(request, context_)

    vars(sdk)["_PolicyAnalyzerServicer"] = Analyzer
    sdk.PolicyPack(NAME, [*by_name.values(), shown, unused])
