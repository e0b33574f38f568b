"""The service account that nodes run as."""

import pulumi
import pulumi_gcp as gcp

from gke_ai.catalog.project.identities import NODE_ROLE, REGISTRY_ROLE, account_email
from gke_ai.components.arguments import Arguments, Input, project_of, takes
from gke_ai.components.base import Component


class NodeAccountArguments(Arguments):
    name: str = ""
    """Id of the account, 6 to 30 characters long. Default: the component's name."""
    project: Input[str] | None = None
    """Id of the Google Cloud project. Default: that of the provider."""
    registry_reader: bool = False
    """Let nodes pull images from the project's own Artifact Registry."""


class NodeAccount(Component):
    """A service account for nodes with only the roles that nodes need: logs, metrics and, optionally, images.

    Compute Engine's default account often has access to the whole project, and so does anyone who breaks out of a
    container on such a node. Workloads do not use this account: they have their own identities through Workload
    Identity Federation. `email` is known beforehand, so nodes must wait for the component, which has the roles.

    Refused: by Google, a name that is taken in the project, or that is no valid account id.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster#use_least_privilege_sa,
    https://cloud.google.com/kubernetes-engine/security/configure-node-service-accounts

    Example:
        account = NodeAccount("gke-nodes")
        GkeCluster("least", location="us-central1", node_service_account=account.email)
    """

    email: pulumi.Output[str]

    @takes(NodeAccountArguments)
    def __init__(self, name: str, args: NodeAccountArguments) -> None:
        super().__init__(name, args)
        account_id, project = args.name, project_of(args.project, f"NodeAccount {name}")
        account = gcp.serviceaccount.Account(
            *self.main_child(account_id), account_id=account_id, project=project, display_name="Nodes of GKE"
        )
        for role in [NODE_ROLE, *([REGISTRY_ROLE] if args.registry_reader else [])]:
            gcp.projects.IAMMember(
                *self.child(f"{account_id}/{role.removeprefix('roles/')}"),
                project=project,
                role=role,
                member=account.member,
            )
        self.email = pulumi.Output.all(project, account.member).apply(lambda known: account_email(account_id, known[0]))
        self.register_outputs({"email": self.email})
