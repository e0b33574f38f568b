"""Retries for late controllers and kinds: which errors, how often, how long, and what they log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest

from gke_ai.components.support import retry

WEBHOOK = 'failed calling webhook "mclusterqueue.kb.io": connection refused'
JOBSET_WEBHOOK = (
    'failed calling webhook "mjobset.kb.io": Post "https://jobset-webhook-service.jobset-system.svc:443/mutate": '
    "connection refused"
)
COMPUTE_CLASS = 'no matches for kind "ComputeClass" in version "cloud.google.com/v1"'
SECRET_SYNC = 'no matches for kind "SecretSync" in version "secret-sync.gke.io/v1"'
INFERENCE_POOL = 'no matches for kind "InferencePool" in version "inference.networking.k8s.io/v1"'
CLUSTER_QUEUE = 'no matches for kind "ClusterQueue" in version "kueue.x-k8s.io/v1beta2"'
DENIED = (
    "jobsets.jobset.x-k8s.io \"tuning\" is forbidden: ValidatingAdmissionPolicy 'tenant-research' with binding "
    "'tenant-research' denied request: priority class urgent is not one of research"
)
OF_NVIDIA = ["The chart of NVIDIA's driver still does not serve this kind after 10 minutes"]
OF_JOBSET = ["JobSet still does not answer after 10 minutes", "kubectl -n jobset-system"]
OFFICIAL_ATTEMPT = 64.0
"""Seconds of one attempt of the official kubernetes plugin if the kind is missing: it tries six times."""


@dataclass
class Update:
    """The engine and a clock: an operation that fails until the hook gives up, and the logged messages."""

    # Of its own: `asyncio.run` would take away the loop that other tests' resources are bound to.
    loop: asyncio.AbstractEventLoop
    seconds: float = 0.0
    tries: int = 0
    pauses: list[float] = field(default_factory=list)
    warnings: list[tuple[float, str]] = field(default_factory=list)
    errors: list[tuple[float, str]] = field(default_factory=list)

    def fail(self, error: str, attempt: float = 0.1, name: str = "q", most: int = 200) -> Update:
        """Let the operation fail with the same error. Each attempt takes `attempt` seconds."""
        seen: list[str] = []
        retry.note_start(pulumi.ResourceHookArgs(urn=f"urn::{name}", id="", name=name, type="t"))
        while self.tries < most:
            self.seconds += attempt
            self.tries += 1
            seen.insert(0, error)
            resource: Any = {"urn": f"urn::{name}", "id": "", "name": name, "type": "t"}
            args = pulumi.ErrorHookArgs(**resource, failed_operation="create", errors=seen)
            if not self.loop.run_until_complete(retry.until_answered(args)):
                break
        return self


@pytest.fixture
def update(monkeypatch: pytest.MonkeyPatch) -> Iterator[Update]:
    """A separate update whose clock advances only in attempts and pauses."""
    update = Update(asyncio.new_event_loop())

    async def sleep(seconds: float) -> None:
        update.pauses.append(seconds)
        update.seconds += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: update.seconds))
    for name, empty in (("_started", {}), ("_warned", set()), ("_changed", {})):
        monkeypatch.setattr(retry, name, empty)
    monkeypatch.setattr(pulumi.log, "warn", lambda text: update.warnings.append((update.seconds, text)))
    monkeypatch.setattr(pulumi.log, "error", lambda text: update.errors.append((update.seconds, text)))
    yield update
    update.loop.close()


@pytest.mark.parametrize(
    "error",
    [
        'Internal error occurred: failed calling webhook "mresourceflavor.kb.io": Post "https://…": connection refused',
        'failed calling webhook "m.kb.io": no endpoints available for service "kueue-webhook-service"',
        'failed calling webhook "m.kb.io": x509: certificate signed by unknown authority',
        CLUSTER_QUEUE,
        "the server could not find the requested resource",
        "context deadline exceeded",
        'Post "https://gke-1.example.com/apis/kueue.x-k8s.io/v1beta2/clusterqueues": dial tcp: i/o timeout',
        "dial tcp 34.118.224.1:443: connect: connection refused",
        'no endpoints available for service "jobset-webhook-service"',
        "the server is currently unable to handle the request",
    ],
)
def test_missing_answer_is_retried_after_a_pause(error: str, update: Update) -> None:
    update.fail(error, most=2)
    assert (update.tries, len(update.pauses)) == (2, 2)
    assert min(update.pauses) > 0


@pytest.mark.parametrize(
    "error",
    [
        'admission webhook "vclusterqueue.kb.io" denied the request: spec.cohortName: Invalid value',
        'resourceflavors.kueue.x-k8s.io "l4" is forbidden: User "u" cannot create resource',
        'Deployment.apps "s" is invalid: spec.selector: Invalid value',
        "configured Kubernetes cluster is unreachable: unable to load schema information: connection refused",
    ],
)
def test_an_answer_is_not_retried(error: str, update: Update) -> None:
    update.fail(error)
    assert (update.tries, update.pauses) == (1, [])


def test_a_controller_gets_ten_minutes_with_growing_pauses_within_the_tries_of_the_engine(update: Update) -> None:
    update.fail(WEBHOOK, attempt=0)
    assert max(update.pauses[:6]) < 0.5
    waited = 0.0
    for pause in update.pauses:
        assert pause <= 0.3 + waited / 5
        waited += pause
    assert update.seconds == pytest.approx(600)
    assert update.tries < 99, "the engine would give up first, without advice"
    assert "kubectl -n kueue-system" in update.errors[0][1]


def test_a_missing_kind_gets_ten_minutes_whatever_an_attempt_takes(update: Update) -> None:
    update.fail(CLUSTER_QUEUE, attempt=OFFICIAL_ATTEMPT)
    assert 600 <= update.seconds <= 600 + OFFICIAL_ATTEMPT


def test_own_tries_of_the_official_plugin_count_as_waiting(update: Update) -> None:
    """Its first attempt takes longer than a kind of GKE gets, so the remedy comes after it."""
    update.fail(COMPUTE_CLASS, attempt=OFFICIAL_ATTEMPT)
    ((when, message),) = update.errors
    assert (update.tries, when) == (1, OFFICIAL_ATTEMPT)
    assert "ComputeClass needs GKE 1.30.3-gke.1451000" in message
    # A late kind is named after the first attempt.
    before, update.tries = update.seconds, 0
    update.fail(INFERENCE_POOL, attempt=OFFICIAL_ATTEMPT)
    ((when, warning),) = update.warnings
    assert (when - before, "10 minutes" in warning) == (OFFICIAL_ATTEMPT, True)
    assert 600 <= update.seconds - before <= 600 + OFFICIAL_ATTEMPT


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (COMPUTE_CLASS, "ComputeClass needs GKE 1.30.3-gke.1451000"),
        (SECRET_SYNC, "A token from Secret Manager needs GKE 1.34"),
    ],
)
def test_remedy_for_kinds_of_gke_is_logged_as_the_wait_of_one_minute_begins_and_ends(
    error: str, remedy: str, update: Update
) -> None:
    update.fail(error)
    assert 60 <= update.seconds < 61
    ((when, warning),) = update.warnings
    assert when < 1
    assert remedy in warning
    assert "1 minute" in warning
    ((_, message),) = update.errors
    assert remedy in message
    assert "GKE still does not serve this kind after 1 minute" in message
    assert "kueue" not in message.lower()


def test_remedy_is_logged_once_for_all_that_wait_and_another_operation_starts_a_new_wait(update: Update) -> None:
    update.fail(COMPUTE_CLASS, most=1)
    update.fail(COMPUTE_CLASS, name="other", most=2)
    assert len(update.warnings) == 1
    update.fail(COMPUTE_CLASS)
    update.seconds += 1000
    before, update.tries = update.seconds, 0
    update.fail(COMPUTE_CLASS)
    assert 60 <= update.seconds - before < 61


def test_only_a_longer_delay_of_a_controller_than_usual_logs_a_warning(update: Update) -> None:
    update.fail(WEBHOOK, most=25)
    assert 10 < update.seconds < 30
    assert update.warnings == []
    before, update.tries = update.seconds, 0
    update.fail(WEBHOOK, most=70)
    ((when, warning),) = update.warnings
    assert 30 <= when - before < 40
    assert "kubectl -n kueue-system" in warning


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ('no matches for kind "ComputeDomain" in version "resource.nvidia.com/v1beta1"', OF_NVIDIA),
        (JOBSET_WEBHOOK, OF_JOBSET),
        ('no matches for kind "JobSet" in version "jobset.x-k8s.io/v1alpha2"', OF_JOBSET),
    ],
)
def test_patience_with_a_controller_ends_with_advice_on_it(error: str, advice: list[str], update: Update) -> None:
    update.fail(error)
    ((_, message),) = update.errors
    assert [text for text in advice if text not in message] == []


def change_policy(name: str) -> None:
    inputs = {"metadata": {"name": name}}
    retry.note_policy(pulumi.ResourceHookArgs(urn=f"urn::{name}", id=name, name=name, type="t", new_inputs=inputs))


def test_a_refusal_is_retried_for_seconds_if_this_update_changed_the_policy(update: Update) -> None:
    """An API server looks at its policies once a second, so the old rules still refuse what the new ones allow."""
    change_policy("tenant-other")
    update.fail(DENIED)
    assert (update.tries, update.pauses) == (1, [])
    change_policy("tenant-research")
    before, update.tries = update.seconds, 0
    update.fail(DENIED, name="another")
    assert 15 <= update.seconds - before < 16
    assert max(update.pauses) < 0.5
    before, update.tries = update.seconds, 0
    update.fail(DENIED, name="later")
    assert update.tries == 1, "the policy has been in effect for long"
    assert update.seconds - before < 1
