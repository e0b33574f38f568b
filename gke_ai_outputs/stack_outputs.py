"""A typed view of another stack's outputs, for the programs of other teams.

    platform = StackOutputs("my-organization/gke-ai/prod")
    queue = platform.queue(namespace="research")
    Job("train", metadata={"labels": {"kueue.x-k8s.io/queue-name": queue.local_queue}, …},
        opts=ResourceOptions(provider=platform.provider()))

Every value is a pulumi.Output. For items such as a queue or a server, `output.some_key` is an Output of that key. If
the stack lacks an output, the program stops with a message: the output, the version that added it, and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pulumi
import pulumi_kubernetes as k8s
from pydantic import TypeAdapter, ValidationError

from gke_ai_outputs.model import (
    Autoscaler,
    Bucket,
    Contract,
    Identity,
    Item,
    Job,
    PriorityClass,
    Producer,
    Queue,
    Server,
    Tenant,
    parsed,
    since_of,
)
from gke_ai_outputs.version import VERSION

I = TypeVar("I", bound=Item)  # noqa: E741


class StackOutputs:
    """The outputs of the stack `stack` (`organization/project/stack`).

    Reading is lazy: only the keys that a program reads must exist, so programs that are older or newer than the stack
    work as long as the stack has the keys that they read. Secret outputs stay secret, and unknown ones unknown.
    """

    def __init__(self, stack: str, opts: pulumi.ResourceOptions | None = None) -> None:
        self.stack = stack
        self._reference = pulumi.StackReference(stack, opts=opts)

    # ------------------------------------------------------------------------------------------------------- cluster
    @property
    def version(self) -> pulumi.Output[str]:
        """Version of the contract that the stack wrote."""
        return self._producer().apply(lambda producer: producer.version)

    @property
    def project(self) -> pulumi.Output[str]:
        """Id of the Google Cloud project."""
        return self._read("project")

    @property
    def cluster_name(self) -> pulumi.Output[str]:
        """Name of the cluster."""
        return self._read("cluster_name")

    @property
    def cluster_location(self) -> pulumi.Output[str]:
        """Region or zone of the cluster."""
        return self._read("cluster_location")

    @property
    def cluster_mode(self) -> pulumi.Output[str]:
        """`standard` or `autopilot`."""
        return self._read("cluster_mode")

    @property
    def cluster_endpoint(self) -> pulumi.Output[str]:
        """Host of the control plane."""
        return self._read("cluster_endpoint")

    @property
    def kubeconfig(self) -> pulumi.Output[str]:
        """A kubeconfig that authenticates through `gke-gcloud-auth-plugin`."""
        return self._read("kubeconfig")

    @property
    def workload_pool(self) -> pulumi.Output[str]:
        """The project's workload identity pool."""
        return self._read("workload_pool")

    @property
    def node_service_account(self) -> pulumi.Output[str]:
        """E-mail address of the nodes' service account. `default` is Compute Engine's."""
        return self._read("node_service_account")

    def provider(self, name: str = "platform", opts: pulumi.ResourceOptions | None = None) -> k8s.Provider:
        """A Kubernetes provider for the cluster. A changed endpoint does not replace objects; another cluster does."""
        identity = pulumi.Output.concat(self.cluster_location, "/", self.cluster_name)
        return k8s.Provider(name, kubeconfig=self.kubeconfig, cluster_identifier=identity, opts=opts)

    # --------------------------------------------------------------------------------------------------------- lists
    @property
    def namespaces(self) -> pulumi.Output[list[str]]:
        """Namespaces of workloads, local queues and tenants."""
        return self._read("namespaces")

    @property
    def queues(self) -> pulumi.Output[list[Queue]]:
        """Local queues with their quota."""
        return self._read("queues")

    @property
    def priority_classes(self) -> pulumi.Output[list[PriorityClass]]:
        """Priority classes of the stack."""
        return self._read("priority_classes")

    @property
    def servers(self) -> pulumi.Output[list[Server]]:
        """Model servers."""
        return self._read("servers")

    @property
    def jobs(self) -> pulumi.Output[list[Job]]:
        """Runs."""
        return self._read("jobs")

    @property
    def buckets(self) -> pulumi.Output[list[Bucket]]:
        """Buckets."""
        return self._read("buckets")

    @property
    def identities(self) -> pulumi.Output[list[Identity]]:
        """Service accounts of workloads, with their identities in Google Cloud."""
        return self._read("identities")

    @property
    def tenants(self) -> pulumi.Output[list[Tenant]]:
        """Teams with their own namespace."""
        return self._read("tenants")

    @property
    def compute_classes(self) -> pulumi.Output[list[str]]:
        """Compute classes that a pod can select."""
        return self._read("compute_classes")

    @property
    def autoscalers(self) -> pulumi.Output[list[Autoscaler]]:
        """Autoscalers of servers with their metrics."""
        return self._read("autoscalers")

    @property
    def dashboards(self) -> pulumi.Output[list[str]]:
        """Ids of the dashboards in Cloud Monitoring."""
        return self._read("dashboards")

    # ---------------------------------------------------------------------------------------------------- one of them
    def queue(self, namespace: str, name: str | None = None) -> pulumi.Output[Queue]:
        """The local queue `name` of a namespace. Without a name, the only queue of the namespace."""
        description = f"local queue {name}" if name else "local queue (by its name, if there are several)"
        return self._find(
            self.queues,
            lambda item: item.namespace == namespace and name in (None, item.local_queue),
            f"{description} in namespace {namespace}",
            lambda item: f"{item.namespace}/{item.local_queue}",
        )

    def server(self, name: str, namespace: str | None = None) -> pulumi.Output[Server]:
        """The server `name`. Add the namespace if several servers have the name."""
        return self._find(
            self.servers,
            lambda item: item.name == name and namespace in (None, item.namespace),
            f"server {name}" + (f" in namespace {namespace}" if namespace else ""),
            lambda item: f"{item.namespace}/{item.name}",
        )

    def bucket(self, name: str) -> pulumi.Output[Bucket]:
        """The bucket `name`."""
        return self._find(self.buckets, lambda item: item.name == name, f"bucket {name}", lambda item: item.name)

    def identity(self, namespace: str, service_account: str = "default") -> pulumi.Output[Identity]:
        """The identity of a service account in Google Cloud."""
        return self._find(
            self.identities,
            lambda item: (item.namespace, item.service_account) == (namespace, service_account),
            f"identity of service account {service_account} in namespace {namespace}",
            lambda item: f"{item.namespace}/{item.service_account}",
        )

    def tenant(self, namespace: str) -> pulumi.Output[Tenant]:
        """The tenant of a namespace."""
        return self._find(
            self.tenants, lambda item: item.namespace == namespace, f"tenant {namespace}", lambda item: item.namespace
        )

    # ------------------------------------------------------------------------------------------------------- reading
    def _producer(self) -> pulumi.Output[Producer]:
        return self._reference.get_output("version").apply(lambda version: producer(self.stack, version))

    def _read(self, name: str) -> pulumi.Output[Any]:
        """A key of the contract, validated and typed. Secret if the output is secret."""
        alias = str(Contract.model_fields[name].alias)
        # Read each key alone: a secret that somebody adds to the outputs must not make the others secret.
        return pulumi.Output.all(self._producer(), self._reference.get_output(alias)).apply(
            lambda values: value(values[0], name, values[1])
        )

    def _find(
        self,
        output: pulumi.Output[list[I]],
        matches: Callable[[I], bool],
        description: str,
        item_name: Callable[[I], str],
    ) -> pulumi.Output[I]:
        def pick(items: list[I]) -> I:
            matching = [item for item in items if matches(item)]
            if len(matching) == 1:
                return matching[0]
            existing = ", ".join(map(item_name, items)) or "none at all"
            count = "several" if matching else "no"
            raise pulumi.RunError(
                f"{self.stack} has {count} {description}. It has: {existing}. Use one of these, or ask the stack's "
                "owners to add it to their configuration."
            )

        return output.apply(pick)


