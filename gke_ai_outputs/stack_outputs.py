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
from typing import TypeVar

import pulumi
import pulumi_kubernetes as k8s
from pydantic import TypeAdapter, ValidationError

from gke_ai_outputs.model import Bucket, Contract, Identity, Item, Key, Producer, Queue, Server, Tenant, V, parsed
from gke_ai_outputs.version import VERSION

I = TypeVar("I", bound=Item)  # noqa: E741


class StackOutputs(Contract):
    """The outputs of the stack `stack` (`organization/project/stack`).

    Reading is lazy: only the keys that a program reads must exist, so programs that are older or newer than the stack
    work as long as the stack has the keys that they read. Secret outputs stay secret, and unknown ones unknown.
    """

    def __init__(self, stack: str, opts: pulumi.ResourceOptions | None = None) -> None:
        self.stack = stack
        self._reference = pulumi.StackReference(stack, opts=opts)

    def provider(self, name: str = "platform", opts: pulumi.ResourceOptions | None = None) -> k8s.Provider:
        """A Kubernetes provider for the cluster. Its objects are created again with the cluster, also if that keeps its
        name, and at no other time."""
        return k8s.Provider(name, kubeconfig=self.kubeconfig, cluster_identifier=self.cluster_identifier, opts=opts)

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

    def _producer(self) -> pulumi.Output[Producer]:
        return self._reference.get_output("version").apply(lambda version: producer(self.stack, version))

    def _read(self, key: Key[V]) -> pulumi.Output[V]:
        """A key of the contract, validated and typed. Secret if the output is secret."""
        # Read each key alone: a secret that somebody adds to the outputs must not make the others secret.
        return pulumi.Output.all(self._producer(), self._reference.get_output(key.alias)).apply(
            lambda values: value(values[0], key, values[1])
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


def value(producer: Producer, key: Key[V], output: object) -> V:
    """Validate the value of a key of the contract. Raises RunError if it is missing or has another type."""
    if output is None:
        raise producer.missing(key.alias, key.since)
    try:
        return TypeAdapter(key.annotation).validate_python(output, context=producer)
    except ValidationError as error:
        # Path and problem, never the value, which may be anything.
        problems = "; ".join(
            f"{'.'.join(map(str, (key.alias, *problem['loc'])))}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise pulumi.RunError(
            f"{producer.stack} has an output that does not match version {producer.version} of the contract: "
            f"{problems}. Check that it is a stack of this program."
        ) from None
