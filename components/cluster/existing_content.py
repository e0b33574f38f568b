"""What an existing cluster has of what a stack expects: a Kueue, a JobSet, and objects by name."""

import pulumi

from gke_ai.catalog.kueue.existing import Expected
from gke_ai.components.support.cluster_client import connection
from gke_ai.kube.existing import read, refusals


def check_content(expected: Expected, kubeconfig: str) -> None:
    """Raise RunError with all that a cluster lacks, before anything in it is registered, in a preview too.

    A cluster that does not answer is no reason to stop.
    """
    try:
        content = connection(kubeconfig).call(read)
    except Exception as error:  # noqa: BLE001  whatever the API or the plugin says, the update may go on
        pulumi.log.warn(f"What the cluster has of what this stack expects was not checked: {str(error)[:300]}")
        return
    if refused := [*refusals(expected, content)]:
        raise pulumi.RunError("\n".join(map(str, refused)))
