"""The command of `gke_ai.forecast.snapshot`: reads the cluster of a stack and prints its snapshot."""

from __future__ import annotations

import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path

import yaml

from gke_ai.forecast.snapshot.fields import Kind, kinds
from gke_ai.forecast.snapshot.format import MAX_BYTES, InvalidSnapshot, Snapshot, build, read
from gke_ai.forecast.snapshot.kueue import configuration
from gke_ai.forecast.snapshot.names import file_names, hash_names, stack_names, used_names
from gke_ai.forecast.snapshot.pools import NodePool
from gke_ai.kube.client import ApiClient, objects_of, request
from gke_ai.kube.kueue import CONFIG_MAP, manager, place
from gke_ai.kube.objects import Object
from gke_ai.terminal import Stop, echo
from gke_ai.workspace.stack import Stack

PAGE = 500
FORBIDDEN, GONE = 403, 410
KEY_BYTES = 32
ROLE = "gke-ai-snapshot"


def show(
    stack: Stack,
    hashed: bool = False,
    key: Path | None = None,
    cluster: ApiClient | None = None,
    pools: list[NodePool] | None = None,
    manifests: Path | None = None,
) -> None:
    """Prints the snapshot of a cluster as JSON.

    Args:
        stack: The stack, which gives the snapshot its name.
        hashed: Whether names are hashed, except those of the stack or of `manifests`.
        key: File with the key of the hashes. Default: random.
        cluster: Client of another cluster than the stack's.
        pools: Node pools of the cluster.
        manifests: Folder whose names are not hashed.
    """
    api = cluster or stack.cluster()
    snapshot = take(stack.name, api).model_copy(update={"pools": pools})
    if hashed:
        secret = key.read_bytes().strip() if key else secrets.token_bytes(KEY_BYTES)
        if len(secret) < KEY_BYTES:
            raise Stop(f"{key} has {len(secret)} bytes. A short key lets others guess names. Use {KEY_BYTES} or more.")
        of_stack = [] if cluster else [*stack_names(stack.resources), *used_names(stack.recorded_outputs)]
        kept = [*(file_names(manifests) if manifests else []), *of_stack]
        snapshot = hash_names(snapshot, kept, secret)
    sys.stdout.write(snapshot.to_json())


def read_text(path: Path) -> str:
    """Returns the text of a file. Stops if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Stop(f"{path} cannot be read ({error}).") from None


def role() -> str:
    """Returns the ClusterRole that may list the kinds of a snapshot and read Kueue's configuration, as YAML."""
    plurals: dict[str, list[str]] = {}
    for kind in kinds().values():
        plurals.setdefault(kind.group, []).append(kind.plural)
    rules: list[Object] = [
        {"apiGroups": [group], "resources": sorted(names), "verbs": ["list"]} for group, names in plurals.items()
    ]
    rules.append({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [CONFIG_MAP], "verbs": ["get"]})
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": ROLE}}
    return yaml.safe_dump({**head, "rules": rules}, sort_keys=False)


def take(stack: str, api: ApiClient) -> Snapshot:
    """Reads the objects of every kind.

    A kind that the cluster refuses to list is reported on stderr and is missing. One that is not installed is empty.
    Stops if every kind is missing.
    """
    taken_at = datetime.now(UTC)
    objects: dict[str, list[Object]] = {}
    missing: list[str] = []
    for name, kind in kinds().items():
        try:
            objects[name] = list_all(api, kind)
        except Forbidden as forbidden:
            echo(f"The snapshot has no objects of kind {name}: {forbidden}", file=sys.stderr)
            missing.append(name)  # without the answer, which names the user
    if len(missing) == len(kinds()):
        raise Stop(
            "The cluster refuses to list every kind, so there is no snapshot. "
            "Check which user your kubeconfig uses, and give it the role that `gke-ai snapshot --role` prints."
        )
    found = manager(objects.get("Deployment", []))
    path, key = place(found)
    kueue = configuration(request(api, "GET", path), key)
    if kueue is not None and found and found.gates:
        kueue = {**kueue, "featureGates": {**(kueue.get("featureGates") or {}), **found.gates}}
    return build(stack, objects, taken_at, missing=missing, kueue=kueue, kueueVersion=found and found.version)


def read_file(path: Path) -> Snapshot:
    """Reads a snapshot from a file. Stops if it is none."""
    try:
        if not path.is_file() and path.exists():
            raise Stop(f"The snapshot {path} is not a file.")
        if path.stat().st_size > MAX_BYTES:
            raise Stop(f"{path} has more than {MAX_BYTES >> 20} MiB. A scratch cluster cannot hold so many objects.")
        return read(path.read_text())
    except UnicodeDecodeError:
        raise Stop(f"The snapshot {path} is not text.") from None
    except OSError as error:
        raise Stop(f"The snapshot {path} cannot be read ({error.strerror}).") from None
    except InvalidSnapshot as invalid:
        raise Stop(f"{path}: {invalid}") from None


class Forbidden(Exception):
    """The user may not list a kind."""


def list_all(api: ApiClient, kind: Kind) -> list[Object]:
    """Returns all objects of a kind, page by page. Raises Forbidden."""
    query = {"limit": str(PAGE)}
    objects: list[Object] = []
    while True:
        answer = request(api, "GET", kind.path(), query)
        if answer.code == FORBIDDEN:
            raise Forbidden(answer.reason)
        if answer.code == GONE:  # the pages took longer than the cluster keeps them: read them all at once
            return objects_of(request(api, "GET", kind.path()), kind.path())
        objects += objects_of(answer, kind.path())
        page = (answer.body.get("metadata") or {}).get("continue") if answer.code == 200 else None
        if not page:
            return objects
        query = {"limit": str(PAGE), "continue": page}
