"""Kueue's manager: its version, and the part of its configuration that decides who is admitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gke_ai.catalog.documents import InvalidDocument, Reader, read
from gke_ai.catalog.namespaces import KUEUE
from gke_ai.forecast.snapshot.fields import trim_kueue
from gke_ai.kube.client import Answer
from gke_ai.kube.kueue import Manager

# https://github.com/kubernetes-sigs/kueue, config/components/manager; the chart names both alike
CONFIG_MAP, KEY = "kueue-manager-config", "controller_manager_config.yaml"
PATH = f"/api/v1/namespaces/{KUEUE}/configmaps/{CONFIG_MAP}"


def place(found: Manager | None) -> tuple[str, str]:
    """Returns the API path of the ConfigMap with Kueue's configuration, and its key there."""
    if found is None or not found.config_map:
        return PATH, KEY
    namespace = found.deployment["metadata"]["namespace"]
    return f"/api/v1/namespaces/{namespace}/configmaps/{found.config_map}", found.file.rpartition("/")[2]


def configuration(answer: Answer, key: str = KEY) -> dict[str, Any] | None:
    """Returns the listed fields in the answer for a ConfigMap; None if the cluster has none or does not show it."""
    text = (answer.body.get("data") or {}).get(key) if answer.code == 200 else None
    try:
        content = read(text or "", Reader.KUBECTL)[0]
    except (InvalidDocument, IndexError):
        return None
    return trim_kueue(content) if isinstance(content, dict) else None


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
