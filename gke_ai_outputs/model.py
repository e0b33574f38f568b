"""The contract of a stack's outputs: what each key means, and the version of the contract that added it.

A version is MAJOR.MINOR. Additions raise the minor number. Removals, renames and changes of meaning raise the major
number. A producer writes `VERSION` and every key below. A consumer that is older or newer than the producer reads the
keys that both know. An absent value is an empty string, list or mapping.

No output is a secret, and none may become one: anyone who can read a stack's outputs can read all of them.

Other teams install this package alone, so it imports nothing else of the project.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar, get_args, overload

import pulumi
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from pydantic.alias_generators import to_camel

from gke_ai_outputs.version import VERSION

V = TypeVar("V")


def parsed(version: str) -> tuple[int, int]:
    """MAJOR and MINOR of a version. The first producers wrote `1` for 1.0. Raises ValueError for other text."""
    major, _, minor = version.partition(".")
    return int(major), int(minor or 0)


class MissingOutput(pulumi.RunError):
    """The stack lacks the requested output. The message has the output, its version and the remedy."""


@dataclass(frozen=True)
class Producer:
    """The stack whose outputs are read, and the version of the contract that it wrote."""

    stack: str = "a stack"
    version: str = VERSION

    def missing(self, key: str, since: str) -> MissingOutput:
        """The error that the stack has no output `key`, which version `since` added."""
        if parsed(self.version) < parsed(since):
            return MissingOutput(
                f"{self.stack} has no output {key}. Version {since} of the outputs added it, and this stack "
                f"was deployed with {self.version}. Ask its owners to deploy a current version of its program "
                f"(pulumi up), or do without {key}."
            )
        return MissingOutput(
            f"{self.stack} has no output {key}, although its outputs have version {self.version}. Its last update was "
            "incomplete, or the stack is destroyed. Ask its owners to run pulumi up and to read its messages."
        )


def since(version: str, description: str, alias: str | None = None) -> Any:
    """A key of the contract: the version that added it, and its description."""
    return Field(default=None, alias=alias, description=description, json_schema_extra={"since": version})


class Item(BaseModel):
    """Base of all items: camelCase keys, immutable. Ignores unknown keys of a newer producer.

    Reading a key that the producer didn't write raises MissingOutput.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    _producer: Producer = PrivateAttr(default=Producer())

    def model_post_init(self, context: Any) -> None:
        self._producer = context or Producer()
        for name in type(self).model_fields.keys() - self.model_fields_set:
            del self.__dict__[name]

    def __getattr__(self, name: str) -> Any:
        if field := type(self).model_fields.get(name):
            raise self._producer.missing(f"{path_of(type(self))}{field.alias}", since_of(type(self), name))
        return super().__getattr__(name)  # type: ignore[misc]  # pydantic has it, and hides it from type checkers


@dataclass(frozen=True)
class Description:
    """A key of the outputs or of an item, as the reference lists it."""

    key: str
    annotation: Any
    since: str
    text: str


class Key(Generic[V]):
    """An output of the stack: its type, the version of the contract that added it, and its description.

    On `StackOutputs` it is a pulumi.Output of that type.
    """

    def __init__(self, annotation: type[V], since: str, text: str) -> None:
        self.annotation, self.since, self.text = annotation, since, text

    def __set_name__(self, owner: type[Contract], name: str) -> None:
        self.alias = to_camel(name)

    @overload
    def __get__(self, stack: None, owner: type[Contract]) -> Key[V]: ...
    @overload
    def __get__(self, stack: Contract, owner: type[Contract]) -> pulumi.Output[V]: ...
    def __get__(self, stack: Contract | None, owner: type[Contract]) -> Key[V] | pulumi.Output[V]:
        return self if stack is None else stack._read(self)


def keys_of(part: type[Contract | Item]) -> list[Description]:
    """The keys of the contract, or of an item type."""
    if issubclass(part, Item):
        return [
            Description(str(field.alias), field.annotation, since_of(part, name), str(field.description))
            for name, field in part.model_fields.items()
        ]
    keys = [key for key in vars(part).values() if isinstance(key, Key)]
    return [Description(key.alias, key.annotation, key.since, key.text) for key in keys]


def since_of(item_type: type[Item], name: str) -> str:
    """The version of the contract that added a field."""
    extra = item_type.model_fields[name].json_schema_extra
    assert isinstance(extra, dict)
    return str(extra["since"])


