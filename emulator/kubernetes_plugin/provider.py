"""The resource provider: what the engine asks, by the rules of the official plugin (provider.go, await.go)."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2

from emulator import sdk_types
from emulator.kubernetes_plugin import configuration, kinds, objects, releases
from emulator.kubernetes_plugin.api import CREATOR, ApiError, Cluster, Resource, UnreachableError
from emulator.kubernetes_plugin.kubeconfig import Kubeconfig
from emulator.kubernetes_plugin.objects import Change, Object, Path, annotation, is_true, metadata
from emulator.kubernetes_plugin.readiness import Failed
from emulator.kubernetes_plugin.waits import NotReadyError, Waiter, refuse_unknown_wait
from emulator.plugin import (
    InitFailed,
    Provider,
    Refused,
    Secret,
    decode,
    encode,
    has_unknown,
    mark_secrets,
    name_of,
    plain,
    random_suffix,
    type_of,
)

VERSION = "4.34.2"  # of the SDK that this plugin stands in for
# While the kind or the namespace isn't there yet; after the last one the official plugin pauses too (retry.go).
CREATE_PAUSES_SECONDS = (1, 2, 4, 8, 16, 32)
UPDATE_RETRIES = 5
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
Properties = dict[str, Any]
Servicer = grpc.ServicerContext


class KubernetesProvider(Provider):
    """One process serves one engine; the engine configures it once per provider resource."""

    def __init__(self) -> None:
        super().__init__("kubernetes", VERSION)
        self._settings: configuration.Configuration | None = None
        self._cluster: Cluster | None = None
        self._unreachable = "its kubeconfig isn't known yet"

    # -------------------------------------------------------------------------------------------------------- schema
    def GetSchema(self, request: provider_pb2.GetSchemaRequest, context: Servicer) -> provider_pb2.GetSchemaResponse:
        """What a program in YAML needs to make a provider. It has no kinds of objects: those the SDKs bring."""
        schema = {"name": self.name, "version": self.version, "provider": {"inputProperties": configuration.schema()}}
        return provider_pb2.GetSchemaResponse(schema=json.dumps(schema))

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
        # Loads the SDK's types while the program starts; the first check would wait for them.
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
        return releases.Releases(self.settings.kubeconfig, self.cluster, self.cancelled)

    def _resource(self, obj: Object) -> Resource | None:
        return self.cluster.resource(str(obj["apiVersion"]), str(obj["kind"]))

    def _waiter(self) -> Waiter:
        return Waiter(self.cluster, self.cancelled)

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
                from pulumi_kubernetes.helm.v3.Release import ReleaseArgs

                failures = sdk_types.problems(ReleaseArgs, news) + releases.unsupported(news)
                if not failures:
                    news = releases.checked(request, olds, news, self.settings.namespace)
            else:
                news, failures = self._checked_object(request, token, olds, news)
        except Refused as refused:
            failures = [("", str(refused))]
        return provider_pb2.CheckResponse(inputs=encode(news), failures=_failures(failures))

    def _checked_object(
        self, request: provider_pb2.CheckRequest, token: str, olds: Properties, news: Properties
    ) -> tuple[Properties, list[tuple[str, str]]]:
        kind: Properties = {"apiVersion": kinds.api_version(token), "kind": kinds.kind(token)}
        news = kind | news
        cls = kinds.input_type(token)
        if cls is not None:
            news = _without_nulls(news)
            failures = sdk_types.problems(cls, news)
        else:
            failures = []
        if {key: plain(news[key]) for key in kind} != kind:
            failures.append(("apiVersion", f"apiVersion and kind must be those of the type {token}"))
        if isinstance(news.get("metadata"), Secret):
            failures.append(("metadata", "can't be a secret"))
        if (news.get("metadata") is None or isinstance(news["metadata"], dict)) and not failures:
            meta = dict(news.get("metadata") or {})
            stated = plain(meta)
            if stated.get("generateName") is not None and stated.get("name") is None:
                failures.append(("metadata.generateName", "not supported with server-side apply; give a name, or none"))
            elif stated.get("name") in (None, ""):
                failures += self._autoname(request, plain(olds), meta)
            if stated.get("namespace") is None and self._is_namespaced(news):
                meta["namespace"] = self.settings.namespace
            news["metadata"] = meta
            if not has_unknown(meta):
                refuse_unknown_wait(plain(news))
        if objects.is_secret(plain(news)):
            for field in ("data", "stringData"):
                if field in news and not isinstance(news[field], Secret):
                    news[field] = Secret(news[field])
        return news, failures

    def _autoname(self, request: provider_pb2.CheckRequest, olds: Object, meta: Properties) -> list[tuple[str, str]]:
        """Keeps the name of the last run, else makes one, and marks the object as autonamed."""
        options = provider_pb2.CheckRequest.AutonamingOptions
        if olds and is_true(olds, objects.AUTONAMED):
            meta["name"] = metadata(olds)["name"]
        elif request.HasField("autonaming") and request.autonaming.mode == options.Mode.DISABLE:
            return [("metadata.name", "autonaming is disabled: give the object a name")]
        elif request.HasField("autonaming") and request.autonaming.proposed_name:
            meta["name"] = request.autonaming.proposed_name
        else:
            meta["name"] = f"{name_of(request.urn)}-{random_suffix(request.randomSeed, 8)}"
        annotations = meta.get("annotations") or {}
        if isinstance(annotations, dict):
            meta["annotations"] = annotations | {objects.AUTONAMED: "true"}
        return []

    def _is_namespaced(self, obj: Properties) -> bool:
        """Taken for granted while nobody can tell."""
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
            obj, live = plain(news), _live_of(state)
            changed = _changes(state, obj, typed=kinds.input_type(token) is not None)
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
        changed = {p: kind for p, kind in changed.items() if not any(objects.covers(i, p) for i in ignored)}
        forcing &= changed.keys()
        words = provider_pb2.PropertyDiff.Kind
        detailed = {
            objects.path_text(path): provider_pb2.PropertyDiff(
                kind=words.Value(f"{kind.upper()}_REPLACE" if path in forcing else kind.upper()),
                inputDiff=kind == "delete",
            )
            for path, kind in changed.items()
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
                raise _refused_unreachable(error) from None
            return provider_pb2.CreateResponse(id=release_id, properties=encode(state))
        obj = plain(inputs)
        manager = self._manager(request.urn, {}, obj)
        if request.preview:
            return provider_pb2.CreateResponse(properties=encode(self._previewed_create(request.urn, inputs, manager)))
        try:
            resource, live = self._created(request.urn, inputs)
        except UnreachableError as error:
            raise _refused_unreachable(error) from None
        object_id = objects.object_id(live)
        try:
            live = self._waiter().until_ready(
                resource, live, obj, request.timeout, self._report(request.urn), created=True
            )
        except NotReadyError as unready:
            reasons = [f"{obj['kind']} {object_id} was created, but isn't ready:", *unready.reasons]
            raise InitFailed(object_id, _state(inputs, unready.live, manager), _redacted(reasons, inputs)) from None
        return provider_pb2.CreateResponse(id=object_id, properties=encode(_state(inputs, live, manager)))

    def _previewed_create(self, urn: str, inputs: Properties, manager: str) -> Properties:
        """The object as the API server would make it; the inputs alone where it can't tell yet."""
        obj = plain(inputs)
        try:
            resource = None if has_unknown(inputs) else self._resource(obj)
            if resource is None:
                return inputs
            live = self.cluster.create(resource, metadata(obj).get("namespace", ""), obj, dry_run=True)
        except UnreachableError as error:
            self.log(urn, f"previewed without the cluster, which is unreachable: {error}", passing=True)
            return inputs
        except ApiError as error:
            # 409: it may be replaced before; 403, no dry run: what may be created need not be allowed to be tried.
            no_dry_run = error.code == 400 and "does not support dry run" in error.message
            if error.code in (403, 409) or error.namespace_missing or no_dry_run:
                return inputs
            raise _refused_create(urn, inputs, error) from None
        live = {key: value for key, value in live.items() if key != "status"}
        live["metadata"] = {k: v for k, v in metadata(live).items() if k not in objects.SERVER_OWNED}
        return _state(inputs, live, manager)

    def _created(self, urn: str, inputs: Properties) -> tuple[Resource, Object]:
        obj = plain(inputs)
        namespace = metadata(obj).get("namespace", "")
        why = ""
        for pause in CREATE_PAUSES_SECONDS:
            resource = self._resource(obj)
            if resource is None:
                why = _no_match(obj)
            else:
                try:
                    return resource, self.cluster.create(resource, namespace, obj, dry_run=False)
                except ApiError as error:
                    if error.code != 404:
                        raise _refused_create(urn, inputs, error) from None
                    why = error.message
                    self.cluster.forget(str(obj["apiVersion"]), str(obj["kind"]))
            self.log(urn, f"not created yet, next try in {pause} s: {why}", passing=True)
            if self.cancelled.wait(pause):
                break
        raise Refused(f"{_named(inputs)} was not created by the Kubernetes API server: {why}")

    def _manager(self, urn: str, state: Properties, obj: Object) -> str:
        """One manager of fields for each resource, so that two resources never overwrite one another unseen."""
        known = annotation(obj, objects.FIELD_MANAGER) or plain(state.get("__fieldManager"))
        return known or f"{CREATOR}-{hashlib.sha256(urn.encode()).hexdigest()[:8]}"

    # -------------------------------------------------------------------------------------------------------- Update
    def Update(self, request: provider_pb2.UpdateRequest, context: Servicer) -> provider_pb2.UpdateResponse:
        inputs, state = decode(request.news), decode(request.olds)
        if type_of(request.urn) == releases.TYPE:
            try:
                done = releases.previewed(inputs) if request.preview else self._releases().update(inputs)
            except UnreachableError as error:
                raise _refused_unreachable(error) from None
            return provider_pb2.UpdateResponse(properties=encode(done))
        obj = plain(inputs)
        manager = self._manager(request.urn, state, obj)
        ignored = [objects.parse_path(text) for text in request.ignoreChanges]
        try:
            resource = None if request.preview and has_unknown(inputs) else self._resource(obj)
            if resource is None and request.preview:
                return provider_pb2.UpdateResponse(properties=request.news)
            if resource is None:
                raise Refused(f"{_named(inputs)} was not updated by the Kubernetes API server: {_no_match(obj)}")
            live = self._applied(resource, obj, manager, ignored, dry_run=request.preview)
        except UnreachableError as error:
            if request.preview:
                return provider_pb2.UpdateResponse(properties=request.news)
            raise _refused_unreachable(error) from None
        except ApiError as error:
            if request.preview and error.code == 403:
                return provider_pb2.UpdateResponse(properties=request.news)
            raise _refused_update(inputs, error) from None
        if not request.preview:
            try:
                live = self._waiter().until_ready(
                    resource, live, obj, request.timeout, self._report(request.urn), created=False
                )
            except NotReadyError as unready:
                reasons = [f"{obj['kind']} {request.id} was updated, but isn't ready:", *unready.reasons]
                new_state = _state(inputs, unready.live, manager)
                raise InitFailed(request.id, new_state, _redacted(reasons, inputs)) from None
        return provider_pb2.UpdateResponse(properties=encode(_state(inputs, live, manager)))

    def _applied(self, resource: Resource, obj: Object, manager: str, ignored: list[Path], *, dry_run: bool) -> Object:
        for attempt in range(UPDATE_RETRIES + 1):
            try:
                return self._applied_once(resource, obj, manager, ignored, dry_run=dry_run)
            except ApiError as error:  # without causes: a controller wrote between our reading and our writing
                if error.reason != "Conflict" or error.causes or attempt == UPDATE_RETRIES:
                    raise
        raise AssertionError

    def _applied_once(
        self, resource: Resource, obj: Object, manager: str, ignored: list[Path], *, dry_run: bool
    ) -> Object:
        namespace, name = metadata(obj).get("namespace", ""), str(metadata(obj)["name"])
        live = self.cluster.get(resource, namespace, name)
        force = self.settings.force or is_true(obj, objects.PATCH_FORCE)
        version = metadata(live)["resourceVersion"]
        managed = objects.taken_over(metadata(live).get("managedFields") or [], manager)
        if managed is not None and not dry_run:
            operations = [
                {"op": "replace", "path": "/metadata/managedFields", "value": managed},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            ]
            live = self.cluster.patch(resource, namespace, name, operations)
        wanted = objects.with_ignored(obj, live, ignored, manager)
        force = force or (dry_run and managed is not None)
        return self.cluster.apply(resource, namespace, name, wanted, manager, force=force, dry_run=dry_run)

    # ---------------------------------------------------------------------------------------------------------- Read
    def Read(self, request: provider_pb2.ReadRequest, context: Servicer) -> provider_pb2.ReadResponse:
        token, state, inputs = type_of(request.urn), decode(request.properties), decode(request.inputs)
        if reason := kinds.refusal(token):
            raise Refused(reason)
        try:
            if token == releases.TYPE:
                self.cluster.request("GET", "/version")  # unreachable is said in the same words
                release = self._releases().read(request.id, state, inputs)
                if release is None:
                    return provider_pb2.ReadResponse()
                return provider_pb2.ReadResponse(
                    id=request.id, properties=encode(release[0]), inputs=encode(release[1])
                )
            return self._read_object(request, token, state, inputs)
        except UnreachableError as error:
            if self.settings.delete_unreachable:
                self.log(request.urn, "its cluster is unreachable: deleted from the state only", warning=True)
                return provider_pb2.ReadResponse()
            raise _unreachable(request.id, error) from None

    def _read_object(
        self, request: provider_pb2.ReadRequest, token: str, state: Properties, inputs: Properties
    ) -> provider_pb2.ReadResponse:
        kind = {"apiVersion": kinds.api_version(token), "kind": kinds.kind(token)}
        namespace, name = objects.parse_id(request.id)
        resource = self._resource(kind)
        live = None if resource is None else self.cluster.find(resource, namespace, name)
        if live is None:
            return provider_pb2.ReadResponse()
        manager = self._manager(request.urn, state, plain(inputs))
        if inputs:
            typed = kinds.input_type(token) is not None
            found = objects.live_inputs(live, objects.normalized(plain(inputs)), typed=typed)
            if objects.is_secret(live) and plain(inputs).get("stringData"):
                found = _texts_again(found, plain(inputs))
        else:
            found = objects.without_server_fields(live)
            noise = {LAST_APPLIED, "deployment.kubernetes.io/revision"}
            annotations = {k: v for k, v in metadata(found).get("annotations", {}).items() if k not in noise}
            found["metadata"] = {k: v for k, v in metadata(found).items() if k != "annotations"}
            found["metadata"] |= {"annotations": annotations} if annotations else {}
        found = _kept_secret(mark_secrets(found, inputs))
        new_state = _state(found, live, manager)
        if inputs and not is_true(plain(inputs), objects.SKIP_AWAIT):
            try:
                reasons = self._waiter().reasons(live)
            except Failed as failed:
                reasons = [str(failed)]
            if reasons:
                reasons = [f"{live['kind']} {request.id} isn't ready:", *reasons]
                raise InitFailed(request.id, new_state, _redacted(reasons, inputs), found)
        return provider_pb2.ReadResponse(id=request.id, properties=encode(new_state), inputs=encode(found))

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
                raise _unreachable(request.id, error) from None
            self.log(request.urn, "its cluster is unreachable: deleted from the state only", warning=True)
        return empty_pb2.Empty()

    def _delete_object(self, request: provider_pb2.DeleteRequest, token: str, state: Object) -> None:
        obj: Object = {"apiVersion": state.get("apiVersion") or kinds.api_version(token), "kind": kinds.kind(token)}
        inputs = state.get("__inputs") or {}
        namespace, name = objects.parse_id(request.id)
        resource = self._resource(obj)
        if resource is None:
            return  # its definition is gone, and with it the object
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
    """The cluster, or why it is out of reach: then it stays so for this process, as for the official plugin."""
    cluster = Cluster(kubeconfig)
    try:
        cluster.request("GET", "/api")
    except (UnreachableError, ApiError) as error:
        return None, str(error)
    return cluster, ""


