"""The resource provider: answers the engine's calls by the rules of the official plugin (provider.go, await.go)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2

from emulator.pulumi import sdk_types
from emulator.pulumi.kubernetes import checks, configuration, helm, kinds, objects, refusals, releases
from emulator.pulumi.kubernetes.api import ApiError, Cluster, Resource, UnreachableError
from emulator.pulumi.kubernetes.kubeconfig import Kubeconfig
from emulator.pulumi.kubernetes.objects import Object, Properties, annotation, is_true, metadata
from emulator.pulumi.kubernetes.readiness import Failed
from emulator.pulumi.kubernetes.state import changes, live_object, state_of, with_secret_data, with_string_data
from emulator.pulumi.kubernetes.waits import NotReadyError, Waiter
from emulator.pulumi.kubernetes.writes import Writer, field_manager
from emulator.pulumi.plugin import (
    InitFailed,
    Provider,
    Refused,
    decode,
    encode,
    has_unknown,
    mark_secrets,
    plain,
    type_of,
)

VERSION = "4.34.2"  # of the SDK whose plugin this one emulates
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
Servicer = grpc.ServicerContext


class KubernetesProvider(Provider):
    """One process serves one engine.

    The engine configures it once per provider resource.
    """

    def __init__(self) -> None:
        super().__init__("kubernetes", VERSION)
        self._settings: configuration.Configuration | None = None
        self._cluster: Cluster | None = None
        self._unreachable = "its kubeconfig isn't known yet"

    def warm_up(self) -> None:
        kinds.input_type("kubernetes:core/v1:Namespace")

    # -------------------------------------------------------------------------------------------------------- schema
    def GetSchema(self, request: provider_pb2.GetSchemaRequest, context: Servicer) -> provider_pb2.GetSchemaResponse:
        """Returns the schema that a YAML program needs to create a provider.

        The schema has no object types: the SDKs have them.
        """
        schema = {"name": self.name, "version": self.version, "provider": {"inputProperties": configuration.schema()}}
        return provider_pb2.GetSchemaResponse(schema=json.dumps(schema))

    def Invoke(self, request: provider_pb2.InvokeRequest, context: Servicer) -> provider_pb2.InvokeResponse:
        if request.tok != "kubernetes:helm:template":
            return super().Invoke(request, context)
        options = json.loads(plain(decode(request.args))["jsonOpts"])
        # `return` is a keyword of Python, so it can't be written as an argument.
        answer: Any = {"return": encode({"result": helm.render(options)})}
        return provider_pb2.InvokeResponse(**answer)

    # ------------------------------------------------------------------------------------------------- configuration
    def CheckConfig(self, request: provider_pb2.CheckRequest, context: Servicer) -> provider_pb2.CheckResponse:
        failures = configuration.problems(decode(request.news))
        return provider_pb2.CheckResponse(inputs=request.news, failures=_failures(failures))

    def DiffConfig(self, request: provider_pb2.DiffRequest, context: Servicer) -> provider_pb2.DiffResponse:
        olds = decode(request.old_inputs if request.old_inputs.fields else request.olds)
        changed, replacing = configuration.differences(olds, decode(request.news))
        some = provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(changes=some, diffs=changed, replaces=replacing)

    def Configure(self, request: provider_pb2.ConfigureRequest, context: Servicer) -> provider_pb2.ConfigureResponse:
        prefix = f"{self.name}:config:"
        by_name = {key.removeprefix(prefix): value for key, value in request.variables.items()}
        self._settings = configuration.read(decode(request.args) if request.HasField("args") else by_name)
        if self._settings.kubeconfig is not None:
            self._cluster, self._unreachable = _connected(self._settings.kubeconfig)
        # Load the SDK's types while the program starts. Otherwise the first check waits for them.
        threading.Thread(target=kinds.input_type, args=("kubernetes:core/v1:Namespace",), daemon=True).start()
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, supports_autonaming_configuration=True
        )

    @property
    def settings(self) -> configuration.Configuration:
        if self._settings is None:
            raise Refused("the kubernetes provider isn't configured")
        return self._settings

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            raise UnreachableError(self._unreachable)
        return self._cluster

    def _releases(self) -> releases.Releases:
        if self.settings.kubeconfig is None:
            raise UnreachableError(self._unreachable)
        return releases.Releases(self.settings.kubeconfig, self.cluster, self.canceled)

    def _resource(self, obj: Object) -> Resource | None:
        return self.cluster.resource(str(obj["apiVersion"]), str(obj["kind"]))

    def _waiter(self) -> Waiter:
        return Waiter(self.cluster, self.canceled)

    def _writer(self) -> Writer:
        return Writer(self.cluster, self.settings.force, self.canceled)

    def _report(self, urn: str) -> Callable[[str], None]:
        shown = ""

        def report(text: str) -> None:
            nonlocal shown
            if text != shown:
                shown = text
                self.log(urn, text, passing=True)

        return report

    # --------------------------------------------------------------------------------------------------------- Check
    def Check(self, request: provider_pb2.CheckRequest, context: Servicer) -> provider_pb2.CheckResponse:
        token, news, olds = type_of(request.urn), decode(request.news), decode(request.olds)
        if reason := kinds.refusal(token):
            raise Refused(reason)
        try:
            if token == releases.TYPE:
                release = sdk_types.load("pulumi_kubernetes.helm.v3.Release", "ReleaseArgs")
                failures = sdk_types.problems(release, news) + releases.unsupported(news)
                if not failures:
                    news = releases.checked(request, olds, news, self.settings.namespace)
            else:
                news, failures = checks.checked_object(
                    request, token, olds, news, self.settings.namespace, self._is_namespaced
                )
        except Refused as refused:
            failures = [("", str(refused))]
        return provider_pb2.CheckResponse(inputs=encode(news), failures=_failures(failures))

    def _is_namespaced(self, obj: Properties) -> bool:
        """Whether the object's kind is namespaced.

        True while the API server can't be asked.
        """
        try:
            resource = self._resource(plain(obj))
        except (UnreachableError, ApiError):
            resource = None
        return resource is None or resource.namespaced

    # ---------------------------------------------------------------------------------------------------------- Diff
    def Diff(self, request: provider_pb2.DiffRequest, context: Servicer) -> provider_pb2.DiffResponse:
        token, state, news = type_of(request.urn), decode(request.olds), decode(request.news)
        if token == releases.TYPE:
            changed = releases.changes(state, news)
            forcing = {path for path in changed if releases.replaces(path)}
            delete_first = False
        else:
            obj, live = plain(news), live_object(state)
            changed = changes(state, obj, typed=kinds.input_type(token) is not None)
            forcing = {
                path
                for path in changed
                if objects.forces_replacement(
                    obj,
                    path,
                    secrets_mutable=self.settings.secrets_mutable,
                    configs_mutable=self.settings.configs_mutable,
                )
            }
            delete_first = objects.must_delete_first(live, obj)
        ignored = [objects.parse_path(text) for text in request.ignoreChanges]
        changed = {p: change for p, change in changed.items() if not any(objects.covers(i, p) for i in ignored)}
        forcing &= changed.keys()
        diff_kinds = provider_pb2.PropertyDiff.Kind
        detailed = {
            objects.path_text(path): provider_pb2.PropertyDiff(
                kind=diff_kinds.Value(f"{change.upper()}_REPLACE" if path in forcing else change.upper()),
                inputDiff=change == "delete",
            )
            for path, change in changed.items()
        }
        some = provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(
            changes=some,
            replaces=sorted(objects.path_text(path) for path in forcing),
            deleteBeforeReplace=bool(forcing) and delete_first,
            detailedDiff=detailed,
            hasDetailedDiff=True,
        )

    # -------------------------------------------------------------------------------------------------------- Create
    def Create(self, request: provider_pb2.CreateRequest, context: Servicer) -> provider_pb2.CreateResponse:
        inputs = decode(request.properties)
        if type_of(request.urn) == releases.TYPE:
            if request.preview:
                return provider_pb2.CreateResponse(properties=encode(releases.previewed(inputs)))
            try:
                release_id, state = self._releases().create(inputs)
            except UnreachableError as error:
                raise refusals.cluster_unreachable(error) from None
            return provider_pb2.CreateResponse(id=release_id, properties=encode(state))
        obj = plain(inputs)
        manager = field_manager(request.urn, {}, obj)
        if request.preview:
            return provider_pb2.CreateResponse(properties=encode(self._previewed_create(request.urn, inputs, manager)))
        try:
            resource, live = self._writer().create(request.urn, inputs, self._report(request.urn))
        except UnreachableError as error:
            raise refusals.cluster_unreachable(error) from None
        object_id = objects.object_id(live)
        try:
            live = self._waiter().until_ready(
                resource, live, obj, request.timeout, self._report(request.urn), created=True
            )
        except NotReadyError as unready:
            reasons = [f"{obj['kind']} {object_id} was created, but isn't ready:", *unready.reasons]
            raise InitFailed(
                object_id, state_of(inputs, unready.live, manager), objects.redacted_all(reasons, inputs)
            ) from None
        return provider_pb2.CreateResponse(id=object_id, properties=encode(state_of(inputs, live, manager)))

    def _previewed_create(self, urn: str, inputs: Properties, manager: str) -> Properties:
        """The object that the API server would create.

        Only the inputs if the API server can't say yet.
        """
        obj = plain(inputs)
        try:
            resource = None if has_unknown(inputs) else self._resource(obj)
            if resource is None:
                return inputs
            live = self.cluster.create(resource, metadata(obj).get("namespace", ""), obj, dry_run=True)
        except UnreachableError as error:
            self.log(urn, f"previewed without the cluster because it is unreachable: {error}", passing=True)
            return inputs
        except ApiError as error:
            # 409: the update may delete the object first. 403: permission to create need not include a dry run.
            no_dry_run = error.code == 400 and "does not support dry run" in error.message
            if error.code in (403, 409) or error.namespace_missing or no_dry_run:
                return inputs
            raise refusals.create_refused(urn, inputs, error) from None
        live = {key: value for key, value in live.items() if key != "status"}
        live["metadata"] = {k: v for k, v in metadata(live).items() if k not in objects.SERVER_OWNED}
        return state_of(inputs, live, manager)

    # -------------------------------------------------------------------------------------------------------- Update
    def Update(self, request: provider_pb2.UpdateRequest, context: Servicer) -> provider_pb2.UpdateResponse:
        inputs, state = decode(request.news), decode(request.olds)
        if type_of(request.urn) == releases.TYPE:
            try:
                done = releases.previewed(inputs) if request.preview else self._releases().update(inputs)
            except UnreachableError as error:
                raise refusals.cluster_unreachable(error) from None
            return provider_pb2.UpdateResponse(properties=encode(done))
        obj = plain(inputs)
        manager = field_manager(request.urn, state, obj)
        ignored = [objects.parse_path(text) for text in request.ignoreChanges]
        try:
            resource = None if request.preview and has_unknown(inputs) else self._resource(obj)
            if resource is None and request.preview:
                return provider_pb2.UpdateResponse(properties=request.news)
            if resource is None:
                name = refusals.display_name(inputs)
                raise Refused(f"{name} was not updated by the Kubernetes API server: {refusals.no_match(obj)}")
            live = self._writer().apply(resource, obj, manager, ignored, dry_run=request.preview)
        except UnreachableError as error:
            if request.preview:
                return provider_pb2.UpdateResponse(properties=request.news)
            raise refusals.cluster_unreachable(error) from None
        except ApiError as error:
            if request.preview and error.code == 403:
                return provider_pb2.UpdateResponse(properties=request.news)
            raise refusals.update_refused(inputs, error) from None
        if not request.preview:
            try:
                live = self._waiter().until_ready(
                    resource, live, obj, request.timeout, self._report(request.urn), created=False
                )
            except NotReadyError as unready:
                reasons = [f"{obj['kind']} {request.id} was updated, but isn't ready:", *unready.reasons]
                new_state = state_of(inputs, unready.live, manager)
                raise InitFailed(request.id, new_state, objects.redacted_all(reasons, inputs)) from None
        return provider_pb2.UpdateResponse(properties=encode(state_of(inputs, live, manager)))

    # ---------------------------------------------------------------------------------------------------------- Read
    def Read(self, request: provider_pb2.ReadRequest, context: Servicer) -> provider_pb2.ReadResponse:
        token, state, inputs = type_of(request.urn), decode(request.properties), decode(request.inputs)
        if reason := kinds.refusal(token):
            raise Refused(reason)
        try:
            if token == releases.TYPE:
                self.cluster.request("GET", "/version")  # the same error as for an object if the cluster is unreachable
                release = self._releases().read(request.id, state, inputs)
                if release is None:
                    return provider_pb2.ReadResponse()
                return provider_pb2.ReadResponse(
                    id=request.id, properties=encode(release[0]), inputs=encode(release[1])
                )
            return self._read_object(request, token, state, inputs)
        except UnreachableError as error:
            if self.settings.delete_unreachable:
                self.log(request.urn, "the cluster is unreachable: deleted from the state only", warning=True)
                return provider_pb2.ReadResponse()
            raise refusals.object_unreachable(request.id, error) from None

    def _read_object(
        self, request: provider_pb2.ReadRequest, token: str, state: Properties, inputs: Properties
    ) -> provider_pb2.ReadResponse:
        kind = {"apiVersion": kinds.api_version(token), "kind": kinds.kind(token)}
        namespace, name = objects.parse_id(request.id)
        resource = self._resource(kind)
        live = None if resource is None else self.cluster.find(resource, namespace, name)
        if live is None:
            return provider_pb2.ReadResponse()
        manager = field_manager(request.urn, state, plain(inputs))
        if inputs:
            typed = kinds.input_type(token) is not None
            new_inputs = objects.live_inputs(live, objects.normalized(plain(inputs)), typed=typed)
            if objects.is_secret(live) and plain(inputs).get("stringData"):
                new_inputs = with_string_data(new_inputs, plain(inputs))
        else:
            new_inputs = objects.without_server_fields(live)
            noise = {LAST_APPLIED, "deployment.kubernetes.io/revision"}
            annotations = {k: v for k, v in metadata(new_inputs).get("annotations", {}).items() if k not in noise}
            new_inputs["metadata"] = {k: v for k, v in metadata(new_inputs).items() if k != "annotations"}
            new_inputs["metadata"] |= {"annotations": annotations} if annotations else {}
        new_inputs = with_secret_data(mark_secrets(new_inputs, inputs))
        new_state = state_of(new_inputs, live, manager)
        if inputs and not is_true(plain(inputs), objects.SKIP_AWAIT):
            try:
                reasons = self._waiter().reasons(live)
            except Failed as failed:
                reasons = [str(failed)]
            if reasons:
                reasons = [f"{live['kind']} {request.id} isn't ready:", *reasons]
                raise InitFailed(request.id, new_state, objects.redacted_all(reasons, inputs), new_inputs)
        return provider_pb2.ReadResponse(id=request.id, properties=encode(new_state), inputs=encode(new_inputs))

    # -------------------------------------------------------------------------------------------------------- Delete
    def Delete(self, request: provider_pb2.DeleteRequest, context: Servicer) -> empty_pb2.Empty:
        token, state = type_of(request.urn), decode(request.properties)
        try:
            if token == releases.TYPE:
                self.cluster.request("GET", "/version")
                self._releases().delete(state)
            else:
                self._delete_object(request, token, plain(state))
        except UnreachableError as error:
            if not self.settings.delete_unreachable:
                raise refusals.object_unreachable(request.id, error) from None
            self.log(request.urn, "the cluster is unreachable: deleted from the state only", warning=True)
        return empty_pb2.Empty()

    def _delete_object(self, request: provider_pb2.DeleteRequest, token: str, state: Object) -> None:
        obj: Object = {"apiVersion": state.get("apiVersion") or kinds.api_version(token), "kind": kinds.kind(token)}
        inputs = state.get("__inputs") or {}
        namespace, name = objects.parse_id(request.id)
        resource = self._resource(obj)
        if resource is None:
            return  # the kind's definition was deleted, and the object with it
        propagation = {"orphan": "Orphan", "background": "Background"}.get(
            annotation(inputs, objects.PROPAGATION).lower(), "Foreground"
        )
        try:
            self.cluster.delete(resource, namespace, name, propagation)
        except ApiError as error:
            if error.code == 404:
                self.cluster.forget(str(obj["apiVersion"]), str(obj["kind"]))
                return
            raise Refused(f"deletion of {obj['kind']} {request.id}: {error.message}") from None
        report = self._report(request.urn)
        self._waiter().until_gone(resource, namespace, name, obj | inputs, request.timeout, report)


def _connected(kubeconfig: Kubeconfig) -> tuple[Cluster | None, str]:
    """The cluster, or why it is unreachable.

    As in the official plugin, the result is final for this process.
    """
    cluster = Cluster(kubeconfig)
    try:
        cluster.request("GET", "/api")
    except (UnreachableError, ApiError) as error:
        return None, str(error)
    return cluster, ""


def _failures(problems: list[tuple[str, str]]) -> list[provider_pb2.CheckFailure]:
    """Check failures with the path in the text.

    The engine shows the property of a failure only if it is a whole argument.
    """
    return [provider_pb2.CheckFailure(reason=f"{path}: {reason}" if path else reason) for path, reason in problems]
