"""Patience with what does not answer yet: the controllers Kueue and JobSet, and a cluster that was just made."""

import asyncio

import pulumi

# Kueue's webhook answers 10 to 30 seconds after its Deployment is ready (kubernetes-sigs/kueue#13036), JobSet's once it
# has its certificate; where Autopilot has to make a node for them first, minutes later. So they are asked often at
# first, then seldom: for ten minutes in all.
# The engine itself gives up after 100 tries.
PAUSES = [1.0] * 20 + [5.0] * 20 + [12.0] * 40

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
# Service of JobSet's webhook, as the API server names it when out of reach; Kueue has a webhook for JobSets too.
JOBSET_WEBHOOK = "jobset-webhook-service"
# What it says where it does not serve the kind.
COMPUTE_CLASS_KIND = 'kind "ComputeClass"'
SECRET_SYNC_KINDS = ('kind "SecretSync"', 'kind "SecretProviderClass"')


async def until_answered(args: pulumi.ErrorHookArgs) -> bool:
    """Whether to try again what a controller has to admit: for ten minutes, and only while it can't answer."""
    latest = args.errors[0]
    if not any(sign in latest for sign in NOT_YET):
        return False
    if len(args.errors) > len(PAUSES):
        late, advice = "Kueue", "Look at `kubectl -n kueue-system get pods` and its logs"
        if JOBSET_WEBHOOK in latest:
            late, advice = "JobSet", "Look at `kubectl -n jobset-system get pods` and its logs"
        elif COMPUTE_CLASS_KIND in latest:
            late, advice = "GKE", "ComputeClass needs GKE 1.30.3-gke.1451000 or newer: upgrade the cluster"
        elif any(kind in latest for kind in SECRET_SYNC_KINDS):
            late, advice = "GKE", "gke-ai:hfTokenSecret needs GKE 1.34 or newer: upgrade the cluster"
        pulumi.log.error(
            f"{late} did not answer within {sum(PAUSES) / 60:.0f} minutes, so {args.name} could not be made. "
            f"{advice}, then run up again."
        )
        return False
    await asyncio.sleep(PAUSES[len(args.errors) - 1])  # awaited, so that other resources go on meanwhile
    return True


def kueue_hook(name: str) -> pulumi.ResourceHookBinding:
    """The binding that waits for webhooks and for kinds that are served late; `name` is unique in the program."""
    return pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(f"{name}: until it is answered", until_answered)])
