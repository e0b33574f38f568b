"""Rules of autoscalers: what they scale, through which adapter, between which bounds, and whether a target can work."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import chain

from catalog.metrics import (
    METRICS,
    PROMETHEUS,
    SYSTEM_SCRAPE_SECONDS,
    TOLERANCE,
    TPU_MEMORY,
    Range,
    in_bytes,
    replicas,
)
from catalog.namespaces import is_system
from catalog.quantities import GI, parse_quantity
from settings.model import Autoscaler, JetStream, ScaledMetric, Settings
from settings.plan import is_autopilot, max_nodes, pools_of
from settings.problems import Problem, unknown
from settings.rules.common import Rule, needs, repeated
from settings.scaling import scaled, server_of, values

# A target of more is meant as bytes, one of less as a fraction or as a percentage.
_MAX_PERCENTAGE = 100
# Of the largest value that a metric can have: busy, and not yet full.
_SENSIBLE = Fraction(8, 10)


def each_scales_one_thing(settings: Settings) -> Iterator[Problem]:
    """An autoscaler names a server of the stack or an existing Deployment."""
    for one in settings.autoscaling:
        if one.server is not None and one.deployment is not None:
            cause = "the autoscaler names a server and an existing Deployment — it can scale only one of them"
            yield Problem(one.at("deployment"), cause, "Leave one of them out")
        elif one.server is None and one.deployment is None and not settings.unparsed.overlaps(one.at("deployment")):
            cause = "the autoscaler does not say what it scales — nothing would ever be scaled"
            yield Problem(one.at("server"), cause, "Set server, or deployment for one that is in the cluster already")


def servers_are_jetstream(settings: Settings) -> Iterator[Problem]:
    """The server is a JetStream server of this stack."""
    names = [server.name for server in settings.serving if isinstance(server, JetStream)]
    others = {server.name: server for server in settings.serving if not isinstance(server, JetStream)}
    for one in settings.autoscaling:
        if one.server is None:
            continue
        if one.server in others:
            cause = f"{one.server} is a server of {others[one.server].engine}, which has none of JetStream's metrics — "
            yield Problem(one.at("server"), f"{cause}nothing would ever be scaled", "Name a server of engine jetstream")
        else:
            consequence = "nothing would ever be scaled"
            path = one.at("server")
            yield from unknown(settings, path, "gke-ai:serving", "JetStream server", one.server, names, consequence)


@needs("gke-ai:serving")
def each_is_scaled_once(settings: Settings) -> Iterator[Problem]:
    """No Deployment has two autoscalers, and none of the stack's own servers is called an existing one."""
    own = {(server.namespace, server.name): server for server in settings.serving}
    seen: set[tuple[str, str]] = set()
    for one in settings.autoscaling:
        target = scaled(one, settings)
        if target is None:
            continue
        key = (target.namespace, target.name)
        if one.server is None and key in own:
            cause = (
                f"{target.name} is a server of this stack — the stack and the autoscaler would both set its replicas"
            )
            yield Problem(one.at("deployment.name"), cause, f"Write server: {target.name} instead of deployment")
        elif key in seen:
            cause = f"{target.namespace}/{target.name} has two autoscalers — each would undo what the other does"
            path = one.at("server" if one.server else "deployment.name")
            yield Problem(path, cause, "Put the metrics of both into one: the one that asks for most decides")
        seen.add(key)


@needs("gke-ai:serving")
def names_are_unique(settings: Settings) -> Iterator[Problem]:
    """No two autoscalers of one name in a namespace."""
    named = [(one, target.namespace) for one in settings.autoscaling if (target := scaled(one, settings))]
    entries = ((one, "name", f"{namespace}/{one.name}") for one, namespace in named)
    yield from repeated(entries, "autoscaler", "the second could not be created")


def one_adapter_serves_all(settings: Settings) -> Iterator[Problem]:
    """Both adapters register the same APIs, so a cluster has one of them."""
    for one in settings.autoscaling[1:]:
        first = settings.autoscaling[0]
        if one.adapter != first.adapter:
            yield Problem(
                one.at("adapter"),
                f"autoscaler {first.name} goes through {first.adapter}, and a cluster has one metrics adapter: both "
                "register external.metrics.k8s.io — the second could not be created",
                f"Write adapter: {first.adapter}, or change the others",
            )
            return


