"""Retries while the controllers Kueue and JobSet, or the kinds that they and GKE bring, are not served yet."""

import asyncio
import time
from dataclasses import dataclass

import pulumi

# Kueue's webhook answers 10 to 30 seconds after its Deployment is ready (kubernetes-sigs/kueue#13036), JobSet's once it
# has its certificate; where Autopilot has to make a node for them first, minutes later.
PATIENCE_SECONDS = 600.0
# GKE serves its own kinds from the start: a cluster without one is too old, or lacks a setting.
GKE_PATIENCE_SECONDS = 60.0
# Controllers are usually late by seconds: the first half minute needs no warning.
USUAL_SECONDS = 30.0
# The pause grows with the time waited: about 80 tries in ten minutes. The engine itself stops at 100 tries
# (https://github.com/pulumi/pulumi/pull/21291), without advice.
FIRST_PAUSE_SECONDS, GROWTH, MAX_PAUSE_SECONDS = 0.25, 1.1, 12.0

# What the API server says while a webhook has no endpoint, no certificate yet or is not reached, and while a CRD or an
# aggregated API is not served yet. "denied the request" is an answer, and is not among them.
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
# What the kubernetes plugin says of a cluster that did not answer when it was configured; no retry in that update helps
# (https://github.com/pulumi/pulumi-kubernetes, Create in provider.go).
UNREACHABLE = "configured Kubernetes cluster is unreachable"


@dataclass(frozen=True)
class Late:
    """Who does not answer yet: what the error then contains, the remedy, and how long to wait."""

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


# The first whose sign is in the error; the last one has none.
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
        "gke-ai:hfTokenSecret needs GKE 1.34 or newer: upgrade the cluster",
        GKE_PATIENCE_SECONDS,
        usual=0,
        fault="does not serve this kind",
    ),
    # The Service of JobSet's webhook, as the API server names it; Kueue has a webhook for JobSets too.
    Late(
        "JobSet",
        ("jobset-webhook-service", 'kind "JobSet"'),
        "Look at `kubectl -n jobset-system get pods` and its logs",
    ),
    Late("Kueue", (), "Look at `kubectl -n kueue-system get pods` and its logs"),
)

_first_errors: dict[str, float] = {}
"""When the operation on a resource failed first, by URN."""
_warned: set[Late] = set()


async def until_answered(args: pulumi.ErrorHookArgs) -> bool:
    """Whether to try again what a controller has to admit or define: only while it can't answer, and not for ever."""
    latest = args.errors[0]
    if UNREACHABLE in latest or not any(sign in latest for sign in NOT_YET):
        return False
    now = time.monotonic()
    if len(args.errors) == 1:
        _first_errors[args.urn] = now
    waited = now - _first_errors.setdefault(args.urn, now)
    late = next(one for one in ALL_LATE if not one.signs or any(sign in latest for sign in one.signs))
    if waited >= late.patience:
        pulumi.log.error(
            f"{late.name} still {late.fault} after {late.minutes}, so {args.name} could not be created. "
            f"{late.remedy}, then run up again."
        )
        return False
    if waited >= late.usual and late not in _warned:
        _warned.add(late)
        pulumi.log.warn(
            f"{late.name} {late.fault} yet, so {args.name} can't be created. The update tries again for "
            f"{late.minutes}. {late.remedy}."
        )
    pause = min(FIRST_PAUSE_SECONDS * GROWTH ** (len(args.errors) - 1), MAX_PAUSE_SECONDS, late.patience - waited)
    await asyncio.sleep(pause)  # awaited, so that other resources go on meanwhile
    return True


def kueue_hook(name: str) -> pulumi.ResourceHookBinding:
    """The binding that waits for webhooks and for kinds that are served late; `name` is unique in the program."""
    return pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(f"{name}: until it is answered", until_answered)])
