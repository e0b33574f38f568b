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
cluster = next(resource for resource in resources if resource["type"] == "gcp:container/cluster:Cluster")
registered_cluster = pulumi.CustomResource(cluster["type"], cluster["name"], {**cluster["inputs"], "endpoint": None})
provider = kubernetes.Provider("cluster", kubeconfig=registered_cluster.id.apply(str), cluster_identifier="bench")
for resource in resources:
    if resource is cluster:
        continue
    if resource["inputs"] is None:
        pulumi.ComponentResource(resource["type"], resource["name"])
        continue
    options = pulumi.ResourceOptions(provider=provider if resource["type"].startswith("kubernetes:") else None)
    pulumi.CustomResource(resource["type"], resource["name"], resource["inputs"], options)
