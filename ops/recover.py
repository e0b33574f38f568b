"""`make recover STACK=…`: brings a stack whose `up` was killed to where the next `up` converges.

A killed `up` leaves three things behind: the lock of the state, creations that were begun and not recorded, and perhaps
a Helm release that Helm holds for unfinished. Every name of this program is known at plan time, so what was being
created can be looked up under its name: what exists is adopted, what doesn't is forgotten, and the next `up` makes it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from rich.console import Console

from ops.stack import BUCKET, CLUSTER, NODE_POOL, RELEASE, SERVICE_ACCOUNT, Stack, Stop, arguments, list_objects, run

# https://github.com/helm/helm, pkg/release: what Helm writes while an operation lasts.
UNFINISHED = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")
console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    """Frees the lock, adopts what was being created, settles Helm releases, and reads the whole stack anew."""
    recover(arguments(main.__doc__ or ""))


def recover(stack: Stack) -> None:
    """Recovers `stack`; refuses while an `up` of it is still running on this machine."""
    refuse_if_running(stack)
    mend_sidecars(stack.name)
    stack.pulumi("cancel", "--yes", quiet=True)
    deployment = stack.read("stack", "export")
    adopted, dropped = adopt_pending(deployment["deployment"] or {})
    if adopted or dropped:
        done = stack.pulumi("stack", "import", given=json.dumps(deployment), quiet=True)
        if done.returncode:
            raise Stop(f"The repaired state was not accepted, and nothing was changed:\n{done.stderr.strip()}")
    for urn in adopted:
        console.print(f"  looking up  {name_of(urn)}")
    for urn in dropped:
        console.print(f"  forgetting  {name_of(urn)}: the next up makes it")
    settle_releases(stack)
    done = stack.pulumi("refresh", "--yes", "--skip-preview", configured=True)
    if done.returncode:
        raise Stop("The stack could not be read anew; mend what is said above and run recover again.")
    console.print(f"Recovered. Next: {stack.next('up')}")


def refuse_if_running(stack: Stack) -> None:
    """Stops while the lock's holder still lives: freeing it then would let two updates write one state."""
    for lock in local_locks(stack.name):
        holder = json.loads(lock.read_text())
        if holder["hostname"] == socket.gethostname() and alive(holder["pid"]):
            raise Stop(
                f"An update of {stack.name} is running (process {holder['pid']}, since {holder['timestamp']}).\n"
                "Wait for its end, or interrupt it with Ctrl-C; then run recover again."
            )


def local_locks(stack: str) -> list[Path]:
    """The lock files of a stack."""
    return in_local_state(f"locks/**/{stack}/*.json")


def mend_sidecars(stack: str) -> None:
    """Removes sidecars (checksums beside a state file) whose writing was cut off: Pulumi can't read such a state."""
    for sidecar in in_local_state(f"stacks/**/{stack}.json*.attrs"):
        if not sidecar.stat().st_size:
            sidecar.unlink()


def in_local_state(pattern: str) -> list[Path]:
    """Files of a state that is kept in a folder of this machine; other backends have locks and writes of their own."""
    backend = urlparse(os.environ.get("PULUMI_BACKEND_URL", ""))
    if backend.scheme != "file":
        return []
    return list((Path(unquote(backend.path)) / ".pulumi").glob(pattern))


def alive(pid: int) -> bool:
    """Whether a process of this id runs (and has not merely been left unreaped)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def adopt_pending(deployment: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Turns pending creations of `deployment` into resources under their plan-time ids, in place.

    Returns the URNs that a refresh will look up, and those that have no id by plan or need none. Operations on what is
    recorded already (updates, deletions) are dropped: the refresh reads what became of them.
    """
    resources = deployment.setdefault("resources", [])
    known = {resource["urn"] for resource in resources}
    adopted, dropped = [], []
    for operation in deployment.pop("pending_operations", None) or []:
        resource = operation["resource"]
        if operation["type"] != "creating" or resource["urn"] in known:
            continue
        if identity := planned_id(resource, resources):
            resources.append({**resource, "id": identity, "outputs": resource.get("outputs") or resource["inputs"]})
            adopted.append(resource["urn"])
        else:
            dropped.append(resource["urn"])
    return adopted, dropped


def planned_id(resource: Mapping[str, Any], resources: list[dict[str, Any]]) -> str | None:
    """The id that the cloud gives to a resource, from its inputs alone; None where a second create does no harm."""
    type_token, inputs = resource["type"], resource.get("inputs", {})
    if type_token == RELEASE:
        return None  # Helm keeps its own record; settle_releases reads it, and a new install takes the objects over
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
    """The project of a Google Cloud resource: its own, else its provider's."""
    providers = (r["inputs"]["project"] for r in resources if r["type"] == "pulumi:providers:gcp")
    return str(inputs.get("project") or next(providers))


def settle_releases(stack: Stack) -> None:
    """Removes Helm's record of a revision that never ended, so that the next `up` may install or upgrade.

    Helm refuses to touch a release that is pending ("another operation is in progress"); what the revision made stays,
    carries the release's name, and is taken over by the next one.
    """
    api = stack.api()
    if api is None:
        return
    from kubernetes.client import CoreV1Api

    for secret in list_objects(api, "/api/v1/secrets", labelSelector=f"owner=helm,status in ({','.join(UNFINISHED)})"):
        metadata = secret["metadata"]
        console.print(f"  unlocking   Helm release {metadata['namespace']}/{metadata['labels']['name']}")
        CoreV1Api(api).delete_namespaced_secret(metadata["name"], metadata["namespace"])


def name_of(urn: str) -> str:
    """A resource for people: its type and name."""
    type_token, name = urn.split("::")[2:4]
    return f"{type_token.rpartition(':')[2]} {name}"


if __name__ == "__main__":
    run(main)
