"""Retries while Kueue or JobSet does not answer, a kind is not served, or a changed policy is not in effect yet."""

import asyncio
import re
import time
from dataclasses import dataclass

import pulumi

from gke_ai.catalog.fabric.nvlink import CHART, DOMAIN_KIND
from gke_ai.catalog.kueue.namespaces import NVIDIA_DRIVER
from gke_ai.catalog.kueue.operators import RUNTIME_KIND, TRAINER

# Kueue's webhook answers 10 to 30 seconds after its Deployment is ready (kubernetes-sigs/kueue#13036), JobSet's once it
# has its certificate. If Autopilot has to create a node for them first, it takes minutes.
PATIENCE_SECONDS = 600.0
# GKE serves its own kinds from the start. A cluster without one is too old or lacks a setting.
GKE_PATIENCE_SECONDS = 60.0
# Controllers are usually late by seconds, so the first half minute needs no warning.
USUAL_SECONDS = 30.0
# The pause grows with the time waited: about 80 tries in ten minutes. The engine itself stops at 100 tries
# (https://github.com/pulumi/pulumi/pull/21291), without advice.
FIRST_PAUSE_SECONDS, GROWTH, MAX_PAUSE_SECONDS = 0.25, 1.1, 12.0

# Errors of the API server while a webhook has no endpoint or certificate or can't be reached, and while a CRD or an
# aggregated API is not served yet. "denied the request" is an answer, so it is not listed.
NOT_YET = (
    "failed calling webhook",
    "connection refused",
    "no endpoints available",
    "no matches for kind",
    "could not find the requested resource",
    "context deadline exceeded",
    "i/o timeout",
    "the server is currently unable to handle the request",
)
# An API server uses a changed policy when it next looks, once a second (PolicyRefreshInterval in
# https://github.com/kubernetes/kubernetes, apiserver/pkg/admission/plugin/policy/generic/policy_source.go). A regional
# cluster has several API servers.
POLICY_SECONDS = 15.0
DENIED_BY = re.compile(r"ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request")
# The kubernetes plugin's error for a cluster that did not answer when it was configured. Retrying in the same update
# does not help (https://github.com/pulumi/pulumi-kubernetes, Create in provider.go).
UNREACHABLE = "configured Kubernetes cluster is unreachable"


@dataclass(frozen=True)
class Late:
    """A controller that does not answer yet: signs in the error, remedy, and time to wait."""

    name: str
    signs: tuple[str, ...]
    remedy: str
    patience: float = PATIENCE_SECONDS
    usual: float = USUAL_SECONDS
    fault: str = "does not answer"

    @property
    def minutes(self) -> str:
        """The time to wait, in words."""
        count = round(self.patience / 60)
        return "1 minute" if count == 1 else f"{count} minutes"


# The first entry with a sign in the error applies. The last entry has no signs and always applies.
ALL_LATE = (
    Late(
        "GKE",
        ('kind "ComputeClass"',),
        "ComputeClass needs GKE 1.30.3-gke.1451000 or newer: upgrade the cluster",
        GKE_PATIENCE_SECONDS,
        usual=0,
        fault="does not serve this kind",
    ),
    Late(
        "GKE",
        ('kind "SecretSync"', 'kind "SecretProviderClass"'),
        "A token from Secret Manager needs GKE 1.34 or newer: upgrade the cluster",
        GKE_PATIENCE_SECONDS,
        usual=0,
        fault="does not serve this kind",
    ),
    Late(
        "GKE",
        ('kind "InferencePool"', 'kind "Gateway"', 'kind "HTTPRoute"', 'kind "HealthCheckPolicy"', "GCPBackendPolicy"),
        "A gateway needs GKE 1.34.0-gke.1626000 or newer and the Gateway API, which a cluster gets within minutes "
        "after it is turned on: upgrade the cluster, or wait",
        fault="does not serve this kind",
    ),
    # The Service of JobSet's webhook. Kueue has a webhook for JobSets too.
    Late(
        "JobSet",
        ("jobset-webhook-service", 'kind "JobSet"'),
        "Look at `kubectl -n jobset-system get pods` and its logs",
    ),
    Late(
        "Kubeflow Trainer",
        (f"{TRAINER.release}-controller-manager", f'kind "{RUNTIME_KIND}"'),
        f"Look at `kubectl -n {TRAINER.namespace} get pods` and its logs",
    ),
    Late(
        "The chart of NVIDIA's driver",
        (f'kind "{DOMAIN_KIND}"',),
        f"Look at `helm -n {NVIDIA_DRIVER} status {CHART}`",
        fault="does not serve this kind",
    ),
    Late("Kueue", (), "Look at `kubectl -n kueue-system get pods` and its logs"),
)

_started: dict[str, float] = {}
"""Time at which the operation on a resource began, by URN."""
_warned: set[Late] = set()
_changed: dict[str, float] = {}
"""Time at which this update changed an admission policy, by the policy's name."""


def note_start(args: pulumi.ResourceHookArgs) -> None:
    """Start the clock before the operation: the kubernetes plugin tries a missing kind for a minute on its own."""
    _started[args.urn] = time.monotonic()


async def until_answered(args: pulumi.ErrorHookArgs) -> bool:
    """Whether to retry: for a limited time while a controller does not answer, or once a policy has changed."""
    latest = args.errors[0]
    now = time.monotonic()
    if denied := DENIED_BY.search(latest):
        changed = _changed.get(denied[1])
        if changed is None or now - changed >= POLICY_SECONDS:
            return False
        await asyncio.sleep(FIRST_PAUSE_SECONDS)
        return True
    if UNREACHABLE in latest or not any(sign in latest for sign in NOT_YET):
        return False
    waited = now - _started.setdefault(args.urn, now)
    late = next(entry for entry in ALL_LATE if not entry.signs or any(sign in latest for sign in entry.signs))
    if waited >= late.patience:
        pulumi.log.error(
            f"{late.name} still {late.fault} after {late.minutes}, so {args.name} could not be created. "
            f"{late.remedy}, then run up again."
        )
        return False
    if waited >= late.usual and late not in _warned:
        _warned.add(late)
        pulumi.log.warn(
            f"{late.name} {late.fault} yet, so {args.name} can't be created. The update retries for "
            f"{late.minutes}. {late.remedy}."
        )
    pause = min(FIRST_PAUSE_SECONDS * GROWTH ** (len(args.errors) - 1), MAX_PAUSE_SECONDS, late.patience - waited)
    await asyncio.sleep(pause)  # awaited, so other resources continue
    return True


def kueue_hook(name: str) -> pulumi.ResourceHookBinding:
    """The hooks that retry until webhooks and kinds are served. `name` is unique in the program."""
    start = pulumi.ResourceHook(f"{name}: when it began", note_start)
    return pulumi.ResourceHookBinding(
        before_create=[start],
        before_update=[start],
        on_error=[pulumi.ErrorHook(f"{name}: until it is answered", until_answered)],
    )


def note_policy(args: pulumi.ResourceHookArgs) -> None:
    """Remember that this update changed a policy: what its old rules refuse is tried again."""
    assert args.new_inputs is not None
    _changed[args.new_inputs["metadata"]["name"]] = time.monotonic()


def policy_hook(name: str) -> pulumi.ResourceHookBinding:
    """The hook that notes a change of an admission policy. `name` is unique in the program."""
    return pulumi.ResourceHookBinding(after_update=[pulumi.ResourceHook(f"{name}: when it changed", note_policy)])
