"""The questions of questions.yaml: clusters in namespaces of their own, a run, and what Kueue publicly does with it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from tests.support.rehearsal.scenario import make

Object = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """A cluster, a run, and the answer.

    Attributes:
        name: Namespace, and prefix of what is in none.
        source: Number of the issue of kubernetes-sigs/kueue.
        objects: What the cluster runs.
        run: The run.
        starts: Whether Kueue admits it, perhaps after preemptions.
        flavors: The flavors that it gets, without prefix.
        pods: The pods that Kueue admits. 0: all, or none.
        preempts: The runs that it preempts.
        never: Whether it would wait in an empty cluster too.
        ahead: Runs that are before it.
        waits_for: What it waits for, in part.
        lacks: What some of its pods wait for although Kueue admits it, in part.
        pools: GPU pools that the cluster has.
    """

    name: str
    source: int
    objects: tuple[Object, ...]
    run: Object
    starts: bool = False
    flavors: tuple[str, ...] = ()
    pods: int = 0
    preempts: tuple[str, ...] = ()
    never: bool = False
    ahead: tuple[str, ...] = ()
    waits_for: str = ""
    lacks: str = ""
    pools: tuple[Object, ...] = ()


def _job(
    space: str,
    name: str,
    queue: str,
    pods: int,
    cpu: str = "1",
    priority: str = "",
    limits: Object | None = None,
    annotations: Object | None = None,
    **pod: Object,
) -> Object:
    """A Job of pods that request CPU, or have limits alone. `podSpec` and `podAnnotations` are those of its pods."""
    labels = {QUEUE_LABEL: queue, **({"kueue.x-k8s.io/priority-class": f"{space}-{priority}"} if priority else {})}
    resources = {"limits": limits} if limits else {"requests": {"cpu": cpu}}
    container = {"name": "main", "image": "registry.example.com/x:1", "resources": resources}
    template: Object = {"spec": {"restartPolicy": "Never", "containers": [container], **pod.get("podSpec", {})}}
    template |= {"metadata": {"annotations": pod["podAnnotations"]}} if "podAnnotations" in pod else {}
    spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": template}
    item = make("Job", name, space, spec=spec)
    item["metadata"] |= {"labels": labels, "annotations": annotations or {}}
    return item


def _objects(space: str, row: Object) -> Iterator[Object]:
    yield make("Namespace", space)
    yield from (make(**stated) for stated in row.get("objects", ()))
    for name, spec in row["flavors"].items():
        yield make("ResourceFlavor", f"{space}-{name}", spec=spec)
    for name, value in row.get("priorities", {}).items():
        yield make("WorkloadPriorityClass", f"{space}-{name}", value=value)
    for name, stated in row["queues"].items():
        listed = [
            {"name": f"{space}-{key}", "resources": [{"name": "cpu", "nominalQuota": quota}]}
            for key, quota in stated["quotas"].items()
        ]
        spec = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": listed}], "namespaceSelector": {}}
        spec |= {key: value for key, value in stated.items() if key != "quotas"}
        spec |= {"cohortName": f"{space}-{stated['cohortName']}"} if "cohortName" in stated else {}
        yield make("ClusterQueue", f"{space}-{name}", spec=spec)
        yield make("LocalQueue", name, space, spec={"clusterQueue": f"{space}-{name}"})
    yield from (_job(space, **stated) for stated in row.get("jobs", ()))


def _question(space: str, row: Object) -> Question:
    run = make(**row["run"]) if "kind" in row["run"] else _job(space, **row["run"])
    answer: Object = {
        key: tuple(value) if isinstance(value, list) else value for key, value in row.get("answer", {}).items()
    }
    return Question(space, row["source"], tuple(_objects(space, row)), run, pools=tuple(row.get("pools", ())), **answer)


_ROWS: dict[str, Object] = yaml.load(Path(__file__).with_suffix(".yaml").read_text(), yaml.CSafeLoader)
QUESTIONS = tuple(_question(space, row) for space, row in _ROWS.items())
