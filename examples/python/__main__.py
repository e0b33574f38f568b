"""A program in Python that composes components: a cluster, a pool of Spot L4 GPUs, Kueue, and a vLLM server in a queue.

The folder of this repository must be on the Python path:

    pulumi stack init dev && pulumi config set gcp:project my-project && pulumi config set --secret hfToken
    PYTHONPATH=../.. pulumi up
"""

from __future__ import annotations

import pulumi

from gke_ai.components import ClusterQueue, GkeCluster, GpuNodePool, KueueStack, VllmServer, WorkloadNamespace
from gke_ai.settings.model import Autoscaling, Resources, Spot

config = pulumi.Config()

cluster = GkeCluster("chat", location="us-central1", mode="standard")
spot = GpuNodePool(
    "l4",
    cluster=cluster,
    machine_type="g2-standard-24",
    capacity=Spot(mode="spot"),
    autoscaling=Autoscaling(max_nodes=4),
)
kueue = KueueStack("kueue", cluster=cluster, queues=[ClusterQueue("gpus", pools=[spot])])
llm = WorkloadNamespace(
    "llm", cluster=cluster, kueue=kueue, queues={"team": "gpus"}, hf_token=config.require_secret("hfToken")
)
gemma = VllmServer(
    "gemma",
    namespace=llm,
    pool=spot,
    model="google/gemma-3-4b-it",
    gpus=2,
    queue="team",
    resources=Resources(cpu="10", memory="40Gi"),
)

pulumi.export("kubeconfig", cluster.kubeconfig)
pulumi.export("url", gemma.url)
