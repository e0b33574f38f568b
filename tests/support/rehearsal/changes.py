"""Rehearses the changes of two files, and says which of the expected facts each result lacks.

A change of manifests is rehearsed on a snapshot of a cluster that runs its base, one of the program on its example.
"""

import copy
import json
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import yaml

from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.nodes.shape import GKE_NODEPOOL, NVIDIA_GPU
from gke_ai.catalog.versions import KUEUE_VERSION
from gke_ai.forecast.compare.comparison import facts
from gke_ai.forecast.outcome.reasons import REFUSED
from gke_ai.forecast.rehearse import plain
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.render.rehearsal import remarks, tables
from gke_ai.forecast.render.rehearsal_headline import sentence
from gke_ai.forecast.result.forecast import Forecast, read
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import condition
from tests.support.emulator import Emulator, eventually, fresh
from tests.support.rehearsal import cluster as queue_cluster
from tests.support.rehearsal.scenario import ACCELERATOR, make
from tests.support.repository import ROOT

FILE = Path(__file__).with_suffix(".yaml")
FURTHER = FILE.with_name("further_changes.yaml")
Object = dict[str, Any]
NAMESPACE, ZONES, MACHINE = "team", ["us-central1-a"], "g2-standard-12"
CHANGE_REFUSED = "refused"
# Kinds that the files write in full, each with its namespace if it has one.
WHOLE = {"LimitRange": NAMESPACE, "ResourceQuota": NAMESPACE, "Namespace": "", "Topology": "", "AdmissionCheck": ""}


@dataclass(frozen=True)
class Change:
    """A change with the facts that its rehearsal must have. `base` and `change` are in the short form of the file."""

    name: str
    base: Object
    change: Object
    because: str
    expect: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    example: str = ""
    upgrade: str = ""


def changes(file: Path = FILE) -> list[Change]:
    content = yaml.safe_load(file.read_text())
    result = []
    for entry in content["changes"]:
        stated: Object = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
        base = stated.pop("base", {})
        whole = base if isinstance(base, dict) else content["bases"][base]
        may = (*stated.get("may", ()), *content.get("may", ()))
        result.append(Change(**{"change": {}, **stated, "base": whole, "may": may}))
    return result


# ----------------------------------------------------------------------------------------------- objects in short form
def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> Object:
    result = copy.deepcopy(dict(base))
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(result.get(key) or {}, value)
        else:
            result[key] = value
    return result


def objects(stated: Mapping[str, Any], change: Mapping[str, Any] | None = None) -> list[Object]:
    """Returns the manifests of a base, or of a base with a change."""
    whole = merged(stated, change or {})
    stated_twice = {title.removeprefix("local") for title in whole if title.startswith("localqueue ")}
    removed = {title for title, keys in (change or {}).items() if keys is None}
    first: Object = {f"Namespace {NAMESPACE}": {}, "flavor l4": {}}
    whole = {title: keys for title, keys in (first | whole).items() if title not in removed}
    made = [item for title, keys in whole.items() for item in _objects(title, keys, title not in stated_twice)]
    gone = {("LocalQueue", title.partition(" ")[2]) for title in removed if title.startswith(("localqueue", "queue"))}
    return [item for item in made if (item["kind"], item["metadata"]["name"]) not in gone]


def _objects(title: str, keys: Mapping[str, Any], with_local: bool) -> Iterator[Object]:
    kind, _, name = title.partition(" ")
    if kind in WHOLE:
        yield merged(make(kind, name, WHOLE[kind]), keys)
    elif kind == "priority":
        yield make("PriorityClass", name, value=keys["value"])
    elif kind == "flavor":
        yield make("ResourceFlavor", name, spec={"nodeLabels": {GKE_NODEPOOL: name}, **keys})
    elif kind == "queue":
        yield _cluster_queue(name, keys)
        if with_local:
            yield make("LocalQueue", name, NAMESPACE, spec={"clusterQueue": name})
    elif kind == "localqueue":
        yield make("LocalQueue", name, NAMESPACE, spec={"clusterQueue": name, **keys})
    elif kind == "resourcequota":
        hard = {key: str(most) for key, most in keys.items()}
        yield make("ResourceQuota", name, NAMESPACE, spec={"hard": hard})
    elif kind != "pool":
        yield _workload(kind, name, keys)


