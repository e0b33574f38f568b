"""What runs in the cluster of a test: nodes, Jobs, pods and autoscalers, and what the commands say of them."""

import base64
import re
from collections import Counter
from typing import Any

from gke_ai.catalog.nodes.shape import GKE_TPU_TOPOLOGY
from gke_ai.kube.objects import holds
from tests.support.emulator import Emulator

SINGLE, MULTI = "2x2", "4x4"


def slices(emulator: Emulator) -> Counter[str]:
    """Nodes with TPUs, by the topology of their slice."""
    nodes = emulator.get("nodes", "-l", GKE_TPU_TOPOLOGY)
    return Counter(node["metadata"]["labels"][GKE_TPU_TOPOLOGY] for node in nodes)


def running(emulator: Emulator, job: str) -> list[dict[str, Any]]:
    job_pods = emulator.get("pods", "-A", "-l", f"job-name={job}")
    return [pod for pod in job_pods if pod["status"].get("phase") == "Running"]


def finish(emulator: Emulator, job: str, namespace: str = "default", succeeded: bool = True) -> None:
    """End the containers of a Job's pods."""
    call = "import emulator.cluster, sys; emulator.cluster.finish_job(*sys.argv[1:4], succeeded=sys.argv[4] == 'True')"
    emulator.run("python", "-c", call, emulator.outputs()["clusterName"], namespace, job, str(succeeded))


def admitted(emulator: Emulator, kind: str, namespace: str = "llm") -> list[dict[str, Any]]:
    return [
        workload
        for workload in emulator.get("workloads", "-n", namespace)
        if workload["metadata"]["ownerReferences"][0]["kind"] == kind and holds(workload, "Admitted")
    ]


def all_running(emulator: Emulator, namespace: str) -> set[str]:
    """The pods of a namespace once all of them run. Empty before."""
    pods = emulator.get("pods", "-n", namespace)
    started = all(pod["status"].get("phase") == "Running" for pod in pods)
    return {pod["metadata"]["uid"] for pod in pods} if started else set()


def fails(printed: str) -> list[str]:
    """The claims that failed, as the table has them."""
    return sorted(re.findall(r"^fail {2,}(\S+(?: \S+)*)", printed, re.MULTILINE))


AUTOSCALER = "jetstream-hpa-multiple-metrics"


def hpa(emulator: Emulator, name: str = AUTOSCALER, namespace: str = "default") -> dict[str, Any]:
    (autoscaler,) = emulator.get("hpa", "-n", namespace, f"--field-selector=metadata.name={name}")
    return autoscaler


def values(emulator: Emulator, name: str = AUTOSCALER, namespace: str = "default") -> dict[str, str]:
    """The current values that the autoscaler reads, by metric."""
    read = hpa(emulator, name, namespace)["status"].get("currentMetrics") or []
    external = [metric["external"] for metric in read if metric.get("type") == "External"]
    return {metric["metric"]["name"]: metric["current"].get("value", "") for metric in external}


def row(status: str, *cells: str) -> str:
    """The last line that contains all of these, or an empty string. A status comes at the end."""
    return next((line for line in reversed(status.splitlines()) if all(cell in line for cell in cells)), "")


def token_in(emulator: Emulator, namespace: str) -> str | None:
    """The token in the namespace's Secret, if GKE has created it."""
    for secret in emulator.get("secrets", "-n", namespace):
        if secret["metadata"]["name"] == "hf-secret" and secret["metadata"].get("ownerReferences"):
            return base64.b64decode(secret["data"]["hf_api_token"]).decode()
    return None
