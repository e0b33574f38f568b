"""The outputs of a stack as a contract: what each is, and which version of the contract brought it.

A version is MAJOR.MINOR. The minor number goes up when something is added; nothing is taken away, renamed or given
another meaning without a new major number. A producer writes `VERSION`, and all that stands here; a consumer that is
older or newer than the producer reads what both know. A value that isn't there is an empty text, list or mapping.

No output is a secret, nor may become one: whoever reads a stack's outputs reads them all.

This module and `outputs.stack_outputs` import nothing of the rest of the project: other teams install them alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from pulumi import RunError
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from pydantic.alias_generators import to_camel

VERSION = "1.1"


def parsed(version: str) -> tuple[int, int]:
    """MAJOR and MINOR of a version; the first producers wrote `1` for 1.0. Raises ValueError for anything else."""
    major, _, minor = version.partition(".")
    return int(major), int(minor or 0)


class MissingOutput(RunError):
    """What was asked for isn't among the stack's outputs; the text names it, its version and the remedy."""


@dataclass(frozen=True)
class Producer:
    """The stack whose outputs are read, and the version of the contract that it wrote."""

    stack: str = "a stack"
    version: str = VERSION

    def missing(self, key: str, since: str) -> MissingOutput:
        """That the stack has no output `key`, which came with the version `since`."""
        if parsed(self.version) < parsed(since):
            return MissingOutput(
                f"{self.stack} has no output {key}: that came with version {since} of the outputs, and this stack "
                f"was deployed with {self.version}. Let its owners deploy it with a current version of its program "
                f"(pulumi up), or do without {key}."
            )
        return MissingOutput(
            f"{self.stack} has no output {key}, though its outputs are of version {self.version}: it was not deployed "
            "to the end, or it has been destroyed. Let its owners run pulumi up, and see what that says."
        )


def since(version: str, description: str, alias: str | None = None) -> Any:
    """A key of the contract: the version that brought it, and what it is, for people who read it elsewhere."""
    return Field(default=None, alias=alias, description=description, json_schema_extra={"since": version})


class Item(BaseModel):
    """Base of all parts: camelCase keys; unknown ones, of a newer producer, are passed over; immutable once read.

    A key that the producer didn't write isn't there: asking for it raises MissingOutput.
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


def since_of(item_type: type[Item], name: str) -> str:
    """The version of the contract that brought a field."""
    extra = item_type.model_fields[name].json_schema_extra
    assert isinstance(extra, dict)
    return str(extra["since"])


@cache
def path_of(item_type: type[Item]) -> str:
    """Where items of a kind stand among the outputs: `queues[].quota[].`; empty for the whole contract."""
    return dict(parts())[item_type]


def parts(item_type: type[Item] | None = None, path: str = "") -> Iterator[tuple[type[Item], str]]:
    """The contract and every kind of item in it, each followed by those in it, with its path."""
    item_type = item_type or Contract
    yield item_type, path
    for field in item_type.model_fields.values():
        for inner in get_args(field.annotation):
            if isinstance(inner, type) and issubclass(inner, Item):
                yield from parts(inner, f"{path}{field.alias}[].")


class Toleration(Item):
    """A toleration in Kubernetes' own words."""

    key: str = since("1.1", "of the taint")
    operator: str = since("1.1", "`Equal` to the value, or `Exists` with any")
    value: str = since("1.1", "of the taint; empty with `Exists`")
    effect: str = since("1.1", "`NoSchedule`, `PreferNoSchedule` or `NoExecute`")


class FlavorGrant(Item):
    """What a queue may use of one kind of node, and what a pod must say to run on such a node."""

    flavor: str = since("1.0", "name of the ResourceFlavor")
    # Not `resources`: that is a method of every pulumi.Output.
    amounts: dict[str, str] = since("1.0", "resource: nominal quota, as a Kubernetes quantity", alias="resources")
    borrowing_limit: dict[str, str] = since("1.1", "resource: the most to borrow of the cohort; unnamed: all it lends")
    node_selector: dict[str, str] = since("1.1", "labels to select such nodes by; empty: any node")
    tolerations: list[Toleration] = since("1.1", "for the taints of such nodes")

    @property
    def accelerator(self) -> str:
        """The resource of GPUs or TPUs that is granted, such as `nvidia.com/gpu`; empty: none."""
        return next((resource for resource in self.amounts if "/" in resource), "")


class Queue(Item):
    """A local queue: where to submit to, and what it grants."""

    local_queue: str = since("1.0", "value of the label `kueue.x-k8s.io/queue-name` of what is submitted")
    namespace: str = since("1.0", "namespace that the queue is in")
    cluster_queue: str = since("1.0", "cluster queue behind it")
    cohort: str = since("1.1", "cohort that the cluster queue borrows in; empty: none")
    quota: list[FlavorGrant] = since("1.0", "by flavor, in the order in which Kueue tries them")


