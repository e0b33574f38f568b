"""A GKE ComputeClass: how nodes are to be had, in order of preference."""

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
    """How the nodes of a choice are had."""

    mode: str
    """`onDemand`, `spot`, `reservation` or `flexStart`."""
    reservation: NotRequired[str]
    """Its name, or projects/PROJECT/reservations/NAME for a shared one."""
    max_run_duration_seconds: NotRequired[int]
    """How long a flex-start node lives; none: seven days."""
    recycle_lead_time_seconds: NotRequired[int]
    """How long before its end a flex-start node gets a successor; none: it gets none."""


class PriorityArgs(TypedDict):
    """One choice: a machine type, and how it is had."""

    machine_type: str
    capacity: NotRequired[ClassCapacityArgs]
    driver: NotRequired[str]
    """NVIDIA driver, `default` or `latest`; none: GKE's choice."""


class ComputeClassArgs(TypedDict):
    """Arguments of a `ComputeClass`."""

    name: str
    priorities: list[PriorityArgs]
    when_unsatisfiable: NotRequired[str]
    """`DoNotScaleUp`: wait for one of the choices; `ScaleUpAnyway`: take a machine of any kind."""
    auto_create_pools: NotRequired[bool]
    """GKE makes the pools; else they must be there."""
    node_service_account: NotRequired[str]
    """Address of the service account that nodes of those pools run as; none: the cluster's choice."""


class ComputeClass(Component):
    """A ComputeClass: GKE takes the first of its choices that can be had, and the next where it can't.

    Pods ask for it by the node label `cloud.google.com/compute-class`; the toleration comes by itself. What happens
    when no choice can be had is always written: GKE's own default changed with 1.33.

    It needs GKE 1.30.3-gke.1451000, for flex-start 1.32.2-gke.1652000; below 1.33.3-gke.1136000 pools are made only
    where the cluster's own auto-provisioning is on.

    Refused: arguments that `settings.model.ComputeClass` refuses.

    Sources: https://cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass,
    https://cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes
    """

    class_name: pulumi.Output[str]
    """Name of the class."""

    def __init__(self, name: str, args: ComputeClassArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        wanted = read(Section, name, args)
        account = args.get("node_service_account")
        made = k8s.apiextensions.CustomResource(
            wanted.name,
            api_version=COMPUTE_CLASS_API,
            kind="ComputeClass",
            metadata={"name": wanted.name},
            spec={
                "priorities": [choice(priority) for priority in wanted.priorities],
                "nodePoolAutoCreation": {"enabled": wanted.auto_create_pools},
                "whenUnsatisfiable": wanted.when_unsatisfiable,
                **({"nodePoolConfig": {"serviceAccount": account}} if account and wanted.auto_create_pools else {}),
            },
            # A cluster that was just made may not serve the kind yet.
            opts=pulumi.ResourceOptions(parent=self, hooks=kueue_hook(f"compute class {name}")),
        )
        self.class_name = made.id.apply(lambda _: wanted.name)
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
        # Always: Autopilot takes a pod with GPUs into a class only if a choice says that it has some.
        # https://github.com/GoogleCloudPlatform/ai-on-gke/pull/983
        entry["gpu"] = {"type": machine_type.gpu, "count": machine_type.gpus}
        if priority.driver is not None:
            entry["gpu"]["driverVersion"] = priority.driver
    return entry


def reservation(named: str) -> dict[str, str]:
    """A reservation by its name, and by its project where it is a shared one."""
    *project, name = named.removeprefix("projects/").split("/reservations/")
    return {"name": name, **({"project": project[0]} if project else {})}
