"""A GKE ComputeClass: an ordered list of ways to get nodes."""

from typing import Any

import pulumi

from gke_ai.catalog.fabric.rdma import PROFILE
from gke_ai.catalog.machines.capacity import reserved_part
from gke_ai.catalog.machines.types import machine
from gke_ai.catalog.versions import COMPUTE_CLASS_API
from gke_ai.components.arguments import Input, takes
from gke_ai.components.base import Component, custom_object
from gke_ai.components.cluster.cluster import GkeCluster
from gke_ai.components.cluster.connection import AnyCluster, InCluster
from gke_ai.components.support.alone import check_alone
from gke_ai.components.support.retry import kueue_hook
from gke_ai.settings import model
from gke_ai.settings.model import ClassFlexStart, Priority
from gke_ai.settings.model.base import DnsLabel


class ComputeClassArguments(InCluster, model.ComputeClass):
    name: DnsLabel = ""
    """Name of the class. Default: the component's name."""
    node_service_account: Input[str] | None = None
    """E-mail address of the service account of the nodes in the pools that GKE creates. Default: that of the nodes of
    a `GkeCluster`, else GKE's choice."""


class ComputeClass(Component):
    """A ComputeClass: GKE uses the first priority that is available.

    Pods select it with the node label `cloud.google.com/compute-class`; GKE adds the toleration. The component always
    sets what happens when no priority is available, because GKE's default changed in 1.33.

    Needs GKE 1.30.3-gke.1451000, or 1.32.2-gke.1652000 for flex-start. Below 1.33.3-gke.1136000 GKE creates pools only
    if the cluster's auto-provisioning is on.

    With `rdma_zone`, GKE's managed DRANET gives the nodes NICs that pods claim. It needs Dataplane V2, and GKE
    1.34.1-gke.1829001, or 1.35.2-gke.1842000 on Autopilot.

    Sources: https://cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass,
    https://cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes,
    https://cloud.google.com/kubernetes-engine/docs/how-to/allocate-network-resources-dra

    Example:
        ComputeClass(
            "cheap-l4",
            cluster=cluster,
            priorities=[
                Priority(machine_type="g2-standard-24", capacity=Spot(mode="spot")),
                Priority(machine_type="g2-standard-24"),
            ],
        )
    """

    class_name: pulumi.Output[str]
    """Name of the class."""

    @takes(ComputeClassArguments)
    def __init__(self, name: str, args: ComputeClassArguments) -> None:
        super().__init__(name, args)
        section = self.section = args.section(model.ComputeClass)
        self.cluster = args.place()
        if not args.is_checked:
            check_alone(f"ComputeClass {name}", section, self.cluster.section if self.cluster else None)
        account = (args.node_service_account or account_of(self.cluster)) if section.auto_create_pools else None
        nodes: dict[str, Any] = {"serviceAccount": account} if account else {}
        nodes |= {"dra": {"networking": {"enabled": True}}} if section.rdma_zone else {}
        spec = {
            "priorities": [{**choice(priority), **network(section.rdma_zone)} for priority in section.priorities],
            "nodePoolAutoCreation": {"enabled": section.auto_create_pools},
            "whenUnsatisfiable": section.when_unsatisfiable,
            **({"nodePoolConfig": nodes} if nodes else {}),
        }
        # A new cluster may not serve the kind yet.
        child = self.main_options(hooks=kueue_hook(f"compute class {name}"))
        resource = custom_object(COMPUTE_CLASS_API, "ComputeClass", section.name, spec, child)
        self.class_name = resource.id.apply(lambda _: section.name)
        self.register_outputs({"className": self.class_name})

    @property
    def called(self) -> str:
        return self.section.name


def account_of(cluster: AnyCluster | None) -> pulumi.Input[str] | None:
    """The service account of a cluster's nodes, if it is known. That of Autopilot's nodes is the cluster's to set."""
    known = isinstance(cluster, GkeCluster) and not cluster.section.is_autopilot
    return cluster.node_service_account if known and isinstance(cluster, GkeCluster) else None


def choice(priority: Priority) -> dict[str, Any]:
    """One entry of `spec.priorities`."""
    entry: dict[str, Any] = {"machineType": priority.machine_type}
    capacity = priority.capacity
    if capacity.mode == "spot":
        entry["spot"] = True
    if capacity.reservation_name is not None:
        entry["reservations"] = {"affinity": "Specific", "specific": [reservation(capacity.reservation_name)]}
    if isinstance(capacity, ClassFlexStart):
        entry["flexStart"] = {"enabled": True}
        if capacity.recycle_lead_time_seconds is not None:
            entry["flexStart"]["nodeRecycling"] = {"leadTimeSeconds": capacity.recycle_lead_time_seconds}
        if capacity.max_run_duration_seconds is not None:
            entry["maxRunDurationSeconds"] = capacity.max_run_duration_seconds
    machine_type = machine(priority.machine_type)
    if machine_type.gpu is not None:
        # Always set: Autopilot accepts a pod with GPUs only if a priority of its class states the GPUs.
        # https://github.com/GoogleCloudPlatform/ai-on-gke/pull/983
        entry["gpu"] = {"type": machine_type.gpu, "count": machine_type.gpus}
        if priority.driver is not None:
            entry["gpu"]["driverVersion"] = priority.driver
    return entry


def network(zone: str | None) -> dict[str, Any]:
    """The RDMA network of the nodes of a priority. It is in one zone."""
    return {"acceleratorNetworkProfile": PROFILE, "location": {"zones": [zone]}} if zone else {}


def reservation(reference: str) -> dict[str, Any]:
    """A reservation by its name, and by its project if it is shared, with its block and sub-block if it names them.

    https://github.com/GoogleCloudPlatform/compute-class-api at 8067eae, SpecificReservation
    """
    part = reserved_part(reference)
    inner = {"reservationSubBlock": {"name": part.sub_block}} if part.sub_block else {}
    return {
        "name": part.name,
        **({"project": part.project} if part.project else {}),
        **({"reservationBlock": {"name": part.block, **inner}} if part.block else {}),
    }
