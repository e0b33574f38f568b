"""Every policy of the pack, by subject."""

from __future__ import annotations

from gke_ai.registered.policy.base import Policy
from gke_ai.registered.policy.rules import accelerators, access, cloud, data, pods

POLICIES: tuple[Policy, ...] = (
    *accelerators.POLICIES,
    *pods.POLICIES,
    *data.POLICIES,
    *cloud.POLICIES,
    *access.POLICIES,
)