@cache
def path_of(item_type: type[Item]) -> str:
    """Path of an item type in the outputs, such as `queues[].quota[].`."""
    return dict(parts())[item_type]


def parts(part: type[Contract | Item] | None = None, path: str = "") -> Iterator[tuple[type[Contract | Item], str]]:
    """The contract and every item type in it with its path, depth first."""
    part = part or Contract
    yield part, path
    for key in keys_of(part):
        for inner in get_args(key.annotation):
            if isinstance(inner, type) and issubclass(inner, Item):
                yield from parts(inner, f"{path}{key.key}[].")


class Toleration(Item):
    """A toleration, with the keys of the Kubernetes API."""

    key: str = since("1.1", "key of the taint")
    operator: str = since("1.1", "`Equal`, or `Exists` for any value")
    value: str = since("1.1", "value of the taint; empty with `Exists`")
    effect: str = since("1.1", "`NoSchedule`, `PreferNoSchedule` or `NoExecute`")


class FlavorGrant(Item):
    """Quota of a queue for one flavor, and how a pod selects its nodes."""

    flavor: str = since("1.0", "name of the ResourceFlavor")
    # Not `resources`: that is a method of every pulumi.Output.
    amounts: dict[str, str] = since(
        "1.0", "nominal quota by resource, as a Kubernetes quantity; `amounts` in Python", alias="resources"
    )
    borrowing_limit: dict[str, str] = since(
        "1.1", "maximum to borrow from the cohort by resource; omitted resources have no maximum"
    )
    node_selector: dict[str, str] = since("1.1", "labels of the nodes to select; empty for any node")
    tolerations: list[Toleration] = since("1.1", "tolerations for the taints of the nodes")

    @property
    def accelerator(self) -> str:
        """The granted GPU or TPU resource, such as `nvidia.com/gpu`. Empty without accelerators."""
        return next((resource for resource in self.amounts if "/" in resource), "")


class Queue(Item):
    """A local queue to submit to, and its quota."""

    local_queue: str = since("1.0", "value of a workload's label `kueue.x-k8s.io/queue-name`")
    namespace: str = since("1.0", "namespace of the queue")
    cluster_queue: str = since("1.0", "cluster queue that it submits to")
    cohort: str = since("1.1", "cohort that the cluster queue borrows from; empty without a cohort")
    quota: list[FlavorGrant] = since("1.0", "quota by flavor, in the order in which Kueue tries the flavors")


class PriorityClass(Item):
    """A PriorityClass of the stack."""

    name: str = since("1.1", "value of a pod's `priorityClassName`")
    value: int = since("1.1", "priority; higher values are admitted first")


class Server(Item):
    """A model server."""

    name: str = since("1.0", "name of the Deployment")
    namespace: str = since("1.0", "namespace of the workload")
    service: str = since("1.0", "name of its Service")
    port: int = since("1.0", "port of its Service")
    url: str = since("1.0", "`http://…` address of its Service inside the cluster")
    engine: str = since("1.0", "value of the key `engine`, which determines its API")
    model: str = since("1.0", "model that it serves, as the engine names it")
    cold_start_seconds: int = since("1.3", "estimated time in which a new replica reads its model; 0 if it is unknown")
    adapters: list[str] = since("1.4", "names of its LoRA adapters, which clients write as `model`")


class Job(Item):
    """A run of the stack."""

    name: str = since("1.0", "name of the Job or JobSet")
    namespace: str = since("1.0", "namespace of the workload")
    kind: str = since("1.0", "`Job` or `JobSet`, the Kubernetes kind")
    run_kind: str = since("1.2", "`fineTune`, `multislice`, `job` (any image on GPUs) or `tpuBatch`")
    checkpoints: str = since("1.2", "`gs://…` directory of its checkpoints; empty if the stack does not know it")


class Bucket(Item):
    """A bucket of the stack."""

    name: str = since("1.0", "name of the bucket")
    url: str = since("1.0", "`gs://…`")
    on_destroy: str = since("1.0", "`keep` or `delete`: whether a destroy deletes the data")


class Identity(Item):
    """A Kubernetes service account of workloads, and its identity in Google Cloud."""

    namespace: str = since("1.1", "namespace of the service account")
    service_account: str = since("1.1", "name of the service account")
    principal: str = since("1.1", "`principal://…`, the IAM member to grant roles to; empty if the stack has no grants")
    buckets: list[str] = since("1.1", "buckets of the stack on which it has a role")


