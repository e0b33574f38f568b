"""Keeps a ledger of accelerator time, and holds local queues by budget and by hours. Standard library only.

A CronJob starts it each minute. A run takes up Kueue's Workloads where the last one stopped: the ledger has the
resource version up to which it has counted, and is written together with what it counted. So a run that is killed
changes nothing, and the next one reads the same changes again, also of Workloads that are deleted meanwhile.

The API server keeps changes for 75 seconds, and longer if they are few:
https://github.com/kubernetes/kubernetes/blob/v1.36.1/staging/src/k8s.io/apiserver/pkg/storage/cacher/watch_cache.go
After a longer break, the run lists all Workloads. Kueue adds each interval that has ended to a field of the Workload,
in whole seconds between the times of its conditions, so only the time of those that were deleted then is not known:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/admissionchecks.go
"""

from __future__ import annotations

import calendar
import contextlib
import http.client
import json
import os
import signal
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

Object = dict[str, Any]
MANAGER = "gke-ai-ledger"
BUDGET, HELD = "gke-ai/budget", "gke-ai/held"
CONFIG_MAP, KEY = "ledger", "ledger.json"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
# A run ends before the next one starts. It saves after each watch, so that is how much a killed run reads again.
RUN_SECONDS, WATCH_SECONDS = 45, 10
# For as long after its end a finished Workload is remembered by name. Later, its time alone says that it is counted.
REMEMBERED_SECONDS = 3600
KEPT_MONTHS = 13
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


# -------------------------------------------------------------------------------------------------------------- ledger
class Ledger:
    """Accelerator-seconds by month, namespace and flavor, and the Workloads that add to them.

    Times are seconds since 1970. `open` has the Workloads that Kueue admitted and that have not finished: their
    namespace, what Kueue has accumulated of them, since when they are admitted (None: evicted), and their use.
    """

    def __init__(self, stored: Mapping[str, Any], resources: list[str]) -> None:
        self.resources = resources
        self.version: str = stored.get("version", "")
        self.at: int = stored.get("at", 0)
        self.since: int = stored.get("since", 0)
        self.open: dict[str, list[Any]] = stored.get("open", {})
        self.finished: dict[str, int] = stored.get("finished", {})
        self.forgotten: int = stored.get("forgotten", 0)
        self.months: dict[str, dict[str, dict[str, int]]] = stored.get("months", {})
        self.unknown: dict[str, dict[str, dict[str, int]]] = stored.get("unknown", {})

    def stored(self) -> Object:
        """The ledger as it is written: its size depends on the Workloads of now, not on those of the month."""
        self.forgotten = max(self.forgotten, max(self.finished.values(), default=0) - REMEMBERED_SECONDS)
        self.finished = {uid: end for uid, end in self.finished.items() if end > self.forgotten}
        for totals in (self.months, self.unknown):
            for month in sorted(totals)[:-KEPT_MONTHS]:
                del totals[month]
        names = ("version", "at", "since", "open", "finished", "forgotten", "months", "unknown")
        return {name: getattr(self, name) for name in names}

    def change(self, event: Object, now: int) -> None:
        """Counts a change of a Workload."""
        workload = event["object"]
        if event["type"] != "BOOKMARK":
            self._read(workload, now, event["type"] == "DELETED")
        self.version = workload["metadata"]["resourceVersion"]

    def catch_up(self, workloads: Iterable[Object], now: int) -> None:
        """Counts what has changed since the last reading, from all Workloads. Nobody knows when a missing one ended."""
        listed, earliest = set(), now
        for workload in workloads:
            self._read(workload, now, deleted=False)
            listed.add(workload["metadata"]["uid"])
            earliest = min(earliest, seconds_of(workload["metadata"]["creationTimestamp"]))
        self.since = self.since or earliest
        for uid in self.open.keys() - listed:
            namespace, _, since, use = self.open.pop(uid)
            if since is not None:
                last = max(self.at, since)
                self._book(self.months, namespace, use, since, last)
                self._book(self.unknown, namespace, use, last, now)

    def _read(self, workload: Object, now: int, deleted: bool) -> None:
        metadata, status = workload["metadata"], workload.get("status", {})
        uid, namespace = metadata["uid"], metadata["namespace"]
        conditions = {item["type"]: item for item in status.get("conditions", [])}
        admitted, end = holds(conditions.get("Admitted")), holds(conditions.get("Finished"))
        if uid in self.finished or (end is not None and uid not in self.open and end <= self.forgotten):
            if deleted:
                self.finished.pop(uid, None)
            return
        _, before, since, earlier = self.open.pop(uid, [namespace, 0, None, {}])
        use = self._use(status.get("admission") or {}) or earlier
        total = status.get("accumulatedPastExecutionTimeSeconds") or 0
        # Kueue clears the field of a Workload that reaches its maximum execution time, and then counts from zero.
        if past := total - before if total >= before else (0 if admitted == since else total):
            changed = seconds_of(conditions["Admitted"]["lastTransitionTime"])
            start = since if since is not None else changed - past
            self._book(self.months, namespace, earlier or use, start, start + past)
        if deleted and end is None:
            end = seconds_of(metadata["deletionTimestamp"]) if "deletionTimestamp" in metadata else now
        elif end is not None:
            self.finished[uid] = end
        if end is None and (admitted is not None or total):
            # What is not known to have been used is counted at the next admission.
            self.open[uid] = [namespace, total if use else before, admitted, use]
        elif end is not None and admitted is not None:
            self._book(self.months, namespace, use, admitted, end)

    def _use(self, admission: Object) -> dict[str, int]:
        """Accelerators that Kueue admitted, by flavor."""
        use: dict[str, int] = {}
        for part in admission.get("podSetAssignments", []):
            for resource, flavor in part.get("flavors", {}).items():
                if resource in self.resources:
                    use[flavor] = use.get(flavor, 0) + whole(part.get("resourceUsage", {}).get(resource, "0"))
        return use

    def _book(
        self, totals: dict[str, dict[str, dict[str, int]]], namespace: str, use: Mapping[str, int], start: int, end: int
    ) -> None:
        while use and start < end:
            month, following = month_of(start)
            until = min(end, following)
            by_flavor = totals.setdefault(month, {}).setdefault(namespace, {})
            for flavor, count in use.items():
                by_flavor[flavor] = by_flavor.get(flavor, 0) + count * (until - start)
            start = until

    def used(self, namespace: str, now: int) -> dict[str, int]:
        """Accelerator-seconds of a namespace in the month of `now`, by flavor, with those of running Workloads."""
        month, _ = month_of(now)
        totals = {month: {namespace: dict(self.months.get(month, {}).get(namespace, {}))}}
        for owner, _, since, use in self.open.values():
            if owner == namespace and since is not None:
                self._book(totals, namespace, use, since, now)
        return totals[month][namespace]


