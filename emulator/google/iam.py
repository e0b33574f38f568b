"""Service accounts of a project, and roles on service accounts and on the project."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from emulator.cloud.store import Record, Store, project_number
from emulator.google import rest
from emulator.google.principals import member_problems, workload_principal
from emulator.google.refusals import Problem, bad_request
from emulator.google.resource import MEMBER, Properties, Resource, grant_id, match
from emulator.pulumi.plugin import Refused
from gke_ai.catalog.fabric.rdma import agent
from gke_ai.catalog.project.identities import is_account_id

SERVICE_ACCOUNT = "gcp:serviceaccount/account:Account"
SERVICE_ACCOUNT_IAM_MEMBER = "gcp:serviceaccount/iAMMember:IAMMember"
PROJECT_IAM_MEMBER = "gcp:projects/iAMMember:IAMMember"
_ROLE = r"(?P<role>(?:(?:projects|organizations)/[^/]+/)?roles/[^/ ]+)"
_EMAIL = re.compile(r"(?P<name>[-a-z0-9]+)@(?P<project>[-a-z0-9]+)\.iam\.gserviceaccount\.com")


def require_account(store: Store, email: str) -> None:
    """Refuses a service account that doesn't exist.

    `default` and Google's own accounts always exist.
    """
    parts = _EMAIL.fullmatch(email)
    if parts and store.get(f"projects/{parts['project']}/serviceAccounts/{email}") is None:
        raise Refused(bad_request(f'Service account "{email}" does not exist.'))


def account_parts(email: str) -> tuple[str, str]:
    """Returns the id of a service account and its project."""
    if (parts := _EMAIL.fullmatch(email)) is None:
        raise Refused(f"{email} is not the e-mail address of a service account: NAME@PROJECT.iam.gserviceaccount.com")
    return parts["name"], parts["project"]


def node_account(inputs: Properties) -> str | None:
    """The service account of a pool's nodes, or of the nodes that GKE creates in a cluster."""
    of_cluster = (inputs.get("clusterAutoscaling") or {}).get("autoProvisioningDefaults") or {}
    # A cluster's `nodeConfig` only applies to its default pool.
    of_pool = (inputs.get("nodeConfig") or {}) if "cluster" in inputs else {}
    account: str | None = of_pool.get("serviceAccount") or of_cluster.get("serviceAccount")
    return account


def require_identity_pool(store: Store, member: str) -> None:
    """Refuses a member of an identity pool that doesn't exist.

    Google creates the pool with the project's first cluster that uses it.
    """
    number = None
    if (principal := workload_principal(member)) is not None:
        number, pool = principal
    elif parts := re.fullmatch(r"serviceAccount:(?P<pool>[-a-z0-9]+\.svc\.id\.goog)\[[^/\]]+/[^/\]]+\]", member):
        pool = parts["pool"]
    else:
        return
    project = pool.removesuffix(".svc.id.goog")
    if number not in (None, project_number(project)):
        raise Refused(
            f"googleapi: Error 400: Identity Pool does not exist ({pool}) in the project of number {number}: "
            f"that of {project} is {project_number(project)}., invalid"
        )
    if not store.has_identity_pool(project):
        raise Refused(
            f"googleapi: Error 400: Identity Pool does not exist ({pool}). Please check that this is a valid "
            "resource that you have permission to use. (Google creates it with the project's first cluster that has "
            "workload identity.), invalid"
        )


