"""Runs cases of Kueue's tables in a cluster, and in a copy that is restored from its snapshot.

Each case begins with inactive queues and all its workloads. Then its gate opens, and Kueue decides. Workloads have no
Jobs, so an evicted one keeps its quota: what Kueue decides in one cycle stays visible.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any

import yaml

from emulator.nodes import node_agents
from emulator.tests.harness import eventually
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.components.queues.kueue import NAMESPACE
from gke_ai.forecast.rehearse.restore import managed_fields, wait_for_queues, wait_for_webhooks
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.kube.client import client_of
from gke_ai.manifests.kueue_chart import manager_configuration
from tests.support.rehearsal import cluster as queue_cluster
from tests.support.rehearsal.cluster import NAME, QueueCluster, Refused
from tests.support.rehearsal.places import Place
from tests.support.rehearsal.tables.cases import TableCase, at, namespaces
from tests.support.rehearsal.tables.configuration import Configuration
from tests.support.rehearsal.tables.decisions import Decision, decisions
from tests.support.rehearsal.tables.topology import CASE_LABEL

Object = dict[str, Any]
CONFIGURATION = f"/api/v1/namespaces/{NAMESPACE}/configmaps/kueue-manager-config"
AGENTS = f"/apis/apps/v1/namespaces/{node_agents.NAMESPACE}/daemonsets/gke-node-agents"
MERGE = {"content-type": "application/merge-patch+json"}
KINDS = ("workloads", "localqueues", "clusterqueues", "cohorts", "resourceflavors", "topologies")


@dataclass(frozen=True)
class Result:
    """What Kueue decided about a case in the original and in the copy. `refused`: what the API server refused."""

    case: TableCase
    original: frozenset[Decision]
    copy: frozenset[Decision]
    refused: str = ""


def run(original: Place, copy: Place, cases: Sequence[TableCase], log: Callable[[str], None]) -> Iterator[Result]:
    """Runs cases in groups, each with a configuration of Kueue."""
    for _, group in groupby(sorted(cases, key=_order), key=_order):
        yield from _run(original, copy, list(group), log)


def _order(case: TableCase) -> str:
    return json.dumps(case.configuration.sections(), sort_keys=True)


def _run(original: Place, copy: Place, cases: Sequence[TableCase], log: Callable[[str], None]) -> Iterator[Result]:
    log(f"{len(cases)} cases with {_order(cases[0])}")
    for place in (original, copy):
        keep_agents_away(place)
        configure(place, cases[0].configuration)
    refused = load(original, cases)
    snapshot = original.snapshot()
    log(f"the original is loaded, {len(refused)} cases are refused")
    found = copy.restore(snapshot)
    log(f"the copy is restored, with {len(found)} differences: {'; '.join(found[:3])}")
    with ThreadPoolExecutor() as threads:
        first, second = threads.map(partial(decide, cases=cases), (original, copy))
    log("Kueue has decided")
    for case in cases:
        yield Result(case, first[case.id], second[case.id], refused.get(case.id, ""))


def keep_agents_away(place: Place) -> None:
    """Keeps GKE's DaemonSet off the nodes of cases, whose tables have all of their CPU and memory for workloads."""
    terms = [{"matchExpressions": [{"key": CASE_LABEL, "operator": "DoesNotExist"}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    with queue_cluster.connect(place.emulator) as cluster:
        cluster.send("PATCH", AGENTS, json={"spec": {"template": {"spec": {"affinity": affinity}}}}, headers=MERGE)


def configure(place: Place, configuration: Configuration) -> None:
    """Changes the configuration of Kueue's manager. Kueue reads it when it starts."""
    with queue_cluster.connect(place.emulator) as cluster:
        data: dict[str, str] = cluster.send("GET", CONFIGURATION)["data"]
        ((file, text),) = data.items()
        content = {
            key: value
            for key, value in yaml.safe_load(text).items()
            if key not in ("admissionFairSharing", "fairSharing", "featureGates", "resources")
        }
        sections = configuration.sections()
        own = manager_configuration((), False, 0, place.release).get("featureGates", {})
        changed = yaml.safe_dump({**content, **sections, "featureGates": {**own, **sections.get("featureGates", {})}})
        cluster.send("PATCH", CONFIGURATION, json={"data": {file: changed}}, headers=MERGE)


def restart(place: Place) -> None:
    """Restarts the controllers of a place."""
    scratch = Scratch(place.emulator.state)
    scratch.run("cluster", "pause", NAME)
    scratch.run("cluster", "resume", NAME)


def load(place: Place, cases: Sequence[TableCase]) -> dict[str, str]:
    """Brings the original to the state of cases. Returns what the API server refused, by case."""
    refused: dict[str, str] = {}
    with queue_cluster.connect(place.emulator) as cluster:
        cluster.apply(namespaces())
        for case in cases:
            try:
                cluster.apply(case.queues)
            except Refused as error:
                refused[case.id] = str(error)
        old = [item for item in everything(cluster) if item["kind"] == "Workload" or not _is_of(item, cases)]
        old += nodes_of_cases(cluster)
        own = [item for item in everything(cluster) if _is_of(item, cases)]
    now = datetime.now(UTC).replace(microsecond=0)
    accepted = [case for case in cases if case.id not in refused]
    nodes = [item for case in accepted for item in case.nodes]
    workloads = [item for case in accepted for item in at(case, now)]
    for workload in workloads:
        workload["metadata"]["managedFields"] = managed_fields(workload)
    queues = [item for item in own if item["kind"] == "ClusterQueue"]
    for queue in queues:
        queue["status"] = {}  # so that Kueue states the conditions again, once it has read the queue
    queues += _used_before(own, cases, now)
    scratch = Scratch(place.emulator.state)
    scratch.run("cluster", "pause", NAME)
    scratch.run("cluster", "load", NAME, stdin=json.dumps({"put": [*queues, *nodes, *workloads], "delete": old}))
    scratch.run("cluster", "resume", NAME)
    api = client_of(place.kubeconfig(), 4)
    wait_for_webhooks(api)
    wait_for_queues(api)
    with queue_cluster.connect(place.emulator) as cluster:
        cluster.settle()
        written = {item["metadata"]["uid"] for item in queues if item["kind"] == "LocalQueue"}
        if any(case.configuration.by_usage for case in cases):
            eventually(partial(_has_read_usage, cluster, written, now), "Kueue has read the past usage", 120)
    return refused


def _has_read_usage(cluster: QueueCluster, uids: set[str], written: datetime) -> bool:
    """Whether Kueue has stated the usage of local queues itself since their status was written."""
    items = [item for item in everything(cluster) if item["metadata"]["uid"] in uids]
    stated = [item["status"]["fairSharing"]["admissionFairSharingStatus"]["lastUpdate"] for item in items]
    return all(datetime.fromisoformat(time) > written for time in stated)


def _used_before(items: Iterable[Object], cases: Iterable[TableCase], now: datetime) -> Iterator[Object]:
    """Yields the local queues of cases that begin with past usage. Kueue reads it from their status when it starts."""
    usage = {name: used for case in cases for name, used in case.usage.items()}
    for item in items:
        if item["kind"] == "LocalQueue" and (used := usage.get(item["metadata"]["name"])):
            past = {"consumedResources": used, "lastUpdate": now.isoformat().replace("+00:00", "Z")}
            fair = {"weightedShare": 0, "admissionFairSharingStatus": past}
            yield {**item, "status": {**item.get("status", {}), "fairSharing": fair}}


def everything(cluster: QueueCluster) -> Iterator[Object]:
    for plural in KINDS:
        answer = cluster.send("GET", f"/apis/{KUEUE_API}/{plural}")
        for item in answer["items"]:
            yield {**item, "apiVersion": KUEUE_API, "kind": answer["kind"].removesuffix("List")}


def nodes_of_cases(cluster: QueueCluster) -> Iterator[Object]:
    """All nodes and pods of cases in a cluster."""
    for kind in ("Pod", "Node"):
        answer = cluster.send("GET", f"/api/v1/{kind.lower()}s", params={"labelSelector": CASE_LABEL})
        yield from ({**item, "apiVersion": "v1", "kind": kind} for item in answer["items"])


def _is_of(item: Object, cases: Sequence[TableCase]) -> bool:
    return item["metadata"]["name"].partition("-")[0] in {case.id for case in cases}


def decide(place: Place, cases: Sequence[TableCase]) -> dict[str, frozenset[Decision]]:
    """Opens the gates, and returns what Kueue decides, by case."""
    with queue_cluster.connect(place.emulator) as cluster:
        before = {case.id: _workloads(cluster, case) for case in cases}
        cluster.recorder.begin()
        open_gates(cluster, cases)
        cluster.recorder.settle(queue_cluster.SETTLED_SECONDS, 180)
        return {case.id: decisions(before[case.id], _workloads(cluster, case), case.names) for case in cases}


def open_gates(cluster: QueueCluster, cases: Sequence[TableCase]) -> None:
    cluster.apply(case.gate for case in cases if not case.usage)
    cluster.delete(case.gate for case in cases if case.usage)


def _workloads(cluster: QueueCluster, case: TableCase) -> list[Object]:
    return [item for item in cluster.workloads() if item["metadata"]["uid"] in case.names]