class Tenant(Item):
    """A team's namespace and what the team may use in it."""

    namespace: str = since("1.1", "the namespace")
    service_account: str = since("1.1", "service account that its workloads run as")
    deployer: str = since("1.1", "service account with the rights of the team's members, for pipelines")
    queues: list[str] = since("1.1", "its local queues")
    priority_classes: list[str] = since("1.1", "priority classes that its pods may use; if empty, pods must have none")
    buckets: list[str] = since("1.1", "buckets that its service account reads and writes")
    quota: dict[str, str] = since("1.1", "maximum in the namespace by resource, in addition to the quota of queues")
    pod_security: str = since("1.1", "Pod Security level that its pods must meet")


class Autoscaler(Item):
    """A HorizontalPodAutoscaler of a server."""

    name: str = since("1.0", "name of the HorizontalPodAutoscaler")
    namespace: str = since("1.0", "namespace of the autoscaler")
    server: str = since("1.0", "Deployment that it scales")
    metrics: list[str] = since("1.0", "metrics that it scales by, as `autoscaling` names them")
    min_replicas: int = since("1.0", "minimum number of replicas")
    max_replicas: int = since("1.0", "maximum number of replicas")


class RoutedServer(Item):
    """A server behind a route."""

    server: str = since("1.3", "name of the server")
    weight: int = since("1.3", "its share of the requests, relative to the weights of the route's other servers")


class Route(Item):
    """A route of a gateway."""

    name: str = since("1.3", "name of the HTTPRoute")
    namespace: str = since("1.3", "namespace of the HTTPRoute and of its servers")
    host: str = since("1.3", "host name of the requests; empty for all others")
    model: str = since("1.3", "model to name in requests")
    servers: list[RoutedServer] = since("1.3", "servers that answer")
    models: list[str] = since("1.4", "models and LoRA adapters to name in requests")


class Gateway(Item):
    """The gateway, through which clients reach servers."""

    name: str = since("1.3", "name of the Gateway")
    namespace: str = since("1.3", "namespace of the Gateway")
    address: str = since("1.3", "IP address of its load balancer")
    url: str = since("1.3", "`https://…` or `http://…` with its address; its API begins at `/v1`")
    public: bool = since("1.3", "whether the address is on the Internet")
    api_key: bool = since("1.3", "whether clients need an API key")
    routes: list[Route] = since("1.3", "its routes")


class Contract:
    """All outputs of a stack."""

    version = Key(str, "1.0", f"version of this contract, MAJOR.MINOR, now `{VERSION}`; the first stacks wrote `1`")
    project = Key(str, "1.1", "id of the Google Cloud project")
    cluster_name = Key(str, "1.0", "name of the cluster")
    cluster_identifier = Key(str, "1.4", "text that changes only when the cluster is created again")
    cluster_location = Key(str, "1.0", "region or zone of the cluster")
    cluster_mode = Key(str, "1.1", "`standard`, where the stack manages nodes, or `autopilot`, where Google does")
    cluster_endpoint = Key(str, "1.0", "host of the control plane")
    kubeconfig = Key(str, "1.0", "kubeconfig that authenticates through `gke-gcloud-auth-plugin`; holds no credential")
    workload_pool = Key(str, "1.1", "the project's workload identity pool")
    node_service_account = Key(
        str, "1.1", "e-mail address of the nodes' service account; `default` is Compute Engine's"
    )
    namespaces = Key(list[str], "1.0", "namespaces of workloads, local queues and tenants")
    queues = Key(list[Queue], "1.0", "local queues with their quota")
    priority_classes = Key(list[PriorityClass], "1.1", "priority classes of the stack")
    servers = Key(list[Server], "1.0", "model servers")
    jobs = Key(list[Job], "1.0", "runs")
    buckets = Key(list[Bucket], "1.0", "Cloud Storage buckets")
    identities = Key(list[Identity], "1.1", "service accounts of the stack's workloads and tenants")
    tenants = Key(list[Tenant], "1.1", "teams with their own namespace")
    compute_classes = Key(
        list[str], "1.0", "compute classes that a pod can select by the label `cloud.google.com/compute-class`"
    )
    autoscalers = Key(list[Autoscaler], "1.0", "autoscalers of servers with their metrics")
    gateways = Key(list[Gateway], "1.3", "the gateway, if the stack has one")
    dashboards = Key(list[str], "1.1", "ids of the dashboards in Cloud Monitoring")

    def _read(self, key: Key[V]) -> pulumi.Output[V]:
        raise NotImplementedError  # StackOutputs reads the outputs of a stack
