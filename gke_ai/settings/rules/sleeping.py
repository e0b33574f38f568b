"""Rules of servers that hold requests, and of those that have no replica while they get none."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from gke_ai.catalog.engines.metrics import PROMETHEUS
from gke_ai.settings.estimates.cold_start import start_seconds
from gke_ai.settings.model import Autoscaler
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import ResolvedStack, ScaledServer
from gke_ai.settings.rules.common import each, hours_are_a_part_of_the_week, needs

_MINUTE = 60


@needs("gke-ai:serving", "gke-ai:gateway")
def held_requests_come_through_the_gateway(stack: ResolvedStack) -> Iterator[Problem]:
    """A server that holds requests is behind a route, and its pods are ready only once they can answer."""
    behind = {server.name for server in stack.gateway_servers}
    for server in stack.settings.serving:
        if server.held is None:
            continue
        if server.name not in behind:
            cause = "no route of the gateway names the server, and only the gateway holds requests. It has no effect"
            yield Problem(server.at("held"), cause, "Add the server to a route of gke-ai:gateway, or remove held")
        elif not server.probes:
            cause = "without probes a pod is ready before its model is loaded. Held requests would reach it, and fail"
            yield Problem(server.at("probes"), cause, "Remove it, or remove held")


@needs("gke-ai:serving", "gke-ai:gateway")
def requests_wake_the_server(stack: ResolvedStack) -> Iterator[Problem]:
    """With minReplicas: 0, the gateway holds the requests that wake the server, and the autoscaler sees them."""
    behind = {server.name for server in stack.gateway_servers}
    for scaler in stack.scaled:
        autoscaler, server = scaler.section, scaler.server.section if scaler.server else None
        if not autoscaler.sleeps:
            continue
        path, otherwise = autoscaler.at("minReplicas"), "write minReplicas: 1"
        if autoscaler.deployment is not None:
            name = autoscaler.deployment.name
            cause = f"{name} is not a server of this stack, so the gateway holds no request for it. Requests to a "
            yield Problem(path, f"{cause}Deployment without replicas fail", "Write 1")
        elif server is not None and server.name not in behind:
            cause = f"no route of the gateway names {server.name}. Nothing would hold the request that wakes it, and "
            cause += "each would fail"
            yield Problem(path, cause, f"Add {server.name} to a route of gke-ai:gateway, or {otherwise}")
        elif server is not None and server.held is None:
            cause = f"the gateway does not hold requests for {server.name}. Each would fail while it has no replica"
            yield Problem(path, cause, f"Set {server.at('held')}: {{}}, or {otherwise}")
        elif autoscaler.adapter != PROMETHEUS:
            cause = f"adapter {autoscaler.adapter} has no value of a metric without series. A server that never got a "
            cause += "request would never wake"
            yield Problem(autoscaler.at("adapter"), cause, f"Write adapter: {PROMETHEUS}, or {otherwise}")


@needs("gke-ai:serving")
@each(lambda stack: stack.scaled)
def windows_suit_the_start(scaler: ScaledServer) -> Iterator[Problem]:
    """No replica is deleted while it loads, and the autoscaler wakes the server before its requests time out."""
    autoscaler, server = scaler.section, scaler.server
    if not autoscaler.sleeps or server is None:
        return
    start, window = start_seconds(server), autoscaler.scale_in_window_seconds
    if window < start:
        cause = f"a replica starts in about {start} s. If the requests that wake the server end sooner, the autoscaler "
        cause += "deletes the replica while it loads"
        remedy = f"Write {ceil(start / _MINUTE) * _MINUTE} or more, or minReplicas: 1"
        yield Problem(autoscaler.at("scaleInWindowSeconds"), cause, remedy)
    held = server.section.held
    if held is not None and autoscaler.scale_out_window_seconds >= held.seconds:
        cause = f"the autoscaler wakes the server {autoscaler.scale_out_window_seconds} s after a request, and the "
        cause += f"gateway holds a request for {held.seconds} s. None would live to see it"
        yield Problem(autoscaler.at("scaleOutWindowSeconds"), cause, "Remove it, or write less")


@each(lambda stack: stack.settings.autoscaling)
def warm_hours_are_apart(autoscaler: Autoscaler) -> Iterator[Problem]:
    """Warm hours belong to a server that sleeps, do not overlap, and leave some of the week out."""
    path = autoscaler.at("warmHours")
    if autoscaler.warm_hours and not autoscaler.sleeps:
        cause = f"minReplicas is {autoscaler.min_replicas}, so the server always has a replica. They have no effect"
        yield Problem(path, cause, "Remove warmHours, or write minReplicas: 0")
        return
    yield from hours_are_a_part_of_the_week(autoscaler.warm_hours, path, "server", "be warm", "Write minReplicas: 1")