@needs("gke-ai:serving")
def metrics_are_of_one_server(settings: Settings) -> Iterator[Problem]:
    """An autoscaled server is alone in its namespace, so far as others there are measured with it.

    Metrics are selected by namespace: through Prometheus all, through Stackdriver those of the TPUs.
    """
    first: dict[str, str] = {}
    for one in settings.autoscaling:
        target = scaled(one, settings)
        if target is None:
            continue
        beside = {first.setdefault(target.namespace, target.name)}
        tpus = any(metric.metric == TPU_MEMORY for metric in one.metrics)
        if tpus or one.adapter == PROMETHEUS:
            here = (server for server in settings.serving if server.namespace == target.namespace)
            beside |= {
                server.name for server in here if isinstance(server, JetStream) and (tpus or server.pod_monitoring)
            }
        for other in sorted(beside - {target.name})[:1]:
            yield Problem(
                one.at("server" if one.server else "deployment.namespace"),
                f"{other} and {target.name} are in namespace {target.namespace}, by which their metrics are told "
                "apart — the load of one would scale the other",
                "Put one of them into another namespace",
            )


@needs("gke-ai:serving")
def existing_deployments_can_be_there(settings: Settings) -> Iterator[Problem]:
    """An existing Deployment is in a cluster that exists, and in a namespace of its user's."""
    made = settings.cluster.mode != "existing" and not settings.unparsed.overlaps("gke-ai:cluster.mode")
    for one in settings.autoscaling:
        if one.deployment is None:
            continue
        if made:
            cause = (
                f"the stack makes the cluster, so {one.deployment.name} can't be in it yet — nothing would be scaled"
            )
            yield Problem(
                one.at("deployment"), cause, "Name a server of this stack, or set gke-ai:cluster mode: existing"
            )
        elif is_system(one.deployment.namespace):
            cause = (
                f"namespace {one.deployment.namespace} belongs to the cluster, which would undo what is changed there"
            )
            yield Problem(one.at("deployment.namespace"), cause, "Run the server in a namespace of your own")


def bounds_are_in_order(settings: Settings) -> Iterator[Problem]:
    """The minimum is no more than the maximum."""
    for one in settings.autoscaling:
        if one.min_replicas > one.max_replicas:
            cause = (
                f"at least {one.min_replicas} and at most {one.max_replicas} — Kubernetes would refuse the autoscaler"
            )
            yield Problem(one.at("minReplicas"), cause, f"Write {one.max_replicas} or less, or raise maxReplicas")


@needs("gke-ai:cluster", "gke-ai:serving", "gke-ai:tpuPools")
def pools_hold_the_most(settings: Settings) -> Iterator[Problem]:
    """The server's pool has a node for each replica: a pod takes all chips of its node."""
    for one in settings.autoscaling:
        server = server_of(one, settings)
        pools = pools_of(server, settings) if server else []
        room = sum(max_nodes(pool, settings.cluster) for pool in pools)
        if 0 < room < one.max_replicas:
            names = ", ".join(pool.name for pool in pools)
            yield Problem(
                one.at("maxReplicas"),
                f"pool {names} has {room} node{'s' if room > 1 else ''} at its largest, and a replica takes a whole "
                f"one — of {one.max_replicas} replicas {one.max_replicas - room} would stay pending",
                f"Write {room}, or make the pool larger",
            )


@needs("gke-ai:serving")
def replicas_are_left_to_the_autoscaler(settings: Settings) -> Iterator[Problem]:
    """A server states no replicas where an autoscaler decides them."""
    for one in settings.autoscaling:
        server = server_of(one, settings)
        if server is not None and "replicas" in server.model_fields_set:
            cause = f"autoscaler {one.name} decides the replicas of {server.name} — this number would not be read"
            yield Problem(server.at("replicas"), cause, f"Leave it out, and set {one.at('minReplicas')}")


def metrics_are_named_once(settings: Settings) -> Iterator[Problem]:
    """Each metric has one target."""
    for one in settings.autoscaling:
        for index, metric in enumerate(one.metrics):
            if metric.metric in (earlier.metric for earlier in one.metrics[:index]):
                cause = f"{metric.metric} is there twice — only the target that asks for more would ever count"
                yield Problem(one.at(f"metrics[{index}].metric"), cause, "Leave one of them out")


@needs("gke-ai:cluster.mode")
def tpu_metrics_can_be_collected(settings: Settings) -> Iterator[Problem]:
    """TPU metrics are collected in kube-system, every 15 seconds at most."""
    for one in settings.autoscaling:
        if all(metric.metric != TPU_MEMORY for metric in one.metrics):
            continue
        if is_autopilot(settings.cluster):
            # https://cloud.google.com/kubernetes-engine/docs/concepts/autopilot-security#managed-namespaces
            cause = "TPU metrics are collected by an object in kube-system, where Autopilot lets nobody create any"
            yield Problem(
                one.at("metrics"), f"{cause} — the stack could not be made", "Use prefillBacklog or slotsUsed"
            )
        elif one.scrape_interval_seconds < SYSTEM_SCRAPE_SECONDS and all(
            not METRICS[metric.metric].of_server for metric in one.metrics
        ):
            yield Problem(
                one.at("scrapeIntervalSeconds"),
                f"tpuMemory is a metric of the system, collected every {SYSTEM_SCRAPE_SECONDS} seconds, and no metric "
                f"of the server is used — {one.scrape_interval_seconds} would not be read",
                "Leave it out, or scale by prefillBacklog or slotsUsed too",
            )


