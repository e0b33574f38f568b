"""`gke-ai recover`: repairs a stack whose `up` was killed, so that the next `up` converges.

A killed `up` can leave three things: the lock of the state, creations that Pulumi started and did not record, and a
Helm release that Helm considers unfinished. All names of this program are known at plan time, so `recover` looks up
each pending resource by its name. It adopts those that exist and forgets the others, which the next `up` creates.
"""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gke_ai.formats.console import PlainConsole
from gke_ai.ops.lifecycle.helm_releases import adopted as adopted_release
from gke_ai.ops.lifecycle.helm_releases import carry_out, plan_recorded, plan_unrecorded, revisions_of
from gke_ai.registered.types import BUCKET, CLUSTER, NODE_POOL, RELEASE, SERVICE_ACCOUNT
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack, damaged_states, in_local_state, is_json

console = PlainConsole(highlight=False, soft_wrap=True)


def recover(stack: Stack) -> None:
    """Recovers `stack`. Refuses while an `up` of it runs on this machine."""
    refuse_if_running(stack)
    mend_sidecars(stack.name)
    restore_damaged(stack.name)
    stack.pulumi("cancel", "--yes", quiet=True)
    exported = stack.read("stack", "export")
    deployment = exported["deployment"] or {}
    installed, unfinished = settle_releases(stack, deployment)
    begun = deployment.get("pending_operations")
    adopted, dropped, left = adopt_pending(deployment)
    if begun or installed:  # a refresh keeps pending creations
        write(stack, exported)
    for urn in adopted:
        console.print(f"  looking up  {name_of(urn)}")
    for urn in dropped:
        console.print(f"  forgetting  {name_of(urn)}: the next up creates it")
    for urn, identity in left:
        console.print(
            f"  leaving     {name_of(urn)}: its creation as {identity} was interrupted, and the state has another one. "
            "If it exists, the next up cannot create it. Delete it."
        )
    done = stack.pulumi("refresh", "--yes", "--skip-preview", configured=True)
    if done.returncode:
        raise Stop("The refresh of the stack failed. Fix the error above and run recover again.")
    if unfinished:
        require_update(stack, unfinished)
    console.print(f"Recovered. Next: {stack.next('up')}")


def write(stack: Stack, exported: Mapping[str, Any]) -> None:
    """Imports a repaired deployment as the state of the stack."""
    done = stack.pulumi("stack", "import", stdin=json.dumps(exported), quiet=True)
    if done.returncode:
        raise Stop(f"Pulumi did not accept the repaired state, and nothing was changed:\n{done.stderr.strip()}")


def refuse_if_running(stack: Stack) -> None:
    """Stops if the process that holds the lock runs. Otherwise two updates could write the same state."""
    for lock in in_local_state(f"locks/**/{stack.name}/*.json"):
        try:
            holder = json.loads(lock.read_text())
            running = holder["hostname"] == socket.gethostname() and alive(holder["pid"])
        except (ValueError, KeyError, TypeError):
            continue  # Pulumi renames a complete lock into place, so no running update has this one
        if running:
            raise Stop(
                f"An update of {stack.name} is running (process {holder['pid']}, since {holder['timestamp']}).\n"
                "Wait until it ends, or interrupt it with Ctrl-C. Then run recover again."
            )


def mend_sidecars(stack: str) -> None:
    """Removes incomplete sidecars (checksums beside a state file). Pulumi cannot read a state with such a sidecar."""
    for sidecar in in_local_state(f"stacks/**/{stack}.json*.attrs"):
        if not sidecar.stat().st_size:
            sidecar.unlink()


def restore_damaged(stack: str) -> None:
    """Replaces a damaged state by the copy that Pulumi made before it wrote that state. Keeps the damaged file."""
    for file in damaged_states(stack):
        copy = file.with_name(f"{file.name}.bak")
        if not is_json(copy):
            without = f"{file} is damaged, and no copy of it is beside it"
            raise Stop(f"{without}. Nothing was changed. Restore the file from a backup.")
        kept = file.with_name(f"{file.name}.damaged")
        file.replace(kept)
        shutil.copyfile(copy, file)
        console.print(f"  restoring   the state from {copy}. The damaged one is now {kept.name}")


