"""Buckets of Cloud Storage, and roles on them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from emulator.cloud.store import BUCKET_IAM_MEMBER, Record, project_number
from emulator.google import bucket_rules, rest
from emulator.google.iam import require_identity_pool
from emulator.google.refusals import Problem
from emulator.google.resource import MEMBER, Properties, Resource, grant_id, match, merged, now
from emulator.pulumi.plugin import Refused

BUCKET = "gcp:storage/bucket:Bucket"


class Bucket(Resource):
    """A Cloud Storage bucket: a globally unique name and a folder of objects."""

    token = BUCKET
    arguments = ("pulumi_gcp.storage", "BucketArgs")
    decided = ("project", "projectNumber", "selfLink", "softDeletePolicy.effectiveTime", "timeCreated", "url")

    def body(self, inputs: Properties) -> rest.Body:
        return rest.bucket(inputs)

    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        return list(bucket_rules.bucket(inputs, body))

    def identity(self, inputs: Properties) -> str:
        return str(inputs["name"])

    def imported(self, id: str) -> str:
        return match((r"(?P<project>[^/]+)/(?P<name>[^/]+)", r"(?P<name>[^/]+)"), id, "bucket")["name"]

    def may_create(self, record: Record) -> None:
        other = self.store.get(record.identity)
        if other is None:
            return
        if other.project == record.project:
            text = "Your previous request to create the named bucket succeeded and you already own it."
        else:
            text = (
                "The requested bucket name is not available. The bucket namespace is shared by all users of the "
                "system. Please select a different name and try again."
            )
        raise Refused(f"googleapi: Error 409: {text}, conflict")

    def facts(self, inputs: Properties) -> dict[str, Any]:
        return {"created": now()}

    def normal(self, inputs: Properties) -> Properties:
        location = inputs.get("location")
        return inputs | {"location": location.upper()} if isinstance(location, str) else inputs

    def may_delete(self, identity: str, state: Properties) -> None:
        if self.store.objects(identity) and not state.get("forceDestroy"):
            raise Refused(
                f"Error trying to delete bucket {identity} containing objects without `force_destroy` set to true"
            )

    def erase(self, record: Record) -> None:
        self.store.remove_objects(record.identity)
        for member in self.store.all(BUCKET_IAM_MEMBER, under=f"b/{record.identity}/"):
            self.store.remove(member.identity)
        self.store.remove(record.identity)

    def outputs(self, record: Record) -> Properties:
        name, created = record.identity, record.facts["created"]
        decided = {
            "forceDestroy": False,
            "name": name,
            "project": record.project,
            "projectNumber": int(project_number(record.project)),
            "publicAccessPrevention": "inherited",
            "selfLink": f"https://www.googleapis.com/storage/v1/b/{name}",
            "softDeletePolicy": {"effectiveTime": created, "retentionDurationSeconds": 604800},
            "storageClass": "STANDARD",
            "timeCreated": created,
            "uniformBucketLevelAccess": False,
            "url": f"gs://{name}",
        }
        outputs: Properties = merged(self.normal(record.inputs), decided)
        return outputs


class BucketIAMMember(Resource):
    """A member's role on a bucket."""

    token = BUCKET_IAM_MEMBER
    arguments = ("pulumi_gcp.storage", "BucketIAMMemberArgs")
    decided = ("etag",)
    named = False

    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        return list(bucket_rules.bucket_member(inputs))

    def _bucket(self, inputs: Properties) -> str:
        return str(inputs["bucket"]).removeprefix("b/")

    def normal(self, inputs: Properties) -> Properties:
        return inputs | {"bucket": self._bucket(inputs)} if isinstance(inputs["bucket"], str) else inputs

    def identity(self, inputs: Properties) -> str:
        return grant_id(f"b/{self._bucket(inputs)}", inputs)

    def imported(self, id: str) -> str:
        forms = (rf"b/(?P<bucket>[^/ ]+)[ /](?P<role>(?:(?:projects|organizations)/[^/]+/)?roles/[^/ ]+)[ /]{MEMBER}",)
        return self.identity(match(forms, id, "member of a bucket"))

    def owner(self, inputs: Properties) -> str:
        bucket = self.store.get(self._bucket(inputs))
        return bucket.project if bucket is not None else self.cloud.project or ""

    def facts(self, inputs: Properties) -> dict[str, Any]:
        return {}

    def may_create(self, record: Record) -> None:
        """Checks the bucket and the member.

        As in the provider, an existing grant may be created again.
        """
        if self.store.get(self._bucket(record.inputs)) is None:
            raise Refused("googleapi: Error 404: The specified bucket does not exist., notFound")
        require_identity_pool(self.store, record.inputs["member"])

    def outputs(self, record: Record) -> Properties:
        etag = hashlib.sha256(record.identity.encode()).hexdigest()[:12]
        return {**record.inputs, "bucket": f"b/{self._bucket(record.inputs)}", "etag": etag}
