"""Pods that the API server refuses: what a pod must find, what controllers say of it, and what quotas never allow."""

from typing import Any

import pytest
from urllib3 import HTTPHeaderDict

from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.kube import client
from gke_ai.kube.client import Answer
from gke_ai.kube.creation import refused
from gke_ai.kube.references import Reference, references
from gke_ai.ops.runs.command import Run
from gke_ai.ops.status import workloads
from gke_ai.ops.submit import follow, member
from gke_ai.ops.submit.member import Member
from tests.support.submitted import job

Object = dict[str, Any]
UNUSED: Any = None
MEMBER = Member(UNUSED, "a")


def volume(**source: Any) -> Object:
    return {"volumes": [source]}


SECRET, CONFIG_MAP = ("Secret", "a", ""), ("ConfigMap", "b", "")
SECRET_OF_K, KEY = ("Secret", "a", "k"), {"name": "a", "key": "k"}
TWO_SOURCES = [{"secret": {"name": "a"}}, {"configMap": {"name": "b"}}]
WHOLE_ENV = {"envFrom": [{"secretRef": {"name": "a"}}, {"configMapRef": {"name": "b", "optional": 1}}]}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (volume(secret={"secretName": "a"}), [SECRET]),
        (volume(secret={"secretName": "a", "items": [{"key": "k"}]}), [SECRET_OF_K]),
        (volume(secret={"secretName": "a", "optional": True}), []),
        (volume(configMap={"name": "b"}), [CONFIG_MAP]),
        (volume(persistentVolumeClaim={"claimName": "a"}), [("PersistentVolumeClaim", "a", "")]),
        (volume(projected={"sources": TWO_SOURCES}), [SECRET, CONFIG_MAP]),
        (volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]}, emptyDir={}), []),
        ({"containers": [{"env": [{"valueFrom": {"secretKeyRef": KEY}}, {"name": "x"}]}]}, [SECRET_OF_K]),
        ({"initContainers": [{"env": [{"valueFrom": {"configMapKeyRef": KEY}}]}]}, [("ConfigMap", "a", "k")]),
        ({"containers": [WHOLE_ENV]}, [SECRET, CONFIG_MAP]),
        ({"imagePullSecrets": [{"name": "a"}], "volumes": None, "containers": [None]}, []),
    ],
)
def test_a_pod_names_what_it_needs_before_it_starts(spec: Object, found: list[tuple[str, str, str]]) -> None:
    assert [*references(spec)] == [Reference(*entry) for entry in found]


def event(uid: str, message: str, reason: str = "FailedCreate", at: str = "2026-01-01T00:00:00Z") -> Object:
    return {"reason": reason, "message": message, "lastTimestamp": at, "involvedObject": {"uid": uid}}


def wanted(uid: str, **status: Any) -> Object:
    return {"metadata": {"uid": uid, "namespace": "a", "name": uid}, "spec": {"parallelism": 2}, "status": status}


QUOTA = 'pods "x" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=2, limited: pods=2'


