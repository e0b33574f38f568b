"""What Kueue decided about one run that was submitted to a restored cluster, and who is before it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from math import inf

from gke_ai.catalog.kueue.cohort_tree import ancestry
from gke_ai.forecast.outcome.outcome import outcome
from gke_ai.forecast.outcome.queue import flavor_of
from gke_ai.forecast.outcome.reasons import NO_NODE, why_it_waits
from gke_ai.forecast.outcome.timeline import History, Timeline, histories
from gke_ai.forecast.result.forecast import Eviction
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import Object, condition, holds, key_of
from gke_ai.kube.queues import held, requested

Amounts = Mapping[str, Fraction]


@dataclass(frozen=True)
class Run:
    """Another run: its cluster queue, priority and requests. `seconds` is how long it has run."""

    name: str
    queue: str
    priority: int
    requests: Amounts
    seconds: float = 0.0


@dataclass(frozen=True)
class Answer:
    """What Kueue decides about a run.

    Attributes:
        run: The run, by the stable name of its object.
        queue: Its cluster queue.
        admitted: Whether Kueue admits it.
        flavors: The flavors that it gets.
        pods: Its admitted pods, which are fewer than requested after a partial admission.
        requested: The pods that it requests.
        preempts: Runs that Kueue evicts for it.
        waits_for: What it waits for, if Kueue does not admit it.
        never: Why it would wait in an empty cluster too. Empty: it would start there.
        no_node: Why no node fits its pods, if Kueue admits it.
        lacks: What pods of it wait for besides a node, if Kueue admits it: a gate, or room in a ResourceQuota.
        ahead: Waiting runs that Kueue tries first.
        holders: Runs that hold quota of its cohort in the flavors that it could have.
        waits: Seconds until it starts in replays of the queue, in order. Infinite: not at all. Empty: none was asked.
        left: Seconds for which nodes of its flavors exist. Infinite: no end is known.
        workload: Its Workload.
    """

    run: str
    queue: str
    admitted: bool = False
    flavors: tuple[str, ...] = ()
    pods: int = 0
    requested: int = 0
    preempts: tuple[Eviction, ...] = ()
    waits_for: str = ""
    never: str = ""
    no_node: str = ""
    lacks: str = ""
    ahead: tuple[Run, ...] = ()
    holders: tuple[Run, ...] = ()
    waits: tuple[float, ...] = ()
    left: float = inf
    workload: Object = field(default_factory=dict, compare=False, repr=False)

    @property
    def starts(self) -> bool:
        """Whether it starts without waiting for another run to end by itself."""
        return self.admitted or bool(self.preempts)


def own_workload(timeline: Timeline, name: WorkloadName) -> Object | None:
    """Returns the newest version of the Workload of a run. None if Kueue has created none."""
    own = _own(timeline, name)
    return own.last if own else None


def is_decided(workload: Object) -> bool:
    """Whether Kueue has admitted a Workload, has given it quota, or has said why not."""
    return holds(workload, "Admitted") or bool(condition(workload, "QuotaReserved").get("message"))


def answer(timeline: Timeline, name: WorkloadName, queue: str) -> Answer:
    """Returns what Kueue decided about a run that was submitted when the timeline began."""
    found = outcome(timeline)
    own = _own(timeline, name)
    assert own, name
    admitted = any(start.workload == name for start in found.starts)
    last = next((version for _, version in reversed(own.versions) if holds(version, "Admitted")), own.last)
    own_waits = [wait for wait in found.waits if wait.workload == name]
    wait = next((wait for wait in own_waits if wait.reason != NO_NODE), None)
    assignments = ((last.get("status") or {}).get("admission") or {}).get("podSetAssignments") or []
    return Answer(
        str(name),
        queue,
        admitted=admitted,
        flavors=tuple(filter(None, flavor_of(last).split(", "))),
        pods=sum(int(item.get("count", 1)) for item in assignments),
        requested=sum(int(item.get("count", 1)) for item in last["spec"]["podSets"]),
        preempts=tuple(eviction for eviction in found.evictions if eviction.preemptor == name),
        waits_for="" if admitted else wait.text if wait else why_it_waits(own.last)[1],
        never=wait.text if wait and wait.never and not admitted else "",
        lacks=wait.text if wait and admitted else "",
        no_node=next((wait.text for wait in own_waits if wait.reason == NO_NODE), ""),
        workload=own.last,
    )


def _own(timeline: Timeline, name: WorkloadName) -> History | None:
    workloads = histories(timeline).get("Workload", {}).values()
    return next((history for history in workloads if history.gone is None and _name(history.last) == name), None)


def roots(queues: Iterable[Object], cohorts: Iterable[Object]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the outermost cohort of each cluster queue and of each cohort. A queue alone has none."""
    parents = {item["metadata"]["name"]: (item.get("spec") or {}).get("parentName") or "" for item in cohorts}

    def root(cohort: str) -> str:
        return ancestry(cohort, parents)[-1] if cohort else ""

    of_queues = {item["metadata"]["name"]: root(item["spec"].get("cohortName") or "") for item in queues}
    return of_queues, {name: root(name) for name in parents}


