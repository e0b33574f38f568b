"""Rules of dashboards, alerts and notification channels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic.alias_generators import to_camel

from gke_ai.settings.model import Monitoring
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.resolved.needs import has_accelerators, job_namespaces, monitored_servers
from gke_ai.settings.rules.common import each, needs

# https://docs.cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.notificationChannels#NotificationChannel
_CHANNEL = re.compile(r"projects/[a-z0-9][-a-z0-9.:]*/notificationChannels/\d+")
# Google's limit of a policy: https://docs.cloud.google.com/monitoring/quotas#alerting_uptime_check_limits
_MAX_CHANNELS = 16
# The fields of alerts, by their keys.
_FIELDS = {
    to_camel(field): field
    for field in ("channels", "queue_stuck_minutes", "preemptions_per_hour", "server_down_minutes")
}

of_monitoring = each(lambda stack: [stack.settings.monitoring] if stack.settings.monitoring else [])


@of_monitoring
def channels_are_named_in_full(monitoring: Monitoring) -> Iterator[Problem]:
    """Channels have their full resource names, occur once, and are no more than Google allows."""
    for index, channel in enumerate(monitoring.channels):
        path = monitoring.at(f"channels[{index}]")
        if not _CHANNEL.fullmatch(channel):
            cause = f"{channel} is not a notification channel. Google would refuse the alerts"
            remedy = "Write projects/PROJECT/notificationChannels/NUMBER, as gcloud beta monitoring channels list "
            remedy += "--format='value(name)' prints it"
            yield Problem(path, cause, remedy)
        elif channel in monitoring.channels[:index]:
            yield Problem(path, f"{channel} is listed twice. It would be notified once", "Remove one of them")
    if len(monitoring.channels) > _MAX_CHANNELS:
        cause = f"there are {len(monitoring.channels)} channels, and Google allows {_MAX_CHANNELS} per alert"
        yield Problem(monitoring.at("channels"), f"{cause}. It would refuse the alerts", "Combine channels")


@of_monitoring
def section_creates_something(monitoring: Monitoring) -> Iterator[Problem]:
    """Monitoring creates dashboards, alerts or both."""
    if not monitoring.dashboards and not monitoring.alerts:
        cause = "dashboards and alerts are both false. This section would create nothing"
        yield Problem(monitoring.at("dashboards"), cause, "Remove gke-ai:monitoring, or set one of them to true")


@of_monitoring
def alert_keys_need_alerts(monitoring: Monitoring) -> Iterator[Problem]:
    """With alerts: false, no key of an alert is set."""
    if monitoring.alerts or not monitoring.dashboards:
        return
    for key, field in _FIELDS.items():
        if field in monitoring.model_fields_set:
            cause = f"{key} needs alerts, and alerts is false. There would be no alert"
            yield Problem(monitoring.at(key), cause, "Remove it, or remove alerts: false")


@needs("gke-ai:queues", "gke-ai:serving", "gke-ai:autoscaling", "gke-ai:training", "gke-ai:batch", "gke-ai:tenants")
@needs("gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:computeClasses")
def stack_has_something_to_monitor(stack: ResolvedStack) -> Iterator[Problem]:
    """The stack has something to monitor, and something for each configured alert."""
    monitoring, cluster_queues = stack.settings.monitoring, stack.cluster_queues
    if monitoring is None:
        return
    servers = monitored_servers(stack)
    if not (cluster_queues or servers or job_namespaces(stack) or has_accelerators(stack)):
        cause = "the stack has no queue, no server, no Job and no accelerator. There would be nothing to monitor"
        yield Problem("gke-ai:monitoring", cause, "Remove gke-ai:monitoring until there is something to monitor")
        return
    if not monitoring.alerts:
        return
    for key, items, noun in (
        ("queueStuckMinutes", cluster_queues, "cluster queue"),
        ("preemptionsPerHour", cluster_queues, "cluster queue"),
        ("serverDownMinutes", servers, "server"),
    ):
        if _FIELDS[key] in monitoring.model_fields_set and not items:
            cause = f"the stack has no {noun}. There would be no such alert"
            yield Problem(monitoring.at(key), cause, "Remove it")
