"""`gke-gcloud-auth-plugin` of the emulator: hands a Kubernetes client the credential of the cluster it will call.

A client runs it for every command, so it starts with the standard library alone. The protocol is that of client-go's
credential plugins; the cluster is found by the server's address, which `provideClusterInfo: true` in the kubeconfig
makes the client tell:
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import json
import os
import sys

from emulator import paths

API_VERSION = "client.authentication.k8s.io/v1beta1"


class NoCredential(Exception):
    """There is no cluster behind the address, or none was named."""


def credential(host: str) -> dict[str, str]:
    """The client certificate and key (PEM) for the API server at `host`, `127.0.0.1:PORT`. Raises NoCredential."""
    for file in paths.CLUSTERS.glob("[!.]*/cluster.json"):
        if json.loads(file.read_text())["host"] == host:
            pki = file.parent / "kwok" / "clusters" / file.parent.name / "pki"
            return {
                "clientCertificateData": (pki / "admin.crt").read_text(),
                "clientKeyData": (pki / "admin.key").read_text(),
            }
    raise NoCredential(
        f"The emulated cloud has no cluster at {host} (looked in {paths.CLUSTERS}): it was deleted, or belongs to"
        " another emulator (GKE_AI_STATE). `make up` deploys one."
    )


def _wanted_host() -> str:
    info = os.environ.get("KUBERNETES_EXEC_INFO")
    if not info:
        raise NoCredential("A Kubernetes client runs this, with KUBERNETES_EXEC_INFO set; it has no other use.")
    server = json.loads(info).get("spec", {}).get("cluster", {}).get("server", "")
    if not server:
        raise NoCredential("The kubeconfig doesn't say `provideClusterInfo: true`, so no cluster was named.")
    # The emulator's DNS names are all this one.
    return str(server).removeprefix("https://").rstrip("/").replace("localhost:", "127.0.0.1:")


def main() -> int:
    """Print an ExecCredential, or say why there is none."""
    try:
        status = credential(_wanted_host())
    except NoCredential as missing:
        print(f"gke-gcloud-auth-plugin (emulator): {missing}", file=sys.stderr)
        return 1
    print(json.dumps({"kind": "ExecCredential", "apiVersion": API_VERSION, "status": status}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
