"""A team's own training run and model server, on the queue that the platform's stack gives it.

What the platform has is read from its outputs, never known: the cluster, the queue, the nodes and their taints, the
accelerator and how many of it there are, the priority, the service account.
"""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from pulumi import ResourceOptions

from gke_ai_outputs import StackOutputs
from gke_ai_outputs.model import FlavorGrant

TRAINING_IMAGE = "nvcr.io/nvidia/pytorch:25.01-py3"
SERVING_IMAGE = "vllm/vllm-openai:v0.31.0-cu129"
MODEL = "Qwen/Qwen2.5-1.5B-Instruct"  # open to all: no token
PORT = 8000
APP = {"app": "chat"}

config = pulumi.Config()
namespace = config.require("namespace")
platform = StackOutputs(config.require("platform"))
tenant = platform.tenant(namespace)
queue = platform.queue(namespace)
grant = queue.quota[0]  # of the first kind of node that the queue gives
in_cluster = platform.provider()


def asks(cpu: str, memory: str) -> pulumi.Output[dict[str, str]]:
    """What a pod asks for: one accelerator of the queue's kind. Refused if the queue grants none."""

    def one(granted: FlavorGrant) -> dict[str, str]:
        if not granted.accelerator or int(granted.amounts[granted.accelerator]) < 1:
            raise pulumi.RunError(f"The queue of {namespace} grants no accelerator, so nothing here would ever start.")
        return {"cpu": cpu, "memory": memory, "ephemeral-storage": "20Gi", granted.accelerator: "1"}

    return grant.apply(one)


def pod(container: k8s.core.v1.ContainerArgsDict) -> k8s.core.v1.PodSpecArgsDict:
    """A pod on the nodes of the queue."""
    tolerations: Any = grant.tolerations.apply(lambda listed: [toleration.model_dump() for toleration in listed])
    return {
        "containers": [container],
        "node_selector": grant.node_selector,
        "tolerations": tolerations,
        "priority_class_name": tenant.priority_classes.apply(lambda names: names[0] if names else ""),
        "service_account_name": tenant.service_account,
    }


def queued(name: str) -> k8s.meta.v1.ObjectMetaArgsDict:
    """Metadata of what Kueue admits. Pulumi doesn't wait for it: a queue decides when it runs."""
    return {
        "name": name,
        "namespace": namespace,
        "labels": {"kueue.x-k8s.io/queue-name": queue.local_queue},
        "annotations": {"pulumi.com/skipAwait": "true"},
    }


training: k8s.core.v1.ContainerArgsDict = {
    "name": "train",
    "image": TRAINING_IMAGE,
    "command": ["python", "-c", "import torch; print(torch.cuda.get_device_name())"],
    "resources": {"requests": asks("2", "8Gi"), "limits": asks("2", "8Gi")},
}
job = k8s.batch.v1.Job(
    "train",
    metadata=queued("train"),
    spec={
        "suspend": True,  # Kueue starts it
        "backoff_limit": 2,
        "template": {"spec": {**pod(training), "restart_policy": "Never"}},
    },
    opts=ResourceOptions(
        provider=in_cluster,
        # Kueue's, which starts the Job by them and takes it back.
        ignore_changes=["spec.suspend", "spec.template.spec.nodeSelector", "spec.template.spec.tolerations"],
    ),
)

serving: k8s.core.v1.ContainerArgsDict = {
    "name": "vllm",
    "image": SERVING_IMAGE,
    "args": ["--model", MODEL, "--port", str(PORT)],
    "ports": [{"container_port": PORT}],
    "readiness_probe": {"http_get": {"path": "/health", "port": PORT}},
    "resources": {"requests": asks("4", "16Gi"), "limits": asks("4", "16Gi")},
}
server = k8s.apps.v1.Deployment(
    "chat",
    metadata=queued("chat"),
    spec={"selector": {"match_labels": APP}, "template": {"metadata": {"labels": APP}, "spec": pod(serving)}},
    opts=ResourceOptions(provider=in_cluster),
)
k8s.core.v1.Service(
    "chat",
    metadata={"name": "chat", "namespace": namespace, "annotations": {"pulumi.com/skipAwait": "true"}},
    spec={"selector": APP, "ports": [{"port": PORT}]},
    opts=ResourceOptions(provider=in_cluster),
)

pulumi.export("job", job.metadata.name)
pulumi.export("url", f"http://chat.{namespace}.svc.cluster.local:{PORT}")
pulumi.export("models", platform.servers.apply(lambda servers: {server.name: server.url for server in servers}))
