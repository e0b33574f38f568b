"""What the controllers of pods are: a server or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gke_ai.catalog.quota import QUEUE_LABEL
from gke_ai.kube.pods import accelerators
from gke_ai.kube.values import mapping, value

SERVERS = ("Deployment", "StatefulSet")


def is_server(controller: Mapping[str, Any]) -> bool:
    """Whether a Deployment or a StatefulSet has a queue or accelerators. Adapters and frontends have neither."""
    template = mapping(controller, "spec", "template")
    queued = any(value(mapping(item, "metadata", "labels"), QUEUE_LABEL) for item in (controller, template))
    return queued or bool(accelerators(mapping(template, "spec")))
