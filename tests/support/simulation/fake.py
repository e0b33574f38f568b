"""A simple decider in place of Kueue, which shows the replay by itself: first come, first served, in one process."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from gke_ai.forecast.simulate.kueue import Counts, Log
from gke_ai.kube.objects import holds

Object = dict[str, Any]


class FirstComeFirstServed:
    """Admits the oldest Workloads that fit into a number of pods. A higher priority evicts the newest lower ones.

    `held` have their quota before their local queue exists. As in Kueue, the end of a Workload that gets quota from
    somebody else later makes it try none that wait.
    """

    def __init__(self, pods: int, queue: str, held: Iterable[Object] = ()) -> None:
        self._pods = pods
        self._queue = queue
        self._present: dict[str, Object] = {}
        self._changes: list[Object] = []
        self._looks = count()
        self.written: list[Object] = []
        self._unnoted: set[str] = set()
        self._changes += held
        self._present |= {item["metadata"]["name"]: item for item in self._changes}

    def write(self, puts: Iterable[Object], deletes: Iterable[Object]) -> None:
        ended = {item["metadata"]["name"] for item in deletes}
        for name in ended:
            del self._present[name]
        for item in puts:
            self.written.append(item)
            if self._reserves(item) and item["metadata"]["name"] not in self._present:
                self._unnoted.add(item["metadata"]["name"])
            self._present[item["metadata"]["name"]] = item
            if self._reserves(item):  # it has its quota already
                self._changes.append(item)
        if not ended or ended - self._unnoted:
            self._decide()

    def log(self) -> Log:
        """Each time one move more: this decider has always tried all that wait."""
        return Log({f"queue/{self._queue}": next(self._looks)})

    def counts(self) -> Counts:
        waiting = [item for item in self._present.values() if not self._reserves(item)]
        return Counts({self._queue: 0}, {self._queue: len(waiting)}, {self._queue: len(self._present) - len(waiting)})

    def sample(self, second: float, interval: float) -> None:
        """It knows no past usage."""

    def changes(self, seconds: float) -> Iterator[Object]:
        changes, self._changes = self._changes, []
        yield from changes

    @staticmethod
    def _reserves(item: Mapping[str, Any]) -> bool:
        return "admission" in item.get("status", {})

    def _free(self) -> int:
        return self._pods - _pods(item for item in self._present.values() if self._reserves(item))

    def _decide(self) -> None:
        waiting = [item for item in self._present.values() if not self._reserves(item)]
        waiting.sort(key=lambda item: (-item["spec"]["priority"], item["metadata"]["creationTimestamp"]))
        for item in waiting:
            wanted = item["spec"]["podSets"][0]["count"]
            if wanted <= self._free():
                self._set(item, {"admission": {}}, QuotaReserved="True", Admitted="True", Evicted="False")
                continue
            held = [other for other in self._present.values() if self._reserves(other)]
            lower = [other for other in held if other["spec"]["priority"] < item["spec"]["priority"]]
            lower.sort(key=lambda other: (holds(other, "Evicted"), _reserved_at(other)), reverse=True)
            victims = [other for index, other in enumerate(lower) if self._free() + _pods(lower[:index]) < wanted]
            if self._free() + _pods(victims) >= wanted:
                for other in victims:
                    if not holds(other, "Evicted"):
                        self._set(other, {"admission": {}}, QuotaReserved="True", Admitted="True", Evicted="True")
                return  # what they free is for this one

    def _set(self, item: Object, status: Object, **conditions: str) -> None:
        then = "2026-01-01T00:00:00Z"
        entries = [{"type": name, "status": it, "lastTransitionTime": then} for name, it in conditions.items()]
        changed = {**item, "status": {**status, "conditions": entries}}
        self._present[item["metadata"]["name"]] = changed
        self._changes.append(changed)


def _pods(items: Iterable[Mapping[str, Any]]) -> int:
    return sum(int(item["spec"]["podSets"][0]["count"]) for item in items)


def _reserved_at(item: Mapping[str, Any]) -> str:
    return next(str(c["lastTransitionTime"]) for c in item["status"]["conditions"] if c["type"] == "QuotaReserved")
