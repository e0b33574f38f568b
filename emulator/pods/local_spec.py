"""How a container becomes a local process: its variables, paths and names of other pods.

A process has no file system and no network of its own. So paths under a mount become folders of this machine, and the
stable names of a Job's pods become local ports, wherever they stand in the command, the arguments and the environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gke_ai.catalog.engines import fuse
from gke_ai.catalog.engines.model_cache import FILL_IMAGE

Object = dict[str, Any]


class NotStarted(Exception):
    """Why a container doesn't start: a kubelet's reason, and what is wrong."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


# ---------------------------------------------------------------------------------------------------------------- paths
@dataclass
class Paths:
    """The folders of this machine that stand for paths of a container."""

    folders: dict[str, Path] = field(default_factory=dict)

    def add(self, path: str, folder: Path) -> None:
        """Mounts a folder at a path of the container."""
        self.folders[path.rstrip("/") or "/"] = folder

    def local(self, text: str) -> str:
        """Replaces the mounted paths in a text, also inside a script for a shell."""
        if not self.folders:
            return text
        longest_first = sorted(self.folders, key=len, reverse=True)
        mounted = "|".join(map(re.escape, longest_first))
        # `/data` is not in `/database`, `gs://bucket/data` or `${HOME}/data`.
        pattern = r"(?<![\w./})-])" + f"({mounted})" + r"(?![\w.-])"
        return re.sub(pattern, lambda match: str(self.folders[match[1]]), text)

    def elsewhere(self, text: str) -> str | None:
        """A path in a text that is under no mount, or leads out of one. None if there is none."""
        for match in re.finditer(r"\w+://\S*|(?<![\w.-])\.\.(?![\w.-])|(?<![\w./})-])/[^\s'\"`,:;=]*", text):
            path, known = match[0], tuple(f"{folder}/" for folder in self.folders)
            if "://" not in path and (".." in path.split("/") or not f"{path}/".startswith(known)):
                return path
        return None

    def shown(self, output: bytes) -> bytes:
        """Replaces this machine's folders in a program's output, so that a log reads as on GKE."""
        for path, folder in sorted(self.folders.items(), key=lambda item: -len(str(item[1]))):
            output = output.replace(str(folder).encode(), path.encode())
        return output


def bucket_of(volume: Object, pod: Object) -> tuple[str, str] | None:
    """The bucket that a volume mounts and the folder in it, or None for a volume of another kind.

    https://cloud.google.com/kubernetes-engine/docs/reference/cloud-storage-fuse-csi-driver/volume-attr
    """
    csi = volume.get("csi", {})
    if csi.get("driver") != fuse.DRIVER:
        return None
    if pod["metadata"].get("annotations", {}).get(fuse.VOLUMES) != "true":
        raise NotStarted(
            "FailedMount",
            f"the pod has no annotation {fuse.VOLUMES}. GKE would add no sidecar that mounts the volume "
            f'{volume["name"]}. Set the annotation to "true".',
        )
    attributes = csi.get("volumeAttributes", {})
    options = dict(option.strip().partition("=")[::2] for option in attributes.get("mountOptions", "").split(","))
    return attributes.get("bucketName", ""), options.get("only-dir", "")


# ---------------------------------------------------------------------------------------------------------- environment
def sources(container: Object) -> Iterable[tuple[str, str, bool]]:
    """The objects whose values a container's variables have: collection, name, and whether it must exist."""
    for source in container.get("envFrom", []):
        for collection, reference in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
            if reference in source:
                yield collection, source[reference]["name"], not source[reference].get("optional")
    for variable in container.get("env", []):
        for collection, reference in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
            if selected := variable.get("valueFrom", {}).get(reference):
                yield collection, selected["name"], not selected.get("optional")


