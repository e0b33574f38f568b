"""Measures a cluster for the calibration file: durations of deployment steps, and the resources of its nodes."""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil
from statistics import median
from typing import Any

from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.nodes.shape import INSTANCE_TYPE
from gke_ai.catalog.quantities import format_quantity, round_up
from gke_ai.kube.objects import Object, condition, label
from gke_ai.kube.pods import amounts
from gke_ai.kube.starts import container_start, load_seconds, seconds_between
from gke_ai.kube.values import mapping, value
from gke_ai.ops.verify.live import Live
from gke_ai.ops.verify.nodes import groups, requests_on
from gke_ai.ops.verify.pod_claims import pods_of, startup_probes
from gke_ai.registered.registration import RegisteredStack
from gke_ai.registered.types import CLUSTER, NODE_POOL
from gke_ai.settings.calibration import MEASURED, Calibration, Duration, NodeFigures, Step

# The kubelet's event after a pull: https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/images/image_manager.go
PULLED = re.compile(r'Successfully pulled image "(?P<image>[^"]+)" in (?P<time>[0-9.hmsµu]+)')
GO_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "µs": 0.000001, "us": 0.000001}


def measure(
    stack: RegisteredStack, live: Live, resources: Sequence[Mapping[str, Any]], today: datetime.date
) -> Calibration:
    """Measures everything that the cluster of a stack shows now."""
    # The version of the control plane if it has GKE's suffix, else the newest of the nodes.
    kubelets = (str(value(node, "status", "nodeInfo", "kubeletVersion")) for node in live.nodes)
    version = live.version if "gke" in live.version else max(kubelets, default=live.version)
    observed: dict[tuple[Step, str], list[float]] = defaultdict(list)
    for step, of, seconds in steps(stack, live, resources):
        observed[step, of].append(seconds)
    durations = [
        Duration(
            step=step,
            of=of,
            seconds=ceil(median(times)),
            max_seconds=ceil(max(times)),
            count=len(times),
            measured_on=today,
            gke_version=version,
        )
        for (step, of), times in sorted(observed.items())
    ]
    return Calibration(nodes=nodes(stack, live, today, version), durations=durations)


def nodes(stack: RegisteredStack, live: Live, today: datetime.date, version: str) -> list[NodeFigures]:
    """Returns, by node type, the minimum allocatable and the maximum DaemonSet requests of its nodes."""
    node_types: dict[tuple[str, str | None, int, int | None], list[Object]] = defaultdict(list)
    for group in groups(stack, live.nodes):
        for node, shape in group.shaped():
            node_types[shape.machine_type, shape.gpu, shape.gpus, shape.disk_gb if group.whole else None].append(node)
    node_figures = []
    for (machine_type, gpu, gpus, disk_gb), members in node_types.items():
        have = [amounts(mapping(node, "status", "allocatable")) for node in members]
        taken = [requests_on(node, live.daemon_requests) for node in members]
        resources = [resource for resource in MEASURED if disk_gb is not None or resource != "ephemeral-storage"]
        largest = {resource: max(requests.get(resource, Fraction(0)) for requests in taken) for resource in resources}
        node_figures.append(
            NodeFigures(
                machine_type=machine_type,
                gpu=gpu,
                gpus=gpus,
                disk_size_gb=disk_gb,
                allocatable={
                    resource: format_quantity(resource, min(amount.get(resource, Fraction(0)) for amount in have))
                    for resource in resources
                },
                daemon_sets={
                    resource: format_quantity(resource, round_up(resource, amount))
                    for resource, amount in largest.items()
                    if amount
                },
                nodes=len(members),
                measured_on=today,
                gke_version=version,
            )
        )
    return sorted(node_figures, key=lambda figures: figures.key)


def steps(
    stack: RegisteredStack, live: Live, resources: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Step, str, float]]:
    """Yields (step, subject, seconds) of each observation."""
    yield from _created(resources)
    for node in live.nodes:
        ready = condition(node, "Ready")
        machine = label(node, INSTANCE_TYPE)
        if ready.get("status") == "True" and machine in MACHINES:
            created = node["metadata"].get("creationTimestamp")
            yield from _took("nodeReady", machine, created, ready.get("lastTransitionTime"))
    for workload in live.workloads:
        admitted = condition(workload, "Admitted")
        if admitted.get("status") == "True":
            created = workload["metadata"].get("creationTimestamp")
            queue = str(value(workload, "spec", "queueName"))
            of = f"{workload['metadata']['namespace']}/{queue}"
            yield from _took("admission", of, created, admitted.get("lastTransitionTime"))
    for event in live.events:
        if pull := PULLED.match(str(event.get("message", ""))):
            yield "imagePull", pull["image"], go_seconds(pull["time"])
    for deployment in stack.of_kind("Deployment"):
        name = f"{deployment.namespace}/{deployment.object_name}"
        for pod in pods_of(deployment, live.pods):
            scheduled = condition(pod, "PodScheduled")
            for container, _ in startup_probes(deployment):
                started = container_start(pod, container)
                yield from _took("containerStart", name, scheduled.get("lastTransitionTime"), started)
                if (seconds := load_seconds(pod, container)) is not None:
                    yield "modelLoad", name, seconds


def _created(resources: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Step, str, float]]:
    """Yields how long clusters and pools took to create, from the creation of their last dependency."""
    created = {resource["urn"]: resource["created"] for resource in resources if resource.get("created")}
    for resource in resources:
        if resource["type"] in (CLUSTER, NODE_POOL) and resource.get("custom", True) and resource["urn"] in created:
            before = [*(resource.get("dependencies") or []), str(resource.get("parent", ""))]
            before.append(str(resource.get("provider", "")).rpartition("::")[0])
            since = [created[urn] for urn in before if urn in created]
            step: Step = "clusterReady" if resource["type"] == CLUSTER else "poolReady"
            name = str(value(resource, "inputs", "name"))
            if since:
                yield from _took(step, name, max(since, key=datetime.datetime.fromisoformat), created[resource["urn"]])


def _took(step: Step, of: str, since: Any, until: Any) -> Iterator[tuple[Step, str, float]]:
    if (seconds := seconds_between(since, until)) is not None:
        yield step, of, seconds


def go_seconds(text: str) -> float:
    """Parses a duration in Go's format, such as `1m2.5s`."""
    return sum(float(number) * GO_UNITS[unit] for number, unit in re.findall(r"([0-9.]+)(h|ms|µs|us|m|s)", text))
