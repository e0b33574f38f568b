"""Registers the resources listed in a file, with the imports of the real program and none of its thinking."""

import json
import os
from pathlib import Path

import pulumi
import pulumi_gcp as gcp  # noqa: F401 - the same imports
import pulumi_kubernetes as kubernetes

listed = json.loads(Path(os.environ["BENCH_RESOURCES"]).read_text())
cluster = next(found for found in listed if found["type"] == "gcp:container/cluster:Cluster")
made = pulumi.CustomResource(cluster["type"], cluster["name"], {**cluster["inputs"], "endpoint": None})
provider = kubernetes.Provider("cluster", kubeconfig=made.id.apply(str), cluster_identifier="bench")
for found in listed:
    if found is cluster:
        continue
    if found["inputs"] is None:
        pulumi.ComponentResource(found["type"], found["name"])
        continue
    options = pulumi.ResourceOptions(provider=provider if found["type"].startswith("kubernetes:") else None)
    pulumi.CustomResource(found["type"], found["name"], found["inputs"], options)
