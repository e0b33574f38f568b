"""A result says which timers of Kubernetes and Kueue its times leave out, and for how long they run."""

from typing import Any

from gke_ai.catalog.versions import KUEUE_VERSION
from gke_ai.forecast.outcome.timeline import Histories, Observation, Timeline, histories
from gke_ai.forecast.rehearse.timers import pods_ready, uncounted
from gke_ai.kube.workloads import MAX_EXEC_TIME, time_limit
from tests.support.timelines import owned, pod, workload

Item = dict[str, Any]
JOB = owned("Job", "train", "j")
BACKOFF = (
    "Jobs create failed pods again at once here. On Google Cloud the Job controller waits 10 s after the first failed "
    "pod, and twice as long after each further one: "
)


def observed(*observations: tuple[float, str, Item, bool]) -> Histories:
    every = (Observation(at, kind, item, gone) for at, kind, item, gone in observations)
    return histories(Timeline(tuple(every), 0.0, 100.0, settled=True))


def ended(uid: str, at: float, owner: list[Item] = JOB, grace: int = 30) -> list[tuple[float, str, Item, bool]]:
    item = pod(uid, owner, "n")
    item["spec"]["terminationGracePeriodSeconds"] = grace
    return [(-1.0, "Pod", item, False), (at, "Pod", item, True)]


def created(uid: str, at: float) -> tuple[float, str, Item, bool]:
    return at, "Pod", pod(uid, JOB, "n"), False


def job(at: float, suspend: bool) -> tuple[float, str, Item, bool]:
    item = {"metadata": {"name": "train", "namespace": "llm", "uid": "j"}, "spec": {"suspend": suspend}}
    return at, "Job", item, False


def test_the_longest_grace_period_of_the_pods_that_end_is_named() -> None:
    assert uncounted(observed(created("a", -1))) == []
    found = uncounted(observed(*ended("a", 3, grace=120), *ended("b", 4, owner=owned("ReplicaSet", "web", "r"))))
    assert found == ["Pods end at once here. On Google Cloud they may take their grace periods, up to 120 s."]


def test_pods_that_are_created_again_wait_as_the_job_controller_counts() -> None:
    # Four pods that are drained together wait 80 seconds, one after the other 10 and 20 seconds.
    pods = [entry for uid in "abcd" for entry in ended(uid, 3.2)]
    assert uncounted(observed(*pods, created("e", 4)))[1:] == [f"{BACKOFF}80 s for llm/job/train."]
    found = uncounted(observed(*ended("a", 3), created("c", 4), *ended("b", 9), created("d", 10)))
    assert found[1:] == [f"{BACKOFF}30 s for llm/job/train."]
    # Pods of a suspended Job and pods that do not come back wait for nothing.
    suspended = [job(-1, False), job(3.1, True), *ended("a", 3), created("b", 20)]
    assert len(uncounted(observed(*suspended))) == 1
    assert len(uncounted(observed(*ended("a", 3)))) == 1


def test_the_timeout_of_kueue_is_named_if_it_is_on() -> None:
    (note,) = pods_ready({"waitForPodsReady": {"timeout": "300s"}}, KUEUE_VERSION)
    assert "waitForPodsReady (300s) runs at its own speed" in note
    off = {"featureGates": {"DisableWaitForPodsReady": True}}
    for stated in ({"waitForPodsReady": {"enable": False}}, None, off):
        assert pods_ready(stated, KUEUE_VERSION) == []
    assert pods_ready({}, "0.18.4") == []
    assert "waitForPodsReady (30m) runs" in pods_ready({}, KUEUE_VERSION)[0], "the default since 0.19"


def test_the_time_limits_of_runs_and_pods_are_named_the_nearest_first() -> None:
    """Kueue's own limit, without what an earlier admission used of it, and that of a Job."""
    admitted = workload("w", owned("Job", "first", "f"), flavor="l4")
    admitted["spec"]["maximumExecutionTimeSeconds"] = 900
    admitted["status"]["accumulatedPastExecutionTimeSeconds"] = 300
    labeled = {"metadata": {"name": "first", "namespace": "llm", "uid": "f", "labels": {MAX_EXEC_TIME: "900"}}}
    bounded: Item = {"metadata": {"name": "b", "namespace": "llm", "uid": "b"}, "spec": {"activeDeadlineSeconds": 60}}
    before = (-1.0, "Workload", admitted, False), (-1.0, "Job", {**labeled, "spec": {}}, False)
    seen = observed(*before, (2.0, "Job", bounded, False))
    (note,) = uncounted(seen)
    assert note.endswith("so long after it started: llm/job/b 60 s and llm/job/first 600 s.")
    assert uncounted(observed((1.0, "Job", {**bounded, "spec": {**bounded["spec"], "suspend": True}}, False))) == []
    # The kubelet fails such a pod, and its Job creates another.
    late = pod("x", owned("Job", "mine", "m"))
    late["spec"]["activeDeadlineSeconds"] = 1200
    assert uncounted(observed((1.0, "Pod", late, False)))[0].endswith("so long after it started: llm/job/mine 1200 s.")
    jobs = [{"template": {"spec": {"activeDeadlineSeconds": seconds}}} for seconds in (900, 60)]
    assert time_limit({"metadata": {}, "spec": {"replicatedJobs": jobs}}) == 60
    assert time_limit({"metadata": {"labels": {MAX_EXEC_TIME: "x"}}, "spec": {}}) is None