def producer(stack: str, version: object) -> Producer:
    """The producer of the outputs. Raises RunError without outputs, or if this view can't read their version."""
    try:
        major, _ = parsed(str(version))
    except ValueError:
        raise pulumi.RunError(
            f"{stack} has no outputs of a gke-ai stack. It was never deployed, it is destroyed, or it belongs to "
            "another program. Check the name, organization/project/stack: pulumi stack ls --all."
        ) from None
    if major != parsed(VERSION)[0]:
        raise pulumi.RunError(
            f"{stack} writes version {version} of the outputs, and this program reads version {VERSION}. "
            f"Use the package `gke-ai-outputs` from the version of that stack's program."
        )
    return Producer(stack, str(version))


def value(producer: Producer, name: str, output: object) -> Any:
    """Validate the value of a key of the contract. Raises RunError if it is missing or has another type."""
    field = Contract.model_fields[name]
    if output is None:
        raise producer.missing(str(field.alias), since_of(Contract, name))
    expected_type: Any = field.annotation
    try:
        return TypeAdapter(expected_type).validate_python(output, context=producer)
    except ValidationError as error:
        # Path and problem, never the value, which may be anything.
        problems = "; ".join(
            f"{'.'.join(map(str, (field.alias, *problem['loc'])))}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise pulumi.RunError(
            f"{producer.stack} has an output that does not match version {producer.version} of the contract: "
            f"{problems}. Check that it is a stack of this program."
        ) from None