def holds(condition: Object | None) -> int | None:
    """Since when a condition is true, or None."""
    return seconds_of(condition["lastTransitionTime"]) if condition and condition["status"] == "True" else None


def seconds_of(text: str) -> int:
    """A time of the API, which has whole seconds."""
    return int(datetime.fromisoformat(text).timestamp())


def whole(quantity: str) -> int:
    """A quantity of accelerators: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""
    return int(quantity[:-1]) * 1000 if quantity.endswith("k") else int(quantity)


def month_of(moment: int) -> tuple[str, int]:
    """The calendar month of a time in UTC, and when the next one begins."""
    date = datetime.fromtimestamp(moment, UTC)
    following = (date.year + date.month // 12, date.month % 12 + 1, 1, 0, 0, 0)
    return f"{date:%Y-%m}", calendar.timegm(following)


# ------------------------------------------------------------------------------------------------------------- budgets
def spent(budget: Object, used: Mapping[str, int]) -> Iterator[tuple[float, float, str]]:
    """What is used of each limit of a budget: the number, the limit and the unit."""
    if limit := budget.get("acceleratorHours"):
        yield sum(used.values()) / 3600, limit, "accelerator-hours"
    if limit := budget.get("amount"):
        cost = sum(seconds / 3600 * budget["rates"].get(flavor, 0) for flavor, seconds in used.items())
        yield cost, limit, f"{budget['currency']} at prices of {budget['date']}"


def judge(budget: Object, used: Mapping[str, int], since: int, now: int) -> tuple[str, bool]:
    """What a budget's state is in words, and whether it is exhausted."""
    month, following = month_of(now)
    begin = max(since, calendar.timegm(time.strptime(month, "%Y-%m")))
    parts, exhausted, ends = [], False, float(following)
    for number, limit, unit in spent(budget, used):
        parts.append(f"used {shown(number)} of {shown(limit)} {unit}")
        exhausted |= number >= limit
        if number > 0:
            ends = min(ends, now + (limit - number) * (now - begin) / number)
    text = " and ".join(parts)
    if exhausted:
        return f"{text}; new work waits until {day(following)}", True
    warned = any(number >= limit * budget["warnAt"] for number, limit, _ in spent(budget, used))
    forecast = f"at this rate exhausted on {day(ends)}" if ends < following else "at this rate it lasts for the month"
    return f"{'warning: ' if warned else ''}{text}; {forecast}", False


