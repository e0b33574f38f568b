"""Kueue's manager: its version, and the part of its configuration that decides who is admitted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gke_ai.catalog.documents import InvalidDocument, Reader, read
from gke_ai.catalog.namespaces import KUEUE
from gke_ai.forecast.snapshot.fields import trim_kueue
from gke_ai.kube.client import Answer

# https://github.com/kubernetes-sigs/kueue, config/components/manager; the chart names both alike
CONFIG_MAP, KEY = "kueue-manager-config", "controller_manager_config.yaml"
PATH = f"/api/v1/namespaces/{KUEUE}/configmaps/{CONFIG_MAP}"


# The manager's image, in any registry and with any name of the Deployment.
_IMAGE = re.compile(r"(?:.*/)?kueue:v?(\d+\.\d+\.\d+)(?:@.*)?")
_GATES = "--feature-gates="


def manager(deployments: Iterable[Mapping[str, Any]]) -> tuple[str | None, dict[str, bool]]:
    """Returns the version of Kueue and the feature gates of its flags, from the Deployments of a cluster."""
    for deployment in deployments:
        for container in deployment.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            if match := _IMAGE.fullmatch(str(container.get("image"))):
                flags = [word for word in container.get("args") or [] if str(word).startswith(_GATES)]
                stated = [gate.partition("=") for flag in flags for gate in flag.removeprefix(_GATES).split(",")]
                return match[1], {name: value.lower() == "true" for name, _, value in stated}
    return None, {}


def configuration(answer: Answer) -> dict[str, Any] | None:
    """Returns the listed fields in the answer for PATH, or None if the cluster has none or does not show them."""
    text = (answer.body.get("data") or {}).get(KEY) if answer.code == 200 else None
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
