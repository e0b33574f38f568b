"""Rules of the chart versions in a configuration."""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.catalog.versions import KUEUE_API
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules.common import rule

# First version of Kueue that stores the API version of this program's objects: https://github.com/kubernetes-sigs/kueue/releases
OLDEST_KUEUE = (0, 16)


@rule
def kueue_knows_the_objects(stack: ResolvedStack) -> Iterator[Problem]:
    """Kueue is not older than the API version of this program's objects."""
    pinned = stack.queues.kueue_version
    if pinned and tuple(map(int, pinned.split(".")[:2])) < OLDEST_KUEUE:
        oldest = ".".join(map(str, OLDEST_KUEUE))
        cause = f"Kueue {pinned} does not store {KUEUE_API}. Its queues would differ from the configuration"
        remedy = f"Set {oldest} or newer, or remove kueueVersion (docs/upgrading.md)"
        yield Problem("gke-ai:queues.kueueVersion", cause, remedy)
