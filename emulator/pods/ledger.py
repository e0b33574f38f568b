"""The ledger's runs, the other program that runs as a local process although nobody named it."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx

from emulator.cloud.api import answer
from emulator.pods.local_spec import NotStarted, Paths, is_own
from gke_ai.catalog.kueue.ledger import LEDGER, NAMESPACE

Object = dict[str, Any]
# The file of this checkout, whatever the ConfigMap has. Isolated: no variable makes Python run other code.
COMMAND = [sys.executable, "-I", "-S", "-B", "-u", str(files("gke_ai") / "pods" / "programs" / "ledger.py")]
_STATED = ["python3", "-u", "/program/ledger.py"]
TOKEN_SECONDS = 3600


def keeps(pod: Object, container: Object) -> bool:
    """Whether a container is that of the ledger."""
    return is_own(pod, container, _STATED, NAMESPACE, LEDGER)


async def environment(api: httpx.AsyncClient, pod: Object, host: str, ca: Path, folder: Path, paths: Paths) -> Object:
    """The variables of the program, with the files that a kubelet mounts for its service account in `folder`."""
    program = paths.folders.get("/program")
    if program is None or not (program / "budgets.json").is_file():
        raise NotStarted("CreateContainerError", "no ConfigMap has budgets.json in /program")
    metadata = pod["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    request = {"spec": {"audiences": [], "expirationSeconds": TOKEN_SECONDS, "boundObjectRef": bound}}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{LEDGER}/token"
    token = answer(await api.post(path, json=request))["status"]["token"]
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("token", token), ("ca.crt", ca.read_text())):
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(content)
    address, _, port = host.rpartition(":")
    server = {"KUBERNETES_SERVICE_HOST": address, "KUBERNETES_SERVICE_PORT": port}
    own = {"NAMESPACE": NAMESPACE, "CONFIG": str(program / "budgets.json"), "SERVICE_ACCOUNT_FOLDER": str(folder)}
    return {**server, **own}
