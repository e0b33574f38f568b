"""Calls a `pulumi-resource-kubernetes` as Pulumi's engine does, without a program or a stack."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from emulator.pulumi.plugin import decode, encode, plain

Properties = dict[str, Any]
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
NAMESPACE = "kubernetes:core/v1:Namespace"
RELEASE = "kubernetes:helm.sh/v3:Release"
CHART = {
    "Chart.yaml": "{apiVersion: v2, name: app, version: 1.2.3, appVersion: '7'}",
    "templates/app.yaml": """
{{- if .Values.refuse }}{{ fail (printf "refused: %s" .Values.refuse) }}{{ end }}
apiVersion: apps/v1
kind: Deployment
metadata: {name: app}
spec:
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec:
      {{- with .Values.nodeSelector }}
      nodeSelector: {{ toJson . }}
      {{- end }}
      containers: [{name: main, image: registry.example/app}]
""",
}
NOWHERE = {"values": {"nodeSelector": {"no": "where"}}}


class Rejected(Exception):
    """The plugin refused. `message` is the text for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Unready(Exception):
    """The object exists but isn't ready. It has the state for the engine and the reasons."""

    def __init__(self, created: Created, reasons: list[str]) -> None:
        super().__init__("\n".join(reasons))
        self.made = created
        self.reasons = reasons


@dataclass(frozen=True)
class Created:
    """A resource in the engine's state."""

    token: str
    name: str
    id: str
    inputs: Properties
    state: Properties

    @property
    def request(self) -> dict[str, Any]:
        """What every request about the resource has."""
        return {"id": self.id, "urn": _urn(self.token, self.name)}

    @property
    def outputs(self) -> Properties:
        """The state without secret wrappers and the plugin's own entries."""
        return {key: value for key, value in plain(self.state).items() if not key.startswith("__")}


