"""Finds the Kueue of a cluster: in any namespace, with any name of its Deployment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gke_ai.catalog.documents import InvalidDocument, Reader, read
from gke_ai.catalog.kueue import ExistingKueue
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.kube.client import list_objects, request
from gke_ai.kube.objects import Object

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

# The manager's image, in any registry.
_IMAGE = re.compile(r"(?:.*/)?kueue:v?(\d+\.\d+\.\d+)(?:@.*)?")
_GATES, _CONFIG = "--feature-gates=", "--config="


@dataclass(frozen=True)
class Manager:
    """The Deployment of Kueue's manager, and what its flags say."""

    version: str
    deployment: Object
    gates: Mapping[str, bool]
    file: str
    """Path of its configuration in the container; empty without one."""

    @property
    def config_map(self) -> str | None:
        """Name of the ConfigMap with its configuration; None without one."""
        volumes = self.deployment["spec"]["template"]["spec"].get("volumes") or []
        names = [volume["configMap"].get("name") for volume in volumes if "configMap" in volume]
        return str(names[0]) if names and self.file else None


def manager(deployments: Iterable[Object]) -> Manager | None:
    """Returns the manager among the Deployments of a cluster; None if there is none."""
    for deployment in deployments:
        for container in deployment.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            if match := _IMAGE.fullmatch(str(container.get("image"))):
                flags = [str(word) for word in container.get("args") or []]
                gates = [gate.partition("=") for flag in _values(flags, _GATES) for gate in flag.split(",")]
                stated = {name: value.lower() == "true" for name, _, value in gates}
                return Manager(match[1], deployment, stated, next(_values(flags, _CONFIG), ""))
    return None


def _values(flags: Iterable[str], name: str) -> Iterator[str]:
    return (flag.removeprefix(name) for flag in flags if flag.startswith(name))


def installed(api: ApiClient) -> ExistingKueue | None:
    """Returns the Kueue of a cluster; None if it has none. Stops if the cluster does not answer."""
    found = manager(list_objects(api, "/apis/apps/v1/deployments"))
    if found is None:
        return None
    meta = found.deployment["metadata"]
    configuration: Any = None
    if found.config_map:
        answer = request(api, "GET", f"/api/v1/namespaces/{meta['namespace']}/configmaps/{found.config_map}")
        texts: Mapping[str, str] = (answer.body.get("data") or {}) if answer.code == 200 else {}
        try:
            configuration = next(iter(read(texts.get(found.file.rpartition("/")[2], ""), Reader.KUBECTL)), None)
        except InvalidDocument:
            configuration = None
    stated = configuration if isinstance(configuration, dict) else {}
    served = request(api, "GET", f"/apis/{KUEUE_API}/clusterqueues")
    queues = [queue["metadata"]["name"] for queue in served.body["items"]] if served.code == 200 else None
    return ExistingKueue(found.version, meta["namespace"], meta["name"], stated, found.gates, queues)