def shown(number: float) -> str:
    """A number without digits that change each minute."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def day(moment: float) -> str:
    """A date in words."""
    date = datetime.fromtimestamp(moment, UTC)
    return f"{date.day} {date:%B}"


# --------------------------------------------------------------------------------------------------------------- hours
def opens(hours: list[Object], zone: str, now: int) -> str | None:
    """None within the hours of the week; outside, when they begin, in words."""
    local = datetime.fromtimestamp(now, ZoneInfo(zone))
    begins = []
    for window in hours:
        for offset in range(-1, 8):
            midnight = (local + timedelta(days=offset)).replace(hour=0, minute=0, second=0, microsecond=0)
            if DAYS[midnight.weekday()] in window["days"]:
                start, end = (at(midnight, window[key]) for key in ("start", "end"))
                if end <= start:
                    end = at(midnight + timedelta(days=1), window["end"])
                if start <= local < end:
                    return None
                begins.append(start)
    return f"{min(begin for begin in begins if begin > local):%A %H:%M} ({zone})"


def at(midnight: datetime, clock: str) -> datetime:
    """A time of a day, on the clock of its zone."""
    hour, minute = map(int, clock.split(":"))
    return midnight + timedelta(hours=hour, minutes=minute)


# ------------------------------------------------------------------------------------------------------------- cluster
class Api:
    """The API server, as the service account of the pod."""

    def __init__(self) -> None:
        folder = Path(os.environ.get("SERVICE_ACCOUNT_FOLDER", "/var/run/secrets/kubernetes.io/serviceaccount"))
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        self._server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        self._token, self._tls = folder / "token", ssl.create_default_context(cafile=str(folder / "ca.crt"))

    @contextlib.contextmanager
    def open(self, method: str, path: str, body: Object | None, **query: str) -> Iterator[Any]:
        """The response to a request. Raises HTTPError."""
        url = f"{self._server}{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, json.dumps(body).encode() if body else None, method=method)
        request.add_header("Authorization", f"Bearer {self._token.read_text()}")
        patch = method == "PATCH"  # JSON is YAML too
        request.add_header("Content-Type", "application/apply-patch+yaml" if patch else "application/json")
        with urllib.request.urlopen(request, timeout=WATCH_SECONDS + 30, context=self._tls) as response:
            yield response

    def call(self, method: str, path: str, body: Object | None = None, **query: str) -> Object:
        """The object in the response."""
        with self.open(method, path, body, **query) as response:
            answer: Object = json.load(response)
            return answer


class Expired(Exception):
    """The API server no longer has the changes since the ledger's version."""


