"""The policy pack as Pulumi runs it: policies with their enforcement levels, and waivers.

The key `PROJECT:policies` of a stack sets whether a violation stops a deployment (`mandatory`) or is only reported
(`advisory`, the default). `PROJECT:waivers` lists exceptions. The pack reports each violation that a waiver covers,
with its reason.

The engine sends the configuration of the stack, and which values are secret, to the analyzer. pulumi_policy 1.21 passes
neither on to policies (`ConfigureStack` in pulumi_policy/policy.py), so `Analyzer` serves the engine's protocol itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import analyzer_pb2 as proto
from pulumi.runtime.proto.analyzer_pb2_grpc import AnalyzerServicer, add_AnalyzerServicer_to_server
from pulumi.runtime.proto.plugin_pb2 import PluginInfo
from pulumi.runtime.rpc import _special_secret_sig, _special_sig_key

from gke_ai.catalog.versions import PROJECT_VERSION
from gke_ai.kube.values import SECRET, UNKNOWN
from gke_ai.registered.registration import RegisteredStack, Resource
from gke_ai.review.policy.base import Policy, Violation, Waiver, waived
from gke_ai.review.policy.rules import POLICIES
from gke_ai.terminal import without_extra

try:
    from pulumi_policy import EnforcementLevel, proxy
except ModuleNotFoundError as missing:
    raise without_extra(missing) from None

NAME = "gke-ai"
WAIVED, WAIVED_DESCRIPTION = "waived", "Reports each waived violation with the reason of its waiver"
UNDERSTOOD = "configuration-is-understood"
UNDERSTOOD_DESCRIPTION = "The policy settings of the configuration are valid, and every waiver covers a violation"
BY_NAME = {policy.name: policy for policy in POLICIES}
DESCRIPTIONS = {policy.name: policy.description for policy in POLICIES}
DESCRIPTIONS |= {WAIVED: WAIVED_DESCRIPTION, UNDERSTOOD: UNDERSTOOD_DESCRIPTION}
MESSAGE_BYTES = 400 << 20  # as the engine: https://github.com/pulumi/pulumi/blob/v3.250.0/sdk/go/common/util/rpcutil
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


class Analyzer(AnalyzerServicer):
    """Answers the engine: https://github.com/pulumi/pulumi/blob/v3.250.0/proto/pulumi/analyzer.proto."""

    def __init__(self) -> None:
        self.context = Context()
        self.stated: dict[str, proto.EnforcementLevel.ValueType] = {}
        """Levels by policy: those of `GetAnalyzerInfo`, or what a policy group of Pulumi Cloud has in their place."""

    def GetPluginInfo(self, _request: Any, _context: Any) -> PluginInfo:
        return PluginInfo(version=PROJECT_VERSION)

    def GetAnalyzerInfo(self, _request: Any, _context: Any) -> proto.AnalyzerInfo:
        policies = map(self._info, DESCRIPTIONS)
        return proto.AnalyzerInfo(name=NAME, version=PROJECT_VERSION, supportsConfig=True, policies=policies)

    def _info(self, name: str) -> proto.PolicyInfo:
        policy = BY_NAME.get(name)
        single = policy is not None and not policy.whole_stack
        return proto.PolicyInfo(
            name=name,
            description=DESCRIPTIONS[name],
            enforcementLevel=self._level(name),
            policy_type=proto.POLICY_TYPE_RESOURCE if single else proto.POLICY_TYPE_STACK,
            remediation_steps=f"{policy.remedy}." if policy else "",
        )

    def Configure(self, request: Any, _context: Any) -> Empty:
        self.stated = {name: config.enforcementLevel for name, config in request.policyConfig.items()}
        return Empty()

    def ConfigureStack(self, request: Any, _context: Any) -> proto.AnalyzerStackConfigureResponse:
        self.context.read(request.project, request.config, request.config_secret_keys)
        return proto.AnalyzerStackConfigureResponse()

    def Remediate(self, _request: Any, _context: Any) -> proto.RemediateResponse:
        return proto.RemediateResponse()

    def Analyze(self, request: Any, _context: Any) -> proto.AnalyzeResponse:
        registered = self.context.inputs[request.urn] = resource(request)
        return proto.AnalyzeResponse(diagnostics=self._judged(RegisteredStack([registered]), whole=False))

    def AnalyzeStack(self, request: Any, _context: Any) -> proto.AnalyzeResponse:
        # Prefer inputs: in a preview before its cluster exists, an object has no outputs.
        self.context.resources = [self.context.inputs.get(sent.urn) or resource(sent) for sent in request.resources]
        stack = RegisteredStack(self.context.resources, self.context.configuration)
        return proto.AnalyzeResponse(diagnostics=[*self._judged(stack, whole=True), *self._of_waivers()])

    def _judged(self, stack: RegisteredStack, whole: bool) -> Iterator[proto.AnalyzeDiagnostic]:
        """Violations of the policies that are enabled. Waived ones are recorded."""
        for policy in POLICIES:
            if policy.whole_stack != whole or self._level(policy.name) == proto.DISABLED:
                continue
            for violation in policy.violations(stack):
                if waiver := waived(policy, violation, self.context.waivers):
                    self.context.used.append((waiver, violation))
                else:
                    yield self._diagnostic(policy.name, policy.message(violation), violation.resource)

    def _of_waivers(self) -> Iterator[proto.AnalyzeDiagnostic]:
        """Waived violations, and mistakes among the waivers. All other policies have been judged before."""
        for waiver, violation in self.context.used if self._level(WAIVED) != proto.DISABLED else ():
            path = violation.resource.path if violation.resource else "The stack"
            text = f"{path}: {violation.text}. Waived from {waiver.policy}: {waiver.reason}"
            yield self._diagnostic(WAIVED, text, violation.resource)
        unused = (unused_waiver(waiver, self.context.project) for waiver in self.context.unused())
        for text in (*self.context.mistakes, *unused) if self._level(UNDERSTOOD) != proto.DISABLED else ():
            yield self._diagnostic(UNDERSTOOD, text)

    def _level(self, name: str) -> proto.EnforcementLevel.ValueType:
        """The level that the engine stated last, else that of the stack, from which the engine takes its own."""
        if name in self.stated:
            return self.stated[name]
        if policy := BY_NAME.get(name):
            return proto.EnforcementLevel.Value(self.context.level(policy).name)
        return proto.MANDATORY if name == UNDERSTOOD and self.context.mandatory else proto.ADVISORY

    def _diagnostic(self, name: str, text: str, resource: Resource | None = None) -> proto.AnalyzeDiagnostic:
        return proto.AnalyzeDiagnostic(
            policyName=name,
            policyPackName=NAME,
            policyPackVersion=PROJECT_VERSION,
            message=f"{DESCRIPTIONS[name]}\n{text}",
            urn=resource.urn if resource else "",
            description=DESCRIPTIONS[name],
            enforcementLevel=self._level(name),
        )


def run() -> None:
    """Serves the policy pack to the engine that started it."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", MESSAGE_BYTES)])
    add_AnalyzerServicer_to_server(Analyzer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    with suppress(KeyboardInterrupt):
        server.wait_for_termination()