def _cluster_queue(name: str, keys: Mapping[str, Any]) -> Object:
    """A cluster queue with `gpus` of flavor l4, or with those of each of its `flavors`."""
    lending = {"lendingLimit": keys["lend"]} if "lend" in keys else {}
    quotas = keys.get("flavors") or ({"l4": keys["gpus"]} if "gpus" in keys else {})
    flavors = [
        {"name": flavor, "resources": [{"name": NVIDIA_GPU, "nominalQuota": gpus, **lending}]}
        for flavor, gpus in quotas.items()
    ]
    selects = {"matchLabels": keys["selects"]} if "selects" in keys else {}
    spec: Object = {"namespaceSelector": selects, "cohortName": keys.get("cohort")}
    spec |= {"stopPolicy": keys.get("stopPolicy"), "preemption": keys.get("preemption")}
    spec["resourceGroups"] = [{"coveredResources": [NVIDIA_GPU], "flavors": flavors}] if flavors else []
    return make("ClusterQueue", name, spec={**_stated(spec), **keys.get("spec", {})})


def _stated(content: Mapping[str, Any]) -> Object:
    return {key: value for key, value in content.items() if value is not None}


def _workload(kind: str, name: str, keys: Mapping[str, Any]) -> Object:
    """A workload whose pods use `gpus` each, by default one, on nodes of its `pool`, by default l4.

    `metadata`, `podMetadata`, `podSpec` and `spec` are keys of the object and of its pod template in full.
    """
    pool, gpus = keys.get("pool", "l4"), keys.get("gpus", 1)
    # Requests too: after a restart, as in a copy, Kueue counts a container with limits alone as nothing by topology.
    amount = {NVIDIA_GPU: gpus} if gpus else {}
    resources = {"limits": amount, "requests": {**amount, **keys.get("requests", {})}}
    image = keys.get("image", "registry.example.com/train:1")
    container = {"name": "main", "image": image, "resources": resources}
    pod = {
        "containers": [container],
        **({"nodeSelector": {GKE_NODEPOOL: pool}} if pool != "any" else {}),
        "tolerations": [{"key": NVIDIA_GPU, "operator": "Exists"}],
        **_stated({"priorityClassName": keys.get("priority")}),
        **keys.get("podSpec", {}),
    }
    metadata = merged({"labels": {"app": name}}, keys.get("podMetadata", {}))
    run = {"metadata": metadata, "spec": {**pod, "restartPolicy": "Never"}}
    pods = keys.get("pods", 1)
    job = {"parallelism": keys.get("parallelism", pods), "completions": pods, "backoffLimit": 100, "template": run}
    labels = {"labels": {QUEUE_LABEL: keys["queue"]}} if "queue" in keys else {}
    if kind == "job":
        made = make("Job", name, NAMESPACE, spec=job)
    elif kind == "jobset":
        replicated = [{"name": "worker", "replicas": 1, "template": {"spec": job}}]
        made = make("JobSet", name, NAMESPACE, spec={"replicatedJobs": replicated})
    else:
        template = {"metadata": metadata, "spec": pod}
        spec = {"replicas": keys.get("replicas", 1), "selector": {"matchLabels": {"app": name}}, "template": template}
        title = {"deployment": "Deployment", "statefulset": "StatefulSet"}[kind]
        spec |= {"serviceName": name} if kind == "statefulset" else {}
        made = make(title, name, NAMESPACE, spec=spec)
    made["spec"] |= keys.get("spec", {})
    made["metadata"] = merged(merged(made["metadata"], labels), keys.get("metadata", {}))
    return made


def pools(stated: Mapping[str, Any]) -> tuple[list[Object], list[Object]]:
    emulated: list[Object] = []
    listed: list[Object] = []
    for title in stated:
        kind, _, name = title.partition(" ")
        if kind != "pool":
            continue
        keys = stated[title]
        machine = keys.get("machine", MACHINE)
        limits = {"minNodeCount": keys.get("min"), "maxNodeCount": keys.get("max")}
        size = {"initialNodeCount": keys["nodes"]} if "nodes" in keys else {"autoscaling": {"enabled": True, **limits}}
        gpu: Object = {"acceleratorType": ACCELERATOR, "acceleratorCount": str(queue_cluster.GPUS_PER_NODE[machine])}
        gpu |= {"gpuDriverInstallationConfig": {"gpuDriverVersion": "LATEST"}}
        config = {"machineType": machine, "imageType": "COS_CONTAINERD", "accelerators": [gpu]}
        listed.append({"name": name, "locations": ZONES, "config": config, "status": "RUNNING", **size})
        nodes = {"nodes_per_zone": keys.get("nodes"), "min_nodes": keys.get("min"), "max_nodes": keys.get("max")}
        emulated.append({"name": name, "machine_type": machine, **_stated(nodes)})
    system = {"name": "system", "locations": ZONES, "config": {"machineType": "e2-standard-8"}, "initialNodeCount": 1}
    return emulated, [*listed, system]


