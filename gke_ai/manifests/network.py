"""What the pods of training on GPUs share: their nodes, and the network between these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gke_ai.catalog.fabric import nvlink, rdma
from gke_ai.catalog.fabric.gpudirect import GPUDIRECT_LABEL, GpuDirect
from gke_ai.catalog.nodes.shape import COMPUTE_CLASS, GKE_ACCELERATOR
from gke_ai.manifests import gpudirect
from gke_ai.manifests.job import Object, Place, fuse_annotations, queued_tolerations, topology_annotations
from gke_ai.manifests.workload import arm_tolerations
from gke_ai.settings.model import FineTune, TrainingRun


def annotations_of(run: FineTune | TrainingRun, place: Place) -> dict[str, str]:
    """The annotations of the run's pods."""
    networks = gpudirect.pod_annotations(place.gpudirect) if place.gpudirect else {}
    return {**fuse_annotations(run), **topology_annotations(run), **networks}


def claims_of(place: Place) -> tuple[str, ...]:
    """The templates by which each pod claims the devices of its node. Without a GPU in its selector: eight NICs."""
    of_gpu = nvlink.claims(place.node_selector.get(GKE_ACCELERATOR, ""))
    return (of_gpu or (rdma.TEMPLATE,)) if place.claims_nics else ()


def nodes_of(place: Place) -> Object:
    """The fields of a pod's spec that say where it runs."""
    # The autoscaler creates nodes of a class by the label of the class.
    of_class = COMPUTE_CLASS in place.node_selector
    network = {rdma.PROFILE_LABEL: rdma.PROFILE} if place.claims_nics and not of_class else {}
    network |= {GPUDIRECT_LABEL: place.gpudirect.name} if place.gpudirect else {}
    selector = {**place.node_selector, **network}
    tolerations = [*queued_tolerations(place.queued_seconds), *arm_tolerations(place.node_selector)]
    return {"nodeSelector": selector, "tolerations": tolerations}


def network_variables(claims: Sequence[str], technology: GpuDirect | None) -> Mapping[str, str]:
    """The variables by which NCCL finds the network between nodes."""
    return rdma.VARIABLES if claims else technology.variables if technology else {}


def connected(spec: Object, claims: Sequence[str], technology: GpuDirect | None) -> Object:
    """A pod's spec, which has one container, with the network between nodes."""
    (container,), volumes = spec["containers"], list(spec["volumes"])
    resources, mounts, network = container["resources"], list(container["volumeMounts"]), {}
    if claims:
        volume, mount = PLUGIN
        volumes.append(volume)
        mounts.append(mount)
        resources = {**resources, "claims": [{"name": name} for name in claims]}
        network = rdma_network(claims)
    if technology:
        volumes += gpudirect.volumes(technology)
        mounts += gpudirect.mounts(technology)
        network = {"initContainers": [gpudirect.daemon(technology)]}
    return {
        **spec,
        "containers": [{**container, "resources": resources, "volumeMounts": mounts}],
        "volumes": volumes,
        **network,
    }


# The plug-in of NCCL, which an init container installs, as a volume and its mount.
PLUGIN: tuple[Object, Object] = (
    {"name": "nccl-plugin", "emptyDir": {}},
    {"name": "nccl-plugin", "mountPath": rdma.PLUGIN_PATH},
)


def rdma_network(claims: Sequence[str]) -> Object:
    """The fields of a pod's spec that claim the devices of its node, and install the plug-in that uses its NICs."""
    volume, _ = PLUGIN
    install = {
        "name": volume["name"],
        "image": nvlink.plugin_image(claims),
        "command": ["/bin/sh", "-c", rdma.INSTALL],
        "resources": {"requests": dict(rdma.PLUGIN_REQUESTS), "limits": dict(rdma.PLUGIN_REQUESTS)},
        "volumeMounts": [{"name": volume["name"], "mountPath": f"/target{rdma.PLUGIN_PATH}"}],
    }
    return {
        "initContainers": [install],
        "resourceClaims": [{"name": name, "resourceClaimTemplateName": name} for name in claims],
    }
