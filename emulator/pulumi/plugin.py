"""Code that the emulator's Pulumi resource plugins share: the gRPC server, values of the protocol, errors, names.

The protocol is Pulumi's (https://github.com/pulumi/pulumi/tree/master/proto/pulumi; messages: `pulumi.runtime.proto`).
A plugin is a process that prints its port on standard output and serves `ResourceProvider` until its engine ends.

A property is plain Python data (None, bool, int, float, str, list, dict), `UNKNOWN` if a preview doesn't know it yet,
or `Secret(value)`. `decode` and `encode` translate a message's Struct; `plain` removes secret wrappers.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import empty_pb2, struct_pb2
from google.protobuf.message import Message
from pulumi.runtime import rpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

MAX_MESSAGE_BYTES = 400 * 1024 * 1024  # the engine's own limit
MAX_THREADS = 256  # each wait holds a thread; with --parallel the engine runs hundreds of operations at once
ENDS_WITH_PARENT = [
    sys.executable,
    "-I",
    "-c",
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])",
]
"""Prefix of a command: the kernel kills the command when this process ends, for whatever reason (PR_SET_PDEATHSIG)."""


# --------------------------------------------------------------------------------------------------------------- values
class _Unknown:
    def __repr__(self) -> str:
        return "<not known yet>"

    def __deepcopy__(self, memo: object) -> _Unknown:
        return self


UNKNOWN = _Unknown()
"""A value that is only known during the deployment. Compare with `is`."""


@dataclass(frozen=True)
class Secret:
    """A value that Pulumi encrypts in the state. Its `repr` hides it."""

    value: Any

    def __repr__(self) -> str:
        return "Secret([secret])"


_UNKNOWN_TEXTS = {  # one per type of the unknown value
    rpc.UNKNOWN,
    "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
    "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
    "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
    "030794c1-ac77-496b-92df-f27374a8bd58",
    "e48ece36-62e2-4504-bad9-02848725956a",
    "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
}


def decode(struct: struct_pb2.Struct) -> dict[str, Any]:
    """Returns the properties of a message.

    Whole numbers become `int`. An output becomes its value, unknown or secret.
    """
    return {key: _decode(value) for key, value in struct.fields.items()}


def _decode(value: struct_pb2.Value) -> Any:
    match value.WhichOneof("kind"):
        case "bool_value":
            return value.bool_value
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "string_value":
            return UNKNOWN if value.string_value in _UNKNOWN_TEXTS else value.string_value
        case "list_value":
            return [_decode(item) for item in value.list_value.values]
        case "struct_value":
            fields = value.struct_value.fields
            if rpc._special_sig_key not in fields:
                return decode(value.struct_value)
            signature = fields[rpc._special_sig_key].string_value
            if signature == rpc._special_secret_sig:
                return Secret(_decode(fields["value"]))
            if signature == rpc._special_output_value_sig:
                inner = _decode(fields["value"]) if "value" in fields else UNKNOWN
                return Secret(inner) if fields["secret"].bool_value else inner
            raise Refused("assets, archives and references to resources are not supported by this emulator")
        case _:
            return None


def encode(properties: Mapping[str, Any]) -> struct_pb2.Struct:
    """Does the inverse of `decode`."""
    return struct_pb2.Struct(fields={key: _encode(value) for key, value in properties.items()})


def _encode(value: Any) -> struct_pb2.Value:
    if value is None:
        return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    if value is UNKNOWN:
        return struct_pb2.Value(string_value=rpc.UNKNOWN)
    if isinstance(value, Secret):
        return _encode({rpc._special_sig_key: rpc._special_secret_sig, "value": value.value})
    if isinstance(value, bool):
        return struct_pb2.Value(bool_value=value)
    if isinstance(value, (int, float)):
        return struct_pb2.Value(number_value=value)
    if isinstance(value, str):
        return struct_pb2.Value(string_value=value)
    if isinstance(value, Mapping):
        return struct_pb2.Value(struct_value=encode(value))
    return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[_encode(item) for item in value]))


def plain(value: Any) -> Any:
    """Returns a copy without secret wrappers. Unknown values stay."""
    if isinstance(value, Secret):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def has_unknown(value: Any) -> bool:
    if isinstance(value, Secret):
        return has_unknown(value.value)
    if isinstance(value, dict):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(has_unknown(item) for item in value)
    return value is UNKNOWN


def has_secret(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_secret(item) for item in value.values())
    if isinstance(value, list):
        return any(has_secret(item) for item in value)
    return isinstance(value, Secret)


def mark_secrets(value: Any, like: Any) -> Any:
    """Marks as secret the parts of `value` that are secret in its inputs `like`.

    A list with a secret is all secret.
    """
    if isinstance(value, Secret):
        return value
    if isinstance(value, dict) and isinstance(like, dict):
        return {key: mark_secrets(item, like[key]) if key in like else item for key, item in value.items()}
    return Secret(value) if has_secret(like) else value


# --------------------------------------------------------------------------------------------------------------- errors
class Refused(Exception):
    """The plugin refuses an operation. The user sees the text beside the resource."""


class InitFailed(Exception):
    """The resource exists but isn't ready.

    The engine records it with the reasons, and the next `up` tries again.

    Args:
        id: The resource's id.
        properties: The resource's current state.
        reasons: Why the resource isn't ready, one line per reason.
        inputs: The resource's inputs, if a refresh found that they changed.
    """

    def __init__(
        self, id: str, properties: Mapping[str, Any], reasons: list[str], inputs: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__("\n".join(reasons))
        self.id = id
        self.properties = properties
        self.reasons = reasons
        self.inputs = inputs


def _abort(context: grpc.ServicerContext, text: str, detail: Message | None = None) -> None:
    if detail is not None:
        status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=text)
        status.details.add().Pack(detail)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, text)


class _Errors(grpc.ServerInterceptor):
    """Turns the exceptions above into errors of the protocol.

    Any other exception is a defect. The user sees it without a traceback.
    """

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        method_of_plugin = handler.unary_unary

        def call(request: Message, context: grpc.ServicerContext) -> Any:
            try:
                return method_of_plugin(request, context)
            except Refused as refused:
                return _abort(context, str(refused))
            except InitFailed as failed:
                detail = provider_pb2.ErrorResourceInitFailed(
                    id=failed.id,
                    properties=encode(failed.properties),
                    reasons=failed.reasons,
                    inputs=None if failed.inputs is None else encode(failed.inputs),
                )
                return _abort(context, str(failed), detail)
            except NotImplementedError:
                raise  # the servicer itself answers UNIMPLEMENTED
            except Exception as defect:  # noqa: BLE001 - a plugin must answer; the engine shows the text
                method = handler_call_details.method.rpartition("/")[2]
                frame = defect.__traceback__
                while frame is not None and frame.tb_next is not None:
                    frame = frame.tb_next
                place = f"{os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}" if frame else "?"
                return _abort(context, f"defect of the emulated plugin in {method} at {place}: {defect!r}")

        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )


# --------------------------------------------------------------------------------------------------------------- naming
def type_of(urn: str) -> str:
    """Returns the type of a URN, such as `gcp:container/cluster:Cluster`.

    The form of a URN is `urn:pulumi:stack::project::parent$gcp:container/cluster:Cluster::name`.
    """
    return urn.split("::")[2].split("$")[-1]


def name_of(urn: str) -> str:
    return urn.split("::", 3)[3]


def random_suffix(seed: bytes, digits: int = 7) -> str:
    """Returns hexadecimal digits derived from the engine's seed.

    So an update with a plan uses the names of its preview.
    """
    import hashlib
    import secrets

    return hashlib.sha256(seed).hexdigest()[:digits] if seed else secrets.token_hex(digits)[:digits]


# -------------------------------------------------------------------------------------------------------------- serving
class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """Methods that all plugins share.

    A plugin adds CheckConfig, Configure, Check, Diff, Create, ….

    Args:
        name: The package, such as `gcp`.
        version: The version of the SDK whose plugin this one emulates.

    Attributes:
        canceled: Set when the engine cancels. Every wait must then end.
    """

    def __init__(self, name: str, version: str) -> None:
        self.name = name
        self.version = version
        self.canceled = threading.Event()
        self._engine: engine_pb2_grpc.EngineStub | None = None

    def log(self, urn: str, message: str, *, warning: bool = False, passing: bool = False) -> None:
        """Shows a line beside the resource. A `passing` line is replaced by the next one."""
        if self._engine is not None:
            severity = engine_pb2.WARNING if warning else engine_pb2.INFO
            with contextlib.suppress(grpc.RpcError):  # the engine may have ended
                self._engine.Log(
                    engine_pb2.LogRequest(severity=severity, message=message, urn=urn, ephemeral=passing), timeout=5
                )

    def warm_up(self) -> None:
        """Loads what most stacks need from the SDK, on a thread of its own, while the engine and the program work."""

    def connect(self, engine_address: str) -> None:
        if engine_address:
            self._engine = engine_pb2_grpc.EngineStub(grpc.insecure_channel(engine_address))

    def Handshake(
        self, request: provider_pb2.ProviderHandshakeRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ProviderHandshakeResponse:
        self.connect(request.engine_address)
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_resources=False, accept_outputs=False)

    def Attach(self, request: plugin_pb2.PluginAttach, context: grpc.ServicerContext) -> empty_pb2.Empty:
        self.connect(request.address)
        return empty_pb2.Empty()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=self.version)

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        self.canceled.set()
        return empty_pb2.Empty()

    def Invoke(self, request: provider_pb2.InvokeRequest, context: grpc.ServicerContext) -> provider_pb2.InvokeResponse:
        raise Refused(f"the emulated {self.name} plugin has no function {request.tok}; on Google Cloud it exists")

    def Construct(
        self, request: provider_pb2.ConstructRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConstructResponse:
        raise Refused(f"the emulated {self.name} plugin has no component {request.type}; the official plugin does")


def serve(provider: Provider) -> None:
    """Prints the port, as the protocol requires, and serves until the engine ends this process or itself."""
    engine = os.getppid()
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))  # how the engine ends a plugin
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    addresses = [argument for argument in sys.argv[1:] if re.fullmatch(r"[\w.\[\]:-]+:\d+", argument)]
    provider.connect(addresses[-1] if addresses else "")
    limits = [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ]
    server = grpc.server(futures.ThreadPoolExecutor(MAX_THREADS), interceptors=[_Errors()], options=limits)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    threading.Thread(target=provider.warm_up, daemon=True).start()
    while os.getppid() == engine:  # after the engine is killed, this process gets another parent
        time.sleep(0.3)
    os._exit(0)
