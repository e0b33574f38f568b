"""What the controllers of pods are: a server or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gke_ai.catalog.quota import QUEUE_LABEL
from gke_ai.kube.pods import accelerators

SERVERS = ("Deployment", "StatefulSet")


def is_server(controller: Mapping[str, Any]) -> bool:
    """Whether a Deployment or a StatefulSet has a queue or accelerators. Adapters and frontends have neither."""
    template = (controller.get("spec") or {}).get("template") or {}
    labels = [(item.get("metadata") or {}).get("labels") or {} for item in (controller, template)]
    return any(each.get(QUEUE_LABEL) for each in labels) or bool(accelerators(template.get("spec") or {}))
