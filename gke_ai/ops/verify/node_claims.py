"""Claims about nodes: labels, taints, drivers, accelerators, allocatable and DaemonSets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.nodes import shape as labels
from gke_ai.catalog.nodes.shape import ACCELERATORS, GKE_GPU_DRIVER_VERSION, NodeShape, node_labels, node_taints
from gke_ai.catalog.quantities import parse_quantity
from gke_ai.kube.objects import Object, label
from gke_ai.kube.pods import amounts
from gke_ai.ops.verify.checks import FAIL, PASS, UNSEEN, Check, Comparison, both, judged, on_nodes
from gke_ai.ops.verify.nodes import NodeGroup, allocatable_of, groups, requests_on
from gke_ai.settings.calibration import MEASURED
from gke_ai.workspace.emulation import ALONE

# Controllers set and remove these taints with the state of a node: https://kubernetes.io/docs/reference/labels-annotations-taints/,
# https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md.
# Nodes of queued provisioning have the taint of their request: https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
PASSING_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "autoscaling.gke.io/", ALONE)
AUTOSCALER_TAINTS = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler")
# Labels that name the accelerators of a node whose machine type GKE chooses.
ACCELERATOR_LABELS = (
    *(labels.GKE_ACCELERATOR, labels.GKE_TPU_ACCELERATOR, labels.GKE_TPU_TOPOLOGY),
    *(labels.GKE_ACCELERATOR_COUNT, labels.COMPUTE_CLASS),
)


@dataclass
class NodeClaims(Comparison):
    """Claims about the nodes of pools and compute classes, and about nodes that GKE chooses for pods."""

    def nodes(self) -> Iterator[Check]:
        """Labels, taints, drivers, accelerators, allocatable and DaemonSets of the nodes of each group."""
        for group in groups(self.stack, self.live.nodes):
            shaped = list(group.shaped())
            if unknown := group.unknown():
                step = "add the machine type to gke_ai/catalog/machines/machines.yaml"
                yield Check(FAIL, "machine", group.title, "a machine of the catalog", ", ".join(unknown), step)
            elif not shaped:
                yield Check(UNSEEN, "nodes", group.title, "labels, taints and sizes of the catalog", "–", group.shows)
            if not shaped:
                continue
            yield from self._choices(group, shaped)
            yield from self._labels(group, shaped)
            yield from self._taints(group, shaped)
            yield from self._accelerators(group, shaped)
            yield from self._sizes(group, shaped)

    def _choices(self, group: NodeGroup, shaped: list[tuple[Object, NodeShape]]) -> Iterator[Check]:
        """The machine and capacity of each node of a compute class is one of its priorities."""
        if not group.choices:
            return
        relied_on = ", ".join(f"{machine} {capacity}" for machine, capacity in group.choices)
        others = [shape for _, shape in shaped if (shape.machine_type, shape.capacity) not in group.choices]
        found = sorted({f"{shape.machine_type} {shape.capacity}" for shape in others or [shape for _, shape in shaped]})
        yield judged(not others, "choice", group.title, relied_on, ", ".join(found))

    def _labels(self, group: NodeGroup, shaped: list[tuple[Object, NodeShape]]) -> Iterator[Check]:
        """Nodes have the labels of the catalog. A wrong label is a separate result, and so is the driver version."""
        wrong: dict[str, tuple[str, str, int]] = {}
        expected: dict[str, str] = {}
        for node, shape in shaped:
            for key, text in node_labels(shape).items():
                if not group.whole and key not in ACCELERATOR_LABELS:
                    continue  # GKE chooses these, including the driver version
                expected[key] = text
                if (found := label(node, key)) != text:
                    count = wrong[key][2] + 1 if key in wrong else 1
                    wrong[key] = (text, found or "no such label", count)
        for key, (text, found, count) in wrong.items():
            claim = "driver" if key == GKE_GPU_DRIVER_VERSION else "label"
            yield Check(FAIL, claim, f"{group.title}: {key}", text, f"{found}{on_nodes(count, len(shaped))}")
        if GKE_GPU_DRIVER_VERSION in expected and GKE_GPU_DRIVER_VERSION not in wrong:
            text = expected[GKE_GPU_DRIVER_VERSION]
            yield Check(PASS, "driver", f"{group.title}: {GKE_GPU_DRIVER_VERSION}", text, text)
        if good := len(expected.keys() - wrong.keys() - {GKE_GPU_DRIVER_VERSION}):
            found = f"{good} labels{on_nodes(len(shaped), len(shaped))}"
            yield Check(PASS, "label", group.title, f"{good} labels", found)

    def _taints(self, group: NodeGroup, shaped: list[tuple[Object, NodeShape]]) -> Iterator[Check]:
        wrong = []
        for node, shape in shaped:
            wanted = {_taint(taint.key, taint.value, taint.effect) for taint in (*node_taints(shape), *group.declared)}
            there = {
                _taint(taint["key"], taint.get("value", ""), taint["effect"])
                for taint in node["spec"].get("taints") or []
                if not taint["key"].startswith(PASSING_TAINTS) and taint["key"] not in AUTOSCALER_TAINTS
            }
            if wanted != there:
                wrong.append((wanted, there))
        wanted, there = wrong[0] if wrong else (wanted, there)
        found = ", ".join(sorted(there)) or "none"
        on = on_nodes(len(wrong) or len(shaped), len(shaped))
        yield judged(not wrong, "taint", group.title, ", ".join(sorted(wanted)) or "none", f"{found}{on}")

    def _accelerators(self, group: NodeGroup, shaped: list[tuple[Object, NodeShape]]) -> Iterator[Check]:
        """The device plugin reports the expected number of GPUs or TPU chips."""
        for resource in ACCELERATORS:
            counts = [
                (planned[resource], str(allocatable_of(node).get(resource, "0")))
                for node, shape in shaped
                if resource in (planned := self.measured.allocatable(shape))
            ]
            wrong = [pair for pair in counts if pair[0] != parse_quantity(pair[1])]
            for wanted, found in (wrong or counts)[:1]:
                on = on_nodes(len(wrong) or len(counts), len(counts))
                # GKE installs the driver after the node is ready; then the device plugin reports GPUs.
                step = "if a node is minutes old, wait for its driver and run this again"
                subject, relied_on = f"{group.title}: {resource}", f"{wanted} a node"
                yield judged(not wrong, "accelerators", subject, relied_on, f"{found}{on}", step)

    def _sizes(self, group: NodeGroup, shaped: list[tuple[Object, NodeShape]]) -> Iterator[Check]:
        """Nodes have at least the planned allocatable, and DaemonSets request at most the planned amount."""
        by_machine: dict[str, list[tuple[Object, NodeShape]]] = defaultdict(list)
        for node, shape in shaped:
            by_machine[shape.machine_type].append((node, shape))
        for machine_type, members in by_machine.items():
            subject = f"{group.title}: {machine_type}"
            shape = members[0][1]
            planned = self.measured.allocatable(shape)
            room = self.measured.room(shape)
            accelerated = bool(shape.gpu or MACHINES[machine_type].tpu)
            requests = [requests_on(node, self.live.daemon_requests) for node, _ in members]
            for resource in MEASURED:
                if resource == "ephemeral-storage" and not group.whole:
                    continue  # GKE chooses the boot disk
                lowest = min(amounts(allocatable_of(node)).get(resource, Fraction(0)) for node, _ in members)
                relied_on, found = both(resource, planned[resource], lowest)
                enough = lowest >= planned[resource]
                yield judged(enough, f"allocatable {resource}", subject, f"at least {relied_on}", found)
                if not accelerated:
                    continue
                deducted = planned[resource] - room[resource]
                highest = max(taken.get(resource, Fraction(0)) for taken in requests)
                relied_on, found = both(resource, deducted, highest)
                yield judged(highest <= deducted, f"DaemonSets {resource}", subject, f"at most {relied_on}", found)


def _taint(key: str, text: str, effect: str) -> str:
    return f"{key}={text}:{effect}"
