"""The policy pack under the real engine: what is mandatory stops an `up` before anything is made, the rest is told."""

from __future__ import annotations

import re

import pytest

from tests.end_to_end.conftest import fresh
from tests.end_to_end.standin import cloud_of
from tests.end_to_end.test_convergence import section

pytestmark = pytest.mark.cluster

DEV = "Pulumi.dev.yaml"
IMAGE = "example.com/server"  # without a tag
TOLD = f"Deployment llm/gemma: container inference-server: image {IMAGE} has no tag"
# What an environment for a first look leaves open, and a policy would stop.
LEFT_OPEN = [
    {"policy": policy, "resource": "Cluster *", "reason": "a test"}
    for policy in (
        "control-plane-is-not-open",
        "nodes-are-private",
        "nodes-have-an-account-of-their-own",
        "what-matters-is-protected",
    )
]
GONE_AT_THE_END = [
    {"policy": policy, "resource": "Bucket *", "reason": "a test"}
    for policy in ("data-can-be-restored", "what-matters-is-protected")
]


def violations(said: str, level: str) -> set[str]:
    """Names of the policies that a preview reports at this level."""
    return set(re.findall(rf"\[{level}\]\s+([a-z-]+)", said))


def test_mandatory_violation_stops_an_up_and_nothing_is_made() -> None:
    token = "hf_" + "canary" * 5
    with fresh(HF_TOKEN=token) as stand_in:
        servers = [{**section("serving", DEV)[0], "image": IMAGE}]
        sections = {"cluster": {"name": "ai-dev", "mode": "autopilot", "location": "us-central1"}, "serving": servers}
        reason = "the research team answers for it"
        waiver = {"policy": "images-are-pinned", "resource": "Deployment llm/gemma", "reason": reason}
        unused = {**waiver, "resource": "Deployment llm/other"}

        # Advisory, the default: told, and no reason to stop; so is a waiver that lets nothing pass.
        config = stand_in.configure(DEV, **sections, policies="advisory", waivers=[unused])
        advised = stand_in.make("preview", config)
        assert TOLD in advised
        assert {"images-are-pinned", "waivers-are-in-use"} <= violations(advised, "advisory")
        assert violations(advised, "mandatory") == set()

        # Mandatory: an up stops before anything is made, and says why.
        refused = stand_in.make("up", stand_in.configure(DEV, **sections, policies="mandatory"), fails=True)
        assert TOLD in refused
        assert "images-are-pinned" in violations(refused, "mandatory")
        assert cloud_of(stand_in) == frozenset()
        assert stand_in.exported().get("resources", []) == []

        # Waived, each with its reason: what is left may be deployed, and the exceptions are told.
        waivers = [waiver, *LEFT_OPEN, *GONE_AT_THE_END]
        allowed = stand_in.make("policies", stand_in.configure(DEV, **sections, policies="mandatory", waivers=waivers))
        assert violations(allowed, "mandatory") == set()
        assert violations(allowed, "advisory") == {"waived"}
        assert f"Waived from images-are-pinned: {reason}" in allowed

        # The token is a secret on its way to the policies: neither found nor shown.
        assert token not in advised + refused + allowed
        assert "no-plain-text-secrets" not in violations(advised + refused, "advisory") | violations(
            refused, "mandatory"
        )