# ---------------------------------------------------------------------------------------------------------- rehearsals
def decided(cluster: queue_cluster.QueueCluster, known: Collection[str]) -> bool:
    """Whether Kueue has decided on a Workload that is not known."""
    new = [item for item in cluster.workloads() if item["metadata"]["uid"] not in known]
    return any(condition(item, "QuotaReserved") for item in new)


@contextmanager
def running(base: Mapping[str, Any], folder: Path, release: str = KUEUE_VERSION) -> Iterator[Path]:
    """Runs a base on a cluster with a release of Kueue, and yields the file of its snapshot."""
    emulated, listed = pools(base)
    (folder / "pools.json").write_text(json.dumps(listed))
    manifests = objects(base)
    with fresh() as emulator:
        emulator.run("python", "-c", queue_cluster.MAKE)
        shutil.copy(queue_cluster.kubeconfig(emulator), emulator.state / "kubeconfig")
        setup = {"kueue": {"release": release}, "jobset": any(item["kind"] == "JobSet" for item in manifests)}
        plain.install_controllers(Scratch(emulator.state), setup)
        kubeconfig = ("--kubeconfig", str(queue_cluster.kubeconfig(emulator)))
        queue_cluster.set_pools(emulator, emulated)
        with queue_cluster.connect(emulator) as cluster:
            for number, item in enumerate(manifests):
                path = folder / "base" / f"{number:02}.yaml"
                path.parent.mkdir(exist_ok=True)
                path.write_text(yaml.safe_dump(item))
                known = {found["metadata"]["uid"] for found in cluster.workloads()}
                emulator.run("kubectl", *kubeconfig, "apply", "-f", str(path))
                if QUEUE_LABEL in item["metadata"].get("labels", {}) and item["kind"] != "Deployment":
                    # On a busy machine Kueue may see the next run first, and then prefer it.
                    eventually(partial(decided, cluster, known), f"Kueue decides on {item['metadata']['name']}")
                if item["kind"] in ("Job", "JobSet", "Deployment", "StatefulSet"):
                    cluster.settle(2)  # admitted in this order
            cluster.settle()
        snapshot = ("gke-ai", "snapshot", "--stack", "sample", *kubeconfig)
        text = emulator.run(*snapshot, "--pools", str(folder / "pools.json"))
    (folder / "snapshot.json").write_text(text)
    yield folder / "snapshot.json"


def rehearsed(change: Change, folder: Path, snapshot: Path | None) -> tuple[Forecast | None, str]:
    """Returns the result of a rehearsal, if it has one, and what it printed."""
    emulator, out = Emulator(folder / "state"), folder / f"{change.name}.json"
    sides = {name: folder / f"{change.name}-{name}" for name in ("base", "change")}
    if snapshot:
        for side, stated in (("base", None), ("change", change.change)):
            sides[side].mkdir()
            for number, item in enumerate(objects(change.base, stated)):
                (sides[side] / f"{number:02}.yaml").write_text(yaml.safe_dump(item))
        what = ["--manifests", str(sides["change"]), "--base", str(sides["base"]), "--snapshot", str(snapshot)]
    else:
        base = configured(change.example, change.base)
        for side, content in (("base", base), ("change", with_sections(base, change.change))):
            sides[side].write_text(yaml.safe_dump(content, sort_keys=False))
        what = ["--stack", "changed", "--config", str(sides["change"])]
        what += ["--upgrade", change.upgrade] if change.upgrade else ["--base", str(sides["base"])]
    printed = emulator.start("--tools", "all", "gke-ai", "rehearse", *what, "--json", str(out)).communicate()[0]
    return (read(out) if out.exists() else None), printed


