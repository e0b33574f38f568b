"""Manifests of a TrainJob, a RayJob and a RayCluster, as a member of a tenant writes them."""

from typing import Any

from gke_ai.catalog.kueue.operators import KUBERAY, TORCH_RUNTIME, TRAINER
from gke_ai.catalog.nodes.quota import QUEUE_LABEL

Object = dict[str, Any]
GPU = {"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": "1"}
SMALL = {"cpu": "500m", "memory": "1Gi"}
# GKE creates nodes with GPUs only for pods that name their type.
L4 = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
RAY_IMAGE = "rayproject/ray:2.52.0"


def metadata(name: str, queue: str) -> Object:
    return {"name": name, **({"labels": {QUEUE_LABEL: queue}} if queue else {})}


def patch(manager: str = "example.com/team", metadata: Object | None = None, **pod: Any) -> Object:
    """A patch of the pods of a runtime."""
    template: Object = {"spec": pod, **({"metadata": metadata} if metadata else {})}
    job = {"name": "node", "template": {"spec": {"template": template}}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


def train_job(name: str = "mine", queue: str = "lq", nodes: object = 1, each: Object = GPU, **spec: Any) -> Object:
    """A TrainJob of the runtime of the stack."""
    trainer = {"numNodes": nodes, "image": "i:1", "resourcesPerNode": {"requests": each, "limits": each}}
    stated = {"runtimeRef": {"name": TORCH_RUNTIME}, "trainer": trainer, "runtimePatches": [patch(nodeSelector=L4)]}
    return {"apiVersion": TRAINER.api, "kind": "TrainJob", "metadata": metadata(name, queue), "spec": stated | spec}


def pod_template(requests: Object, **spec: Any) -> Object:
    container = {"name": "ray", "image": RAY_IMAGE, "resources": {"requests": requests, "limits": requests}}
    return {"spec": {"containers": [container], **spec}}


def ray_cluster_spec(replicas: object = 1, each: Object = GPU, **pod: Any) -> Object:
    """A head without a GPU, and a group of workers with one each."""
    workers: Object = {"groupName": "workers", **dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), replicas)}
    workers |= {"rayStartParams": {}, "template": pod_template(each, **{"nodeSelector": L4, **pod})}
    head = {"rayStartParams": {}, "template": pod_template(SMALL, **pod)}
    return {"rayVersion": "2.52.0", "headGroupSpec": head, "workerGroupSpecs": [workers]}


def ray_cluster(name: str = "mine", queue: str = "lq", cluster: Object | None = None) -> Object:
    spec = cluster or ray_cluster_spec()
    return {"apiVersion": KUBERAY.api, "kind": "RayCluster", "metadata": metadata(name, queue), "spec": spec}


def ray_job(name: str = "mine", queue: str = "lq", cluster: Object | None = None, **spec: Any) -> Object:
    """A RayJob whose Ray cluster goes with it."""
    own: Object = {"rayClusterSpec": cluster or ray_cluster_spec(), "entrypoint": "python train.py"}
    own |= {"shutdownAfterJobFinishes": True, **spec}
    return {"apiVersion": KUBERAY.api, "kind": "RayJob", "metadata": metadata(name, queue), "spec": own}