class PriorityClass(Item):
    """A PriorityClass of the stack."""

    name: str = since("1.1", "value of a pod's `priorityClassName`")
    value: int = since("1.1", "the higher goes first")


class Server(Item):
    """A model server."""

    name: str = since("1.0", "name of the Deployment")
    namespace: str = since("1.0", "namespace that it runs in")
    service: str = since("1.0", "name of its Service")
    port: int = since("1.0", "port of its Service")
    url: str = since("1.0", "`http://…` of its Service, from inside the cluster")
    engine: str = since("1.0", "`tgi`, `vllm` or `jetstream`: which API it speaks")
    model: str = since("1.0", "the model that it serves, in the engine's own words")


class Job(Item):
    """A run of the stack."""

    name: str = since("1.0", "name of the Job or JobSet")
    namespace: str = since("1.0", "namespace that it runs in")
    kind: str = since("1.0", "`Job`, or `JobSet` over several slices")


class Bucket(Item):
    """A bucket of the stack."""

    name: str = since("1.0", "name of the bucket")
    url: str = since("1.0", "`gs://…`")
    on_destroy: str = since("1.0", "whether the data outlives the stack")


class Identity(Item):
    """A Kubernetes service account that workloads run as, and who it is to Google Cloud."""

    namespace: str = since("1.1", "namespace of the service account")
    service_account: str = since("1.1", "name of the service account")
    principal: str = since(
        "1.1", "`principal://…`, the IAM member to grant roles to; empty where the stack grants nothing to anyone"
    )
    buckets: list[str] = since("1.1", "buckets of the stack that it was granted a role on")


class Tenant(Item):
    """A team's namespace, and what it may use there."""

    namespace: str = since("1.1", "the namespace")
    service_account: str = since("1.1", "that its workloads run as")
    deployer: str = since("1.1", "service account that may submit as the team's members may")
    queues: list[str] = since("1.1", "its local queues")
    priority_classes: list[str] = since("1.1", "that its pods may name; empty: only pods without one")
    buckets: list[str] = since("1.1", "that its service account reads and writes")
    quota: dict[str, str] = since("1.1", "resource: the most of it in the namespace, beside what queues grant")
    pod_security: str = since("1.1", "Pod Security level that its pods must meet")


class Autoscaler(Item):
    """A HorizontalPodAutoscaler of a server."""

    name: str = since("1.0", "name of the HorizontalPodAutoscaler")
    namespace: str = since("1.0", "namespace that it is in")
    server: str = since("1.0", "the Deployment that it scales")
    metrics: list[str] = since("1.0", "`prefillBacklog`, `slotsUsed`, `tpuMemory`: what it scales by")
    min_replicas: int = since("1.0", "fewest replicas")
    max_replicas: int = since("1.0", "most replicas")


class Contract(Item):
    """All outputs of a stack."""

    version: str = since("1.0", f"of this contract, MAJOR.MINOR: `{VERSION}`; the first stacks wrote `1`")
    project: str = since("1.1", "id of the Google Cloud project")
    cluster_name: str = since("1.0", "name of the cluster")
    cluster_location: str = since("1.0", "its region, or zone")
    cluster_mode: str = since("1.1", "`standard`: the stack has the nodes; `autopilot`: Google has")
    cluster_endpoint: str = since("1.0", "host of the control plane")
    kubeconfig: str = since("1.0", "reaches the cluster as whoever `gke-gcloud-auth-plugin` says; holds no credential")
    workload_pool: str = since("1.1", "the project's workload identity pool")
    node_service_account: str = since("1.1", "that nodes run as, an e-mail address; `default`: Compute Engine's")
    namespaces: list[str] = since("1.0", "that workloads, local queues or tenants are in")
    queues: list[Queue] = since("1.0", "local queues, and what each grants")
    priority_classes: list[PriorityClass] = since("1.1", "of the stack")
    servers: list[Server] = since("1.0", "model servers")
    jobs: list[Job] = since("1.0", "runs")
    buckets: list[Bucket] = since("1.0", "Cloud Storage buckets")
    identities: list[Identity] = since("1.1", "service accounts that the stack's workloads and tenants run as")
    tenants: list[Tenant] = since("1.1", "teams with a namespace of their own")
    compute_classes: list[str] = since("1.0", "names that a pod may select by `cloud.google.com/compute-class`")
    autoscalers: list[Autoscaler] = since("1.0", "what scales servers, and by which metrics")
    dashboards: list[str] = since("1.1", "ids of the dashboards in Cloud Monitoring")
