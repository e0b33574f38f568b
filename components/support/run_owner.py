"""The object that runs are deleted with, where no namespace of the stack is."""

import re
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.catalog.nodes.shape import RUN_OWNER

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": True}
# Pods of runs have up to ten minutes to end, those of a tenant by its policy.
DELETION = pulumi.CustomTimeouts(delete="15m")
MEANING = "Owns runs of a Pulumi stack. Whoever deletes it deletes them."


def name_of_owner() -> str:
    """Name of the owner of all runs of this stack in a namespace, to which other stacks may belong too."""
    return re.sub(r"[^a-z0-9.-]", "-", f"runs-of-{pulumi.get_project()}-{pulumi.get_stack()}".lower())


def create_owner(namespace: str, name: str, parent: pulumi.Resource, *after: pulumi.Resource) -> "pulumi.Output[Any]":
    """A ConfigMap, as an owner reference for runs.

    Pulumi keeps a run that a newer one replaces, and does not know it any more. Kubernetes deletes all of them with
    their owner, and Pulumi, which deletes in the foreground, waits until they are gone:
    https://kubernetes.io/docs/concepts/architecture/garbage-collection/#foreground-deletion
    """
    owner = k8s.core.v1.ConfigMap(
        f"{namespace}/{name}",
        # No data: Pulumi would replace a ConfigMap whose data change, and the runs would go with the old one.
        metadata={"name": name, "namespace": namespace, "annotations": {RUN_OWNER: MEANING}},
        opts=pulumi.ResourceOptions(parent=parent, depends_on=list(after), custom_timeouts=DELETION),
    )
    return owner.metadata.uid.apply(lambda uid: {**OWNER, "name": name, "uid": uid})
