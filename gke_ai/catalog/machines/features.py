"""Minimum GKE versions of features, and comparison of versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gke_ai.catalog.machines.types import MACHINES

FLEX_START, FLEX_START_TPU = "flex-start", "flex-start on TPUs"
COMPUTE_CLASS, COMPUTE_CLASS_FLEX_START = "ComputeClass", "flex-start in a ComputeClass"
COMPUTE_CLASS_POOLS = "node pools that a ComputeClass creates"
TPU7X, TPU7X_AUTOPILOT = "tpu7x", "tpu7x on Autopilot"
INFERENCE_POOL = "InferencePool"
A3_ULTRA, A4, G4, G4_PARTS, V6E = "A3 Ultra", "A4", "G4", "a part of a G4 GPU", "TPU v6e"
A4X_MAX = "A4X Max"
NETWORK_PROFILE, NETWORK_PROFILE_AUTOPILOT = "GKE's accelerator network profile", "GKE's profile on Autopilot"
SECRET_SYNC, JOBSET_METRICS = "secrets from Secret Manager", "metrics of JobSets"
SCALE_TO_ZERO = "an autoscaler with minReplicas: 0"

MINIMUM: Mapping[str, str] = {
    # https://cloud.google.com/kubernetes-engine/docs/how-to/dws-flex-start-training
    FLEX_START: "1.32.2-gke.1652000",
    # https://cloud.google.com/kubernetes-engine/docs/how-to/dws-flex-start-training-tpu
    FLEX_START_TPU: "1.33.0-gke.1712000",
    # https://cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass
    COMPUTE_CLASS: "1.30.3-gke.1451000",
    COMPUTE_CLASS_FLEX_START: "1.32.2-gke.1652000",
    COMPUTE_CLASS_POOLS: "1.33.3-gke.1136000",
    # https://cloud.google.com/kubernetes-engine/docs/concepts/tpu-ironwood
    TPU7X: "1.34.0-gke.2201000",
    TPU7X_AUTOPILOT: "1.34.1-gke.3084001",
    # https://cloud.google.com/ai-hypercomputer/docs/create/gke-ai-hypercompute-custom (A3 Ultra),
    # https://cloud.google.com/kubernetes-engine/docs/how-to/gpus#requirements (the others). In 1.35, parts of a G4
    # GPU need 1.35.2-gke.1485000. Every version that GKE supports has the GPUs before H200.
    A3_ULTRA: "1.31.4-gke.1183000",
    A4: "1.32.1-gke.1729000",
    # Of 1.34. In 1.35, A4X Max needs 1.35.0-gke.2745000: docs/integrator/gke-a4x-max-networking.md of
    # https://github.com/NVIDIA/aicr at 9b6263c1, from Google's page (gke_ai/catalog/machines/machines.yaml).
    A4X_MAX: "1.34.3-gke.1318000",
    G4: "1.34.0-gke.1662000",
    G4_PARTS: "1.34.5-gke.1153000",
    # https://docs.ray.io/en/latest/cluster/kubernetes/user-guides/gcp-gke-tpu-cluster.html, by
    # https://cloud.google.com/tpu/docs/tpus-in-gke#tpu-machine-types
    V6E: "1.31.2-gke.1115000",
    # https://cloud.google.com/kubernetes-engine/docs/how-to/allocate-network-resources-dra
    NETWORK_PROFILE: "1.34.1-gke.1829001",
    NETWORK_PROFILE_AUTOPILOT: "1.35.2-gke.1842000",
    # GKE installs its CRD since this version: https://llm-d.ai/docs/resources/gateway/gke
    INFERENCE_POOL: "1.34.0-gke.1626000",
    # https://cloud.google.com/secret-manager/docs/sync-k8-secrets
    SECRET_SYNC: "1.34.0-gke.0",
    # https://docs.cloud.google.com/kubernetes-engine/docs/how-to/kube-state-metrics
    JOBSET_METRICS: "1.32.1-gke.1357001",
    # Control plane and nodes: https://cloud.google.com/kubernetes-engine/docs/tutorials/scale-to-from-zero-hpa
    SCALE_TO_ZERO: "1.37.0-gke.0",
}

_OF_MACHINES = {"a3-ultragpu-": A3_ULTRA, "a4-": A4, "a4x-max": A4X_MAX, "g4-": G4, "ct6e-": V6E}


def of_machines(machine_types: Iterable[str]) -> set[str]:
    """Returns the features that nodes of these machine types need."""
    names = set(machine_types)
    found = {feature for start, feature in _OF_MACHINES.items() if any(name.startswith(start) for name in names)}
    return found | ({G4_PARTS} if any(name in MACHINES and MACHINES[name].gpu_parts > 1 for name in names) else set())


def ordered(version: str) -> tuple[int, ...]:
    """Returns a version as a comparable tuple: `1.33.0-gke.1712000` as (1, 33, 0, 1712000)."""
    return tuple(int(number) for number in re.findall(r"\d+", version))
