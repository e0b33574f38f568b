"""One visit of the doctor: the stack, its project, findings, and access to commands and APIs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gke_ai.kube.client import Answer, client_of
from gke_ai.kube.existing import Content, read
from gke_ai.ops.doctor.requests import call
from gke_ai.settings import ResolvedStack, Settings

MISSING, ADVICE, UNCHECKED, GOOD = "missing", "advice", "not checked", "good"


@dataclass(frozen=True)
class Finding:
    """The result of a check; `command` fixes it."""

    state: str
    subject: str
    text: str = ""
    command: str = ""


class NotCheckedError(Exception):
    """A check that is not possible, with the reason."""


Call = Callable[..., Answer]


def content_of(kubeconfig: str) -> Content:
    """Reads what a stack may expect of the cluster of a kubeconfig. Stops if the cluster does not answer."""
    return read(client_of(kubeconfig, 1))


@dataclass
class Visit:
    """The stack to deploy, its project, and access to commands and APIs."""

    stack: str
    project: str
    resolved: ResolvedStack
    token_given: bool
    call: Call = call
    api_key_given: bool = True
    content: Callable[[str], Content] = content_of
    credential: str = field(default="", repr=False)
    _answers: dict[str, Answer] = field(default_factory=dict, repr=False)

    @property
    def settings(self) -> Settings:
        """The sections of the configuration."""
        return self.resolved.settings

    @cached_property
    def member(self) -> str:
        """The IAM member that is logged in to gcloud, or an empty text."""
        answer = self.call("gcloud auth list --filter=status:ACTIVE --format=json")
        email = next((str(account["account"]) for account in answer.body or []), "") if not answer.code else ""
        member_type = "serviceAccount" if email.endswith(".gserviceaccount.com") else "user"
        return f"{member_type}:{email}" if email else ""

    def compute(self, path: str, project: str = "") -> Any:
        """Returns the response of Compute Engine for a path in the project, or in another one; {} without it."""
        return self.google(f"compute.googleapis.com/compute/v1/projects/{project or self.project}{path}") or {}

    @property
    def project_record(self) -> Mapping[str, Any]:
        """The project, with its number; empty if it does not exist."""
        return self.google(f"cloudresourcemanager.googleapis.com/v1/projects/{self.project}") or {}

    def google(self, url: str, body: Mapping[str, Any] | None = None) -> Any:
        """Returns the response of an API; None if the resource does not exist."""
        answer = self.answer(url, body)
        if answer.code == 200:
            return answer.body
        if answer.code == 404:
            return None
        raise NotCheckedError(refusal(answer, url))

    def answer(self, url: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Returns the response of an API, also an error. Sends each request once."""
        if url not in self._answers:
            request = f"{'GET' if body is None else 'POST'} https://{url}"
            # Requests of a user need a quota project; those of a service account use its own project.
            # https://cloud.google.com/docs/quotas/quota-project
            payer = self.project if self.member.startswith("user:") else ""
            self._answers[url] = self.call(request, body, self.credential, payer)
        return self._answers[url]

    def granting(self, member: str, role: str) -> str:
        """The command that grants a role in the project."""
        return f"gcloud projects add-iam-policy-binding {self.project} --member={member} --role={role}"

    def _config(self, arguments: str) -> str:
        return f"pulumi config set --stack {self.stack} {arguments}"


def switched_off(answer: Answer) -> bool:
    """Whether the API is disabled in the project, so that its answer says nothing about the request."""
    details = answer.body.get("error", {}).get("details", []) if isinstance(answer.body, dict) else []
    return answer.code == 403 and any(detail.get("reason") == "SERVICE_DISABLED" for detail in details)


def refusal(answer: Answer, url: str) -> str:
    """Explains why an API call failed."""
    host = url.partition("/")[0]
    if switched_off(answer):
        return f"{host} is disabled in the project"
    if not answer.code:
        return f"{host} does not respond: {answer.error}"
    reason = re.sub(r"\s+", " ", answer.error)[:200]
    return f"{host} answers {answer.code}{f': {reason}' if reason else ''}"
