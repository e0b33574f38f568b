"""Values of Kueue's Helm chart, with the configuration of its manager."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import yaml

from gke_ai.catalog.fabric.nvlink import CHANNEL_CLASS, CHANNELS
from gke_ai.catalog.fabric.rdma import DEVICE_CLASS, RESOURCE
from gke_ai.catalog.kueue.configuration import FRAMEWORKS, NO_LIMIT, limits_by_default
from gke_ai.catalog.kueue.namespaces import KUEUE
from gke_ai.catalog.kueue.operators import FRAMEWORKS_OF_OPERATORS
from gke_ai.catalog.versions import KUEUE_CONFIG_API, KUEUE_IMAGE, KUEUE_VERSION
from gke_ai.settings.model import AdmissionFairSharing, FairSharing

# Kueue frees the quota of pods that succeed, for good, while a JobSet that restarts creates them again. Without the
# gate, a run holds its quota until it ends.
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/webhooks/workload_webhook.go (validateReclaimablePodsUpdate)
HOLDS = {"ReclaimablePods": False}
# One manager leads and all answer webhooks, so at least one must always run.
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/charts/kueue/templates/_helpers.tpl has the labels.
SPREAD = {
    "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {
                "matchLabels": {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
            },
        }
        for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    ],
}


def chart_values(version: str, replicas: int, manager: dict[str, Any]) -> dict[str, Any]:
    """Values of Kueue's chart. Sets the image: the chart in Kueue's repository defaults to another."""
    memory = "512Mi" if replicas == 1 else "1Gi"
    return {
        "controllerManager": {
            "replicas": replicas,
            **(SPREAD if replicas > 1 else {}),
            "manager": {
                "image": {"repository": KUEUE_IMAGE, "tag": f"v{version}", "pullPolicy": "IfNotPresent"},
                "resources": {"requests": {"cpu": "500m", "memory": memory}, "limits": {"cpu": "2", "memory": memory}},
            },
        },
        "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(manager, sort_keys=False)},
    }


def wait_for_pods_ready(seconds: int) -> dict[str, Any]:
    """Settings that evict and requeue workloads whose pods don't become ready.

    https://kueue.sigs.k8s.io/docs/tasks/manage/setup_wait_for_pods_ready/
    """
    if not seconds:
        return {}
    requeuing = {"timestamp": "Eviction", "backoffBaseSeconds": 60, "backoffMaxSeconds": 3600}
    return {"waitForPodsReady": {"timeout": f"{seconds}s", "blockAdmission": False, "requeuingStrategy": requeuing}}


def sharing(
    fair: FairSharing | None, by_usage: AdmissionFairSharing | None, counted: Collection[str]
) -> dict[str, Any]:
    """Settings of shares by weight, and of the order by past usage of the resources that have quota.

    https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/
    """
    settings: dict[str, Any] = {}
    if fair is not None:
        settings["fairSharing"] = {"preemptionStrategies": list(fair.preemption_strategies)}
    if by_usage is not None:
        # Kueue's default weight is 1 for a GPU as for a byte of memory, so memory alone would decide.
        chief = [name for name in counted if "/" in name] or ["cpu"]
        settings["admissionFairSharing"] = {
            "usageHalfLifeTime": f"{by_usage.usage_half_life_seconds}s",
            "usageSamplingInterval": f"{by_usage.usage_sampling_seconds}s",
            "resourceWeights": {name: float(name in chief) for name in sorted(counted)} | by_usage.resource_weights,
        }
    return settings


def manager_configuration(
    namespaces: Sequence[str],
    quota_metrics: bool,
    pods_ready_timeout_seconds: int,
    version: str = KUEUE_VERSION,
    further_kinds: Sequence[str] = (),
    *,
    devices: Collection[str] = (),
    reclaim_ended_pods: bool = True,
    sharing: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Configuration of Kueue's manager. The chart also derives its webhooks from it."""
    gates = {NO_LIMIT: True} if not pods_ready_timeout_seconds and limits_by_default(version) else {}
    gates |= {} if reclaim_ended_pods else HOLDS
    frameworks = [*FRAMEWORKS.values(), *(FRAMEWORKS_OF_OPERATORS[kind] for kind in further_kinds)]
    managed = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(namespaces)}
    mappings = [{"name": name, "deviceClassNames": [of]} for name, of in CLASSES.items() if name in devices]
    if not namespaces:  # queues for other programs: any namespace except the system's
        managed = {**managed, "operator": "NotIn", "values": ["kube-system", KUEUE]}
    return {
        "apiVersion": KUEUE_CONFIG_API,
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443", **({"enableClusterQueueResources": True} if quota_metrics else {})},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "controller": {
            "groupKindConcurrency": {
                "Job.batch": 5,
                "Pod": 5,
                "Workload.kueue.x-k8s.io": 5,
                "LocalQueue.kueue.x-k8s.io": 1,
                "ClusterQueue.kueue.x-k8s.io": 1,
                "ResourceFlavor.kueue.x-k8s.io": 1,
            }
        },
        "clientConnection": {"qps": 50, "burst": 100},
        "managedJobsNamespaceSelector": {"matchExpressions": [managed]},
        "integrations": {"frameworks": frameworks},
        **({"featureGates": gates} if gates else {}),
        **wait_for_pods_ready(pods_ready_timeout_seconds),
        **(sharing or {}),
        # https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/#DeviceClassMapping
        **({"resources": {"deviceClassMappings": mappings}} if mappings else {}),
    }


# By the resource by which Kueue counts the devices of a class.
CLASSES = {RESOURCE: DEVICE_CLASS, CHANNELS: CHANNEL_CLASS}
