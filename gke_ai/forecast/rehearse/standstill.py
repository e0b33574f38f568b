"""Watches an upgrade of Kueue and JobSet: how long they admit nothing, and which API versions they store.

It asks the webhooks for objects that are not created, and reads the lease of Kueue's leader, which alone admits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from gke_ai.catalog.kueue.namespaces import KUEUE
from gke_ai.catalog.versions import EARLIER_JOBSET_VERSION, EARLIER_KUEUE_VERSIONS, JOBSET_VERSION, KUEUE_VERSION
from gke_ai.forecast.rehearse.restore import SERVER_ERROR, probe
from gke_ai.formats.sentences import join_names, plural
from gke_ai.kube.client import ApiClient, client_of, request
from gke_ai.terminal import Stop

LOOK_EVERY = 0.2
FOUND = 200
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# https://github.com/kubernetes-sigs/kueue, charts/kueue/values.yaml: leaderElection.resourceName
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{KUEUE}/leases/c1f6bfd2.kueue.x-k8s.io"


class Release(NamedTuple):
    """A release that the program pins.

    Its title, its key in the queues, the earlier versions that the emulator has, the pinned one, a kind that its
    webhook checks, and its API group.
    """

    title: str
    key: str
    earlier: tuple[str, ...]
    pinned: str
    kind: str
    group: str


RELEASES: Mapping[str, Release] = {
    "kueue": Release(
        *("Kueue", "kueueVersion", EARLIER_KUEUE_VERSIONS, KUEUE_VERSION), "ResourceFlavor", "kueue.x-k8s.io"
    ),
    "jobset": Release(
        *("JobSet", "jobsetVersion", (EARLIER_JOBSET_VERSION,), JOBSET_VERSION), "JobSet", "jobset.x-k8s.io"
    ),
}


class Standstill:
    """Watches the releases of a cluster in a thread, until it is stopped."""

    def __init__(self, kubeconfig: str, releases: Collection[Release]) -> None:
        self._api: ApiClient = client_of(kubeconfig, 1)
        self._watched = releases
        self._answers: dict[str, list[tuple[float, bool]]] = {watched.title: [] for watched in self._watched}
        self._leases: list[Mapping[str, Any]] = []
        self._before = self._versions()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch."""
        self._ended.set()
        self._thread.join()

    def notes(self) -> Iterator[str]:
        """Yields what was seen."""
        for title, answers in self._answers.items():
            if seconds := round(refused(answers)):
                yield f"For {plural(seconds, 'second')} on this machine, {title}'s webhook refused new objects."
        if seconds := round(leaderless(self._leases)):
            yield f"For at most {plural(seconds, 'second')} on this machine, Kueue had no leader and admitted nothing."
        if any(refused(answers) for answers in self._answers.values()):
            yield "On Google Cloud, add the time in which a node pulls the images of the managers."
        after = self._versions()
        for watched in self._watched:
            yield from conversions(watched.title, self._before[watched.title], after[watched.title])

    def _versions(self) -> dict[str, list[Mapping[str, Any]]]:
        """The CRDs of each release."""
        crds = request(self._api, "GET", CRDS).body["items"]
        return {
            watched.title: [crd for crd in crds if crd["spec"]["group"] == watched.group] for watched in self._watched
        }

    def _follow(self) -> None:
        while not self._ended.wait(LOOK_EVERY):
            for watched in self._watched:
                with suppress(Stop):  # the API server itself did not answer
                    is_answered = probe(self._api, watched.kind).code < SERVER_ERROR
                    self._answers[watched.title].append((time.monotonic(), is_answered))
            with suppress(Stop):
                if (lease := request(self._api, "GET", LEASE)).code == FOUND:
                    self._leases.append(lease.body["spec"])


def refused(answers: Iterable[tuple[float, bool]]) -> float:
    """Returns the seconds from the last answer before a refusal to the first one after it, together."""
    return sum(after - before for (before, ok), (after, again) in pairwise(answers) if not (ok and again))


def leaderless(leases: Iterable[Mapping[str, Any]]) -> float:
    """Returns the seconds between the last sign of each leader, or its resignation, and the first one of the next."""
    gaps = (
        datetime.fromisoformat(new["acquireTime"]) - datetime.fromisoformat(old["renewTime"])
        for old, new in pairwise(leases)
        if new.get("holderIdentity") and old.get("holderIdentity") != new["holderIdentity"]
    )
    return sum(max(gap.total_seconds(), 0.0) for gap in gaps)


def conversions(title: str, before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yields which kinds have another stored API version after an upgrade, and which versions are no longer served."""
    old, new = ({crd["spec"]["names"]["kind"]: crd for crd in crds} for crds in (before, after))
    kept = sorted(old.keys() & new.keys())
    changed = [kind for kind in kept if _stored(old[kind]) != _stored(new[kind])]
    for kind in changed:
        moved = f"{_stored(old[kind])} to {_stored(new[kind])}"
        yield f"{title} now stores {kind} in another version, {moved}. An object is converted when it is next written."
    if kept and not changed:
        versions = join_names(sorted({_stored(crd) for crd in new.values()}))
        yield f"Both releases of {title} store {versions}, so no stored object is converted."
    for kind in kept:
        if gone := sorted(_served(old[kind]) - _served(new[kind])):
            yield f"{title} no longer serves {kind} in {join_names(gone)}."


def _stored(crd: Mapping[str, Any]) -> str:
    return next(str(version["name"]) for version in crd["spec"]["versions"] if version["storage"])


def _served(crd: Mapping[str, Any]) -> set[str]:
    return {str(version["name"]) for version in crd["spec"]["versions"] if version["served"]}