@needs("gke-ai:serving", "gke-ai:tpuPools")
def targets_can_work(settings: Settings) -> Iterator[Problem]:
    """A target is in the metric's unit, can call for more replicas, and doesn't always call for the most."""
    for one in settings.autoscaling:
        for index, metric in enumerate(one.metrics):
            path = one.at(f"metrics[{index}].target")
            found = chain(
                _unit(metric, one, values(metric, one, settings), path),
                _never(metric, one, values(metric, one, settings), path),
                _always(metric, one, values(metric, one, settings), path),
            )
            yield from list(found)[:1]  # what is in a wrong unit breaks the others too


def _unit(metric: ScaledMetric, one: Autoscaler, known: Range, path: str) -> Iterator[Problem]:
    target = parse_quantity(metric.target)
    if in_bytes(metric.metric, one.adapter):
        if target <= _MAX_PERCENTAGE:
            cause = f"through {one.adapter} {metric.metric} is in bytes, and {metric.target} looks like a fraction or "
            cause += "a percentage — every replica would be over it always"
            example = _written(known.max * _SENSIBLE, True) if known.max else "100Gi"
            yield Problem(path, cause, f"Write bytes, for example {example}")
    elif known.max is not None and target > _MAX_PERCENTAGE:
        cause = (
            f"through {one.adapter} {metric.metric} is a fraction, from 0 to 1, and {metric.target} looks like bytes"
        )
        yield Problem(
            path, f"{cause} — no replica would ever be added", f"Write a fraction, for example {_text(_SENSIBLE)}"
        )
    elif metric.metric == "prefillBacklog" and target < 1:
        cause = f"a backlog is whole requests, and below 1 a single one that waits is more than {metric.target}"
        cause += " — a replica would be added for each request that does not start at once"
        yield Problem(path, cause, "Write 1 or more, for example 10")


def _never(metric: ScaledMetric, one: Autoscaler, known: Range, path: str) -> Iterator[Problem]:
    target = parse_quantity(metric.target)
    if known.max is None or one.min_replicas >= one.max_replicas or replicas(1, known.max, target) > 1:
        return
    size = in_bytes(metric.metric, one.adapter)
    highest, stated = _written(known.max, size), _written(target, size)
    sensible = known.max * _SENSIBLE
    if not size and 1 < target < _MAX_PERCENTAGE / (1 + TOLERANCE):
        sensible = target / 100  # a percentage
    yield Problem(
        path,
        f"{metric.metric} is at most {highest} on a replica, and {highest} ÷ {stated} = {_text(known.max / target)} is "
        f"not above 1.1, where scaling out begins — no replica would ever be added",
        f"Write {_written(sensible, size)}",
    )


def _always(metric: ScaledMetric, one: Autoscaler, known: Range, path: str) -> Iterator[Problem]:
    target = parse_quantity(metric.target)
    if known.min is None or one.min_replicas >= one.max_replicas:
        return
    wanted = replicas(one.min_replicas, known.min, target)
    if wanted < one.max_replicas:
        return
    size = in_bytes(metric.metric, one.adapter)
    min_phrase = {
        "prefillBacklog": "one waiting request is",
        "slotsUsed": f"one busy slot of {known.min.denominator} is",
        TPU_MEMORY: "a loaded model takes at least",
    }[metric.metric]
    value, stated = _written(known.min, size), _written(target, size)
    sensible = f"{known.max * _SENSIBLE / GI // 1}Gi" if size and known.max else _text(_SENSIBLE)
    yield Problem(
        path,
        f"{min_phrase} {value}, and {one.min_replicas} × {value} ÷ {stated} asks for {wanted} replicas, with "
        f"maxReplicas {one.max_replicas} — there would always be the most",
        f"Write {'10' if metric.metric == 'prefillBacklog' else sensible}",
    )


def _written(amount: Fraction, size: bool) -> str:
    return f"{_text(amount / GI)}Gi" if size else _text(amount)


def _text(amount: Fraction) -> str:
    return f"{float(amount):.4g}"


RULES: tuple[Rule, ...] = (
    each_scales_one_thing,
    servers_are_jetstream,
    each_is_scaled_once,
    names_are_unique,
    one_adapter_serves_all,
    metrics_are_of_one_server,
    existing_deployments_can_be_there,
    bounds_are_in_order,
    pools_hold_the_most,
    replicas_are_left_to_the_autoscaler,
    metrics_are_named_once,
    tpu_metrics_can_be_collected,
    targets_can_work,
)
