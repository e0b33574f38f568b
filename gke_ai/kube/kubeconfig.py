"""The kubeconfig of a cluster, without a credential."""

import yaml


def kubeconfig(context: str, host: str, ca_certificate: str | None) -> str:
    """A kubeconfig that authenticates through `gke-gcloud-auth-plugin`.

    `host` has no scheme. `ca_certificate` is base64, or None if the host's certificate is publicly trusted.
    https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-access-for-kubectl
    """
    cluster = {"server": f"https://{host}"}
    if ca_certificate:
        cluster["certificate-authority-data"] = ca_certificate
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "command": "gke-gcloud-auth-plugin",
            "installHint": "https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-access-for-kubectl",
            "interactiveMode": "Never",
            "provideClusterInfo": True,
        }
    }
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": context,
            "clusters": [{"name": context, "cluster": cluster}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
            "users": [{"name": context, "user": user}],
        },
        sort_keys=False,
    )
