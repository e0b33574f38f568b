"""Rules of monitoring: what is asked for can be seen, and whom to tell is somebody."""

from __future__ import annotations

import re
from collections.abc import Iterator

from settings import monitoring_targets
from settings.model import Settings
from settings.problems import Problem
from settings.rules.common import Rule, needs

# https://docs.cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.notificationChannels#NotificationChannel
_CHANNEL = re.compile(r"projects/[a-z0-9][-a-z0-9.:]*/notificationChannels/\d+")
# Google's limit of a policy: https://docs.cloud.google.com/monitoring/quotas#alerting_uptime_check_limits
_MAX_CHANNELS = 16
_OF_ALERTS = ("channels", "queueStuckMinutes", "preemptionsPerHour", "serverDownMinutes")
_FIELDS = {
    "channels": "channels",
    "queueStuckMinutes": "queue_stuck_minutes",
    "preemptionsPerHour": "preemptions_per_hour",
    "serverDownMinutes": "server_down_minutes",
}


def channels_are_named_in_full(settings: Settings) -> Iterator[Problem]:
    """Each channel is what Google calls it, once, and there are no more than Google tells."""
    watch = settings.monitoring
    if watch is None:
        return
    for index, channel in enumerate(watch.channels):
        path = watch.at(f"channels[{index}]")
        if not _CHANNEL.fullmatch(channel):
            yield Problem(
                path,
                f"{channel} is no notification channel — Google would refuse the alerts",
                "Write projects/PROJECT/notificationChannels/NUMBER, as gcloud beta monitoring channels list "
                "--format='value(name)' prints it",
            )
        elif channel in watch.channels[:index]:
            yield Problem(path, f"{channel} is there twice — it would be told once", "Leave one of them out")
    if len(watch.channels) > _MAX_CHANNELS:
        cause = f"{len(watch.channels)} channels, and Google tells at most {_MAX_CHANNELS} of an alert"
        yield Problem(watch.at("channels"), f"{cause} — the alerts would be refused", "Make one channel of several")


def something_is_made(settings: Settings) -> Iterator[Problem]:
    """Monitoring without dashboards and without alerts is nothing."""
    watch = settings.monitoring
    if watch is not None and not watch.dashboards and not watch.alerts:
        cause = "neither dashboards nor alerts are wanted — this section would do next to nothing"
        yield Problem(watch.at("dashboards"), cause, "Leave gke-ai:monitoring out, or set one of them to true")


def alerts_are_on_where_they_are_described(settings: Settings) -> Iterator[Problem]:
    """Where alerts are off, nothing is said of them."""
    watch = settings.monitoring
    if watch is None or watch.alerts or not watch.dashboards:
        return
    for key in _OF_ALERTS:
        if _FIELDS[key] in watch.model_fields_set:
            cause = f"alerts is false, so {key} would not be read — nobody would be told of anything"
            yield Problem(watch.at(key), cause, "Leave it out, or leave alerts: false out")


@needs("gke-ai:queues", "gke-ai:serving", "gke-ai:autoscaling", "gke-ai:training", "gke-ai:batch", "gke-ai:tenants")
@needs("gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:computeClasses")
def there_is_something_to_watch(settings: Settings) -> Iterator[Problem]:
    """The stack has what dashboards and alerts are made of, and what a limit of an alert is of."""
    watch = settings.monitoring
    if watch is None:
        return
    if not monitoring_targets.anything(settings):
        cause = "the stack has no queue, no server, no Job and no accelerator — there would be nothing to see"
        yield Problem("gke-ai:monitoring", cause, "Leave gke-ai:monitoring out until there is something to watch")
        return
    if not watch.alerts:
        return
    queues = settings.queues and settings.queues.cluster_queues
    servers = monitoring_targets.servers(settings)
    for key, there, what in (
        ("queueStuckMinutes", queues, "cluster queue"),
        ("preemptionsPerHour", queues, "cluster queue"),
        ("serverDownMinutes", servers, "server"),
    ):
        if _FIELDS[key] in watch.model_fields_set and not there:
            cause = f"the stack has no {what} — there would be no such alert"
            yield Problem(watch.at(key), cause, "Leave it out")


RULES: tuple[Rule, ...] = (
    channels_are_named_in_full,
    something_is_made,
    alerts_are_on_where_they_are_described,
    there_is_something_to_watch,
)
