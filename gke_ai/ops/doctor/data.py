"""Checks of buckets, images, the token in Secret Manager, and notification channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote

from gke_ai.catalog.project.registries import registry_of
from gke_ai.ops.doctor.visit import ADVICE, MISSING, UNCHECKED, Finding, NotCheckedError, Visit, refusal, switched_off
from gke_ai.registered.types import BUCKET


@dataclass
class DataChecks(Visit):
    """Checks of what the stack runs, reads, adopts and notifies."""

    def buckets(self) -> Iterator[Finding]:
        """The names of new buckets are free, and buckets to adopt exist."""
        for bucket in self.settings.buckets:
            answer = self.answer(f"storage.googleapis.com/storage/v1/b/{quote(bucket.name, safe='')}")
            if switched_off(answer) or answer.code not in (200, 403, 404):
                raise NotCheckedError(refusal(answer, "storage.googleapis.com"))
            if answer.code == 403:
                text = f"{bucket.name} belongs to another project: bucket names are globally unique"
                yield Finding(MISSING, "bucket", text, self._config(f"--path '{bucket.at('name')}' ANOTHER-NAME"))
            elif answer.code == 404 and bucket.adopt:
                text = f"there is no bucket {bucket.name} to adopt"
                yield Finding(MISSING, "bucket", text, self._config(f"--path '{bucket.at('adopt')}' false"))
            elif answer.code == 200 and not bucket.adopt and bucket.name not in self._recorded:
                text = f"bucket {bucket.name} exists already, and the stack would create it"
                yield Finding(MISSING, "bucket", text, self._config(f"--path '{bucket.at('adopt')}' true"))

    @cached_property
    def _recorded(self) -> set[str]:
        """Names of the buckets in the state of the stack."""
        answer = self.call(f"pulumi stack export --stack {self.stack}")
        deployment = answer.body.get("deployment") if isinstance(answer.body, dict) and not answer.code else None
        resources = (deployment or {}).get("resources", [])
        return {str(resource.get("id")) for resource in resources if resource["type"] == BUCKET}

    def images(self) -> Iterator[Finding]:
        """Each tag exists, and still has the digest that the stack pins."""
        unreachable: dict[str, str] = {}
        for image in dict.fromkeys(image for workload in self.resolved.workloads for image in workload.images):
            name, _, pinned = image.partition("@")
            host = registry_of(image)
            if host in unreachable:  # one that wants a credential is not asked further
                continue
            answer = self.call(f"DIGEST {name}")
            if answer.code == 404:
                text = f"{host} has no {name}. Pods with it would not start"
                yield Finding(MISSING, "image", text, f"docker manifest inspect {name}  # then set another image")
            elif answer.code != 200:
                reason = f"answers {answer.code}" if answer.code else f"does not respond: {answer.error}"
                unreachable[host] = f"{host} {reason}"
            elif pinned and answer.body and answer.body != pinned:
                text = f"the tag of {name} is now {answer.body}, and the stack runs {pinned}, which the tag had before"
                yield Finding(ADVICE, "image", text, f"docker manifest inspect {name}@{pinned}  # is it still there?")
        for text in unreachable.values():
            yield Finding(UNCHECKED, "image", text)

    def secret(self) -> Iterator[Finding]:
        """The secret with the token exists in Secret Manager, if the configuration names one."""
        named = self.settings.hf_token_secret
        if named is None:
            return
        path = named if named.startswith("projects/") else f"projects/{self.project}/secrets/{named}"
        _, project, _, name = path.split("/")
        where = f"{name} --project {project} --data-file=-  # type the token, then Ctrl-D twice"
        if self.google(f"secretmanager.googleapis.com/v1/{path}") is None:
            text = f"there is no secret {name} in {project}"
            yield Finding(MISSING, "Secret Manager", text, f"gcloud secrets create {where}")
        elif (self.google(f"secretmanager.googleapis.com/v1/{path}/versions/latest") or {}).get("state") != "ENABLED":
            text = f"secret {name} has no enabled version"
            yield Finding(MISSING, "Secret Manager", text, f"gcloud secrets versions add {where}")

    def channels(self) -> Iterator[Finding]:
        """Notification channels exist."""
        for channel in self.settings.monitoring.channels if self.settings.monitoring else []:
            if self.google(f"monitoring.googleapis.com/v3/{channel}") is None:
                command = f"gcloud beta monitoring channels list --project {self.project} --format='value(name)'"
                yield Finding(MISSING, "notification channel", f"there is no {channel}", command)
