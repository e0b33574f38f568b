"""Reads from Kueue's Workloads what became of each, independently of the code of a rehearsal."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Object = Mapping[str, Any]


class Fate(NamedTuple):
    """What became of a workload.

    Attributes:
        workload: Namespace and name of the Job, JobSet or Deployment.
        outcome: `runs` (admitted before and after), `starts`, `waits`, `evicted` or `ended`. A workload that is evicted
            has a second fate: it waits, or starts again.
        preemptor: The workload that it was evicted for, in the same form. None if Kueue names none.
        flavor: The flavor of a workload that runs or starts.
    """

    workload: str
    outcome: str
    preemptor: str | None = None
    flavor: str | None = None


def conditions(workload: Object) -> dict[str, Object]:
    return {condition["type"]: condition for condition in workload.get("status", {}).get("conditions", [])}


def holds(workload: Object, condition: str) -> bool:
    return bool(conditions(workload).get(condition, {}).get("status") == "True")


def flavor_of(workload: Object) -> str | None:
    """The flavors that the workload is admitted to. A workload with several pod sets may have several."""
    assignments = workload.get("status", {}).get("admission", {}).get("podSetAssignments", [])
    return ",".join(sorted({flavor for item in assignments for flavor in item.get("flavors", {}).values()})) or None


def name_of(workload: Object) -> str:
    """Namespace and name of what the workload was created for. A pod has the name of its Deployment."""
    metadata = workload["metadata"]
    owner = next(iter(metadata.get("ownerReferences", [])), {"kind": "", "name": metadata["name"]})
    name = owner["name"].rsplit("-", 2)[0] if owner["kind"] == "Pod" else owner["name"]
    return f"{metadata['namespace']}/{name}"


PREEMPTOR = re.compile(r"Preempted to accommodate a workload \(UID: (?P<uid>[^,]+), JobUID: (?P<job>[^)]+)\)")


def fates(before: Sequence[Object], versions: Iterable[Object], after: Sequence[Object]) -> Counter[Fate]:
    """What became of each workload.

    The replicas of a server are workloads with the same name, so a fate may occur several times.

    Args:
        before: The Workloads before a change.
        versions: All versions of Workloads that a watch reported since, in order. A pod that is evicted is deleted with
            its Workload, so only the watch shows why.
        after: The Workloads at the end.
    """
    known = [*before, *versions, *after]
    names = {workload["metadata"]["uid"]: name_of(workload) for workload in known}
    evictions = evictions_of(before, known, names)
    earlier = {item["metadata"]["uid"]: item for item in before if not holds(item, "Finished")}
    later = {item["metadata"]["uid"]: item for item in after if not holds(item, "Finished")}
    result: Counter[Fate] = Counter()
    for uid in {**earlier, **later, **evictions}:
        result.update(_fates_of(names[uid], earlier.get(uid), later.get(uid), evictions.get(uid, [])))
    return result


def _fates_of(
    name: str, earlier: Object | None, later: Object | None, evictions: Sequence[str | None]
) -> Iterator[Fate]:
    yield from (Fate(name, "evicted", preemptor) for preemptor in evictions)
    if later is None:
        if not evictions:
            yield Fate(name, "ended")
    elif not holds(later, "Admitted"):
        yield Fate(name, "waits")
    elif earlier is not None and holds(earlier, "Admitted") and not evictions:
        yield Fate(name, "runs", flavor=flavor_of(later))
    else:
        yield Fate(name, "starts", flavor=flavor_of(later))


def evictions_of(
    before: Iterable[Object], known: Iterable[Object], names: Mapping[str, str]
) -> dict[str, list[str | None]]:
    """The evictions since `before`: the preemptor of each, by the uid of the evicted workload."""
    old = {key for workload in before for key in _eviction(workload)}
    new = {key: workload for workload in known for key in _eviction(workload) if key not in old}
    evictions: dict[str, list[str | None]] = {}
    for (uid, _), workload in new.items():
        message = str(conditions(workload)["Evicted"].get("message", ""))
        evictions.setdefault(uid, []).append(preemptor_in(message, names))
    return evictions


def _eviction(workload: Object) -> Iterator[tuple[str, str]]:
    if holds(workload, "Evicted"):
        yield workload["metadata"]["uid"], conditions(workload)["Evicted"]["lastTransitionTime"]


def preemptor_in(message: str, names: Mapping[str, str]) -> str | None:
    """The preemptor that a message of Kueue names by the uid of its Workload; None without one."""
    match = PREEMPTOR.search(message)
    return names.get(match["uid"], f"unknown workload {match['uid']}") if match else None
