"""Rules of the versions that a configuration holds."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.versions import KUEUE_API
from settings.model import Settings
from settings.problems import Problem
from settings.rules.common import Rule

# The first version of Kueue that stores the API that this program writes: https://github.com/kubernetes-sigs/kueue/releases
OLDEST_KUEUE = (0, 16)


def kueue_knows_the_objects(settings: Settings) -> Iterator[Problem]:
    """Kueue is held at no version that would refuse, or lose, what this program writes."""
    held = settings.queues.kueue_version if settings.queues else None
    if held and tuple(map(int, held.split(".")[:2])) < OLDEST_KUEUE:
        oldest = ".".join(map(str, OLDEST_KUEUE))
        yield Problem(
            "gke-ai:queues.kueueVersion",
            f"Kueue {held} doesn't store {KUEUE_API} — its queues would not be what is configured",
            f"Hold {oldest} or newer, or leave kueueVersion out; see docs/upgrading.md",
        )


RULES: tuple[Rule, ...] = (kueue_knows_the_objects,)
