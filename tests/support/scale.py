"""Generates a stack of any size: teams with pools, a queue and workloads."""

from typing import Any

TEAMS = 50
POOLS, WORKLOADS = 2, 10  # per team; each team has one queue


def sections(teams: int, each: int = 4) -> dict[str, Any]:
    """The `gke-ai:` sections of a stack with this number of teams: 50 have 100 pools, 50 queues and 500 workloads.

    `each` is the number of servers, and of runs, of a team.
    """
    configuration: dict[str, list[Any]] = {
        key: [] for key in ("gpuPools", "tpuPools", "flavors", "clusterQueues", "localQueues", "serving", "training")
    }
    batch: list[Any] = []
    for number in range(teams):
        team, gpu, tpu = f"team-{number}", f"gpu-{number}", f"tpu-{number}"
        machine = {"machineType": "g2-standard-24", "zones": ["us-west4-a"], "nodesPerZone": 4}
        configuration["gpuPools"].append({"name": gpu, **machine})
        # GKE creates its nodes for its Jobs, so the Jobs need no queue.
        slices = {"version": "v5e", "topology": "4x4", "zones": ["us-west4-a"], "capacity": {"mode": "flexStart"}}
        configuration["tpuPools"].append({"name": tpu, **slices})
        configuration["flavors"].append({"name": gpu, "pools": [gpu]})
        quota = [{"flavor": gpu, "quota": "derive"}]
        configuration["clusterQueues"].append({"name": team, "cohort": f"cohort-{number // 5}", "flavors": quota})
        configuration["localQueues"].append({"name": "lq", "namespace": team, "clusterQueue": team})

        under = {"namespace": team, "queue": "lq", "pool": gpu, "resources": {"cpu": "4", "memory": "30Gi"}}
        model = {"model": "google/gemma-2-9b-it", "gpus": 2, "priorityClass": "serving"}
        configuration["serving"] += [{"name": f"server-{index}", **model, **under} for index in range(each)]
        volume = {"bucket": "models-{project}", "sidecarMemoryLimit": "4Gi"}
        configuration["training"] += [{"name": f"run-{index}", "volume": volume, **under} for index in range(each)]
        job = {"namespace": team, "pool": tpu, "command": ["true"]}
        batch += [{"name": f"batch-{index}", **job} for index in range(2)]
    queues = {key: configuration.pop(key) for key in ("flavors", "clusterQueues", "localQueues")}
    queues["priorityClasses"] = [{"name": "serving", "value": 100}]
    grants = [{"namespace": f"team-{number}"} for number in range(teams)]
    cluster = {"name": "large", "mode": "standard", "location": "us-west4"}
    buckets = [{"name": "models-{project}", "onDestroy": "delete", "grants": grants}]
    return {"cluster": cluster, "buckets": buckets, "queues": queues, "batch": batch, **configuration}