def _failures(problems: list[tuple[str, str]]) -> list[provider_pb2.CheckFailure]:
    """The path stands in the text: the engine shows a failure's property only if it is a whole argument."""
    return [provider_pb2.CheckFailure(reason=f"{path}: {reason}" if path else reason) for path, reason in problems]


def _without_nulls(value: Any) -> Any:
    """A typed object's null is as good as absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return Secret(_without_nulls(value.value)) if isinstance(value, Secret) else value


def _state(inputs: Properties, live: Object, manager: str) -> Properties:
    """What the state keeps: the live object as outputs, and beside it what the next operation needs."""
    outputs = live | {"metadata": {k: v for k, v in metadata(live).items() if k != "managedFields"}}
    marked = mark_secrets(outputs, inputs)
    return _kept_secret(marked) | {
        "__inputs": _kept_secret(inputs),
        "__initialApiVersion": live["apiVersion"],
        "__fieldManager": manager,
    }


def _kept_secret(obj: Properties) -> Properties:
    """The contents of a Secret are secret, wherever they came from."""
    if not objects.is_secret(obj):
        return obj
    return {k: Secret(plain(v)) if k in ("data", "stringData") else v for k, v in obj.items()}


def _live_of(state: Properties) -> Object:
    return {key: value for key, value in plain(state).items() if not key.startswith("__")}


def _changes(state: Properties, new: Object, *, typed: bool) -> dict[Path, Change]:
    """The new inputs against the live object of the state, as far as the last inputs stated it."""
    old_inputs, live = objects.normalized(plain(state.get("__inputs")) or {}), _live_of(state)
    old, new = objects.pruned(objects.normalized(live), old_inputs), objects.normalized(new)
    old_meta = {k: v for k, v in metadata(old).items() if k not in objects.SERVER_OWNED}
    new_meta = {k: v for k, v in metadata(new).items() if k not in objects.SERVER_OWNED}
    if "name" in new_meta:
        old_meta["name"] = metadata(live).get("name")
    if metadata(live).get("namespace"):
        old_meta["namespace"] = metadata(live)["namespace"]
        new_meta.setdefault("namespace", configuration.DEFAULT_NAMESPACE)
    else:  # the kind has no namespaces
        old_meta.pop("namespace", None)
        new_meta.pop("namespace", None)
    kind = {key: live[key] for key in ("apiVersion", "kind") if key in live}
    return objects.differences(old | kind | {"metadata": old_meta}, new | {"metadata": new_meta}, typed=typed)


def _texts_again(found: Object, inputs: Object) -> Object:
    """A Secret stated by `stringData` keeps it while the live data says the same."""
    same = objects.normalized(inputs).get("data") == found.get("data")
    if not same:
        return found
    kept = {key: value for key, value in found.items() if key != "data"}
    return kept | {field: inputs[field] for field in ("data", "stringData") if field in inputs}


def _redacted(reasons: list[str], inputs: Properties) -> list[str]:
    return [objects.redacted(reason, inputs) for reason in reasons]


def _named(inputs: Properties) -> str:
    obj = plain(inputs)
    namespace = metadata(obj).get("namespace")
    return f"{obj['kind']} {f'{namespace}/' if namespace else ''}{metadata(obj).get('name')}"


def _no_match(obj: Object) -> str:
    """What Kubernetes' clients say of a kind that the API server does not serve."""
    return f'no matches for kind "{obj["kind"]}" in version "{obj["apiVersion"]}"'


