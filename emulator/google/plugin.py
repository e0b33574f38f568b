"""The provider protocol over the resources of the emulated cloud.

No value of a property is ever logged.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2 as proto

from emulator.cloud.store import Record, Store
from emulator.google import diff, functions
from emulator.google.clusters import Clusters, LocalClusters
from emulator.google.containers import Cluster, NodePool
from emulator.google.iam import ProjectIAMMember, ServiceAccount, ServiceAccountIAMMember
from emulator.google.monitoring import AlertPolicy, Dashboard
from emulator.google.network import Firewall, Network, ResourcePolicy, Router, RouterNat, Subnetwork
from emulator.google.resource import Cloud, Properties, Resource
from emulator.google.schema import Schema
from emulator.google.secrets import SecretIamMember
from emulator.google.services import ProjectService
from emulator.google.storage import Bucket, BucketIAMMember
from emulator.pulumi import sdk_types
from emulator.pulumi.plugin import (
    Provider,
    Refused,
    decode,
    encode,
    mark_secrets,
    name_of,
    plain,
    random_suffix,
    type_of,
)

VERSION = "10.2.0"
"""The version of pulumi-gcp that this plugin emulates."""
RESOURCES: dict[str, type[Resource]] = {
    resource.token: resource
    for resource in (
        *(Cluster, NodePool, Bucket, BucketIAMMember),
        *(ServiceAccount, ServiceAccountIAMMember, ProjectIAMMember),
        *(SecretIamMember,),
        *(Dashboard, AlertPolicy),
        *(Network, Subnetwork, Firewall, Router, RouterNat, ResourcePolicy, ProjectService),
    )
}


class Gcp(Provider):
    """The plugin.

    Args:
        store: The resources of the cloud. Default: those of this state.
        clusters: Creates Kubernetes clusters. Default: on this machine.
    """

    def __init__(self, store: Store | None = None, clusters: Clusters | None = None) -> None:
        super().__init__("gcp", VERSION)
        self._store = store or Store()
        self._clusters = clusters or LocalClusters()
        self._cloud: Cloud | None = None

    def warm_up(self) -> None:
        for resource in (Cluster, Bucket, ProjectIAMMember):
            sdk_types.properties(sdk_types.load(*resource.arguments))

    # -------------------------------------------------------------------------------------------------- configuration
    def CheckConfig(self, request: proto.CheckRequest, context: grpc.ServicerContext) -> proto.CheckResponse:
        provider = sdk_types.load("pulumi_gcp", "ProviderArgs")
        known = {*sdk_types.properties(provider), "version", "pluginDownloadURL"}
        failures = []
        for name in decode(request.news):
            if name not in known and not name.startswith("__"):
                near = difflib.get_close_matches(name, known, n=1)
                reason = f"could not find a property {name} of the provider"
                failures.append(
                    proto.CheckFailure(property=name, reason=f"{reason} (did you mean {near[0]}?)" if near else reason)
                )
        return proto.CheckResponse(inputs=request.news, failures=failures)

    def DiffConfig(self, request: proto.DiffRequest, context: grpc.ServicerContext) -> proto.DiffResponse:
        old, new = plain(decode(request.old_inputs or request.olds)), plain(decode(request.news))
        return _diff_response(diff.changes(Schema(), old, new, {}), delete_first=False)

    def Configure(self, request: proto.ConfigureRequest, context: grpc.ServicerContext) -> proto.ConfigureResponse:
        arguments = plain(decode(request.args))
        names = ("project", "region", "zone")
        settings = {name: arguments[name] for name in names if isinstance(arguments.get(name), str)}
        self._cloud = Cloud(self._store, self._clusters, **settings)
        return proto.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=False, acceptOutputs=False
        )

    # ------------------------------------------------------------------------------------------------------ resources
    def _resource(self, urn: str) -> Resource:
        token = type_of(urn)
        if token not in RESOURCES:
            known = ", ".join(RESOURCES)
            raise Refused(f"the emulator has no {token}; on Google Cloud it exists. The emulator has {known}")
        return RESOURCES[token](self.cloud)

    @property
    def cloud(self) -> Cloud:
        """The cloud, available after Configure."""
        if self._cloud is None:
            raise Refused("the gcp plugin was not configured")
        return self._cloud

    def Check(self, request: proto.CheckRequest, context: grpc.ServicerContext) -> proto.CheckResponse:
        resource, news, olds = self._resource(request.urn), decode(request.news), decode(request.olds)
        if resource.named and news.get("name") is None:
            earlier = olds.get("name") if "name" in olds.get("__defaults", []) else None
            news["name"] = earlier or f"{name_of(request.urn)}-{random_suffix(request.randomSeed)}"
            news["__defaults"] = ["name"]
        problems = list(resource.problems(news))
        if not olds and not problems:  # the engine sends no old inputs for a creation or a replacement
            problems += resource.creation_problems(plain(news))
        # The path is part of the text: next to `property` the engine would show the value, even a secret one.
        failures = [proto.CheckFailure(reason=f"{path}: {text}") for path, text in problems]
        return proto.CheckResponse(inputs=encode(news), failures=failures)

    def Diff(self, request: proto.DiffRequest, context: grpc.ServicerContext) -> proto.DiffResponse:
        resource = self._resource(request.urn)
        old, new = plain(decode(request.old_inputs or request.olds)), plain(decode(request.news))
        changes = resource.changes(old, new, plain(decode(request.olds)))
        # Two resources can't have the same name at the same time. A generated name changes with the replacement.
        delete_first = resource.named and old.get("name") == new.get("name") and "name" not in new.get("__defaults", [])
        return _diff_response(changes, delete_first)

    def Create(self, request: proto.CreateRequest, context: grpc.ServicerContext) -> proto.CreateResponse:
        resource, inputs = self._resource(request.urn), decode(request.properties)
        if request.preview:
            return proto.CreateResponse(properties=encode(resource.planned(inputs)))
        record = resource.create(plain(inputs))
        return proto.CreateResponse(id=record.identity, properties=encode(_shown(resource, record, inputs)))

    def Read(self, request: proto.ReadRequest, context: grpc.ServicerContext) -> proto.ReadResponse:
        resource = self._resource(request.urn)
        record = resource.read(resource.imported(request.id))
        if record is None:
            return proto.ReadResponse()  # the resource doesn't exist
        # A property that was secret stays secret, also with a changed value.
        like = decode(request.inputs)
        inputs = mark_secrets(resource.refreshed_inputs(plain(like), record.inputs), like)
        return proto.ReadResponse(
            id=record.identity, properties=encode(_shown(resource, record, like)), inputs=encode(inputs)
        )

    def Update(self, request: proto.UpdateRequest, context: grpc.ServicerContext) -> proto.UpdateResponse:
        resource, inputs = self._resource(request.urn), decode(request.news)
        record = resource.read(request.id) if not request.preview else self._store.get(request.id)
        if record is None and request.preview:  # an imported state: it describes the cloud
            return proto.UpdateResponse(properties=encode(resource.kept(decode(request.olds), inputs)))
        if record is None:
            raise Refused(f"googleapi: Error 404: Not found: {request.id}., notFound")
        news = resource.kept(record.inputs, plain(inputs))
        record = replace(record, inputs=news) if request.preview else resource.update(record, news)
        return proto.UpdateResponse(properties=encode(_shown(resource, record, inputs)))

    def Delete(self, request: proto.DeleteRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        self._resource(request.urn).delete(request.id, plain(decode(request.properties)))
        return empty_pb2.Empty()

    # ------------------------------------------------------------------------------------------------------ functions
    def Invoke(self, request: proto.InvokeRequest, context: grpc.ServicerContext) -> proto.InvokeResponse:
        function = functions.FUNCTIONS.get(request.tok)
        if function is None:
            return super().Invoke(request, context)
        # `return` is a keyword of Python, so it can't be written as an argument.
        answer: Any = {"return": encode(function(self.cloud, plain(decode(request.args))))}
        return proto.InvokeResponse(**answer)


def _shown(resource: Resource, record: Record, inputs: Properties) -> Properties:
    """The outputs, secret wherever the inputs are."""
    outputs: Properties = mark_secrets(resource.outputs(record), inputs)
    return outputs


_KINDS = {
    ("ADD", False): proto.PropertyDiff.ADD,
    ("ADD", True): proto.PropertyDiff.ADD_REPLACE,
    ("DELETE", False): proto.PropertyDiff.DELETE,
    ("DELETE", True): proto.PropertyDiff.DELETE_REPLACE,
    ("UPDATE", False): proto.PropertyDiff.UPDATE,
    ("UPDATE", True): proto.PropertyDiff.UPDATE_REPLACE,
}


def _diff_response(changes: list[diff.Change], delete_first: bool) -> proto.DiffResponse:
    replaces = [change.path for change in changes if change.replaces]
    return proto.DiffResponse(
        changes=proto.DiffResponse.DIFF_SOME if changes else proto.DiffResponse.DIFF_NONE,
        diffs=sorted({change.path.replace("[", ".").partition(".")[0] for change in changes}),
        replaces=replaces,
        deleteBeforeReplace=bool(replaces) and delete_first,
        detailedDiff={
            change.path: proto.PropertyDiff(kind=_KINDS[change.kind, change.replaces], inputDiff=True)
            for change in changes
        },
        hasDetailedDiff=True,
    )
