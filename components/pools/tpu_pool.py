"""Node pools with TPUs: `TpuNodePool`, and `FlexStartTpuPool` for flex-start."""

import pulumi
import pulumi_gcp as gcp

from gke_ai.components.arguments import Input, Refused, takes
from gke_ai.components.pools.node_pool import NodePoolArguments, NodePoolComponent, whole_pool
from gke_ai.settings.model import FlexStart, TpuPool
from gke_ai.settings.problems import Problem


class TpuPoolArguments(NodePoolArguments, TpuPool):
    """The arguments of both."""

    workload_policy: Input[str] | None = None  # type: ignore[assignment]


class TpuPoolComponent(NodePoolComponent):
    """What a `TpuNodePool` and a `FlexStartTpuPool` share. They differ in the capacity modes that they accept."""

    # Whether its pools start from zero, and only the autoscaler sizes them.
    elastic = False

    def __init__(self, name: str, args: TpuPoolArguments) -> None:
        spec = self.checked(name, args.section(TpuPool))
        place = args.place(f"{type(self).__name__} {name}")
        super().__init__(name, args, spec)
        self.create_pool(
            spec,
            place,
            # No taint: GKE adds google.com/tpu to every TPU node.
            autoscaling=autoscaling(spec, place.zones_of(spec)),
            placement=placement(spec),
            # The provider plans an update of both. It then sends nothing for the topology, and GKE refuses the
            # machine type: both are fixed at creation.
            # https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools/update
            replace_on_changes=["nodeConfig.machineType", "placementPolicy.tpuTopology"],
        )

    @classmethod
    def checked(cls, name: str, pool: TpuPool) -> TpuPool:
        """The section, if the component has its capacity mode. Raises Refused otherwise."""
        if pool.elastic == cls.elastic:
            return pool
        other = FlexStartTpuPool if pool.elastic else TpuNodePool
        cause = f"a {cls.__name__} has no capacity of mode {pool.capacity.mode}"
        raise Refused(f"{cls.__name__} {name}", Problem("capacity", cause, f"Use a {other.__name__}"))


class TpuNodePool(TpuPoolComponent):
    """A node pool of TPUs in a Standard cluster: on demand, on Spot, or from a reservation.

    Version and topology determine the machine. Nodes are either independent single-host slices, in any number, or
    together one multi-host slice, whose nodes are created and deleted as a unit. The size is fixed or autoscaled.

    Refused: a slice that GKE doesn't have; flex-start, which needs a `FlexStartTpuPool`; a size that differs from the
    slice's, several zones for a multi-host slice, a disk that the machine can't boot from.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/tpus,
    https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus,
    https://cloud.google.com/kubernetes-engine/docs/concepts/tpu-ironwood

    Example:
        TpuNodePool("serving", cluster=cluster, version="v5e", topology="2x4", nodes_per_zone=2)
    """

    @takes(TpuPoolArguments)
    def __init__(self, name: str, args: TpuPoolArguments) -> None:
        super().__init__(name, args)


class FlexStartTpuPool(TpuPoolComponent):
    """A node pool of TPUs in a Standard cluster with flex-start capacity, queued or not.

    It sets what flex-start needs: no reservation, no initial nodes, autoscaling in each zone between zero and a maximum
    (for a multi-host pool exactly the slice), and a limit on the lifetime of nodes. Auto-repair is off by default,
    because a repair ends the run of the whole slice and returns the capacity.

    Refused: a slice that GKE doesn't have; another capacity mode, which needs a `TpuNodePool`; a fixed size or a
    minimum, a maximum other than the slice's size, a zone or a version without flex-start.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/dws-flex-start-training-tpu,
    https://cloud.google.com/kubernetes-engine/docs/concepts/dws,
    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest

    Example:
        tpus = GkeCluster("tpus", location="us-east5", mode="standard")
        FlexStartTpuPool("slice", cluster=tpus, version="v6e", topology="4x4", zones=["us-east5-b"])
    """

    elastic = True

    @takes(TpuPoolArguments)
    def __init__(self, name: str, args: TpuPoolArguments) -> None:
        super().__init__(name, args)

    @classmethod
    def checked(cls, name: str, pool: TpuPool) -> TpuPool:
        if "capacity" not in pool.model_fields_set:
            pool = pool.model_copy(update={"capacity": FlexStart(mode="flexStart")})
        return super().checked(name, pool)


def placement(spec: TpuPool) -> "gcp.container.NodePoolPlacementPolicyArgsDict | None":
    """Placement policy of a multi-host slice. The API accepts no topology for single-host slices."""
    if not spec.slice.multi_host:
        return None
    if spec.workload_policy is not None:
        # The SDK requires a type, and the API refuses one beside a workload policy. An empty type is not sent.
        return {"type": "", "policy_name": spec.workload_policy, "tpu_topology": spec.topology}
    return {"type": "COMPACT", "tpu_topology": spec.topology}


def autoscaling(
    spec: TpuPool, zones: pulumi.Output[list[str]]
) -> "pulumi.Output[gcp.container.NodePoolAutoscalingArgsDict]":
    """Limits of an autoscaled pool: per zone if it has one zone, else for the whole pool.

    For a multi-host slice, which has one zone, the API reads only the limits per zone.
    """
    min_nodes, max_nodes = spec.bounds
    per_zone: gcp.container.NodePoolAutoscalingArgsDict = {
        "min_node_count": min_nodes,
        "max_node_count": max_nodes,
        "location_policy": "ANY",
    }
    return zones.apply(lambda names: per_zone if len(names) == 1 else whole_pool(spec))
