"""Records the resources that a program registers, with their inputs, options and dependencies, as plain data.

Tests check the record. An assertion in `apply` would be skipped for an unknown value.
"""

import asyncio
import json
import re
import runpy
from collections.abc import Callable, Coroutine, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest import mock

import pulumi
import pytest
import yaml
from google.protobuf import json_format
from pulumi.runtime import mocks, rpc
from pulumi.runtime.proto import source_pb2
from pydantic.alias_generators import to_camel

from gke_ai import settings
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.machines.zones import ZONES, is_zone, node_zones
from gke_ai.catalog.section_files import PREFIX
from gke_ai.components.base import Component
from gke_ai.components.plugin.inputs import without_nulls
from tests.support.repository import ROOT as ROOT
from tests.support.repository import source

PROJECT = "my-project"
TOKEN = "hf_canary"
PROJECT_NUMBER = "123456789012"
GATEWAY_ADDRESS, GATEWAY_KEY = "10.0.0.5", "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class Registration:
    """A resource as the program registers it with the engine."""

    urn: str
    type: str
    name: str
    parent: str
    inputs: Mapping[str, Any]
    dependencies: frozenset[str]
    ignored: tuple[str, ...]
    protected: bool
    retained: bool
    delete_before_replace: bool | None
    hooked: bool
    replace_on_changes: tuple[str, ...] = ()
    replacement_trigger: Any = None
    aliases: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    """Its names in earlier releases."""
    timeouts: str | None = None
    secret_outputs: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    """Options with a value that goes before an inherited one."""

    @property
    def object_name(self) -> str:
        return str(self.inputs.get("metadata", {}).get("name") or self.inputs.get("name") or self.part)

    @property
    def part(self) -> str:
        """What the resource is called in its component, without the name of that."""
        return next(iter(self.former), self.name)


@dataclass
class Record:
    """All resources that a program registered, by URN, and its outputs."""

    resources: dict[str, Registration] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    secret_outputs: set[str] = field(default_factory=set)

    def all(self, kind: str) -> list[Registration]:
        """Resources whose type ends in `kind`."""
        return [it for it in self.resources.values() if it.type.rpartition(":")[2].rpartition("/")[2] == kind]

    def one(self, kind: str, name: str | None = None) -> Registration:
        """The only resource of a type, or the only one with an object name."""
        (resource,) = (resource for resource in self.all(kind) if name is None or resource.object_name == name)
        return resource

    def waits_for(self, waiting: Registration) -> frozenset[str]:
        """Types and names of all resources that `waiting` depends on, directly or through its parents."""
        seen: set[str] = set()
        open_ends = [waiting.urn]
        while open_ends:
            resource = self.resources.get(open_ends.pop())
            if resource is not None and resource.urn not in seen:
                seen.add(resource.urn)
                open_ends += [*resource.dependencies, resource.parent]
        seen.discard(waiting.urn)
        found = filter(None, map(self.resources.get, seen))
        return frozenset(f"{resource.type.rpartition(':')[2]} {resource.object_name}" for resource in found)


class Monitor(mocks.MockMonitor):
    """Pulumi's mock of an engine, which also records the registrations."""

    def __init__(self, cloud: mocks.Mocks, record: Record) -> None:
        super().__init__(cloud)
        self.record = record

    def RegisterResource(self, request: Any) -> Any:
        respond: Callable[[Any], Any] = super().RegisterResource
        response = respond(request)
        if request.type != "pulumi:pulumi:Stack":
            assert response.urn not in self.record.resources, f"the engine refuses a second {response.urn}"
            self.record.resources[response.urn] = Registration(
                urn=response.urn,
                type=request.type,
                name=request.name,
                parent=request.parent,
                inputs=rpc.deserialize_properties(request.object, keep_unknowns=True),
                dependencies=frozenset([*request.dependencies, *filter(None, [request.provider.rpartition("::")[0]])]),
                ignored=tuple(request.ignoreChanges),
                protected=request.protect,
                retained=request.retainOnDelete,
                delete_before_replace=request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None,
                hooked=bool(request.hooks.on_error),
                replace_on_changes=tuple(request.replaceOnChanges),
                replacement_trigger=trigger(request),
                aliases=tuple(alias.spec.type for alias in request.aliases if alias.spec.type),
                former=tuple(alias.spec.name for alias in request.aliases if alias.spec.name),
                timeouts=request.customTimeouts.create or None,
                secret_outputs=tuple(request.additionalSecretOutputs),
                hidden=tuple(request.hideDiffs),
                overrides=tuple(
                    option
                    for option in ("protect", "retainOnDelete")
                    if request.HasField(option) and not getattr(request, option)
                ),
            )
        return response


