import pulumi

from gke_ai.components import ClusterQueue, GkeCluster, GpuNodePool, KueueStack, VllmServer, WorkloadNamespace

cluster = GkeCluster("ml", location="us-central1", mode="standard")
l4 = GpuNodePool("l4", cluster=cluster, machine_type="g2-standard-24", zones=["us-central1-a"], nodes_per_zone=2)
queue = ClusterQueue("gpus", pools=[l4])
kueue = KueueStack("kueue", cluster=cluster, jobset=True, queues=[queue], priorities={"low": 10, "high": 20})
token = pulumi.Config().require_secret("hfToken")
llm = WorkloadNamespace("llm", cluster=cluster, kueue=kueue, queues={"team": "gpus"}, hf_token=token)
gemma = VllmServer(
    "gemma", namespace=llm, pool=l4, gpus=2, model="google/gemma-3-4b-it", queue="team", priority_class="high"
)
pulumi.export("url", gemma.url)
