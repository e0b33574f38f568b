"""Records how Kueue admits and preempts while dev runs on the emulator, for the timeline.

    make up
    emulator/run python -m maintain.pages.pictures.record
    make pictures

The script scales the server to two replicas, to three, and back to one. It records the conditions of Kueue's Workloads,
the pods, and the reserved quota of the cluster queue.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any

from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.kube.client import list_objects
from gke_ai.kube.objects import Object, holds
from gke_ai.workspace.stack import Stack
from maintain.pages.pictures import RECORDINGS

RECORDING = RECORDINGS / "mixed_preemption.json"
SERVER, NAMESPACE, QUEUE = "gemma", "llm", "gpus"
KUEUE = f"/apis/{KUEUE_API}"
# Replicas of each step, and the seconds without a change after which the next step starts.
STEPS = ((2, 4.0), (3, 4.0), (1, 5.0))
LOOK_EVERY = 0.1
PASSING = ("admitted", "stopping")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", default="dev")
    RECORDING.write_text(json.dumps(record(Stack(parser.parse_args().stack)), indent=1) + "\n")
    print(f"The recording is {RECORDING}. Next: make pictures")


def record(stack: Stack) -> dict[str, Any]:
    """The steps, and the states of each workload and of the quota, each with its first second."""
    api = stack.api(8)
    assert api is not None, f"{stack.name} has no cluster"
    begun = time.monotonic()
    steps: list[dict[str, Any]] = []
    seen: dict[str, list[dict[str, Any]]] = {}
    used: list[dict[str, Any]] = []
    quota = 0

    def look() -> bool:
        """Records changes. Returns whether anything changed."""
        nonlocal quota
        at = round(time.monotonic() - begun, 1)
        queue = next(item for item in list_objects(api, f"{KUEUE}/clusterqueues") if item["metadata"]["name"] == QUEUE)
        quota, reserved = gpus_of(queue)
        workloads = list_objects(api, f"{KUEUE}/namespaces/{NAMESPACE}/workloads")
        now = states(workloads, list_objects(api, f"/api/v1/namespaces/{NAMESPACE}/pods"))
        changed = not used or used[-1]["gpus"] != reserved
        if changed:
            used.append({"at": at, "gpus": reserved})
        for name in sorted({*now, *seen}):
            before = seen[name][-1]["state"] if name in seen else "gone"
            state = now.get(name, "gone")
            if state == "admitted" and before in ("running", "stopping"):
                state = "stopping"  # its pods stop; Kueue keeps the quota reserved until they have ended
            if state != before:
                seen.setdefault(name, []).append({"at": at, "state": state})
                changed = True
        return changed

    def watch(seconds: float) -> None:
        """Polls until nothing has changed for this time."""
        quiet = time.monotonic()
        while time.monotonic() - quiet < seconds:
            if look():
                quiet = time.monotonic()
            time.sleep(LOOK_EVERY)

    watch(3)
    for replicas, seconds in STEPS:
        steps.append({"at": round(time.monotonic() - begun, 1), "replicas": replicas})
        scale = ["kubectl", "-n", NAMESPACE, "scale", f"deployment/{SERVER}", f"--replicas={replicas}"]
        subprocess.run(scale, check=True, capture_output=True)
        watch(seconds)
    return {
        "seconds": round(time.monotonic() - begun, 1),
        "quota": quota,
        "steps": steps,
        "gpus": used,
        "workloads": [{"name": name, "states": seen[workload]} for workload, name in named(seen)],
    }


def course(recording: Mapping[str, Any]) -> list[Any]:
    """What happened: the states of each workload in order, how many are gone at the end, and the quota.

    Left out are the states that may pass between two looks, and which of the Ready replicas Kubernetes deletes.
    """
    lanes = [(lane["name"], [change["state"] for change in lane["states"]]) for lane in recording["workloads"]]
    left_out = (*PASSING, "gone")
    return [
        *((name, [state for state in states if state not in left_out]) for name, states in lanes),
        sum(states[-1] == "gone" for _, states in lanes),
        recording["quota"],
    ]


def gpus_of(queue: Object) -> tuple[int, int]:
    flavors = [flavor for group in queue["spec"]["resourceGroups"] for flavor in group["flavors"]]

    def gpus(flavors: list[Object], key: str) -> int:
        resources = [resource for flavor in flavors for resource in flavor["resources"]]
        return sum(int(resource[key]) for resource in resources if resource["name"] == NVIDIA_GPU)

    return gpus(flavors, "nominalQuota"), gpus(queue["status"].get("flavorsReservation", []), "total")


def states(workloads: list[Object], pods: list[Object]) -> dict[str, str]:
    """The state of each workload by name: pending, admitted (not all of its pods run), running, or evicted."""
    result = {}
    for workload in workloads:
        owner = workload["metadata"]["ownerReferences"][0]
        own = [pod for pod in pods if belongs(pod, owner)]
        wanted = sum(int(pod_set.get("count", 1)) for pod_set in workload["spec"]["podSets"])
        if holds(workload, "Admitted"):
            state = "running" if sum(ready(pod) for pod in own) >= wanted else "admitted"
        else:
            state = "evicted" if holds(workload, "Evicted") else "pending"
        result[f"{owner['kind']}/{owner['name']}"] = state
    return result


def belongs(pod: Object, owner: Mapping[str, Any]) -> bool:
    return owner["uid"] in (pod["metadata"]["uid"], *(it["uid"] for it in pod["metadata"].get("ownerReferences", [])))


def ready(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") == "Running" and holds(pod, "Ready")


def named(seen: Mapping[str, list[dict[str, Any]]]) -> Iterator[tuple[str, str]]:
    """The lanes: the server's pods in order of creation, pods that never run after the others, training last."""

    def coming(name: str) -> tuple[float, bool, str]:
        return seen[name][0]["at"], not any(span["state"] == "running" for span in seen[name]), name

    by_coming = sorted(seen, key=coming)
    replicas = [name for name in by_coming if name.startswith("Pod/")]
    for number, name in enumerate(replicas, 1):
        yield name, f"server, replica {number}"
    for name in by_coming:
        if name not in replicas:
            yield name, "training"


if __name__ == "__main__":
    main()
