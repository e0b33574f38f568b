"""Emulates `gke-gcloud-auth-plugin`: gives a Kubernetes client the credential of the cluster that it calls.

A client runs it for every command, so it uses only the standard library and starts fast. The protocol is that of
client-go's credential plugins. With `provideClusterInfo: true` in the kubeconfig, the client passes the server's
address, which identifies the cluster:
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import json
import os
import sys

from emulator.machine import paths

API_VERSION = "client.authentication.k8s.io/v1beta1"


class NoCredential(Exception):
    """The emulator has no cluster at the address, or the client passed no address."""


def credential(host: str) -> dict[str, str]:
    """The client certificate and key (PEM) for the API server at `host` (`127.0.0.1:PORT`). Raises NoCredential."""
    for file in paths.CLUSTERS.glob("[!.]*/cluster.json"):
        if json.loads(file.read_text())["host"] == host:
            pki = file.parent / "kwok" / "clusters" / file.parent.name / "pki"
            return {
                "clientCertificateData": (pki / "admin.crt").read_text(),
                "clientKeyData": (pki / "admin.key").read_text(),
            }
    raise NoCredential(
        f"The emulator has no cluster at {host} in {paths.CLUSTERS}. The cluster was deleted or belongs to another"
        " emulator (GKE_AI_STATE). Deploy a stack with `make up`."
    )


def _wanted_host() -> str:
    info = os.environ.get("KUBERNETES_EXEC_INFO")
    if not info:
        raise NoCredential("KUBERNETES_EXEC_INFO isn't set. Only Kubernetes clients run this program.")
    server = json.loads(info).get("spec", {}).get("cluster", {}).get("server", "")
    if not server:
        raise NoCredential("The client passed no cluster. Set `provideClusterInfo: true` in the kubeconfig.")
    # The emulator's DNS names of control planes are all `localhost`.
    return str(server).removeprefix("https://").rstrip("/").replace("localhost:", "127.0.0.1:")


def main() -> int:
    """Prints an ExecCredential, or why there is none."""
    try:
        status = credential(_wanted_host())
    except NoCredential as missing:
        print(f"gke-gcloud-auth-plugin (emulator): {missing}", file=sys.stderr)
        return 1
    print(json.dumps({"kind": "ExecCredential", "apiVersion": API_VERSION, "status": status}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
