"""Claims of devices for the status: NICs of nodes that are allocated, and why a pod waits for its claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gke_ai.catalog.fabric.rdma import DEVICE_CLASS, DRIVER
from gke_ai.kube.objects import Object
from gke_ai.kube.values import items, mapping, value

# The attribute by which GKE's class selects NICs with RDMA.
_RDMA = f"{DRIVER}/rdma"


@dataclass(frozen=True)
class Nics:
    """NICs with RDMA by node: all, and those that a claim has."""

    total: Counter[str] = field(default_factory=Counter)
    allocated: Counter[str] = field(default_factory=Counter)

    def on(self, nodes: Iterable[Object]) -> str:
        """Returns how many NICs of some nodes are allocated; an empty text if they have none."""
        names = [node["metadata"]["name"] for node in nodes]
        total = sum(self.total[name] for name in names)
        return f"NICs {sum(self.allocated[name] for name in names)} of {total}" if total else ""

    @property
    def most_free(self) -> int | None:
        """The largest number of NICs that a node has free. None if no node has NICs."""
        return max((count - self.allocated[node] for node, count in self.total.items()), default=None)


def nics_of(slices: Iterable[Object], claims: Iterable[Object]) -> Nics:
    """Returns the NICs of each node, from what the driver publishes."""
    taken = {
        (result["driver"], result["pool"], result["device"])
        for claim in claims
        for result in items(claim, "status", "allocation", "devices", "results")
    }
    nics = Nics()
    for published in slices:
        spec = published["spec"]
        node, pool = spec.get("nodeName", ""), spec["pool"]["name"]
        for device in items(spec, "devices"):
            if value(device, "attributes", _RDMA, "bool"):
                nics.total[node] += 1
                nics.allocated[node] += (spec["driver"], pool, device["name"]) in taken
    return nics


def pending_claims(pod: Object, claims: Mapping[tuple[str, str], Object], nics: Nics) -> Iterator[str]:
    """Yields why each claim of a pending pod has no devices. `claims` are by namespace and name."""
    namespace = pod["metadata"]["namespace"]
    created = {entry["name"]: entry.get("resourceClaimName") for entry in items(pod, "status", "resourceClaimStatuses")}
    for entry in items(pod, "spec", "resourceClaims"):
        template = entry.get("resourceClaimTemplateName")
        name = str(entry.get("resourceClaimName") or created.get(entry["name"], ""))
        claim = claims.get((namespace, name))
        if claim is None and template:
            yield f"it has no claim {entry['name']} yet: see whether namespace {namespace} has the template {template}"
        elif claim is None:
            yield f"there is no claim {name} in namespace {namespace}"
        elif not mapping(claim, "status", "allocation"):
            yield f"claim {name} is not allocated{_why(claim, nics)}"


def _why(claim: Object, nics: Nics) -> str:
    """What a claim requests, and how far a node is from having it."""
    requests = [mapping(request, "exactly") for request in items(claim, "spec", "devices", "requests")]
    count = sum(request.get("count", 1) for request in requests if request.get("deviceClassName") == DEVICE_CLASS)
    if not count:
        return ""
    if nics.most_free is None:
        return f": it requests {count} NICs, and no node has any"
    if nics.most_free < count:
        return f": it requests {count} NICs, and no node has more than {nics.most_free} free"
    return f": it requests {count} NICs, and nodes that have them do not fit the pod"
