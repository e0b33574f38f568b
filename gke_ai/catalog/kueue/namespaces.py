"""System namespaces: those of Kubernetes, of GKE, and of the controllers that this program installs."""

from __future__ import annotations

from collections.abc import Mapping

from gke_ai.catalog.kueue.ledger import NAMESPACE as LEDGER
from gke_ai.catalog.kueue.operators import KUBERAY, TRAINER

# Label that Kubernetes gives every namespace: https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-metadata-name
NAMESPACE_NAME = "kubernetes.io/metadata.name"
KUEUE = "kueue-system"
JOBSET = "jobset-system"
STACKDRIVER_ADAPTER = "custom-metrics"
# Of the installers of GPUDirect, which are privileged.
GPUDIRECT = "gpudirect"
# Of NVIDIA's driver for Dynamic Resource Allocation, whose pods are privileged.
NVIDIA_DRIVER = "nvidia-dra-driver-gpu"
# Of the Jobs that fill buckets with models. No pod of a user is there, so nobody else can write as they do.
MODEL_CACHE = "model-cache"
# Of this program's controllers and Jobs.
_OWN = (
    *(KUEUE, JOBSET, TRAINER.namespace, KUBERAY.namespace, STACKDRIVER_ADAPTER, MODEL_CACHE, GPUDIRECT),
    *(NVIDIA_DRIVER, LEDGER),
)
# Collectors of Managed Service for Prometheus, on Standard and on Autopilot:
# https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed
METRICS_COLLECTORS = ("gmp-system", "gke-gmp-system")
# GKE's control plane reaches pods through these pods of kube-system, also for `services/proxy`:
# https://github.com/tigera/operator/pull/5212
KONNECTIVITY_NAMESPACE = "kube-system"
KONNECTIVITY: Mapping[str, str] = {"k8s-app": "konnectivity-agent"}

# The namespaces that a cluster gets from Kubernetes and GKE: https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/#initial-namespaces,
# those that gcloud leaves out where it lists workloads of GKE (api_lib of the SDK), and those that GKE's own
# admission policies leave out on Autopilot.
PUBLIC = frozenset(
    (
        *("kube-system", "kube-public", "kube-node-lease", "gke-system", "gmp-public", *METRICS_COLLECTORS),
        *("gke-managed-system", "gke-managed-cim", "gke-managed-volumepopulator", "gke-managed-checkpointing"),
        *("gke-managed-filestorecsi", "gke-managed-parallelstorecsi", "gke-managed-lustrecsi", "gke-managed-otel"),
        *("gke-managed-mldiagnostics", "gke-managed-networking-dra-driver", "gke-managed-pod-snapshots"),
        *_OWN,
    )
)
# https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/#initial-namespaces. Those of GKE begin
# with gke- and gmp-: https://cloud.google.com/kubernetes-engine/docs/concepts/autopilot-security
_PREFIXES = ("kube-", "gke-", "gmp-")


def is_system(namespace: str) -> bool:
    """Whether a namespace belongs to Kubernetes, GKE or a controller, so that workloads do not belong there."""
    return namespace in _OWN or namespace.startswith(_PREFIXES)
