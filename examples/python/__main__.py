"""A program in Python that composes components: a cluster, a pool of Spot L4 GPUs, Kueue, and a vLLM server in a queue.

A component takes its section of `gke_ai.settings.model`, and as keyword arguments what the cloud or other sections
decide. The folder of this repository must be on the Python path:

    pulumi stack init dev && pulumi config set project my-project && pulumi config set --secret hfToken
    PYTHONPATH=../.. pulumi up
"""

from __future__ import annotations

import pulumi
from pulumi import ResourceOptions

from gke_ai.components import (
    GkeCluster,
    GpuNodePool,
    KueueStack,
    NamespaceQueue,
    NodeFlavor,
    VllmServer,
    WorkloadNamespace,
)
from gke_ai.settings.model import (
    Autoscaling,
    Cluster,
    ClusterQueue,
    FlavorQuota,
    GpuPool,
    Resources,
    Spot,
    TokenSecret,
    Vllm,
)

LOCATION = "us-central1"
L4 = {"cloud.google.com/gke-accelerator": "nvidia-l4"}

config = pulumi.Config()
project = config.require("project")

cluster = GkeCluster("chat", Cluster(name="chat", mode="standard", location=LOCATION), project=project)
pool = GpuNodePool(
    "l4",
    GpuPool(name="l4", machine_type="g2-standard-24", capacity=Spot(mode="spot"), autoscaling=Autoscaling(max_nodes=4)),
    project=project,
    cluster=cluster.cluster_name,
    location=LOCATION,
    cluster_zones=cluster.node_zones,
)


def in_cluster(*after: pulumi.Resource) -> ResourceOptions:
    """Options of a component in the cluster that waits for `after`."""
    return ResourceOptions(providers={"kubernetes": cluster.provider}, depends_on=list(after))


kueue = KueueStack(
    "kueue",
    in_cluster(cluster),  # Kueue's manager runs on the cluster's system pool
    namespaces=["llm"],
    flavors=[NodeFlavor("l4", L4)],
    cluster_queues=[
        ClusterQueue(
            name="gpus",
            flavors=[FlavorQuota(flavor="l4", quota={"cpu": "88", "memory": "300Gi", "nvidia.com/gpu": "8"})],
        )
    ],
    kubeconfig=cluster.kubeconfig,
)
namespace = WorkloadNamespace(
    "llm",
    in_cluster(kueue),
    namespace="llm",
    token=config.require_secret("hfToken"),
    token_secrets=[TokenSecret()],
    local_queues=[NamespaceQueue("gpus", "gpus")],
)
server = VllmServer(
    "gemma",
    Vllm(
        engine="vllm",
        name="gemma",
        model="google/gemma-3-4b-it",
        gpus=2,
        queue="gpus",
        resources=Resources(cpu="10", memory="40Gi"),
    ),
    in_cluster(namespace, pool),
    node_selector=L4,
    kubeconfig=cluster.kubeconfig,
)

pulumi.export("kubeconfig", cluster.kubeconfig)
pulumi.export("url", server.url)
