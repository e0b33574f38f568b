"""Topology in Kueue's tables: names of nodes in a shared cluster, and cases of placement as cases of scheduling."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gke_ai.catalog.fabric.topology import HOSTNAME
from gke_ai.kube.blocks import assigned

Object = dict[str, Any]
# Of the nodes, pods and flavors of a case, so that no flavor has the nodes of another case.
CASE_LABEL = "example.com/table-case"
# The table of the algorithm alone: nodes, levels and pods, and the domains that they get.
PLACEMENT = "TestFindTopologyAssignments"
# Quota of cases that have none, above any request.
MUCH = "1000000000000"
QUEUE, FLAVOR, TOPOLOGY, WORKLOAD = "main", "tas", "levels", "workload"


def assignment(levels: list[str], domains: Iterable[tuple[Iterable[str], int]]) -> Object:
    """A topology assignment of domains with their pods, as Kueue's API has it."""
    values, counts = zip(*domains, strict=True)
    per_level = [{"individual": {"roots": [*names]}} for names in zip(*values, strict=True)]
    part = {"domainCount": len(counts), "valuesPerLevel": per_level, "podCounts": {"individual": [*counts]}}
    return {"levels": levels, "slices": [part]}


def in_cluster(value: Any, host: Callable[[str], str]) -> Any:
    """A part of an object with other names of hosts, wherever it selects them or has pods on them."""
    if isinstance(value, list):
        return [in_cluster(item, host) for item in value]
    if not isinstance(value, dict):
        return value
    if "slices" in value and "levels" in value:
        last = value["levels"][-1] == HOSTNAME
        domains = [((*on[:-1], host(on[-1])) if last else on, count) for on, count in assigned(value)]
        return assignment(value["levels"], domains)
    changed = {key: in_cluster(item, host) for key, item in value.items()}
    if HOSTNAME in changed:
        changed[HOSTNAME] = host(changed[HOSTNAME])
    if changed.get("key") == HOSTNAME:
        changed["values"] = [host(name) for name in changed["values"]]
    if "unhealthyNodes" in changed:
        changed["unhealthyNodes"] = [{**node, "name": host(node["name"])} for node in changed["unhealthyNodes"]]
    return changed


def nodes(case: Mapping[str, Any], case_id: str, host: Callable[[str], str]) -> dict[str, Object]:
    """The nodes of a case, by their names in its table. A node has the name of its host, as in a cluster."""
    return {node["metadata"]["name"]: _node(node, case_id, host) for node in case.get("nodes") or ()}


def _node(node: Mapping[str, Any], case_id: str, host: Callable[[str], str]) -> Object:
    labels = node["metadata"]["labels"]
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in node["status"].get("conditions", []))
    # KWOK makes each node ready. Kueue leaves out a cordoned one as it does one that is not ready.
    spec = {**node.get("spec", {}), **({} if ready else {"unschedulable": True})}
    allocatable = node["status"].get("allocatable", {})
    name = node["metadata"]["name"]
    metadata = {"name": host(labels.get(HOSTNAME) or name), "labels": {**in_cluster(labels, host), CASE_LABEL: case_id}}
    metadata["uid"] = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{case_id} {name}"))
    status = {"allocatable": allocatable, "capacity": allocatable}
    status["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}


def pods(case: Mapping[str, Any], case_id: str, namespace: str, named: Mapping[str, Object]) -> Iterator[Object]:
    """Yields the pods of a case. Those without a node stay so by a gate, because a cluster has a scheduler."""
    for number, pod in enumerate(case.get("pods") or ()):
        spec, node = {**pod["spec"]}, pod["spec"].get("nodeName")
        if node:
            spec["nodeName"] = named[node]["metadata"]["name"]
        else:
            spec["schedulingGates"] = [{"name": "example.com/gate"}]
        metadata: Object = {"name": f"{case_id}-{pod['metadata']['name']}", "namespace": namespace}
        uid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{case_id} {number}"))
        metadata |= {"uid": uid, "labels": {CASE_LABEL: case_id}}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": pod["status"]}


def scheduled(case: Mapping[str, Any]) -> Object:
    """A case of placement as one of scheduling: a workload in a queue with a flavor of these nodes and levels."""
    sets = case["podSets"]
    resources = sorted({name for item in sets for name in item["requests"]})
    quotas = [{"name": name, "nominalQuota": MUCH} for name in resources]
    group = {"coveredResources": resources, "flavors": [{"name": FLAVOR, "resources": quotas}]}
    place = {"name": QUEUE, "namespace": "default"}
    spec = {"queueName": QUEUE, "podSets": [_pod_set(item) for item in sets]}
    workload = {"metadata": {"name": WORKLOAD, "namespace": "default"}, "spec": spec, "status": {}}
    assignments = []
    for item in (item for item in sets if item["wantAssignment"]):
        placed = {"name": item["podSetName"] or QUEUE, "count": item["count"]}
        flavors = dict.fromkeys(item["requests"], FLAVOR)
        assignments.append({**placed, "flavors": flavors, "topologyAssignment": _expected(item["wantAssignment"])})
    admitted = {"clusterQueue": QUEUE, "podSetAssignments": assignments}
    fits = len(assignments) == len(sets)
    levels = {"levels": [{"nodeLabel": level} for level in case["levels"]]}
    flavor = {"nodeLabels": case["nodeLabels"], "topologyName": TOPOLOGY}
    return {
        **{key: case[key] for key in ("featureGates", "nodes", "pods")},
        "topologies": [{"metadata": {"name": TOPOLOGY}, "spec": levels}],
        "resourceFlavors": [{"metadata": {"name": FLAVOR}, "spec": flavor}],
        "clusterQueues": [{"metadata": {"name": QUEUE}, "spec": {"namespaceSelector": {}, "resourceGroups": [group]}}],
        "additionalLocalQueues": [{"metadata": place, "spec": {"clusterQueue": QUEUE}}],
        "workloads": [workload],
        "wantNewAssignments": {f"default/{WORKLOAD}": admitted} if fits else {},
        "reason": _reason(case),
    }


def _reason(case: Mapping[str, Any]) -> str:
    if case["workload"]:
        return "owners that are not in the table"
    if any(item["previousAssignment"] for item in case["podSets"]):
        return "a placement before the workload grew"
    # Absent from the tables of earlier releases.
    used = any(case.get(key) for key in ("priorFlavorUsage", "priorOwnUsage", "aggregatedDomainUsages"))
    return "usage that only Kueue's memory has" if used else ""


def _expected(found: Mapping[str, Any]) -> Object:
    return assignment(found["Levels"], [(domain["Values"], domain["Count"]) for domain in found["Domains"]])


def _pod_set(item: Mapping[str, Any]) -> Object:
    requests = {name: f"{number}m" if name == "cpu" else str(number) for name, number in item["requests"].items()}
    spec = {
        "containers": [{"name": "c", "image": "example.com/pause", "resources": {"requests": requests}}],
        "restartPolicy": "Never",
        "nodeSelector": item["nodeSelector"],
        "tolerations": item["tolerations"],
        "affinity": {"nodeAffinity": item["nodeAffinity"]} if item["nodeAffinity"] else {},
    }
    together = {"podSetGroupName": item["podSetGroupName"]} if item["podSetGroupName"] else {}
    request = {"topologyRequest": {**item["topologyRequest"], **together}} if item["topologyRequest"] else {}
    return {"name": item["podSetName"] or QUEUE, "count": item["count"], "template": {"spec": spec}, **request}
