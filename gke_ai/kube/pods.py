"""What a pod requests, as the scheduler, quotas and Kueue count it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from gke_ai.catalog.nodes import NVIDIA_GPU
from gke_ai.catalog.quantities import parse_quantity
from gke_ai.catalog.tpus import GOOGLE_TPU
from gke_ai.kube.objects import Object
from gke_ai.kube.values import items, mapping

Spec = Mapping[str, Any]
ACCELERATORS = (NVIDIA_GPU, GOOGLE_TPU)
_NOTHING = Fraction(0)


def requests(spec: Spec) -> dict[str, Fraction]:
    """What a pod with this spec requests, by resource.

    Containers and sidecars count together, or an init container that is larger beside the sidecars before it. Requests
    of the whole pod stand for those of its containers. The overhead of its runtime class is added. Amounts that are not
    known yet are not counted.

    https://github.com/kubernetes/kubernetes/blob/v1.36.1/staging/src/k8s.io/component-helpers/resource/helpers.go
    """
    together: Counter[str] = Counter()
    peak: dict[str, Fraction] = {}
    for container in items(spec, "initContainers"):
        own = container_requests(container)
        if container.get("restartPolicy") == "Always":
            together.update(own)
            own = {}
        for resource, amount in own.items():
            peak[resource] = max(peak.get(resource, _NOTHING), amount + together[resource])
    for container in items(spec, "containers"):
        together.update(container_requests(container))
    total = {
        resource: max(Fraction(together[resource]), peak.get(resource, _NOTHING)) for resource in {*together, *peak}
    }
    total |= {resource: amount for resource, amount in container_requests(spec).items() if _of_whole_pod(resource)}
    for resource, amount in _amounts(mapping(spec, "overhead")).items():
        total[resource] = total.get(resource, _NOTHING) + amount
    return total


def accelerators(spec: Spec) -> dict[str, int]:
    """The GPUs and TPU chips that a pod with this spec requests, by resource."""
    requested = requests(spec)
    return {resource: count for resource in ACCELERATORS if (count := int(requested.get(resource, 0)))}


def accelerator_count(spec: Spec) -> int:
    """The number of GPUs and TPU chips that a pod with this spec requests."""
    return sum(accelerators(spec).values())


def ended(pod: Object) -> bool:
    """Whether a pod has run to its end."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def container_requests(container: Spec) -> dict[str, Fraction]:
    """What a container requests, by resource. A limit stands for a request that is not stated, as the API sets it."""
    limits, requested = mapping(container, "resources", "limits"), mapping(container, "resources", "requests")
    return _amounts({**limits, **_stated(requested)})


def _of_whole_pod(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _amounts(texts: Mapping[str, Any]) -> dict[str, Fraction]:
    known = {}
    for resource, text in _stated(texts).items():
        try:
            known[resource] = parse_quantity(str(int(text) if isinstance(text, float) and text.is_integer() else text))
        except ValueError:  # not known before the update, or secret
            continue
    return known


def _stated(texts: Mapping[str, Any]) -> dict[str, Any]:
    return {resource: text for resource, text in texts.items() if text is not None}
