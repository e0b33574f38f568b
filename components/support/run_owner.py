"""The object that runs are deleted with, where no namespace of the stack is."""

import re
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.catalog.nodes.shape import RUN_OWNER, RUNS_OF
from gke_ai.components.base import Component

# Pods of runs have up to ten minutes to end, those of a tenant by its policy.
DELETION = pulumi.CustomTimeouts(delete="15m")
MEANING = "Owns runs of a Pulumi stack. Whoever deletes it deletes them."


def name_of_owner() -> str:
    """Name of the owner of all runs of this stack in a namespace, to which other stacks may belong too."""
    return re.sub(r"[^a-z0-9.-]", "-", f"{RUNS_OF}{pulumi.get_project()}-{pulumi.get_stack()}".lower())


def create_owner(namespace: str, name: str, parent: Component) -> "pulumi.Output[dict[str, str]]":
    """The name and uid of a ConfigMap that owns runs.

    Pulumi keeps a run that a newer one replaces, and does not know it any more. Kubernetes deletes all of them with
    their owner, and Pulumi, which deletes in the foreground, waits until they are gone:
    https://kubernetes.io/docs/concepts/architecture/garbage-collection/#foreground-deletion
    """
    owner = k8s.core.v1.ConfigMap(
        *parent.child(f"{namespace}/{name}", custom_timeouts=DELETION),
        # No data: Pulumi would replace a ConfigMap whose data change, and the runs would go with the old one.
        metadata={"name": name, "namespace": namespace, "annotations": {RUN_OWNER: MEANING}},
    )
    return owner.metadata.uid.apply(lambda uid: {"name": name, "uid": uid or ""})


def owned_by(owner: pulumi.Input[Mapping[str, str]]) -> dict[str, Any]:
    """The part of an object's metadata that says who owns it. An empty owner is none.

    In a preview that creates the owner, it has no uid, and the API server refuses an owner without one.
    """
    if owner == {}:
        return {}
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": True}
    known = pulumi.Output.from_input(owner)
    return {"ownerReferences": known.apply(lambda known: [{**reference, **known}] if known["uid"] else [])}
