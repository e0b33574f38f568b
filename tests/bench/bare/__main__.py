"""Registers the resources listed in a file, with the imports of the real program and none of its thinking."""

import json
import os
from pathlib import Path

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as kubernetes
import pydantic

# The modules that the real program loads, here too by their first use.
loaded = [
    pydantic.BaseModel,
    gcp.container.Cluster,
    gcp.storage.Bucket,
    gcp.organizations.get_project,
    kubernetes.apiextensions.CustomResource,
    kubernetes.apps.v1.Deployment,
    kubernetes.batch.v1.Job,
    kubernetes.core.v1.Service,
    kubernetes.helm.v3.Release,
    kubernetes.policy.v1.PodDisruptionBudget,
    kubernetes.rbac.v1.ClusterRole,
    kubernetes.scheduling.v1.PriorityClass,
]

resources = json.loads(Path(os.environ["BENCH_RESOURCES"]).read_text())
cluster = next(found for found in resources if found["type"] == "gcp:container/cluster:Cluster")
made = pulumi.CustomResource(cluster["type"], cluster["name"], {**cluster["inputs"], "endpoint": None})
provider = kubernetes.Provider("cluster", kubeconfig=made.id.apply(str), cluster_identifier="bench")
for found in resources:
    if found is cluster:
        continue
    if found["inputs"] is None:
        pulumi.ComponentResource(found["type"], found["name"])
        continue
    options = pulumi.ResourceOptions(provider=provider if found["type"].startswith("kubernetes:") else None)
    pulumi.CustomResource(found["type"], found["name"], found["inputs"], options)
