"""Rules of autoscalers: their server, adapter, bounds and targets."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import chain

from gke_ai.catalog.engines import metrics
from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.kueue.namespaces import is_system
from gke_ai.catalog.quantities import GI, parse_quantity
from gke_ai.settings.model import Autoscaler, JetStream, ScaledMetric
from gke_ai.settings.problems import Problem, nearest
from gke_ai.settings.resolved import ResolvedStack, ScaledServer
from gke_ai.settings.rules.common import SERVERS, each, join_names, needs, repeated, rule

# A larger target means bytes; a smaller one means a fraction or a percentage.
_MAX_PERCENTAGE = 100
# Suggested target, relative to the maximum of a metric.
_SENSIBLE = Fraction(8, 10)


@rule
def autoscalers_have_one_target(stack: ResolvedStack) -> Iterator[Problem]:
    """An autoscaler names a server of the stack or an existing Deployment."""
    for autoscaler in stack.settings.autoscaling:
        if autoscaler.server is not None and autoscaler.deployment is not None:
            cause = "the autoscaler names a server and an existing Deployment. It can scale only one of them"
            yield Problem(autoscaler.at("deployment"), cause, "Remove one of them")
        elif (
            autoscaler.server is None
            and autoscaler.deployment is None
            and not stack.unresolved.overlaps(autoscaler.at("deployment"))
        ):
            cause = "the autoscaler names neither a server nor an existing Deployment. It would scale nothing"
            yield Problem(autoscaler.at("server"), cause, "Set server, or deployment for an existing Deployment")


@rule
def servers_exist(stack: ResolvedStack) -> Iterator[Problem]:
    """An autoscaler's server is one server of this stack."""
    names = [server.name for server in stack.settings.serving]
    for autoscaler in stack.settings.autoscaling:
        if autoscaler.server is not None:
            path = autoscaler.at("server")
            yield from SERVERS.unknown(stack, path, autoscaler.server, "nothing would be scaled")
            if names.count(autoscaler.server) > 1:
                cause = f"several servers are named {autoscaler.server}. The wrong one could be scaled"
                yield Problem(path, cause, "Rename all but one of them")


@each(lambda stack: stack.settings.autoscaling)
def engines_are_known(autoscaler: Autoscaler) -> Iterator[Problem]:
    """The engine of an existing Deployment is known."""
    deployment = autoscaler.deployment
    if deployment is not None and deployment.engine not in ENGINES:
        cause = f"engine {deployment.engine} is unknown. The names of its metrics would be unknown too"
        yield Problem(autoscaler.at("deployment.engine"), cause, nearest(deployment.engine, ENGINES))


@needs("gke-ai:serving")
@each(lambda stack: stack.scaled)
def engines_have_the_metrics(scaler: ScaledServer) -> Iterator[Problem]:
    """The engine of the server has each metric of its autoscaler."""
    autoscaler, target = scaler.section, scaler.target
    if target is None or target.engine not in ENGINES:
        return
    known = scaler.known_metrics
    for index, metric in enumerate(autoscaler.metrics):
        if metric.metric not in known:
            cause = f"{target.name} runs {target.engine}, which has no metric {metric.metric}. Nothing would be "
            cause += "scaled by it"
            remedy = f"Use one of: {join_names(known)}" if known else "Scale a server of another engine"
            yield Problem(autoscaler.at(f"metrics[{index}].metric"), cause, remedy)


@needs("gke-ai:serving")
@each(lambda stack: stack.scaled)
def servers_have_metrics(scaler: ScaledServer) -> Iterator[Problem]:
    """No argument turns the metrics of an autoscaled server off."""
    autoscaler, server = scaler.section, scaler.server.section if scaler.server else None
    off = ENGINES[server.engine].metrics_off if server else ""
    if server is not None and off in server.reading.values:
        cause = f"{server.reading.dashes}{off} turns off the metrics that autoscaler {autoscaler.name} reads. The "
        cause += "number of replicas would never change"
        yield Problem(server.at("arguments"), cause, "Remove it, or remove the autoscaler")