def sharing(queue: str, of_queues: Mapping[str, str]) -> list[str]:
    """Returns the cluster queues that share quota with one, and itself, from their outermost cohorts."""
    own = of_queues.get(queue, "")
    return [name for name, root in of_queues.items() if name == queue or (own and root == own)]


def holders(
    workloads: Iterable[Object], queues: Collection[str], cells: Collection[tuple[str, str]], now: datetime
) -> Iterator[Run]:
    """Yields the runs of cluster queues that hold quota of some flavors and resources, the largest first."""
    found = []
    for item in workloads:
        admission = (item.get("status") or {}).get("admission") or {}
        if admission.get("clusterQueue") not in queues or holds(item, "Finished"):
            continue
        used: dict[str, Fraction] = defaultdict(Fraction)
        for (flavor, resource), amount in held(item).items():
            if (flavor, resource) in cells:
                used[resource] += amount
        if any(used.values()):
            since = datetime.fromisoformat(condition(item, "QuotaReserved")["lastTransitionTime"])
            found.append(_run(item, admission["clusterQueue"], used, (now - since).total_seconds()))
    yield from sorted(found, key=lambda run: (*(-amount for _, amount in sorted(run.requests.items())), run.name))


def in_order(workloads: Iterable[Object], local_queues: Iterable[Object], queue: str) -> Iterator[tuple[str, str]]:
    """Yields the waiting Workloads of a cluster queue in Kueue's order, by namespace and name.

    https://github.com/kubernetes-sigs/kueue/blob/v0.16.2/pkg/workload/workload.go, GetQueueOrderTimestamp
    """
    sources = {key_of(item) for item in local_queues if item["spec"].get("clusterQueue") == queue}
    queued = [
        item
        for item in workloads
        if (item["metadata"]["namespace"], item["spec"].get("queueName")) in sources
        and item["spec"].get("active", True)
        and not holds(item, "QuotaReserved")
        and not holds(item, "Finished")
    ]
    yield from map(key_of, sorted(queued, key=_turn))


def _turn(item: Object) -> tuple[int, str, str]:
    """The higher priority first, then the older one. Who was evicted for these reasons queues again from then on."""
    evicted = condition(item, "Evicted")
    again = evicted.get("status") == "True" and evicted.get("reason") in ("PodsReadyTimeout", "AdmissionCheck")
    since = evicted["lastTransitionTime"] if again else item["metadata"]["creationTimestamp"]
    return -int(item["spec"].get("priority") or 0), str(since), str(item["metadata"]["uid"])


def waiting(item: Object, queue: str) -> Run:
    """Returns a waiting run with the requests that Kueue counts."""
    return _run(item, queue, requested(item))


def _run(item: Object, queue: str, requests: Amounts, seconds: float = 0.0) -> Run:
    return Run(str(_name(item)), queue, int(item["spec"].get("priority") or 0), requests, seconds)


def _name(item: Object) -> WorkloadName:
    return WorkloadName.of_workload(item, {})
