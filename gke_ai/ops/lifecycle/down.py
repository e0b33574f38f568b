"""`gke-ai down`: deletes a stack, waits for each step, and lists what it keeps."""

from __future__ import annotations

from typing import Any

from gke_ai.catalog.versions import JOBSET_CRD
from gke_ai.formats.console import PlainConsole
from gke_ai.kube.client import ApiClient, list_objects
from gke_ai.kube.values import items
from gke_ai.ops.lifecycle.network_pools import network_pools, scale_to_zero
from gke_ai.registered.types import BUCKET, CLUSTER, KUEUE_STACK, RELEASE
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack

# Name and namespace of JobSet's release.
JOBSET = ("jobset", "jobset-system")
console = PlainConsole(highlight=False, soft_wrap=True)


def down(stack: Stack) -> None:
    """Destroys `stack`. Refuses before it deletes anything if a resource is protected."""
    if guarded := protected(stack.resources):
        names = "\n".join(f"  {line}" for line in guarded)
        raise Stop(
            f"{stack.name} is protected, and nothing was deleted:\n{names}\n"
            "To delete it, set `protect: false` there in the configuration, run up, then down again. If "
            "`gke-ai:policies` is mandatory, set it to advisory first, because a policy requires the protection."
        )
    release, api = jobset_release(stack.resources), stack.api()
    outlives = not any(stack.of_type(CLUSTER))
    kept = [bucket["outputs"]["url"] for bucket in stack.of_type(BUCKET) if bucket.get("retainOnDelete")]
    scale_to_zero(network_pools(stack.resources), api)
    done = stack.pulumi("destroy", "--yes", "--skip-preview", configured=True)
    if done.returncode:
        kept_pods = "".join(f"  {line}\n" for line in ending(api)) if api is not None else ""
        raise Stop(
            f"{stack.name} is not completely deleted. The state still has the remaining resources.\n"
            f"{kept_pods and f'Namespaces wait for:{chr(10)}{kept_pods}'}"
            f"Fix the error above and run down again. If down was killed, run {stack.next('recover')} first."
        )
    if release and outlives:
        console.print(f"Kept in the cluster, as Helm keeps it: CRD {JOBSET_CRD}, with every JobSet of others.")
    for url in kept:
        console.print(f"Kept with its data (onDestroy: keep): {url}")


def ending(api: ApiClient) -> list[str]:
    """What namespaces that are being deleted wait for: pods, and what else their status says."""
    lines = []
    try:
        for namespace in list_objects(api, "/api/v1/namespaces"):
            name = namespace["metadata"]["name"]
            if "deletionTimestamp" not in namespace["metadata"]:
                continue
            for pod in list_objects(api, f"/api/v1/namespaces/{name}/pods"):
                finalizers, until = pod["metadata"].get("finalizers"), pod["metadata"].get("deletionTimestamp")
                cause = f"finalizers {', '.join(finalizers)}" if finalizers else f"has until {until} to end"
                lines.append(f"pod {name}/{pod['metadata']['name']}: {cause}")
            conditions = items(namespace, "status", "conditions")
            lines += [f"namespace {name}: {each['message']}" for each in conditions if each["status"] == "True"]
    except Stop:
        return []  # the cluster may be deleted already
    return lines


def jobset_release(resources: list[dict[str, Any]]) -> bool:
    """Whether the `KueueStack` of the stack has installed JobSet with Helm."""
    kueue = {resource["urn"] for resource in resources if resource["type"] == KUEUE_STACK}
    releases = (item for item in resources if item["type"] == RELEASE and item.get("parent") in kueue)
    return any((item["inputs"].get("name"), item["inputs"].get("namespace")) == JOBSET for item in releases)


def protected(resources: list[dict[str, Any]]) -> list[str]:
    """Returns the protected resources, each with the key that protects it."""
    lines = []
    for resource in resources:
        name = resource.get("inputs", {}).get("name") or resource["urn"].rpartition("::")[2]
        if resource["type"] == CLUSTER and (resource.get("protect") or resource["inputs"].get("deletionProtection")):
            lines.append(f"cluster {name}: gke-ai:cluster.protect")
        elif resource.get("protect"):
            section = "gke-ai:buckets[].protect" if resource["type"] == BUCKET else "its `protect`"
            lines.append(f"{resource['type'].rpartition(':')[2].lower()} {name}: {section}")
    return lines