def trigger(request: Any) -> Any:
    if not request.HasField("replacement_trigger"):
        return None
    return rpc.deserialize_property(json_format.MessageToDict(request.replacement_trigger))


class Cloud(mocks.Mocks):
    """A cloud that returns the inputs and invented endpoints. In a preview it returns no ids."""

    # Former settings of a cluster that the cloud kept.
    kept: Mapping[str, object] = {}
    # Properties of an existing cluster.
    workload_pool = f"{PROJECT}.svc.id.goog"
    fuse = True
    by_name: Mapping[str, object] = {"endpoint": "gke-1.example.com", "allowExternalTraffic": True}
    further: Mapping[str, object] = {}

    def __init__(self, preview: bool) -> None:
        self.preview = preview

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        state = dict(args.inputs)
        if args.typ == "gcp:container/cluster:Cluster":
            if not self.preview:
                state |= {"endpoint": "192.0.2.1", "masterAuth": {"clusterCaCertificate": "Q0E="}}
                state |= {"nodeLocations": list(node_zones(args.inputs["location"]))}
            state |= self.kept
            if not self.preview:
                # Last: one that nothing awaits stays pending, because this thread's event loop ends with the answer,
                # and the program would wait for it without an end.
                state["masterAuth"] = pulumi.Output.secret(state["masterAuth"])
        if args.typ == "kubernetes:core/v1:ConfigMap" and not self.preview:
            metadata = state["metadata"]
            state["metadata"] = {**metadata, "uid": f"uid of {metadata.get('namespace')}/{metadata['name']}"}
        if args.typ == "gcp:storage/bucket:Bucket":
            state["url"] = f"gs://{args.inputs['name']}"
        if args.typ == "gcp:serviceaccount/account:Account":
            email = f"{args.inputs['accountId']}@{args.inputs['project']}.iam.gserviceaccount.com"
            state |= {"name": f"projects/{args.inputs['project']}/serviceAccounts/{email}"}
            state |= {"member": f"serviceAccount:{email}"}
        return (None if self.preview else f"{args.name}-id"), state

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        if args.token == "gcp:organizations/getProject:getProject":
            return {"number": PROJECT_NUMBER, "projectId": args.args["projectId"]}, []
        if args.token == "gcp:container/getCluster:getCluster":
            return {
                **args.args,
                "endpoint": "192.0.2.1",
                "masterVersion": "1.37.1-gke.2097000",
                "nodeLocations": [] if is_zone(args.args["location"]) else list(node_zones(args.args["location"])),
                "enableAutopilot": False,
                "masterAuths": [{"clusterCaCertificate": "Q0E="}],
                "workloadIdentityConfigs": [{"workloadPool": self.workload_pool}],
                "addonsConfigs": [{"gcsFuseCsiDriverConfigs": [{"enabled": self.fuse}]}],
                "gatewayApiConfigs": [{"channel": "CHANNEL_STANDARD"}],
                "monitoringConfigs": [{"managedPrometheuses": [{"enabled": True}]}],
                "controlPlaneEndpointsConfigs": [{"dnsEndpointConfigs": [self.by_name]}],
                **self.further,
            }, []
        if args.token == "gcp:secretmanager/getSecret:getSecret":
            return {"id": f"projects/{args.args['project']}/secrets/{args.args['secretId']}"}, []
        raise AssertionError(f"unexpected call of {args.token}")


async def ready_at_once(*_: object) -> None:
    """Replaces the wait for a cluster, which doesn't exist."""


async def programmed_at_once(*_: object) -> str:
    """Replaces the wait for a load balancer."""
    return GATEWAY_ADDRESS