class ServiceAccount(Resource):
    """A Google service account."""

    token = SERVICE_ACCOUNT
    arguments = ("pulumi_gcp.serviceaccount", "AccountArgs")
    decided = ("email", "member", "name", "project", "uniqueId")
    named = False

    def body(self, inputs: Properties) -> rest.Body:
        return rest.account(inputs)

    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        if not is_account_id(inputs["accountId"]):
            yield (
                "accountId",
                f"{inputs['accountId']!r} must be 6 to 30 lower-case letters, digits and hyphens, a letter first",
            )

    def _email(self, inputs: Properties) -> str:
        return f"{inputs['accountId']}@{self.owner(inputs)}.iam.gserviceaccount.com"

    def identity(self, inputs: Properties) -> str:
        return f"projects/{self.owner(inputs)}/serviceAccounts/{self._email(inputs)}"

    def imported(self, id: str) -> str:
        email = match((r"(projects/[^/]+/serviceAccounts/)?(?P<email>[^/@]+@[^/@]+)",), id, "service account")["email"]
        parts = _EMAIL.fullmatch(email)
        return f"projects/{parts['project'] if parts else '-'}/serviceAccounts/{email}"

    def facts(self, inputs: Properties) -> dict[str, Any]:
        return {}

    def may_delete(self, identity: str, state: Properties) -> None:
        """Refuses while nodes use the account.

        Google deletes it, and its nodes lose logs, metrics and image pulls.
        """
        email = identity.rpartition("/")[2]
        for user in self.store.all():
            if node_account(user.inputs) == email:
                raise Refused(f"Service account {email} can't be deleted yet: nodes of {user.identity} run as it")

    def erase(self, record: Record) -> None:
        for member in self.store.all(SERVICE_ACCOUNT_IAM_MEMBER, under=f"{record.identity}/"):
            self.store.remove(member.identity)
        self.store.remove(record.identity)

    def outputs(self, record: Record) -> Properties:
        email = record.identity.rpartition("/")[2]
        unique = int.from_bytes(hashlib.sha256(record.identity.encode()).digest()[:8], "big")
        decided = {
            "disabled": False,
            "email": email,
            "member": f"serviceAccount:{email}",
            "name": record.identity,
            "project": record.project,
            "uniqueId": str(unique),
        }
        return {**decided, **record.inputs}


class _Member(Resource):
    """A member's role on a resource."""

    decided = ("etag",)
    named = False

    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        if re.fullmatch(_ROLE, inputs["role"]) is None:
            yield "role", f"googleapi: Error 400: Role {inputs['role']} is not supported for this resource., invalid"
        yield from member_problems(inputs["member"])

    def facts(self, inputs: Properties) -> dict[str, Any]:
        return {}

    def _target(self, inputs: Properties) -> str:
        raise NotImplementedError

    def identity(self, inputs: Properties) -> str:
        return grant_id(self._target(inputs), inputs)

    def may_create(self, record: Record) -> None:
        """Checks the member. As in the provider, an existing grant may be created again."""
        member = record.inputs["member"]
        require_identity_pool(self.store, member)
        account = _EMAIL.fullmatch(member.removeprefix("serviceAccount:"))
        # Google creates its agent in a project.
        is_agent = member == agent(project_number(record.project))
        if (
            account
            and not is_agent
            and self.store.get(f"projects/{account['project']}/serviceAccounts/{account[0]}") is None
        ):
            raise Refused(f"googleapi: Error 400: Service account {account[0]} does not exist., badRequest")

    def outputs(self, record: Record) -> Properties:
        return {**record.inputs, "etag": hashlib.sha256(record.identity.encode()).hexdigest()[:12]}


class ServiceAccountIAMMember(_Member):
    """A member's role on a service account."""

    token = SERVICE_ACCOUNT_IAM_MEMBER
    arguments = ("pulumi_gcp.serviceaccount", "IAMMemberArgs")

    def _target(self, inputs: Properties) -> str:
        return str(inputs["serviceAccountId"])

    def imported(self, id: str) -> str:
        account = r"(?P<serviceAccountId>projects/[^/ ]+/serviceAccounts/[^/ ]+)"
        return self.identity(match((rf"{account}[/ ]{_ROLE}[/ ]{MEMBER}",), id, "member of a service account"))

    def owner(self, inputs: Properties) -> str:
        return self._target(inputs).split("/")[1]

    def may_create(self, record: Record) -> None:
        if self.store.get(self._target(record.inputs)) is None:
            raise Refused("googleapi: Error 404: Unknown service account., notFound")
        super().may_create(record)


class ProjectIAMMember(_Member):
    """A member's role on a project."""

    token = PROJECT_IAM_MEMBER
    arguments = ("pulumi_gcp.projects", "IAMMemberArgs")

    def _target(self, inputs: Properties) -> str:
        return str(inputs["project"])

    def imported(self, id: str) -> str:
        return self.identity(match((rf"(?P<project>[^/ ]+)[/ ]{_ROLE}[/ ]{MEMBER}",), id, "member of a project"))
