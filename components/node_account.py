"""The service account that nodes run as."""

from typing import NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp

from catalog.identities import NODE_ROLE, REGISTRY_ROLE, account_email
from components.base import Component


class NodeAccountArgs(TypedDict):
    """Arguments of a `NodeAccount`."""

    name: str
    """Id of the account, 6 to 30 characters long."""
    project: str
    """Id of the Google Cloud project."""
    registry_reader: NotRequired[bool]
    """Let nodes pull images from the project's own Artifact Registry."""


class NodeAccount(Component):
    """A service account for nodes with only the roles that nodes need: logs, metrics and, optionally, images.

    Compute Engine's default account often has access to the whole project, and so does anyone who breaks out of a
    container on such a node. Workloads do not use this account: they have their own identities through Workload
    Identity Federation. `email` is known beforehand, so nodes must wait for the component, which has the roles.

    Refused: by Google, a name that is taken in the project, or that is no valid account id.

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
