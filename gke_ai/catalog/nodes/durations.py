"""How long steps take on Google Cloud, in seconds, where nobody has measured them on the stack's own cluster.

A rehearsal uses these figures, and replaces them by those of the calibration file. Google publishes few of them. A
figure without a source is an assumption, which says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gke_ai.catalog.machines.capacity import MODES

ASSUMPTION = "assumption"


@dataclass(frozen=True)
class StepDuration:
    """The duration of a step in seconds, and its source: a URL, or the assumption that it rests on."""

    seconds: int
    source: str


# From the creation of a node to Ready, with the driver of its GPUs, once there is capacity. Google publishes no figure,
# only that a fast-starting node takes up to four times less:
# https://cloud.google.com/kubernetes-engine/docs/concepts/fast-starting-nodes
_NODE = StepDuration(180, f"{ASSUMPTION}: 3 minutes, if there is capacity")
NODE_READY: Mapping[str, StepDuration] = {
    **dict.fromkeys(MODES, _NODE),
    "flexStart": StepDuration(180, f"{ASSUMPTION}: 3 minutes after Dynamic Workload Scheduler has capacity"),
    "queuedFlexStart": StepDuration(180, f"{ASSUMPTION}: 3 minutes after Dynamic Workload Scheduler has capacity"),
}
# From a pod on a new node to its container, for a large image: 3 min 50 s if GKE pulls it, 20 s if GKE streams it.
_LARGE_IMAGE = "https://wdenniss.com/using-image-streaming-with-dockerhub"
CONTAINER_START = StepDuration(230, _LARGE_IMAGE)
CONTAINER_START_STREAMED = StepDuration(20, _LARGE_IMAGE)
# With the image on a secondary boot disk, 16 GB load up to 29 times as fast as by a pull.
CONTAINER_START_PRELOADED = StepDuration(
    8,
    "https://cloud.google.com/blog/products/containers-kubernetes/improve-data-loading-times-for-ml-inference-apps-on-gke",
)
# From the start of a server's container until it answers.
MODEL_LOAD = StepDuration(120, f"{ASSUMPTION}: 2 minutes for any model")
# What vLLM does beside reading the weights, which took 4 s from memory. Measured by this project with vLLM 0.31.0 and
# an 8B model on one H200, until the first token: 45 s with `--enforce-eager`, 57 s with the compiled code of an earlier
# start, 115 s without.
_MEASURED = "docs/evidence.md"
ENGINE_PROCESSES = StepDuration(41, _MEASURED)
ENGINE_COMPILATION = StepDuration(58, _MEASURED)
ENGINE_GRAPHS = StepDuration(12, _MEASURED)
# Until the autoscaler deletes a node without pods.
NODE_IDLE = StepDuration(600, "https://cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler")