@needs("gke-ai:serving")
def targets_have_one_autoscaler(stack: ResolvedStack) -> Iterator[Problem]:
    """No Deployment has two autoscalers, and `deployment` does not name a server of the stack."""
    own = {(server.namespace, server.name): server for server in stack.settings.serving}
    seen: set[tuple[str, str]] = set()
    for scaler in stack.scaled:
        autoscaler, target = scaler.section, scaler.target
        if target is None:
            continue
        key = (target.namespace, target.name)
        if autoscaler.server is None and key in own:
            cause = f"{target.name} is a server of this stack. The stack and the autoscaler would both set its replicas"
            yield Problem(autoscaler.at("deployment.name"), cause, f"Write server: {target.name} instead of deployment")
        elif key in seen:
            cause = f"{target.namespace}/{target.name} has two autoscalers. Each would undo the other's changes"
            path = autoscaler.at("server" if autoscaler.server else "deployment.name")
            yield Problem(path, cause, "Use one autoscaler with the metrics of both")
        seen.add(key)


@needs("gke-ai:serving")
def names_are_unique(stack: ResolvedStack) -> Iterator[Problem]:
    """Autoscaler names are unique in a namespace."""
    targets = [(scaler.section, scaler.target.namespace) for scaler in stack.scaled if scaler.target]
    entries = ((autoscaler, "name", f"{namespace}/{autoscaler.name}") for autoscaler, namespace in targets)
    yield from repeated(entries, "autoscaler", "the second could not be created")


@rule
def one_adapter_serves_all(stack: ResolvedStack) -> Iterator[Problem]:
    """A cluster has one metrics adapter, as both register the same APIs."""
    for autoscaler in stack.settings.autoscaling[1:]:
        first = stack.settings.autoscaling[0]
        if autoscaler.adapter != first.adapter:
            cause = f"autoscaler {first.name} uses adapter {first.adapter}, and both adapters register "
            cause += "external.metrics.k8s.io. The second adapter could not be created"
            yield Problem(autoscaler.at("adapter"), cause, f"Write adapter: {first.adapter}, or change the others")
            return


@needs("gke-ai:serving")
def metrics_are_of_one_server(stack: ResolvedStack) -> Iterator[Problem]:
    """No other server's metrics count for an autoscaled JetStream server.

    JetStream's metrics are selected by namespace: all metrics with Prometheus, TPU metrics with Stackdriver. Those of
    other engines are selected by the PodMonitoring or the pods.
    """
    first: dict[str, str] = {}
    for scaler in stack.scaled:
        autoscaler, target = scaler.section, scaler.target
        if target is None or target.engine != "jetstream":
            continue
        beside = {first.setdefault(target.namespace, target.name)}
        tpus = scaler.reads_tpu_memory
        if tpus or autoscaler.adapter == metrics.PROMETHEUS:
            jetstreams = (placed.section for placed in stack.of(JetStream))
            here = (server for server in jetstreams if server.namespace == target.namespace)
            beside |= {server.name for server in here if tpus or server.pod_monitoring}
        for other in sorted(beside - {target.name})[:1]:
            cause = f"{other} and {target.name} are both in namespace {target.namespace}, and the adapter selects "
            cause += "metrics by namespace. The load of one would scale the other"
            remedy = "Move one of them to another namespace"
            yield Problem(autoscaler.at("server" if autoscaler.server else "deployment.namespace"), cause, remedy)


@needs("gke-ai:serving")
def existing_deployments_can_be_there(stack: ResolvedStack) -> Iterator[Problem]:
    """An existing Deployment needs an existing cluster and a namespace that is not the cluster's own."""
    new_cluster = stack.cluster.mode != "existing" and not stack.unresolved.overlaps("gke-ai:cluster.mode")
    for autoscaler in stack.settings.autoscaling:
        if autoscaler.deployment is None:
            continue
        if new_cluster:
            name = autoscaler.deployment.name
            cause = f"the stack creates the cluster, so {name} does not exist yet. Nothing would be scaled"
            remedy = "Name a server of this stack, or set gke-ai:cluster mode: existing"
            yield Problem(autoscaler.at("deployment"), cause, remedy)
        elif is_system(autoscaler.deployment.namespace):
            cause = f"namespace {autoscaler.deployment.namespace} belongs to the cluster. It would undo the changes"
            yield Problem(autoscaler.at("deployment.namespace"), cause, "Run the server in a namespace of your own")


@each(lambda stack: stack.settings.autoscaling)
def bounds_are_in_order(autoscaler: Autoscaler) -> Iterator[Problem]:
    """minReplicas is at most maxReplicas."""
    if autoscaler.min_replicas > autoscaler.max_replicas:
        cause = f"minReplicas is {autoscaler.min_replicas}, and maxReplicas is only {autoscaler.max_replicas}. "
        cause += "Kubernetes would refuse the autoscaler"
        remedy = f"Write {autoscaler.max_replicas} or less, or raise maxReplicas"
        yield Problem(autoscaler.at("minReplicas"), cause, remedy)


