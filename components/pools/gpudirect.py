"""The VPC networks of GPUDirect-TCPX and TCPXO, and what installs it on the nodes."""

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_gcp as gcp

from gke_ai.catalog.fabric import gpudirect
from gke_ai.catalog.kueue.namespaces import GPUDIRECT
from gke_ai.components.arguments import Input, takes
from gke_ai.components.base import Component, custom_object, named
from gke_ai.components.cluster.connection import InCluster, project_in, region_in
from gke_ai.components.support.critical import critical_daemon_set, critical_namespace, on_nodes
from gke_ai.components.support.retry import kueue_hook

_ROOT = {"privileged": True}
# Opens the node to the other nodes' data and links the files of the NICs. Google's image is `ubuntu` of Docker Hub: the
# commands run in the node itself, so the image of the plug-in should do: unproven.
_PREPARE_TCPXO = """/sbin/iptables -I INPUT -p tcp -m tcp -j ACCEPT && modprobe import-helper
mkdir -p /dev/aperture_devices
lspci -nn -D | grep '1ae0:0084' | while IFS= read -r line; do
  BDF=$(echo "$line" | awk '{print $1}')
  target="/dev/aperture_devices/$BDF"
  mkdir -p "$target"
  umount -R "$target" || true
  mount --bind "$(readlink -f "/sys/bus/pci/devices/$BDF")" "$target"
done
chmod -R a+r /dev/aperture_devices/
chmod a+rw /dev/aperture_devices/*/resource*
"""


class GpuDirectNetworksArguments(InCluster):
    project: Input[str] | None = None
    """Id of the Google Cloud project. Default: that of the cluster."""
    region: str | None = None
    """Region of the cluster. Default: that of a `GkeCluster`."""
    technologies: Sequence[str]
    """`tcpx`, `tcpxo` or both."""


class GpuDirectNetworks(Component):
    """The networks between nodes of A3 High (GPUDirect-TCPX) or A3 Mega (GPUDirect-TCPXO), for all pools of a cluster.

    Each network is a VPC with one subnetwork and a firewall rule that lets its addresses reach each other. In the
    cluster, a `Network` with its `GKENetworkParamSet` names it for pods. Two DaemonSets run on nodes with the networks:
    the installer of NCCL's plug-in, and the injector that gives a pod's daemon the devices of its node. They are
    privileged, in a namespace of their own. A pool waits for its networks and their objects.

    Refused: by GKE, a cluster without multi-networking and Dataplane V2. It gets Dataplane V2 only at its creation.

    Sources: those of `gke_ai.catalog.fabric.gpudirect`.

    Example:
        networks = GpuDirectNetworks("gpudirect", cluster=cluster, technologies=["tcpxo"])
        GpuNodePool(
            "mega",
            cluster=cluster,
            machine_type="a3-megagpu-8g",
            zones=["us-central1-a"],
            nodes_per_zone=2,
            capacity=Spot(mode="spot"),
            gpu_direct=True,
            networks=networks,
        )
    """

    namespace: pulumi.Output[str]
    """Namespace of the installers."""

    @takes(GpuDirectNetworksArguments)
    def __init__(self, name: str, args: GpuDirectNetworksArguments) -> None:
        super().__init__(name, args)
        title = f"GpuDirectNetworks {name}"
        project, region = project_in(args.project, args.place(), title), region_in(args.region, args.place(), title)
        used = [technology for technology in gpudirect.NAMED.values() if technology.name in args.technologies]
        count = max(technology.networks for technology in used)
        self.networks = [f"{name}-{number}" for number in range(1, count + 1)]
        for number, network in enumerate(self.networks, 1):
            self._create_network(network, number, project, region)
        space, quota = critical_namespace(GPUDIRECT, self)
        after = pulumi.ResourceOptions(parent=self, depends_on=[quota])
        for technology in used:
            nodes = with_networks([technology])
            critical_daemon_set(GPUDIRECT, f"nccl-{technology.name}-installer", nodes, installer(technology), after)
        critical_daemon_set(GPUDIRECT, "device-injector", with_networks(used), INJECTOR, after)
        self.namespace = space.metadata.name
        self.register_outputs({"namespace": self.namespace})

    def _create_network(self, name: str, number: int, project: pulumi.Input[str], region: str) -> None:
        """A VPC with its objects in the cluster."""
        # Names are taken until their resources are deleted.
        opts = pulumi.ResourceOptions(parent=self, delete_before_replace=True)
        network = gcp.compute.Network(
            *named(name, opts), name=name, project=project, auto_create_subnetworks=False, mtu=gpudirect.MTU
        )
        subnetwork = gcp.compute.Subnetwork(
            *named(name, opts),
            name=name,
            project=project,
            region=region,
            network=network.id,
            ip_cidr_range=gpudirect.cidr(number),
        )
        gcp.compute.Firewall(
            *named(name, opts),
            name=name,
            project=project,
            network=network.id,
            source_ranges=[gpudirect.cidr(number)],
            allows=[{"protocol": protocol} for protocol in ("tcp", "udp", "icmp")],
        )
        # GKE serves the kinds some time after the cluster exists.
        served = pulumi.ResourceOptions(parent=self, hooks=kueue_hook(f"network {name}"))
        object_name = gpudirect.network_name(number)
        vpc = {"vpc": network.name, "vpcSubnet": subnetwork.name, "deviceMode": "NetDevice"}
        parameters = custom_object(gpudirect.NETWORK_API, "GKENetworkParamSet", object_name, vpc, served)
        reference = {
            "group": gpudirect.NETWORK_API.partition("/")[0],
            "kind": "GKENetworkParamSet",
            "name": object_name,
        }
        after = pulumi.ResourceOptions.merge(served, pulumi.ResourceOptions(depends_on=[parameters]))
        device = {"type": "Device", "parametersRef": reference}
        custom_object(gpudirect.NETWORK_API, "Network", object_name, device, after, suffix="-network")


