"""Until when the nodes of a run exist, if they are of reservations with an end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from math import inf

from gke_ai.catalog.machines.capacity import capacity_until, moment
from gke_ai.catalog.nodes.shape import NodeShape, node_labels
from gke_ai.forecast.rehearse.pools import records
from gke_ai.forecast.render.measures import duration
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.forecast.when.answer import Answer
from gke_ai.formats.sentences import join_names
from gke_ai.kube.pods import requests
from gke_ai.kube.queues import flavors_of
from gke_ai.kube.values import items, list_at, mapping


def ends(snapshot: Snapshot, flavors: Iterable[str]) -> dict[str, datetime]:
    """Returns when the last nodes of flavors end, of those flavors whose nodes all have an end."""
    nodes = [*_labels(snapshot)]
    specs = {item["metadata"]["name"]: item.get("spec") or {} for item in snapshot.of("ResourceFlavor")}
    found = {}
    for flavor in flavors:
        wanted = (specs.get(flavor, {}).get("nodeLabels") or {}).items()
        of_nodes = [capacity_until(labels) for labels in nodes if wanted and wanted <= labels.items()]
        known = [end for end in of_nodes if end]
        if known and len(known) == len(of_nodes):
            found[flavor] = max(known)
    return found


def choices(found: Answer, snapshot: Snapshot) -> list[list[str]]:
    """Returns the flavors that a run has, or that its queue can give it, by resource group."""
    if found.flavors:
        return [[name] for name in found.flavors]
    pod_sets = items(found.workload, "spec", "podSets")
    wanted = {name for item in pod_sets for name in requests(mapping(item, "template", "spec"))}
    queues = [item for item in snapshot.of("ClusterQueue") if item["metadata"]["name"] == found.queue]
    return [
        names
        for item in queues
        for names, group in zip(flavors_of(item), items(item, "spec", "resourceGroups"), strict=True)
        if wanted.intersection(list_at(group, "coveredResources"))
    ]


def left(ends: Mapping[str, datetime], groups: Iterable[Iterable[str]], now: datetime) -> float:
    """Returns the seconds for which nodes of each group of flavors exist. Infinite: no end is known."""
    seconds = {name: (end - now).total_seconds() for name, end in ends.items()}
    return min((max(seconds.get(name, inf) for name in names) for names in groups), default=inf)


def notes(found: Mapping[str, datetime], now: datetime) -> Iterator[str]:
    """Yields a sentence on the flavors of each end."""
    for end in sorted({*found.values()}):
        names = join_names([name for name, other in found.items() if other == end])
        if end <= now:
            yield f"The nodes of flavor {names} were deleted at {moment(end)}: its pods would wait forever."
        else:
            yield (
                f"The nodes of flavor {names} are deleted at {moment(end)}, in "
                f"{duration((end - now).total_seconds())}. A run that is not done by then is interrupted, and its pods "
                "wait for nodes that do not come back."
            )


def _labels(snapshot: Snapshot) -> Iterator[Mapping[str, str]]:
    """Yields the labels of each node, and of those that the autoscaler may add."""
    for node in snapshot.of("Node"):
        yield node["metadata"].get("labels") or {}
    for pool in records(snapshot)[0]:
        yield node_labels(
            NodeShape(
                pool=pool["name"],
                machine_type=pool["machine_type"],
                gpu=pool["gpu"],
                gpus=pool["gpus"],
                capacity=pool["capacity"],
                zone=pool["zones"][0],
                labels=pool["labels"],
                topology=pool["topology"],
            )
        )
