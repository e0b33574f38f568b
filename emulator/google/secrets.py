"""Existing secrets of Secret Manager, and roles on them.

The store has no values of secrets.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from emulator.cloud.store import RUNNING, Record, Store, project_number
from emulator.google.iam import require_identity_pool
from emulator.google.principals import member_problems
from emulator.google.refusals import Problem
from emulator.google.resource import MEMBER, Cloud, Properties, Resource, grant_id, match, now
from emulator.pulumi.plugin import Refused

SECRET = "gcp:secretmanager/secret:Secret"
SECRET_IAM_MEMBER = "gcp:secretmanager/secretIamMember:SecretIamMember"
_ROLE = r"(?P<role>(?:(?:projects|organizations)/[^/]+/)?roles/[^/ ]+)"
# https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets/create#query-parameters
_ID = re.compile(r"[A-Za-z0-9_-]{1,255}")


class SecretIamMember(Resource):
    """A member's role on a secret."""

    token = SECRET_IAM_MEMBER
    arguments = ("pulumi_gcp.secretmanager", "SecretIamMemberArgs")
    decided = ("etag", "project")
    named = False

    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        if re.fullmatch(r"((projects|organizations)/[^/]+/)?roles/[\w.]+", inputs["role"]) is None:
            yield "role", f"googleapi: Error 400: Role {inputs['role']} is not supported for this resource., invalid"
        yield from member_problems(inputs["member"])

    def _secret(self, inputs: Properties) -> str:
        return secret_identity(self.cloud, inputs)

    def normal(self, inputs: Properties) -> Properties:
        return inputs | {"secretId": self._secret(inputs)} if isinstance(inputs["secretId"], str) else inputs

    def owner(self, inputs: Properties) -> str:
        return self._secret(inputs).split("/")[1]

    def identity(self, inputs: Properties) -> str:
        return grant_id(self._secret(inputs), inputs)

    def imported(self, id: str) -> str:
        secret = r"projects/(?P<project>[^/ ]+)/secrets/(?P<secretId>[^/ ]+)"
        return self.identity(match((rf"{secret}[/ ]{_ROLE}[/ ]{MEMBER}",), id, "member of a secret"))

    def facts(self, inputs: Properties) -> dict[str, Any]:
        return {}

    def may_create(self, record: Record) -> None:
        """Checks the secret and the member.

        As in the provider, an existing grant may be created again.
        """
        require_secret(self.store, self._secret(record.inputs))
        require_identity_pool(self.store, record.inputs["member"])

    def outputs(self, record: Record) -> Properties:
        etag = hashlib.sha256(record.identity.encode()).hexdigest()[:12]
        return {"project": record.project, **record.inputs, "etag": etag}


def secret_identity(cloud: Cloud, inputs: Properties) -> str:
    """The identity `projects/P/secrets/S` of a secret, from its identity or its id."""
    secret_id = str(inputs["secretId"])
    return secret_id if "/" in secret_id else f"projects/{cloud.project_of(inputs)}/secrets/{secret_id}"


def require_secret(store: Store, identity: str) -> Record:
    """Returns the secret. Raises Google's error if it doesn't exist."""
    record = store.get(identity)
    if record is None:
        _, project, _, name = identity.split("/")
        text = f"Secret [projects/{project_number(project)}/secrets/{name}] not found."
        raise Refused(f"googleapi: Error 404: {text}, notFound")
    return record


def get_secret(cloud: Cloud, arguments: Properties) -> Properties:
    """`getSecret`: the name and the project of a secret, never its value."""
    identity = secret_identity(cloud, arguments)
    require_secret(cloud.store, identity)
    _, project, _, name = identity.split("/")
    return {"id": identity, "name": identity, "project": project, "secretId": name}


def create_secret(store: Store, project: str, name: str) -> str:
    """Creates a secret. Its value is the emulator's dummy token."""
    if _ID.fullmatch(name) is None:
        raise Refused(f"{name!r} is not an id of a secret: 1 to 255 letters, digits, hyphens and underscores")
    identity = f"projects/{project}/secrets/{name}"
    store.put(Record(identity, SECRET, project, {"secretId": name}, {"created": now()}, RUNNING))
    return identity


def delete_secret(store: Store, project: str, name: str) -> None:
    """Deletes a secret and the roles on it."""
    identity = f"projects/{project}/secrets/{name}"
    for member in store.all(SECRET_IAM_MEMBER, under=f"{identity}/"):
        store.remove(member.identity)
    store.remove(identity)
