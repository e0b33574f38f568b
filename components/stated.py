"""What Google Cloud has and the catalog lacks, as a program states it. It is taken at its word."""

from typing import Any, Self, TypeVar

from gke_ai.catalog.machines.types import MACHINES, Machine
from gke_ai.catalog.machines.zones import ZONES
from gke_ai.components.arguments import Refused
from gke_ai.settings.problems import Problem

N = TypeVar("N", bound=str)


class MachineShape(str):
    """A machine type, in place of its name. Its pods get no network between nodes but the default one.

    Refused: a name that the catalog has with other figures. A TPU: its slices are in the catalog with it.

    Example:
        GpuNodePool("next", cluster=cluster, machine_type=MachineShape("a9-highgpu-8g", vcpus=224, memory_gib=3968,
            gpu="nvidia-x9", gpus=8), nodes_per_zone=1)
    """

    def __new__(
        cls, name: str, *, vcpus: float, memory_gib: float, gpu: str | None = None, gpus: int = 0, arch: str = "amd64"
    ) -> Self:
        machine = Machine(name, name.partition("-")[0], vcpus, memory_gib, gpu=gpu, gpus=gpus, arch=arch)
        return _stated(super().__new__(cls, name), MACHINES, machine)


class Region(str):
    """A region with its zones, in place of its name.

    Refused: a name that the catalog has with other zones.

    Example:
        GkeCluster("ml", location=Region("europe-east9", zones=["europe-east9-a", "europe-east9-b"]))
    """

    def __new__(cls, name: str, *, zones: list[str]) -> Self:
        return _stated(super().__new__(cls, name), ZONES, tuple(zones))


def _stated(name: N, catalog: dict[str, Any], entry: Any) -> N:
    """The name, which the catalog now has."""
    if catalog.setdefault(str(name), entry) != entry:
        cause = "is in the catalog with other figures, by which rules and quotas are computed"
        raise Refused(type(name).__name__, Problem(str(name), cause, "Write its name alone"))
    return name
