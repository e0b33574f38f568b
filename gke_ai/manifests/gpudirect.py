"""What GPUDirect-TCPX and TCPXO add to the pods of a run: interfaces, devices, the daemon and its volumes.

Sources: `gke_ai.catalog.fabric.gpudirect`, and on the daemon as a sidecar gpudirect-tcpxo/best-practice.md of
https://github.com/GoogleCloudPlatform/container-engine-accelerators at 992db812.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from gke_ai.catalog.fabric import gpudirect

Object = dict[str, Any]
_LIBRARIES, _SOCKET = "nvidia-libraries", "gpudirect-socket"
# Where the daemon finds files of the node.
_OF_DAEMON = {"sys": ("/sys", "/hostsysfs"), "proc-sys": ("/proc/sys", "/hostprocsysfs")}


def _daemon_name(technology: gpudirect.GpuDirect) -> str:
    return f"{technology.name}-daemon"


def pod_annotations(technology: gpudirect.GpuDirect) -> dict[str, str]:
    """The annotations by which GKE gives a pod the NICs, and the injector gives the daemon the devices of its node."""
    networks = ["default", *map(gpudirect.network_name, range(1, technology.networks + 1))]
    interfaces = [{"interfaceName": f"eth{number}", "network": name} for number, name in enumerate(networks)]
    devices = [{"path": path} for path in (*gpudirect.gpu_devices(), *technology.devices)]
    return {
        "networking.gke.io/default-interface": "eth0",
        "networking.gke.io/interfaces": json.dumps(interfaces),
        f"devices.gke.io/container.{_daemon_name(technology)}": yaml.safe_dump(devices),
    }


def daemon(technology: gpudirect.GpuDirect) -> Object:
    """The daemon, as a sidecar: it starts before the container of the run, and ends after it."""
    mounts = {_LIBRARIES: gpudirect.LIBRARIES, **{name: path for name, (_, path) in _OF_DAEMON.items()}}
    mounts |= {_SOCKET: f"/run/{technology.name}"} if technology.socket else {}
    return {
        "name": _daemon_name(technology),
        "image": technology.daemon_image,
        "command": list(technology.daemon),
        "restartPolicy": "Always",
        "env": [{"name": "LD_LIBRARY_PATH", "value": gpudirect.LIBRARIES}],
        "resources": {"requests": dict(gpudirect.DAEMON_REQUESTS)},
        "securityContext": {"capabilities": {"add": list(technology.capabilities)}},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }


def mounts(technology: gpudirect.GpuDirect) -> list[Object]:
    """The mounts of the container of the run."""
    paths = {_LIBRARIES: gpudirect.LIBRARIES, **({_SOCKET: technology.socket} if technology.socket else {})}
    paths |= {_volume_name(path): path for path in technology.mounts}
    return [{"name": name, "mountPath": path} for name, path in paths.items()]


def volumes(technology: gpudirect.GpuDirect) -> list[Object]:
    """The volumes of the pod."""
    of_node = {_LIBRARIES: gpudirect.LIBRARIES_OF_NODE, **{name: path for name, (path, _) in _OF_DAEMON.items()}}
    of_node |= {_volume_name(inside): path for inside, path in technology.mounts.items()}
    socket: list[Object] = [{"name": _SOCKET, "emptyDir": {}}] if technology.socket else []
    return [*({"name": name, "hostPath": {"path": path}} for name, path in of_node.items()), *socket]


def _volume_name(path: str) -> str:
    return path.rpartition("/")[2].replace("_", "-")
