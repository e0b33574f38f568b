"""A namespace with what its workloads need before they come."""

from typing import NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s

from catalog.versions import KUEUE_API
from components.base import Component, TokenSecretArgs
from components.retry import kueue_hook
from settings.plan import DEFAULT_NAMESPACE


class LocalQueueArgs(TypedDict):
    """A Kueue LocalQueue: the door of the namespace to a cluster queue."""

    name: str
    cluster_queue: str


class WorkloadNamespaceArgs(TypedDict):
    """Arguments of a `WorkloadNamespace`."""

    name: str
    token: NotRequired[pulumi.Input[str]]
    """The Hugging Face token; a Pulumi secret."""
    token_secrets: NotRequired[list[TokenSecretArgs]]
    """Secrets that hold the token, each under its key."""
    service_accounts: NotRequired[list[str]]
    """Service accounts to make; `default` is there by itself."""
    local_queues: NotRequired[list[LocalQueueArgs]]


class WorkloadNamespace(Component):
    """A namespace, the Secrets with the token, service accounts, and the namespace's local queues.

    The namespace `default` is in every cluster: there all but the namespace itself is made.

    Local queues are here and not in `KueueStack` because a namespace is made after Kueue and deleted before it: what
    runs in it holds quota, and only a running Kueue lets it go.

    Refused: ValueError for secrets without a token.

    Sources: https://kubernetes.io/docs/concepts/configuration/secret/,
    https://kueue.sigs.k8s.io/docs/concepts/local_queue/
    """

    namespace_name: pulumi.Output[str]

    def __init__(self, name: str, args: WorkloadNamespaceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        secrets = args.get("token_secrets", [])
        token = args.get("token", "")
        if secrets and token == "":
            raise ValueError(f"namespace {name} has secrets for a token, and there is no token")

        made: list[pulumi.CustomResource] = []
        if args["name"] != DEFAULT_NAMESPACE:
            child = pulumi.ResourceOptions(parent=self)
            made.append(k8s.core.v1.Namespace(args["name"], metadata={"name": args["name"]}, opts=child))
        inside = pulumi.ResourceOptions(parent=self, depends_on=made)
        for secret in dict.fromkeys(one["name"] for one in secrets):
            keys = sorted({one["key"] for one in secrets if one["name"] == secret})
            k8s.core.v1.Secret(
                f"{args['name']}/{secret}",
                metadata={"name": secret, "namespace": args["name"]},
                type="Opaque",
                string_data=dict.fromkeys(keys, pulumi.Output.secret(token)),
                opts=inside,
            )
        for account in args.get("service_accounts", []):
            k8s.core.v1.ServiceAccount(
                f"{args['name']}/{account}",
                metadata={"name": account, "namespace": args["name"]},
                opts=inside,
            )
        queues = args.get("local_queues", [])
        kueue = kueue_hook(f"namespace {name}") if queues else None
        for queue in queues:
            k8s.apiextensions.CustomResource(
                f"{args['name']}/{queue['name']}",
                api_version=KUEUE_API,
                kind="LocalQueue",
                metadata={"name": queue["name"], "namespace": args["name"]},
                spec={"clusterQueue": queue["cluster_queue"]},
                opts=pulumi.ResourceOptions(parent=self, depends_on=made, hooks=kueue),
            )

        self.namespace_name = pulumi.Output.all(*(one.id for one in made)).apply(lambda _: args["name"])
        self.register_outputs({"namespaceName": self.namespace_name})