@needs("gke-ai:cluster", "gke-ai:serving", "gke-ai:gpuPools", "gke-ai:tpuPools")
def pools_hold_max_replicas(stack: ResolvedStack) -> Iterator[Problem]:
    """The server's pools have accelerators for each replica."""
    for autoscaler, server in ((scaler.section, scaler.server) for scaler in stack.scaled if scaler.server):
        pools = [(pool.section, pool.max_nodes) for pool in server.pools]
        if any(pool.is_one_slice for pool, _ in pools):
            continue  # other rules report slices of several hosts
        count = server.accelerators if pools else 0
        room = sum(nodes * (pool.accelerators_per_node // count) for pool, nodes in pools)
        if 0 < room < autoscaler.max_replicas:
            names = ", ".join(pool.name for pool, _ in pools)
            nodes = sum(nodes for _, nodes in pools)
            whole = all(pool.accelerators_per_node == count for pool, _ in pools)
            need = "a whole node" if whole else f"{count} of a node's {pools[0][0].accelerators_per_node} accelerators"
            cause = f"pool {names} has {nodes} node{'s' if nodes > 1 else ''} at its maximum, and each replica needs "
            cause += f"{need}. {autoscaler.max_replicas - room} of {autoscaler.max_replicas} replicas would stay "
            cause += "pending"
            yield Problem(autoscaler.at("maxReplicas"), cause, f"Write {room}, or make the pool larger")


@needs("gke-ai:serving")
@each(lambda stack: stack.scaled)
def replicas_are_left_to_the_autoscaler(scaler: ScaledServer) -> Iterator[Problem]:
    """An autoscaled server does not set replicas."""
    autoscaler, server = scaler.section, scaler.server.section if scaler.server else None
    if server is not None and "replicas" in server.model_fields_set:
        cause = f"autoscaler {autoscaler.name} sets the replicas of {server.name}. This number would have no effect"
        yield Problem(server.at("replicas"), cause, f"Remove it, and set {autoscaler.at('minReplicas')}")


@each(lambda stack: stack.settings.autoscaling)
def metrics_are_named_once(autoscaler: Autoscaler) -> Iterator[Problem]:
    """An autoscaler names each metric once."""
    for index, metric in enumerate(autoscaler.metrics):
        if metric.metric in (earlier.metric for earlier in autoscaler.metrics[:index]):
            cause = f"{metric.metric} is listed twice. Only the target that requests more replicas would count"
            yield Problem(autoscaler.at(f"metrics[{index}].metric"), cause, "Remove one of them")


@needs("gke-ai:cluster.mode")
def tpu_metrics_can_be_collected(stack: ResolvedStack) -> Iterator[Problem]:
    """TPU metrics are collected in kube-system, at intervals of 15 seconds or more."""
    for autoscaler in (scaler.section for scaler in stack.scaled if scaler.reads_tpu_memory):
        if stack.cluster.is_autopilot:
            # https://cloud.google.com/kubernetes-engine/docs/concepts/autopilot-security#managed-namespaces
            cause = "tpuMemory needs an object in kube-system, and Autopilot refuses objects there"
            remedy = "Use prefillBacklog or slotsUsed"
            yield Problem(autoscaler.at("metrics"), f"{cause}. The deployment would fail", remedy)
        elif autoscaler.scrape_interval_seconds < metrics.SYSTEM_SCRAPE_SECONDS and all(
            metric.metric == metrics.TPU_MEMORY for metric in autoscaler.metrics
        ):
            cause = f"tpuMemory is a system metric, collected every {metrics.SYSTEM_SCRAPE_SECONDS} seconds, and the "
            cause += f"autoscaler uses no metric of the server. {autoscaler.scrape_interval_seconds} would have no "
            cause += "effect"
            remedy = "Remove it, or scale by prefillBacklog or slotsUsed too"
            yield Problem(autoscaler.at("scrapeIntervalSeconds"), cause, remedy)


@needs("gke-ai:serving", "gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:computeClasses")
@each(lambda stack: stack.scaled)
def targets_can_work(scaler: ScaledServer) -> Iterator[Problem]:
    """A target is in the metric's unit, can call for more replicas, and does not always call for the most."""
    autoscaler, known_of_engine = scaler.section, scaler.known_metrics
    for index, metric in enumerate(autoscaler.metrics):
        if metric.metric not in known_of_engine:
            continue  # another rule reports it
        path, known = autoscaler.at(f"metrics[{index}].target"), scaler.values(metric)
        problems = chain(
            _unit(metric, autoscaler, known, path),
            _never(metric, autoscaler, known, path),
            _always(metric, autoscaler, known, path),
        )
        yield from list(problems)[:1]  # a wrong unit also breaks the other checks


def _unit(metric: ScaledMetric, autoscaler: Autoscaler, known: metrics.Range, path: str) -> Iterator[Problem]:
    target = parse_quantity(metric.target)
    if metrics.in_bytes(metric.metric, autoscaler.adapter):
        if target <= _MAX_PERCENTAGE:
            cause = f"with adapter {autoscaler.adapter}, {metric.metric} is in bytes, and {metric.target} looks like "
            cause += "a fraction or a percentage. Every replica would always exceed it"
            example = _written(known.max * _SENSIBLE, True) if known.max else "100Gi"
            yield Problem(path, cause, f"Write bytes, for example {example}")
    elif metric.metric in metrics.WHOLE_REQUESTS:
        if target < 1:
            state = metrics.WHOLE_REQUESTS[metric.metric]
            noun = "a backlog" if metric.metric == "prefillBacklog" else metric.metric
            effect = "Each request that does not start at once" if state == "waiting" else "Each request"
            cause = f"{noun} counts whole requests, and one {state} request exceeds {metric.target}. "
            yield Problem(path, f"{cause}{effect} would add a replica", "Write 1 or more, for example 10")
    elif target > _MAX_PERCENTAGE:
        cause = f"with adapter {autoscaler.adapter}, {metric.metric} is a fraction from 0 to 1, and {metric.target} "
        cause += "looks like bytes. No replica would ever be added"
        yield Problem(path, cause, f"Write a fraction, for example {_text(_SENSIBLE)}")


def _never(metric: ScaledMetric, autoscaler: Autoscaler, known: metrics.Range, path: str) -> Iterator[Problem]:
    target = parse_quantity(metric.target)
    if (
        known.max is None
        or autoscaler.min_replicas >= autoscaler.max_replicas
        or metrics.replicas(1, known.max, target) > 1
    ):
        return
    size = metrics.in_bytes(metric.metric, autoscaler.adapter)
    highest, stated = _written(known.max, size), _written(target, size)
    sensible = known.max * _SENSIBLE
    if metric.metric in metrics.WHOLE_REQUESTS:
        sensible = Fraction(int(sensible))
    elif not size and 1 < target < _MAX_PERCENTAGE / (1 + metrics.TOLERANCE):
        sensible = target / 100  # a percentage
    cause = f"{metric.metric} is at most {highest} on a replica, and {highest} ÷ {stated} = "
    cause += f"{_text(known.max / target)}. An autoscaler adds replicas above 1.1. The target is too high to trigger "
    cause += "scaling"
    yield Problem(path, cause, f"Write {_written(sensible, size)}")


def _always(metric: ScaledMetric, autoscaler: Autoscaler, known: metrics.Range, path: str) -> Iterator[Problem]:
    target = parse_quantity(metric.target)
    least = max(autoscaler.min_replicas, 1)
    if known.min is None or least >= autoscaler.max_replicas:
        return
    wanted = metrics.replicas(least, known.min, target)
    if wanted < autoscaler.max_replicas:
        return
    size = metrics.in_bytes(metric.metric, autoscaler.adapter)
    if metric.metric in metrics.WHOLE_REQUESTS:
        min_phrase = f"one {metrics.WHOLE_REQUESTS[metric.metric]} request is"
    elif metric.metric == metrics.TPU_MEMORY:
        min_phrase = "a loaded model takes at least"
    else:
        min_phrase = f"one busy slot of {known.min.denominator} is"
    value, stated = _written(known.min, size), _written(target, size)
    sensible = f"{known.max * _SENSIBLE / GI // 1}Gi" if size and known.max else _text(_SENSIBLE)
    cause = f"{min_phrase} {value}, and {least} × {value} ÷ {stated} asks for {wanted} replicas, "
    cause += f"with maxReplicas {autoscaler.max_replicas}. The server would always have the maximum"
    yield Problem(path, cause, f"Write {'10' if metric.metric in metrics.WHOLE_REQUESTS else sensible}")


def _written(amount: Fraction, size: bool) -> str:
    return f"{_text(amount / GI)}Gi" if size else _text(amount)


def _text(amount: Fraction) -> str:
    return f"{float(amount):.4g}"