def _refused_create(urn: str, inputs: Properties, error: ApiError) -> Refused:
    text = f"{_named(inputs)} was not created by the Kubernetes API server: {objects.redacted(error.message, inputs)}"
    if error.code == 409 and error.reason == "AlreadyExists":
        text += (
            "\nIt exists in the cluster, but not in this stack under this name. Ways out: if the resource was renamed"
            f" in the program, give it an alias; to take the object over, `pulumi import {type_of(urn)} …`; if nobody"
            " needs it, delete it there."
        )
    return Refused(text)


def _refused_update(inputs: Properties, error: ApiError) -> Refused:
    text = f"{_named(inputs)} was not updated by the Kubernetes API server: "
    if error.code == 404:
        return Refused(f"{text}{error.message}. Run `pulumi refresh`, then `pulumi up`: that creates it again")
    owners = [cause for cause in error.causes if cause.get("reason") == "FieldManagerConflict"]
    if not owners:
        return Refused(text + objects.redacted(error.message, inputs))
    fields = "; ".join(f"{cause.get('field')} ({cause.get('message')})" for cause in owners)
    return Refused(
        f"{text}conflict: another manager owns {fields}. Ways out: leave the field to it (drop it from the program, or"
        f' name it in `ignoreChanges`), or take it over with the annotation {objects.PATCH_FORCE}: "true"'
    )


def _refused_unreachable(error: UnreachableError) -> Refused:
    return Refused(f"configured Kubernetes cluster is unreachable: {error}")


def _unreachable(object_id: str, error: UnreachableError) -> Refused:
    return Refused(
        f"{object_id}: configured Kubernetes cluster is unreachable: {error}. If the cluster is gone for good, run the "
        "command again with PULUMI_K8S_DELETE_UNREACHABLE=true: that drops its objects from the state"
    )