@dataclass
class Engine:
    """A plugin process that is configured for one cluster. Use it in a `with`.

    Args:
        command: Command that starts the plugin.
        arguments: Arguments of the provider resource.
        environment: Environment of the plugin's process. Default: that of the tests.
    """

    command: Sequence[str]
    arguments: Mapping[str, Any]
    environment: Mapping[str, str] | None = None
    process: subprocess.Popen[str] = field(init=False)
    stub: Any = field(init=False)

    def __enter__(self) -> Engine:
        self.process = subprocess.Popen(
            [*self.command, "127.0.0.1:1"], stdout=subprocess.PIPE, text=True, env=self.environment
        )
        assert self.process.stdout is not None
        port = self.process.stdout.readline().strip()
        self.stub = provider_pb2_grpc.ResourceProviderStub(
            grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.absolute_max_metadata_size", 1 << 24)])
        )
        self.configure(self.arguments)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait()

    def call(self, method: str, request: Any, token: str = "", name: str = "", inputs: Properties | None = None) -> Any:
        """Calls a method; raises Unready with the resource if it exists but isn't ready."""
        try:
            return getattr(self.stub, method)(request)
        except grpc.RpcError as error:
            answer: Any = error
            for entry in answer.trailing_metadata() or ():
                if entry.key == "grpc-status-details-bin":
                    status = status_pb2.Status.FromString(entry.value)
                    failed = provider_pb2.ErrorResourceInitFailed()
                    if status.details and status.details[0].Unpack(failed):
                        known = decode(failed.inputs) if failed.inputs.fields else inputs or {}
                        created = Created(token, name, failed.id, known, decode(failed.properties))
                        raise Unready(created, list(failed.reasons)) from None
            raise Rejected(str(answer.details())) from None

    def configure(self, arguments: Mapping[str, Any]) -> None:
        texts = {f"kubernetes:config:{key}": str(value) for key, value in arguments.items()}
        request = provider_pb2.ConfigureRequest(
            variables=texts, args=encode(arguments), acceptSecrets=True, sends_old_inputs=True
        )
        self.call("Configure", request)

    def check_config(self, arguments: Mapping[str, Any]) -> list[str]:
        request = provider_pb2.CheckRequest(urn=_urn("pulumi:providers:kubernetes", "k"), news=encode(arguments))
        return [failure.reason for failure in self.call("CheckConfig", request).failures]

    def diff_config(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
        """The arguments that make it another cluster."""
        urn = _urn("pulumi:providers:kubernetes", "k")
        request = provider_pb2.DiffRequest(urn=urn, id="k", olds=encode(old), old_inputs=encode(old), news=encode(new))
        return list(self.call("DiffConfig", request).replaces)

    def check(self, token: str, name: str, inputs: Properties, old: Properties | None = None) -> Properties:
        """The inputs as the plugin completes them; raises Rejected with all failures."""
        olds, news = encode(old or {}), encode(_with_kind(token, inputs))
        request = provider_pb2.CheckRequest(urn=_urn(token, name), olds=olds, news=news, randomSeed=name.encode())
        answer = self.call("Check", request)
        if answer.failures:
            raise Rejected("\n".join(f"{failure.property} {failure.reason}".strip() for failure in answer.failures))
        return decode(answer.inputs)

    def create(
        self, token: str, name: str, inputs: Properties, *, preview: bool = False, timeout: float = 0
    ) -> Created:
        checked = self.check(token, name, inputs)
        request = provider_pb2.CreateRequest(
            urn=_urn(token, name), properties=encode(checked), preview=preview, timeout=timeout
        )
        answer = self.call("Create", request, token, name, checked)
        return Created(token, name, answer.id, checked, decode(answer.properties))

    def diff(self, created: Created, inputs: Properties, ignore: Sequence[str] = ()) -> provider_pb2.DiffResponse:
        checked = self.check(created.token, created.name, inputs, created.inputs)
        olds, old_inputs, news = encode(created.state), encode(created.inputs), encode(checked)
        request = provider_pb2.DiffRequest(
            **created.request, olds=olds, old_inputs=old_inputs, news=news, ignoreChanges=ignore
        )
        answer: provider_pb2.DiffResponse = self.call("Diff", request)
        return answer

    def changes(self, created: Created, inputs: Properties, ignore: Sequence[str] = ()) -> list[str]:
        """The properties that an update would change."""
        return sorted(self.diff(created, inputs, ignore).detailedDiff)

    def update(
        self,
        created: Created,
        inputs: Properties,
        *,
        preview: bool = False,
        ignore: Sequence[str] = (),
        timeout: float = 0,
    ) -> Created:
        checked = self.check(created.token, created.name, inputs, created.inputs)
        options: dict[str, Any] = {"preview": preview, "ignoreChanges": ignore, "timeout": timeout}
        olds, old_inputs, news = encode(created.state), encode(created.inputs), encode(checked)
        request = provider_pb2.UpdateRequest(**created.request, olds=olds, old_inputs=old_inputs, news=news, **options)
        answer = self.call("Update", request, created.token, created.name, checked)
        return Created(created.token, created.name, created.id, checked, decode(answer.properties))

    def refresh(self, created: Created) -> Created | None:
        """The resource as it is now, None if it is gone."""
        properties, inputs = encode(created.state), encode(created.inputs)
        request = provider_pb2.ReadRequest(**created.request, properties=properties, inputs=inputs)
        answer = self.call("Read", request, created.token, created.name, created.inputs)
        if not answer.id:
            return None
        return Created(created.token, created.name, answer.id, decode(answer.inputs), decode(answer.properties))

    def refreshed(self, created: Created) -> Created:
        """The resource as it is now."""
        current = self.refresh(created)
        assert current is not None
        return current

    def read(self, token: str, name: str, object_id: str) -> Created | None:
        """An import: nothing is known but the id."""
        return self.refresh(Created(token, name, object_id, {}, {}))

    def delete(self, created: Created, *, timeout: float = 0) -> None:
        properties, old_inputs = encode(created.state), encode(created.inputs)
        request = provider_pb2.DeleteRequest(
            **created.request, properties=properties, old_inputs=old_inputs, timeout=timeout
        )
        self.call("Delete", request, created.token, created.name, created.inputs)

    def cancel(self) -> None:
        self.call("Cancel", empty_pb2.Empty())


def _urn(token: str, name: str) -> str:
    return f"urn:pulumi:test::test::{token}::{name}"


def _with_kind(token: str, inputs: Properties) -> Properties:
    """The SDK's classes state apiVersion and kind; a release has neither."""
    _, module, kind = token.split(":")
    if module.startswith("helm.sh/"):
        return inputs
    return {"apiVersion": module.removeprefix("core/"), "kind": kind, **inputs}


def release(chart: str, namespace: str, **more: Any) -> Properties:
    """Inputs of a Release of that chart."""
    return {"name": "app", "namespace": namespace, "chart": chart, "timeout": 60, **more}
