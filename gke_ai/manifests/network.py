"""What the pods of training on GPUs share: their nodes, and the network between these."""

from __future__ import annotations

from collections.abc import Mapping

from gke_ai.catalog.fabric import rdma
from gke_ai.catalog.fabric.fabrics import DEFAULT_NETWORK, EIGHT_NICS, Fabric, fabric_of_gpu
from gke_ai.catalog.fabric.gpudirect import NAMED
from gke_ai.catalog.nodes.shape import COMPUTE_CLASS, GKE_ACCELERATOR
from gke_ai.manifests import gpudirect
from gke_ai.manifests.job import Object, Place, fuse_annotations, queued_tolerations, topology_annotations
from gke_ai.manifests.workload import arm_tolerations
from gke_ai.settings.model import GpuRun


def annotations_of(run: GpuRun, place: Place) -> dict[str, str]:
    """The annotations of the run's pods."""
    technology = place.fabric.technology
    networks = gpudirect.pod_annotations(technology) if technology else {}
    return {**fuse_annotations(run), **topology_annotations(run), **networks}


def place_on_gpus(
    node_selector: Mapping[str, str], queued_seconds: int | None, claims_nics: bool, technology: str | None
) -> Place:
    """The nodes of a run, from the arguments of its component. Without a GPU in the selector: eight NICs."""
    fabric = Fabric(technology=NAMED[technology]) if technology else DEFAULT_NETWORK
    if claims_nics:
        of_gpu = fabric_of_gpu(node_selector.get(GKE_ACCELERATOR))
        fabric = of_gpu if of_gpu.nics else EIGHT_NICS
    return Place(node_selector, queued_seconds, fabric=fabric)


def nodes_of(place: Place) -> Object:
    """The fields of a pod's spec that say where it runs."""
    # The autoscaler creates nodes of a class by the label of the class.
    of_class = COMPUTE_CLASS in place.node_selector
    selector = {**place.node_selector, **({} if of_class else place.fabric.selector)}
    tolerations = [*queued_tolerations(place.queued_seconds), *arm_tolerations(place.node_selector)]
    return {"nodeSelector": selector, "tolerations": tolerations}


def connected(spec: Object, place: Place) -> Object:
    """A pod's spec, which has one container, with its nodes and the network between them."""
    fabric = place.fabric
    (container,), volumes = spec["containers"], list(spec["volumes"])
    resources, mounts, network = container["resources"], list(container["volumeMounts"]), {}
    if fabric.nics:
        volume, mount = PLUGIN
        volumes.append(volume)
        mounts.append(mount)
        resources = {**resources, "claims": [{"name": name} for name in fabric.claims]}
        network = claimed_network(fabric)
    if technology := fabric.technology:
        volumes += gpudirect.volumes(technology)
        mounts += gpudirect.mounts(technology)
        network = {"initContainers": [gpudirect.daemon(technology)]}
    return {
        **spec,
        "containers": [{**container, "resources": resources, "volumeMounts": mounts}],
        "volumes": volumes,
        **network,
        **{key: value for key, value in nodes_of(place).items() if value},
    }


# The plug-in of NCCL, which an init container installs, as a volume and its mount.
PLUGIN: tuple[Object, Object] = (
    {"name": "nccl-plugin", "emptyDir": {}},
    {"name": "nccl-plugin", "mountPath": rdma.PLUGIN_PATH},
)


def claimed_network(fabric: Fabric) -> Object:
    """The fields of a pod's spec that claim the devices of its node, and install the plug-in that uses its NICs."""
    volume, _ = PLUGIN
    install = {
        "name": volume["name"],
        "image": fabric.plugin_image,
        "command": ["/bin/sh", "-c", rdma.INSTALL],
        "resources": {"requests": dict(rdma.PLUGIN_REQUESTS), "limits": dict(rdma.PLUGIN_REQUESTS)},
        "volumeMounts": [{"name": volume["name"], "mountPath": f"/target{rdma.PLUGIN_PATH}"}],
    }
    return {
        "initContainers": [install],
        "resourceClaims": [{"name": name, "resourceClaimTemplateName": name} for name in fabric.claims],
    }
