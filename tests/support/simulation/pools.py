"""Configurations with node pools for simulated days, and capacity whose figures a test chooses."""

from typing import Any

from gke_ai.forecast.simulate.availability import Capacity, CapacityFigures, read_figures
from gke_ai.forecast.simulate.objects import Queues
from gke_ai.settings import ResolvedStack, Settings

Object = dict[str, Any]
ZONE = "us-central1-a"
L4 = {"machineType": "g2-standard-24", "zones": [ZONE]}  # 2 GPUs


def configured(gpus: int, **sections: Any) -> Queues:
    """Queues with one cluster queue "one", whose flavor has all pools of the sections."""
    pools = [pool["name"] for key in ("gpuPools", "tpuPools") for pool in sections.get(key, [])]
    resource = "google.com/tpu" if "tpuPools" in sections else "nvidia.com/gpu"
    quota = {"cpu": "10000", "memory": "10000Gi", resource: str(gpus)}
    flavor = {"name": "f", **({"pools": pools} if pools else {"accelerator": "nvidia-l4"})}
    queues = {
        "flavors": [flavor],
        "clusterQueues": [{"name": "one", "flavors": [{"flavor": "f", "quota": quota}]}],
        "localQueues": [{"name": "one", "namespace": "team", "clusterQueue": "one"}],
        "priorityClasses": [{"name": "low", "value": 1}, {"name": "high", "value": 2}],
    }
    cluster = {"name": "c", "mode": "standard" if pools else "autopilot", "location": "us-central1"}
    return Queues(ResolvedStack(Settings.model_validate({"cluster": cluster, "queues": queues, **sections})))


def gpu_pool(name: str = "l4", *, nodes: tuple[int, int] = (0, 4), mode: str = "onDemand", **more: Any) -> Object:
    """A pool of nodes with 2 L4, with its minimum and maximum, in one zone."""
    scaling = {"minNodes": nodes[0], "maxNodes": nodes[1]}
    return {"name": name, **L4, "autoscaling": scaling, "capacity": {"mode": mode}, **more}


def plenty(seed: int = 1, **changes: Any) -> Capacity:
    """Capacity without stock-outs, waits and reclaims, but for the figures that a test changes."""
    written = read_figures().model_dump()
    for stock_outs in written["stock_outs"]:
        stock_outs["share"] = 0
    for wait in written["waits"].values():
        wait |= {"median_seconds": 1.0, "sigma": 0.0}
    written["reclaims"]["per_day"]["value"] = 0.0
    return Capacity(seed, figures=CapacityFigures.model_validate({**written, **changes}))


class Scripted(Capacity):
    """Capacity without chance: reclaims by node, stock-outs by capacity mode as their ends, and one wait for all."""

    def __init__(
        self, reclaims: dict[str, float] | None = None, out: dict[str, float] | None = None, wait: float = 0.0
    ) -> None:
        super().__init__(1)
        self._scripted, self._out, self._wait = reclaims or {}, out or {}, wait

    def wait(self, mode: str, name: str) -> float:
        return self._wait if "lexStart" in mode else 0.0

    def available(self, machine: str, mode: str, zone: str, at: float) -> float:
        return max(at, self._out.get(mode, 0.0))

    def reclaim(self, machine: str, zone: str, name: str, since: float, nodes: int = 1) -> float:
        return self._scripted.get(name, float("inf"))