def record(
    program: Callable[[], object],
    preview: bool,
    monkeypatch: pytest.MonkeyPatch,
    control_plane: Callable[..., Coroutine[Any, Any, None]] = ready_at_once,
) -> Record:
    """Runs `program` as a preview or as an update, without a cluster to monitor servers in."""

    hooks: set[str] = set()

    def registered(hook: pulumi.ErrorHook | pulumi.ResourceHook) -> asyncio.Future[None]:
        assert hook.name not in hooks, f"the engine refuses a second hook {hook.name!r}"
        hooks.add(hook.name)
        return asyncio.ensure_future(ready_at_once())

    monkeypatch.setattr("gke_ai.components.cluster.cluster.wait_for_control_plane", control_plane)
    monkeypatch.setattr("gke_ai.components.serving.readiness.wait_for", ready_at_once)
    monkeypatch.setattr("gke_ai.components.serving.model_download.wait_for", ready_at_once)
    monkeypatch.setattr("gke_ai.components.pools.draining.drain", ready_at_once)
    monkeypatch.setattr("gke_ai.components.gateway.gateway_address.wait_for_address", programmed_at_once)
    # An engine calls hooks. Pulumi's mocks don't support them.
    monkeypatch.setattr("pulumi.resource_hooks.register_error_hook", registered)
    monkeypatch.setattr("pulumi.resource_hooks.register_resource_hook", registered)
    # Pulumi sends the engine where in the program a resource is created. No test reads it, and under pytest, with its
    # deep stack, this took a third of the time of a record.
    monkeypatch.setattr("pulumi.runtime.resource._get_stack_trace", source_pb2.StackTrace)
    recorded = Record()
    cloud = Cloud(preview)
    pulumi.runtime.set_mocks(cloud, project="gke-ai", stack="test", preview=preview, monitor=Monitor(cloud, recorded))
    root: Any = pulumi.runtime.get_root_resource()
    root.outputs.clear()

    async def masked() -> None:
        for name, value in root.outputs.items():
            if await pulumi.Output.from_input(value).is_secret():
                recorded.secret_outputs.add(name)

    def run() -> pulumi.Output[Any]:
        program()
        # In a preview some outputs are unknown, and then none is recorded.
        return pulumi.Output.all(masked(), pulumi.Output.all(**root.outputs).apply(recorded.outputs.update))

    to_the_end: Callable[[Callable[[], object]], Callable[[], None]] = pulumi.runtime.test
    # What the program states beyond the catalog ends with it.
    with mock.patch.dict(MACHINES), mock.patch.dict(ZONES):
        to_the_end(run)()
    return recorded


def construct(
    component: type[Component], name: str, flat: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
) -> Component:
    """Creates a component from flat inputs, as the package does for programs in other languages.

    The inputs and their keys may be in snake_case.
    """
    # As if the program named the cluster of its default provider.
    pulumi.runtime.set_config("kubernetes:context", "test")
    create: Any = component
    created: Component = create(name, opts=opts, **without_nulls(in_camel_case(flat)))
    return created


def in_camel_case(value: Any) -> Any:
    """The inputs with all keys in camelCase, except in `arguments`, which are settings of an engine."""
    if isinstance(value, Mapping):
        names = {key: to_camel(key) if re.fullmatch("[a-z_]+", key) else key for key in value}
        return {names[key]: item if key == "arguments" else in_camel_case(item) for key, item in value.items()}
    return [in_camel_case(item) for item in value] if isinstance(value, list) else value


def run_program(
    configuration: Mapping[str, Any],
    preview: bool,
    monkeypatch: pytest.MonkeyPatch,
    token: str | None = TOKEN,
    secret_keys: tuple[str, ...] = (),
    control_plane: Callable[..., Coroutine[Any, Any, None]] = ready_at_once,
) -> Record:
    """Runs the whole program with a stack configuration. As in Pulumi, objects are JSON."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in configuration.items()}
    config = {"gcp:project": PROJECT, **texts}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(config))
    pulumi.runtime.set_all_config(config, list(secret_keys))
    monkeypatch.setenv("HF_TOKEN", token or "")
    monkeypatch.setenv("GATEWAY_API_KEY", GATEWAY_KEY)
    return record(lambda: runpy.run_path(str(ROOT), run_name="__main__"), preview, monkeypatch, control_plane)


def shared_record(configuration: Mapping[str, Any], preview: bool = False) -> Record:
    """The record of the program, run once for all tests of this process. No test may change it.

    A test that replaces a part of the program or of the cloud calls `run_program` instead.
    """
    return _shared_record(json.dumps(configuration), preview)


@cache
def _shared_record(configuration: str, preview: bool) -> Record:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return run_program(json.loads(configuration), preview, monkeypatch)


def configuration(path: str) -> dict[str, Any]:
    return deepcopy(_parsed(source(path).read_text()))


def load_stack(configuration: Mapping[str, Any], token_given: bool = True) -> settings.ResolvedStack:
    values = {key.removeprefix(PREFIX): value for key, value in configuration.items() if key.startswith(PREFIX)}
    return settings.load(values, PROJECT, token_given)


@cache
def _parsed(text: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.load(text, yaml.CSafeLoader)["config"]
    return content


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)


def failed(*errors: str) -> pulumi.ErrorHookArgs:
    return pulumi.ErrorHookArgs(urn="u", id="", name="q", type="t", failed_operation="create", errors=list(errors))


def plain(inputs: Any) -> Any:
    """Inputs with whole numbers, which Pulumi sends as floats."""
    if isinstance(inputs, dict):
        return {key: plain(value) for key, value in inputs.items()}
    if isinstance(inputs, list):
        return [plain(value) for value in inputs]
    return int(inputs) if isinstance(inputs, float) else inputs
