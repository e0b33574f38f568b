"""A GKE ComputeClass: an ordered list of ways to get nodes."""

from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s

from catalog.machines import machine
from catalog.versions import COMPUTE_CLASS_API
from components.base import Component, read
from components.retry import kueue_hook
from settings.model import ClassFlexStart, Priority, Reservation, Spot
from settings.model import ComputeClass as Section


class ClassCapacityArgs(TypedDict):
    """How GKE gets the nodes of a priority."""

    mode: str
    """`onDemand`, `spot`, `reservation` or `flexStart`."""
    reservation: NotRequired[str]
    """Name of the reservation, or projects/PROJECT/reservations/NAME for a shared one."""
    max_run_duration_seconds: NotRequired[int]
    """Lifetime of a flex-start node in seconds. Default: seven days."""
    recycle_lead_time_seconds: NotRequired[int]
    """Seconds before the end of a flex-start node at which GKE creates its successor. Default: no successor."""


class PriorityArgs(TypedDict):
    """One priority: a machine type and its capacity."""

    machine_type: str
    capacity: NotRequired[ClassCapacityArgs]
    driver: NotRequired[str]
    """NVIDIA driver, `default` or `latest`. Default: GKE's choice."""


class ComputeClassArgs(TypedDict):
    """Arguments of a `ComputeClass`."""

    name: str
    priorities: list[PriorityArgs]
    when_unsatisfiable: NotRequired[str]
    """`DoNotScaleUp`: wait for one of the priorities. `ScaleUpAnyway`: take any machine type."""
    auto_create_pools: NotRequired[bool]
    """Let GKE create the node pools. If false, the pools must exist."""
    node_service_account: NotRequired[str]
    """E-mail address of the service account of the nodes in those pools. Default: the cluster's choice."""


class ComputeClass(Component):
    """A ComputeClass: GKE uses the first priority that is available.

    Pods select it with the node label `cloud.google.com/compute-class`; GKE adds the toleration. The component always
    sets what happens when no priority is available, because GKE's default changed in 1.33.

    Needs GKE 1.30.3-gke.1451000, or 1.32.2-gke.1652000 for flex-start. Below 1.33.3-gke.1136000 GKE creates pools only
    if the cluster's auto-provisioning is on.

    Refused: arguments that `settings.model.ComputeClass` refuses.

    Sources: https://cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass,
    https://cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes
    """

    class_name: pulumi.Output[str]
    """Name of the class."""

    def __init__(self, name: str, args: ComputeClassArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        section = read(Section, name, args)
        account = args.get("node_service_account")
        resource = k8s.apiextensions.CustomResource(
            section.name,
            api_version=COMPUTE_CLASS_API,
            kind="ComputeClass",
            metadata={"name": section.name},
            spec={
                "priorities": [choice(priority) for priority in section.priorities],
                "nodePoolAutoCreation": {"enabled": section.auto_create_pools},
                "whenUnsatisfiable": section.when_unsatisfiable,
                **({"nodePoolConfig": {"serviceAccount": account}} if account and section.auto_create_pools else {}),
            },
            # A new cluster may not serve the kind yet.
            opts=pulumi.ResourceOptions(parent=self, hooks=kueue_hook(f"compute class {name}")),
        )
        self.class_name = resource.id.apply(lambda _: section.name)
        self.register_outputs({"className": self.class_name})


def choice(priority: Priority) -> dict[str, Any]:
    """One entry of `spec.priorities`."""
    entry: dict[str, Any] = {"machineType": priority.machine_type}
    capacity = priority.capacity
    if isinstance(capacity, Spot):
        entry["spot"] = True
    if isinstance(capacity, Reservation):
        entry["reservations"] = {"affinity": "Specific", "specific": [reservation(capacity.reservation)]}
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


def reservation(reference: str) -> dict[str, str]:
    """A reservation by its name, and by its project if it is shared."""
    *project, name = reference.removeprefix("projects/").split("/reservations/")
    return {"name": name, **({"project": project[0]} if project else {})}