def configured(example: str, sections: Mapping[str, Any]) -> Object:
    return with_sections(yaml.safe_load((ROOT / example).read_text()), sections)


def with_sections(content: Mapping[str, Any], sections: Mapping[str, Any]) -> Object:
    """A configuration with other keys of sections. None removes a section.

    Keys are those of the section, or of its first item if it is a list. A list has keys for each item, in order: None
    removes one, and one more is added.
    """
    result = copy.deepcopy(dict(content))
    for name, keys in sections.items():
        key = f"gke-ai:{name}"
        section = result["config"].get(key)
        if keys is None:
            result["config"].pop(key)
        elif isinstance(keys, list):
            pairs: Iterable[tuple[Object, Object | None]] = zip_longest(section, keys, fillvalue={})
            result["config"][key] = [merged(item, other) for item, other in pairs if other is not None]
        elif isinstance(section, dict):
            result["config"][key] = merged(section, keys)
        else:
            section[0] = merged(section[0], keys)
    return result


# --------------------------------------------------------------------------------------------------------------- facts
def facts_of(forecast: Forecast) -> Iterator[str]:
    """Yields what a forecast says, in the words of the file."""

    def short(name: WorkloadName) -> str:
        return f"{name.kind}/{name.name}"

    for fact, count in facts(forecast).items():
        if fact.outcome != "evicted":
            yield f"{short(fact.workload)} {fact.outcome}{f' x{count}' if count > 1 else ''}"
    for eviction in forecast.evictions:
        how = f"by {short(eviction.preemptor)}" if eviction.preemptor else f"({eviction.reason})"
        yield f"{short(eviction.workload)} evicted {how}"
    for wait in forecast.waits:
        if wait.reason == REFUSED:
            yield f"{short(wait.workload)} lacks pods{' forever' if wait.never else ''}"
    yield from (f"{short(start.workload)} passes the queue" for start in forecast.starts if not start.queue)
    for entry in forecast.interruptions:
        yield f"{short(entry.workload)} interrupted: {entry.cause} ({entry.pods} pods)"
    for server in forecast.servers:
        name = server.name.rpartition("/")[2]
        if server.wanted_before != server.wanted_after:
            yield f"server {name} {server.wanted_before} to {server.wanted_after}"
        if server.is_degraded:
            yield f"server {name} degraded to {server.fewest}"
    came, went = Counter[str](), Counter[str]()
    for pool in forecast.nodes:
        came[pool.pool] += pool.came
        went[pool.pool] += pool.went
    yield from (f"pool {pool} +{came[pool]} -{went[pool]}" for pool in came if came[pool] or went[pool])
    yield from (f"over quota: {entry.queues}" for entry in forecast.over_quota if not entry.before)
    if forecast.refused:
        yield CHANGE_REFUSED


def text_of(forecast: Forecast) -> str:
    """What a rehearsal says: its headline, its remarks, and each row of its tables with the title, on a line each."""
    rows = (f"{title}: {' | '.join(map(str, row))}" for title, _, listed in tables(forecast) for row in listed)
    return "\n".join([sentence(forecast), *remarks(forecast), *rows])


def judged(change: Change, forecast: Forecast | None, printed: str) -> Iterator[str]:
    """Yields what is wrong with a result. Nothing if it is right."""
    if forecast is None and CHANGE_REFUSED in change.expect and "The change is refused" in printed:
        # Nothing was applied, so there is no forecast.
        yield from (f"does not say: {pattern}" for pattern in change.says if not re.search(pattern, printed))
        return
    if forecast is None:
        yield f"no result: {printed.strip()[-2000:]}"
        return
    found = list(facts_of(forecast))
    yield from (f"missing: {fact}" for fact in change.expect if not _matches(fact, found))
    allowed = (*change.expect, *change.may)
    yield from (f"unexpected: {fact}" for fact in found if not any(_matches(known, [fact]) for known in allowed))
    text = text_of(forecast)
    yield from (f"does not say: {pattern}" for pattern in change.says if not re.search(pattern, text))
    yield from (f"says: {pattern}" for pattern in change.never if re.search(pattern, text))
    if not forecast.settled:
        yield "not settled"


def _matches(pattern: str, found: Iterable[str]) -> bool:
    return any(fact == pattern or fnmatch(fact, pattern) for fact in found)
