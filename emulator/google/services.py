"""Google Cloud APIs of a project.

The emulator records which are enabled, but never checks it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from emulator.cloud.store import Record
from emulator.google import rest
from emulator.google.refusals import Problem
from emulator.google.resource import Properties, Resource, match
from gke_ai.catalog.project.apis import CONTAINER_FILE_SYSTEM

PROJECT_SERVICE = "gcp:projects/service:Service"
# APIs that have no discovery document: https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming
UNDESCRIBED = (CONTAINER_FILE_SYSTEM,)


class ProjectService(Resource):
    """An enabled API of a project."""

    token = PROJECT_SERVICE
    arguments = ("pulumi_gcp.projects", "ServiceArgs")
    decided = ("project",)
    named = False

    def body(self, inputs: Properties) -> rest.Body:
        return rest.enabled_service(inputs)

    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        service = inputs["service"]
        name = re.fullmatch(r"([a-z0-9-]+)\.googleapis\.com", service)
        known = service in UNDESCRIBED or (name and any(rest.documents().glob(f"{name[1]}.*.json")))
        if not known:
            text = f"Not found or permission denied for service(s): {service}."
            yield "service", f"googleapi: Error 403: {text}, forbidden"

    def identity(self, inputs: Properties) -> str:
        return f"{self.owner(inputs)}/{inputs['service']}"

    def imported(self, id: str) -> str:
        return self.identity(match((r"(?P<project>[^/]+)/(?P<service>[^/]+)",), id, "service of a project"))

    def may_create(self, record: Record) -> None:
        """Checks nothing. As in the provider, an enabled API may be enabled again."""

    def facts(self, inputs: Properties) -> dict[str, Any]:
        return {}

    def outputs(self, record: Record) -> Properties:
        return {"project": record.project, **record.inputs}