def test_a_rollout_and_a_job_whose_pods_are_refused_are_listed_with_the_newest_reason() -> None:
    failing = {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": QUOTA}]}
    fine = {"conditions": [{"type": "ReplicaFailure", "status": "False", "message": "gone"}]}
    ended = {"conditions": [{"type": "Complete", "status": "True"}]}
    jobs = [wanted("short", active=1), wanted("whole", active=2), wanted("over", **ended), wanted("silent")]
    events = [
        event("short", "newest", at="2026-01-01T00:00:09Z"),
        event("short", "older"),
        *(event(uid, QUOTA) for uid in ("whole", "over")),
        event("silent", "node is gone", "NodeNotReady"),
    ]
    found = refused([wanted("api", **failing), wanted("web", **fine)], jobs, events)
    assert [(item["metadata"]["name"], why) for item, why in found] == [("api", QUOTA), ("short", "newest")]
    assert [*workloads.refused_rows([], jobs, events)] == [("a/short", "newest")]


@pytest.mark.parametrize("reason", ["FailedCreate", "JobCreationFailed", "FailedToCreateWorkerPod"])
def test_a_run_whose_pods_are_refused_says_why(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [{"metadata": {"uid": "child"}}]
    events = [event("other", "of another run", reason), event("child", "violates PodSecurity", reason)]
    monkeypatch.setattr(follow, "list_objects", lambda _, path, **__: jobs if path.endswith("jobs") else events)
    run = Run("mine", "a", "JobSet", item={"metadata": {"uid": "own"}, "spec": {}})
    progress = follow.Observation(run, None, [], "", follow._refused(UNUSED, run)).progress
    assert progress == "0 of 1 pods run: the cluster refuses a pod: violates PodSecurity."
    events.pop()
    assert follow._refused(UNUSED, run) == ""


BROKEN = "Validation failed for ValidatingAdmissionPolicy 'tenant-a' with binding 'tenant-a-warnings'"
WARNED = (f'{BROKEN}: uses a "queue"', f"{BROKEN}: mounts a bucket", 'would violate PodSecurity "restricted:latest"')


NO_QUEUE = "it is suspended, and no queue would start it. Set the label"
NO_PODS = QUOTA.replace("used: pods=2, limited: pods=2", "used: pods=0, limited: pods=0")


@pytest.mark.parametrize(
    ("answer", "kind", "found"),
    [
        (Answer(201, {}), "Pod", []),
        (Answer(201, {"spec": {"suspend": True}}), "Job", [NO_QUEUE]),
        (Answer(201, {"spec": {"suspend": True}, "metadata": {"labels": {QUEUE_LABEL: "q"}}}), "Job", []),
        (Answer(201, {}, warnings=WARNED), "Job", []),
        (Answer(403, {}, "denied request: uses a queue", WARNED), "Job", ['uses a "queue"', "mounts a bucket"]),
        (Answer(403, {}, "violates PodSecurity", WARNED[2:]), "Pod", ["violates PodSecurity"]),
        (Answer(403, {}, QUOTA), "Pod", []),  # others use it now, and the run waits for its queue first
        (Answer(403, {}, NO_PODS), "Pod", [Answer(403, {}, NO_PODS).reason]),
        (Answer(409, {}, "exists"), "Pod", []),
    ],
)
def test_broken_rules_are_named(answer: Answer, kind: str, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = iter([answer, Answer(404)])
    monkeypatch.setattr(member, "request", lambda *_, **__: next(asked))
    item = {"kind": kind, "metadata": {"name": "x", "namespace": "a"}}
    assert [said[: len(text)] for said, text in zip(MEMBER.refusals(item), found, strict=True)] == found


def test_the_warnings_of_an_answer_are_read() -> None:
    headers = HTTPHeaderDict([("Warning", '299 - "a \\"b\\""'), ("Date", "now"), ("Warning", "garbage")])
    assert client._warnings(headers) == ('a "b"',)
    assert client._warnings(None) == ()


@pytest.mark.parametrize(
    ("hard", "found"),
    [
        ({"pods": "2"}, "its pods together need 3 of pods, and ResourceQuota q of namespace a allows 2"),
        ({"pods": "3", "count/pods": "3", "requests.cpu": "6", "cpu": "6"}, ""),
        ({"requests.cpu": "5"}, "its pods together need 6 of requests.cpu"),
        ({"cpu": "5500m"}, "its pods together need 6 of cpu"),
        ({"requests.nvidia.com/gpu": "2"}, "its pods together need 3 of requests.nvidia.com/gpu"),
        ({"services": "0", "requests.storage": "1"}, ""),
    ],
)
def test_quota_that_never_fits_a_whole_run_is_named(hard: Object, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas: Object = {"items": [{"metadata": {"name": "q"}, "spec": {"hard": hard}}]}
    monkeypatch.setattr(member, "request", lambda *_, **__: Answer(200, quotas))
    run = job({"cpu": "2", "nvidia.com/gpu": "1"}, pods=3)
    problems = [*MEMBER.quota_problems(run)]
    assert (len(problems), found in "".join(problems)) == (bool(found), True), problems
    quotas["items"][0]["spec"]["scopes"] = ["BestEffort"]
    assert [*MEMBER.quota_problems(run)] == []


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (Answer(404), "namespace a has no Secret s, without which the pods do not start. Create it"),
        (Answer(200, {"data": {"other": "eA=="}}), "Secret s has no key k, without which the pods do not start."),
        (Answer(200, {"data": {"k": "eA=="}}), ""),
        (Answer(200, {"data": None}), "Secret s has no key k"),
        (Answer(403), ""),
    ],
)
def test_a_missing_object_or_key_is_named(answer: Answer, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "request", lambda *_, **__: answer)
    text = MEMBER.lacks(Reference("Secret", "s", "k"))
    assert (found in text, bool(text)) == (True, bool(found))
