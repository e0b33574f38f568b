"""Every policy of the pack, by subject."""

from __future__ import annotations

from gke_ai.review.policy.base import Policy
from gke_ai.review.policy.rules import accelerators, access, cloud, data, pods

# The policies of each module, which is a subject.
BY_SUBJECT = {
    subject: tuple(policy for policy in vars(subject).values() if isinstance(policy, Policy))
    for subject in (accelerators, pods, data, cloud, access)
}
POLICIES = tuple(policy for policies in BY_SUBJECT.values() for policy in policies)
