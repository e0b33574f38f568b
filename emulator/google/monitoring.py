"""Dashboards and alert policies of Cloud Monitoring.

Google generates their names, so two can be equal.

Google returns a dashboard with its name and etag and without default values. The provider compares the requested JSON
with that and ignores fields that only Google's answer has.

Sources: https://docs.cloud.google.com/monitoring/api/ref_v3/rest/v1/projects.dashboards,
https://docs.cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.alertPolicies, and of the provider
google/services/monitoring/resource_monitoring_dashboard.go and resource_monitoring_alert_policy.go.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from emulator.cloud.store import Record, project_number
from emulator.google import rest
from emulator.google.refusals import Problem, bad_request
from emulator.google.resource import Properties, Resource, match

DASHBOARD = "gcp:monitoring/dashboard:Dashboard"
ALERT_POLICY = "gcp:monitoring/alertPolicy:AlertPolicy"
# https://docs.cloud.google.com/monitoring/quotas#alerting_uptime_check_limits
MAX_CONDITIONS, MAX_CHANNELS = 6, 16
_DECIDED = ("name", "etag")


class Dashboard(Resource):
    """A dashboard: its JSON."""

    token = DASHBOARD
    arguments = ("pulumi_gcp.monitoring", "DashboardArgs")
    decided = ("project",)
    named = False

    def body(self, inputs: Properties) -> rest.Body | None:
        """The dashboard of projects.dashboards.create.

        None if the JSON is invalid or not known yet.
        """
        try:
            content = json.loads(inputs["dashboardJson"])
        except (TypeError, ValueError):
            return None
        return rest.Body(rest.api("monitoring.v1"), "Dashboard", content, {"dashboard": "dashboardJson"})

    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        if not body:
            yield "dashboardJson", '"dashboard_json" contains an invalid JSON'
            return
        if not body.get("displayName"):
            yield "dashboardJson", bad_request("Field displayName is required.")
        yield from _layout(body.get("mosaicLayout", {}))

    def identity(self, inputs: Properties) -> str:
        return f"projects/{project_number(self.owner(inputs))}/dashboards/{uuid.uuid4()}"

    def imported(self, id: str) -> str:
        return match((r"(?P<id>projects/[^/]+/dashboards/[^/]+)",), id, "dashboard")["id"]

    def facts(self, inputs: Properties) -> dict[str, Any]:
        return {}

    def read(self, identity: str) -> Record | None:
        record = super().read(identity)
        return record and replace(record, inputs=_as_returned(record))

    def normal(self, inputs: Properties) -> Properties:
        """The JSON without the fields that only Google's answer has."""
        try:
            return inputs | {"dashboardJson": json.dumps(_requested(inputs), sort_keys=True)}
        except (TypeError, ValueError):
            return inputs

    def outputs(self, record: Record) -> Properties:
        return {"project": record.project, **_as_returned(record)}


def _requested(inputs: Properties) -> Properties:
    return {name: value for name, value in json.loads(inputs["dashboardJson"]).items() if name not in _DECIDED}


def _as_returned(record: Record) -> Properties:
    """The inputs in the form of Google's answer."""
    content = _without_defaults(_requested(record.inputs))
    etag = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
    content |= {"name": record.identity, "etag": etag}
    return record.inputs | {"dashboardJson": json.dumps(content, sort_keys=True)}


def _without_defaults(value: Any) -> Any:
    """Removes fields that are zero, false or empty, as Google does in its messages."""
    if isinstance(value, dict):
        fields = {name: _without_defaults(item) for name, item in value.items()}
        return {name: item for name, item in fields.items() if item not in (0, "", False, [], None)}
    return [_without_defaults(item) for item in value] if isinstance(value, list) else value


def _layout(mosaic: Properties) -> Iterator[Problem]:
    """Refuses tiles outside the grid and overlapping tiles."""
    columns = mosaic.get("columns", 0)
    taken: set[tuple[int, int]] = set()
    if mosaic and not 1 <= columns <= 48:
        yield "dashboardJson", bad_request(f"mosaicLayout.columns must be from 1 to 48, not {columns}")
    for index, tile in enumerate(mosaic.get("tiles", [])):
        left, top = tile.get("xPos", 0), tile.get("yPos", 0)
        cells = {
            (x, y) for x in range(left, left + tile.get("width", 0)) for y in range(top, top + tile.get("height", 0))
        }
        if not cells or max(x for x, _ in cells) >= columns or cells & taken:
            text = f"mosaicLayout.tiles[{index}] is empty, outside the grid, or on another tile"
            yield "dashboardJson", bad_request(text)
        taken |= cells


class AlertPolicy(Resource):
    """An alert policy: conditions and notification channels."""

    token = ALERT_POLICY
    arguments = ("pulumi_gcp.monitoring", "AlertPolicyArgs")
    decided = ("name", "project", "creationRecords")
    named = False

    def body(self, inputs: Properties) -> rest.Body:
        return rest.alert_policy(inputs)

    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        conditions = body.get("conditions", [])
        if not 1 <= len(conditions) <= MAX_CONDITIONS:
            yield "conditions", bad_request(f"A policy has 1 to {MAX_CONDITIONS} conditions.")
        if not body.get("displayName"):
            yield "displayName", bad_request("Field displayName is required.")
        for index, condition in enumerate(conditions):
            promql = condition.get("conditionPrometheusQueryLanguage")
            if promql is not None:
                yield from _promql(promql, f"conditions[{index}].conditionPrometheusQueryLanguage")
        channels = body.get("notificationChannels", [])
        if len(channels) > MAX_CHANNELS:
            yield "notificationChannels", bad_request(f"A policy has at most {MAX_CHANNELS} channels.")
        for index, channel in enumerate(channels):
            if not re.fullmatch(r"projects/[^/]+/notificationChannels/\d+", channel):
                text = f"Field notification_channels[{index}] had an invalid value of {channel!r}"
                yield f"notificationChannels[{index}]", bad_request(text)

    def identity(self, inputs: Properties) -> str:
        return f"projects/{self.owner(inputs)}/alertPolicies/{uuid.uuid4().int % 10**19:019}"

    def imported(self, id: str) -> str:
        return match((r"(?P<id>projects/[^/]+/alertPolicies/\d+)",), id, "alert policy")["id"]

    def facts(self, inputs: Properties) -> dict[str, Any]:
        return {}

    def outputs(self, record: Record) -> Properties:
        conditions = [
            {**condition, "name": f"{record.identity}/conditions/{index}"}
            for index, condition in enumerate(record.inputs["conditions"])
        ]
        decided = {"name": record.identity, "project": record.project, "enabled": True, "creationRecords": []}
        return {**decided, **record.inputs, "conditions": conditions}


def _promql(condition: Properties, path: str) -> Iterator[Problem]:
    if not condition.get("query"):
        yield f"{path}.query", bad_request("Field query is required.")
    interval = condition.get("evaluationInterval", "30s")
    if float(interval.removesuffix("s")) <= 0 or float(interval.removesuffix("s")) % 30:
        text = f"evaluation_interval must be a positive multiple of 30 seconds, not {interval}"
        yield f"{path}.evaluationInterval", bad_request(text)
