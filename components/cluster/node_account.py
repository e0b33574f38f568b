"""The service account that nodes run as."""

import pulumi
import pulumi_gcp as gcp

from gke_ai.catalog.project.identities import NODE_ROLE, REGISTRY_ROLE, account_email
from gke_ai.components.base import Component


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

    def __init__(
        self,
        name: str,
        opts: pulumi.ResourceOptions | None = None,
        *,
        account_id: str,
        project: str,
        registry_reader: bool = False,
    ) -> None:
        """Create the account with its roles.

        Args:
            account_id: Id of the account, 6 to 30 characters long.
            project: Id of the Google Cloud project.
            registry_reader: Let nodes pull images from the project's own Artifact Registry.
        """
        super().__init__(name, opts)
        account = gcp.serviceaccount.Account(
            *self.main_child(account_id), account_id=account_id, project=project, display_name="Nodes of GKE"
        )
        for role in [NODE_ROLE, *([REGISTRY_ROLE] if registry_reader else [])]:
            gcp.projects.IAMMember(
                *self.child(f"{account_id}/{role.removeprefix('roles/')}"),
                project=project,
                role=role,
                member=account.member,
            )
        self.email = account.member.apply(lambda _: account_email(account_id, project))
        self.register_outputs({"email": self.email})