def alive(pid: int) -> bool:
    """Whether a process with this id runs and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def adopt_pending(deployment: dict[str, Any]) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """Turns pending creations of `deployment` into resources with their planned ids, in place.

    Returns the URNs of the new resources, which the refresh looks up; those of creations without a planned id; and
    URNs and ids of creations beside a recorded resource with another id. Drops operations on recorded resources
    (updates, deletions), because the refresh reads their result.
    """
    resources = deployment.setdefault("resources", [])
    adopted, dropped, left = [], [], []
    for operation in deployment.pop("pending_operations", None) or []:
        resource = operation["resource"]
        if operation["type"] != "creating":
            continue
        urn, identity = resource["urn"], planned_id(resource, resources)
        live = [at for at, known in enumerate(resources) if known["urn"] == urn and not known.get("delete")]
        new = {**resource, "id": identity, "outputs": resource.get("outputs") or resource.get("inputs", {})}
        if not live and identity:
            resources.append(new)
            adopted.append(urn)
        elif not live:
            dropped.append(urn)
        elif identity and resources[live[0]].get("pendingReplacement"):  # the old one is deleted already
            resources[live[0]] = new
            adopted.append(urn)
        elif identity and identity != resources[live[0]].get("id"):
            left.append((urn, identity))
    return adopted, dropped, left


def planned_id(resource: Mapping[str, Any], resources: list[dict[str, Any]]) -> str | None:
    """Returns the id of a resource, derived from its inputs; None if creating it twice does no harm."""
    type_token, inputs = resource["type"], resource.get("inputs", {})
    if type_token == RELEASE:
        return None  # settle_releases adopts an installed release; otherwise a new install adopts its objects
    if type_token.startswith("kubernetes:"):
        metadata = inputs.get("metadata", {})
        return "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
    if type_token == CLUSTER:
        return f"projects/{project_of(inputs, resources)}/locations/{inputs['location']}/clusters/{inputs['name']}"
    if type_token == NODE_POOL:
        cluster = inputs["cluster"]
        if not cluster.startswith("projects/"):
            cluster = f"projects/{project_of(inputs, resources)}/locations/{inputs['location']}/clusters/{cluster}"
        return f"{cluster}/nodePools/{inputs['name']}"
    if type_token == BUCKET:
        return str(inputs["name"])
    if type_token == SERVICE_ACCOUNT:
        project = project_of(inputs, resources)
        return f"projects/{project}/serviceAccounts/{inputs['accountId']}@{project}.iam.gserviceaccount.com"
    return None


def project_of(inputs: Mapping[str, Any], resources: list[dict[str, Any]]) -> str:
    """Returns the project of a Google Cloud resource: its own, else that of its provider."""
    providers = (r["inputs"]["project"] for r in resources if r["type"] == "pulumi:providers:gcp")
    return str(inputs.get("project") or next(providers))


def settle_releases(stack: Stack, deployment: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Repairs Helm's records of the stack's releases, so that the next `up` can install or upgrade each of them.

    Returns the URNs of installed releases that it added to `deployment`, and of recorded releases that the next `up`
    must upgrade even if the configuration does not change.
    """
    resources = deployment.setdefault("resources", [])
    known = {resource["urn"] for resource in resources}
    operations = deployment.get("pending_operations") or []
    creating = [operation["resource"] for operation in operations if operation["type"] == "creating"]
    recorded = [resource for resource in resources if resource["type"] == RELEASE and not resource.get("delete")]
    begun = [resource for resource in creating if resource["type"] == RELEASE and resource["urn"] not in known]
    api = stack.api() if recorded or begun else None
    installed: list[str] = []
    unfinished: list[str] = []
    if api is None:
        return installed, unfinished
    for resource in recorded:
        plan = plan_recorded(revisions_of(api, resource["inputs"]))
        carry_out(api, plan)
        if plan.outcome == "unfinished":
            unfinished.append(resource["urn"])
            console.print(f"  unlocking   Helm release {release_name(resource)}: the next up completes it")
    for resource in begun:
        revisions = revisions_of(api, resource["inputs"])
        plan = plan_unrecorded(revisions, resource["inputs"])
        carry_out(api, plan)
        if plan.outcome == "adopt":
            resources.append(adopted_release(resource, revisions[-1].release))
            installed.append(resource["urn"])
            console.print(f"  adopting    Helm release {release_name(resource)}, which is installed")
        elif plan.outcome == "discard":
            console.print(f"  unlocking   Helm release {release_name(resource)}, which was never deployed")
        elif plan.outcome == "foreign":
            console.print(
                f"  leaving     Helm release {release_name(resource)}: it has another chart, version or values than "
                "this stack's, so it is not this stack's. The next up cannot install over it. Remove it with helm "
                "uninstall if nobody needs it."
            )
    return installed, unfinished


def require_update(stack: Stack, urns: list[str]) -> None:
    """Marks resources so that the next `up` updates them: the official plugin ignores the status of a release."""
    exported = stack.read("stack", "export")
    for resource in exported["deployment"].get("resources") or []:
        if resource["urn"] in urns:
            resource["initErrors"] = ["its last change was interrupted"]
    write(stack, exported)


def release_name(resource: Mapping[str, Any]) -> str:
    """Formats a release as namespace and name."""
    return f"{resource['inputs']['namespace']}/{resource['inputs']['name']}"


def name_of(urn: str) -> str:
    """Formats a resource as type and name."""
    type_token, name = urn.split("::")[2:4]
    return f"{type_token.rpartition(':')[2]} {name}"