def variables(container: Object, pod: Object, values: Mapping[tuple[str, str], Mapping[str, str]]) -> dict[str, str]:
    """The container's environment as a kubelet sets it.

    `values` are those of the objects in `sources`, by collection and name.
    """
    result: dict[str, str] = {}
    for source in container.get("envFrom", []):
        for collection, reference in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
            if reference in source:
                found = values.get((collection, source[reference]["name"]), {})
                result |= {source.get("prefix", "") + name: value for name, value in found.items()}
    for variable in container.get("env", []):
        value = _value(variable, pod, values)
        if value is not None:
            result[variable["name"]] = expand(value, result) if "value" in variable else value
    return result


def _value(variable: Object, pod: Object, values: Mapping[tuple[str, str], Mapping[str, str]]) -> str | None:
    source = variable.get("valueFrom")
    if not source:
        return str(variable.get("value", ""))
    if "fieldRef" in source:
        return _field(pod, source["fieldRef"]["fieldPath"])
    for collection, reference in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
        if selected := source.get(reference):
            found = values.get((collection, selected["name"]), {})
            if selected["key"] not in found and not selected.get("optional"):
                text = f"couldn't find key {selected['key']} in {collection.removesuffix('s')} {selected['name']}"
                raise NotStarted("CreateContainerConfigError", text)
            return found.get(selected["key"])
    raise NotStarted(
        "CreateContainerConfigError", f"the emulator doesn't set {variable['name']} from {', '.join(source)}"
    )


def _field(pod: Object, path: str) -> str:
    """A field of the pod: https://kubernetes.io/docs/concepts/workloads/pods/downward-api/#available-fields"""
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return str(metadata.get(match[1], {}).get(match[2], ""))
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.hostIP": status.get("hostIP", ""),
        "status.podIP": status.get("podIP", ""),
        "status.podIPs": status.get("podIP", ""),
    }
    if path not in fields:
        raise NotStarted("CreateContainerConfigError", f"unsupported fieldPath {path}")
    return str(fields[path])


def is_own(pod: Object, container: Object, command: list[str], namespace: str, account: str) -> bool:
    """Whether a container is of one of this program's own pods. Any other container with its image is simulated."""
    return (
        container["image"] == FILL_IMAGE
        and (container.get("command"), container.get("args")) == (command, None)
        and pod["metadata"]["namespace"] == namespace
        and pod["spec"].get("serviceAccountName") == account
    )


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` as Kubernetes does: an unknown name stays, and `$$(NAME)` is `$(NAME)`.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return values.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^()]+)\)", value, text)


# ---------------------------------------------------------------------------------------------------------------- names
# Returns the local port for a port of the pod with this hostname.
LocalPort = Callable[[str, int], int]
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Names:
    """The stable names of the pods of a headless Service, such as those of one Job, in a pod of the same Service.

    https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-hostname-and-subdomain-field
    """

    subdomain: str
    namespace: str
    port: LocalPort

    def local(self, text: str) -> str:
        """Replaces `HOST:PORT` by the local address, and a `HOST` without a port by the loopback address."""

        def address(match: re.Match[str]) -> str:
            host, port = match[1], match[2]
            return f"{LOOPBACK}:{self.port(host, int(port))}" if port else LOOPBACK

        return self._pattern.sub(address, text) if self.subdomain else text

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Replaces names in the values of variables.

        Two variables such as MASTER_ADDR and MASTER_PORT are one address.
        """
        result = {name: self.local(value) for name, value in environment.items()}
        for name, value in environment.items():
            match = self._pattern.fullmatch(value) if self.subdomain else None
            beside = re.sub(r"(ADDR|ADDRESS|HOST|HOSTNAME)$", "PORT", name)
            if match and not match[2] and environment.get(beside, "").isdigit():
                result[beside] = str(self.port(match[1], int(environment[beside])))
        return result

    @property
    def _pattern(self) -> re.Pattern[str]:
        domain = rf"{re.escape(self.subdomain)}(?:\.{re.escape(self.namespace)}(?:\.svc(?:\.cluster\.local)?)?)?"
        return re.compile(rf"(?<![\w.-])([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)\.{domain}(?::(\d+))?(?![\w.-])")


def hostname(pod: Object) -> str:
    """The hostname of a pod."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])
