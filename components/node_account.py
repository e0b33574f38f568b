"""The service account that nodes run as."""

from typing import NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp

from catalog.identities import NODE_ROLE, REGISTRY_ROLE, account_email
from components.base import Component


class NodeAccountArgs(TypedDict):
    """Arguments of a `NodeAccount`."""

    name: str
    """Id of the account, 6 to 30 characters."""
    project: str
    """Id of the Google Cloud project."""
    registry_reader: NotRequired[bool]
    """Nodes pull images from Artifact Registry of the project itself."""


class NodeAccount(Component):
    """A service account for nodes, with what nodes need and no more: logs, metrics and, if asked for, images.

    Nodes that run as Compute Engine's default account often have the whole project, and so has whoever breaks out of a
    container. Workloads have identities of their own, by Workload Identity Federation, and none of this account's.
    `email` is known beforehand; nodes must wait for the component itself, so that the roles are there with them.

    Refused: by Google, a name that is taken in the project, or that is no account id.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster#use_least_privilege_sa,
    https://cloud.google.com/kubernetes-engine/security/configure-node-service-accounts
    """

    email: pulumi.Output[str]

    def __init__(self, name: str, args: NodeAccountArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        account = gcp.serviceaccount.Account(
            args["name"],
            account_id=args["name"],
            project=args["project"],
            display_name="Nodes of GKE",
            opts=pulumi.ResourceOptions(parent=self),
        )
        for role in [NODE_ROLE, *([REGISTRY_ROLE] if args.get("registry_reader") else [])]:
            gcp.projects.IAMMember(
                f"{args['name']}/{role.removeprefix('roles/')}",
                project=args["project"],
                role=role,
                member=account.member,
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.email = account.member.apply(lambda _: account_email(args["name"], args["project"]))
        self.register_outputs({"email": self.email})
