"""Kueue's manager: its version, and the part of its configuration that decides who is admitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gke_ai.forecast.snapshot.fields import trim_kueue
from gke_ai.kube.client import Answer
from gke_ai.kube.kueue import place, read_configuration

# Of a Kueue by its chart in the chart's namespace, as a rehearsal installs it.
PATH, KEY = place(None)


def configuration(answer: Answer, key: str = KEY) -> dict[str, Any] | None:
    """Returns the listed fields in the answer for a ConfigMap; None if the cluster has none or does not show it."""
    content = read_configuration(answer, key)
    return None if content is None else trim_kueue(content)


def differing(of_snapshot: Mapping[str, Any] | None, of_rehearsal: Mapping[str, Any] | None) -> Iterator[str]:
    """Yields a note if Kueue decides otherwise in a rehearsal than in the cluster of the snapshot."""
    if of_snapshot is None:
        yield "The snapshot lacks the configuration of Kueue, so the rehearsal's may differ from the cluster's."
        return
    rehearsed = of_rehearsal or {}
    keys = sorted({*of_snapshot, *rehearsed})
    if others := [key for key in keys if of_snapshot.get(key) != rehearsed.get(key)]:
        yield (
            f"Kueue is configured otherwise in the cluster: {', '.join(others)}. "
            "The rehearsal has the settings of the base."
        )