def with_networks(technologies: Sequence[gpudirect.GpuDirect]) -> dict[str, Any]:
    """The affinity for nodes with the networks of these technologies."""
    names = [technology.name for technology in technologies]
    return on_nodes({"key": gpudirect.GPUDIRECT_LABEL, "operator": "In", "values": names})


def installer(technology: gpudirect.GpuDirect) -> dict[str, Any]:
    """The pod that installs NCCL and its plug-in on a node."""
    name = f"nccl-{technology.name}-installer"
    script = (
        "set -ex; chmod 755 /scripts/container_entry.sh; /scripts/container_entry.sh install --install-nccl; "
        "mkdir -p /usr/local/nvidia/lib64; "
        f"cp -r /var/lib/{technology.name}/lib64/. /usr/local/nvidia/lib64"
    )
    prepare = {
        "name": "prepare-node",
        "image": technology.plugin_image,
        "command": ["nsenter", "-at", "1", "--", "sh", "-c", _PREPARE_TCPXO],
        "resources": {"requests": dict(gpudirect.AGENT_REQUESTS)},
        "securityContext": _ROOT,
    }
    install = {
        "name": name,
        "image": technology.plugin_image,
        "command": ["/bin/sh", "-c", script],
        "resources": {"requests": dict(gpudirect.AGENT_REQUESTS)},
        "securityContext": _ROOT,
        "volumeMounts": [
            {"name": "var-lib", "mountPath": "/var/lib"},
            {"name": "library-dir-host", "mountPath": "/usr/local"},
        ],
    }
    return {
        "initContainers": [*([prepare] if technology is gpudirect.TCPXO else []), install],
        "containers": [{"name": "pause", "image": gpudirect.PAUSE_IMAGE}],
        "volumes": [
            {"name": "var-lib", "hostPath": {"path": "/var/lib"}},
            {"name": "library-dir-host", "hostPath": {"path": "/home/kubernetes/bin"}},
        ],
    }


INJECTOR: dict[str, Any] = {
    "containers": [
        {
            "name": "device-injector",
            "image": gpudirect.INJECTOR_IMAGE,
            "resources": {"requests": dict(gpudirect.AGENT_REQUESTS)},
            "securityContext": _ROOT,
            "volumeMounts": [{"name": "dev", "mountPath": "/dev"}, {"name": "nri", "mountPath": "/var/run/nri"}],
        }
    ],
    "volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}, {"name": "nri", "hostPath": {"path": "/var/run/nri"}}],
}
