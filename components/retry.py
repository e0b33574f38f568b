"""Patience with a Kueue that does not answer yet."""

import asyncio

import pulumi

# Kueue's Deployment is ready 10 to 30 seconds before its webhook answers (kubernetes-sigs/kueue#13036), on a busy
# cluster longer. The engine gives up by itself after 100 tries.
PAUSE_SECONDS = 3.0
TRIES = 95

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


async def until_answered(args: pulumi.ErrorHookArgs) -> bool:
    """Whether to try again what Kueue has to admit: for about five minutes, and only while it can't answer."""
    latest = args.errors[0]
    if not any(sign in latest for sign in NOT_YET):
        return False
    if len(args.errors) >= TRIES:
        pulumi.log.error(
            f"Kueue did not answer within {TRIES * PAUSE_SECONDS / 60:.0f} minutes, so {args.name} could not be made. "
            "Look at `kubectl -n kueue-system get pods` and its logs, then run up again."
        )
        return False
    await asyncio.sleep(PAUSE_SECONDS)  # awaited, so that other resources go on meanwhile
    return True


def kueue_hook(name: str) -> pulumi.ResourceHookBinding:
    """The binding that waits for Kueue's webhook; `name` is unique in the program."""
    return pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(f"{name}: until Kueue answers", until_answered)])