class Run:
    """One run: counts, saves and acts until its time is over."""

    def __init__(self, api: Api, namespace: str, config: Object) -> None:
        self._api, self._config = api, config
        self._maps = f"/api/v1/namespaces/{namespace}/configmaps"
        try:
            self._map: Object | None = api.call("GET", f"{self._maps}/{CONFIG_MAP}")
        except urllib.error.HTTPError as error:
            if error.code != http.client.NOT_FOUND:
                raise
            self._map = None
        stored = json.loads(self._map["data"][KEY]) if self._map else {}
        self.ledger = Ledger(stored, config["resources"])

    def step(self, seconds: int) -> None:
        """Counts the changes of some seconds, saves them, and holds or releases queues."""
        try:
            if not self.ledger.version:
                raise Expired
            self._watch(seconds)
        except Expired:
            self.ledger.catch_up(self._all(), int(time.time()))
        self.ledger.at = int(time.time())
        self._save()
        self.act(self.ledger.at)

    def _all(self) -> Iterator[Object]:
        """All Workloads, a page at a time. The next watch begins where the list was made."""
        following: dict[str, str] = {}
        while True:
            page = self._api.call("GET", f"{KUEUE}/workloads", None, limit="500", **following)
            yield from page["items"]
            if not page["metadata"].get("continue"):
                break
            following = {"continue": page["metadata"]["continue"]}
        self.ledger.version = page["metadata"]["resourceVersion"]

    def _watch(self, seconds: int) -> None:
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        try:
            with self._api.open(
                "GET", f"{KUEUE}/workloads", None, resourceVersion=self.ledger.version, **query
            ) as lines:
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise Expired
                    self.ledger.change(event, int(time.time()))
        except urllib.error.HTTPError as error:
            raise (Expired if error.code == http.client.GONE else error) from None

    def _save(self) -> None:
        """Writes the ledger, unless another run has: then this one ends."""
        data = {KEY: json.dumps(self.ledger.stored(), separators=(",", ":"))}
        if self._map is None:
            body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": data}
            self._map = self._api.call("POST", self._maps, body)
        elif data != self._map["data"]:
            metadata = {"name": CONFIG_MAP, "resourceVersion": self._map["metadata"]["resourceVersion"]}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
            self._map = self._api.call("PUT", f"{self._maps}/{CONFIG_MAP}", body)

    def act(self, now: int) -> None:
        """Holds the queues whose budget is exhausted or whose hours are over, and releases its own holds."""
        for queue in self._config["queues"]:
            notes, reasons = {}, []
            if budget := self._config["budgets"].get(queue["namespace"]):
                used = self.ledger.used(queue["namespace"], now)
                notes[BUDGET], exhausted = judge(budget, used, self.ledger.since, now)
                reasons += [f"budget {notes[BUDGET]}"] if exhausted else []
            if queue.get("hours") and (begin := opens(queue["hours"], self._config["timeZone"], now)):
                reasons.append(f"hours: new work waits until {begin}")
            try:
                self._hold(queue["namespace"], queue["name"], notes, "; ".join(reasons))
            except urllib.error.HTTPError as error:  # such as a queue that does not exist any more
                print(f"{queue['namespace']}/{queue['name']}: {error}", flush=True)

    def _hold(self, namespace: str, name: str, notes: dict[str, str], reason: str) -> None:
        """Applies a queue's notes, and a hold where nobody else has one. What is not applied any more is removed."""
        path = f"{KUEUE}/namespaces/{namespace}/localqueues/{name}"
        live = self._api.call("GET", path)
        own: Object = next((entry for entry in live["metadata"]["managedFields"] if entry["manager"] == MANAGER), {})
        holding = "f:stopPolicy" in own.get("fieldsV1", {}).get("f:spec", {})
        free = live["spec"].get("stopPolicy", "None") == "None"
        hold = bool(reason) and (holding or free)
        if hold:
            notes = {**notes, HELD: reason}
        written = live["metadata"].get("annotations", {})
        if hold == holding and notes == {key: written[key] for key in (BUDGET, HELD) if key in written}:
            return
        body: Object = {"apiVersion": KUEUE.removeprefix("/apis/"), "kind": "LocalQueue"}
        body["metadata"] = {"name": name, "annotations": notes}
        body["spec"] = {"stopPolicy": "Hold"} if hold else {}
        # By force: whoever created the queue may own the default of the field.
        self._api.call("PATCH", path, body, fieldManager=MANAGER, force="true")
        print(f"{namespace}/{name}: {reason or notes.get(BUDGET, 'open')}", flush=True)


def main() -> int:
    """Runs for most of a minute."""
    # The first process of a container ignores a signal without a handler. What is not saved is read again.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    end = time.monotonic() + RUN_SECONDS
    try:
        run = Run(Api(), os.environ["NAMESPACE"], json.loads(Path(os.environ["CONFIG"]).read_text()))
        run.step(1)  # saves at once what changed since the last run
        while (left := end - time.monotonic()) > 0:
            run.step(max(1, min(WATCH_SECONDS, int(left))))
    except (OSError, ValueError, http.client.HTTPException) as error:  # of the connection, or a line that ends early
        print(f"error: {error}. The next run continues.", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
