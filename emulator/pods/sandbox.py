"""The container of a program that runs as a local process: its files, ports, arguments and variables."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.cloud.folder import Folder
from emulator.machine import processes
from emulator.machine.folders import inside

Object = dict[str, Any]
log = logging.getLogger(__name__)
# Arguments that name a file.
FILES = ("--config", "--config-file")


@dataclass
class Sandbox:
    """The local file system and network of one container.

    `ports` maps container ports to local ports. The containers of a pod share it, as they share a network.
    """

    root: Path
    ports: dict[int, int] = field(default_factory=dict)
    mounts: list[str] = field(default_factory=list)

    def inside(self, path: str) -> Path:
        """The path on this machine for a path of the container. Raises Outside for a path that leads elsewhere."""
        return inside(self.root, path)

    def port(self, number: int) -> int:
        """The local port for a container port; the same at every call."""
        if number not in self.ports:
            self.ports[number] = processes.free_ports(1)[0]
        return self.ports[number]

    def address(self, text: str) -> str:
        """Moves a listening address (`:8443`) to its local port.

        `0` stays: it means not to listen.
        """
        port = text.rpartition(":")[2]
        return f"127.0.0.1:{self.port(int(port))}" if port.isdigit() and int(port) else text

    def rewrite(self, argument: str) -> str:
        """Replaces a mounted path in an argument, if any, by its path on this machine."""
        flag, equals, value = argument.rpartition("=")
        for mount in self.mounts:
            if value == mount or value.startswith(mount.rstrip("/") + "/"):
                return f"{flag}{equals}{self.inside(value)}"
        return argument


@dataclass(frozen=True)
class Container:
    """A container of a running pod.

    `forward` returns a local port that leads to a `HOST:PORT` of the cluster, once something answers there. `secrets`
    has the values of the variables that come from Secrets.
    """

    folder: Folder
    pod: Object
    spec: Object
    sandbox: Sandbox
    forward: Callable[[str], Awaitable[int]]
    secrets: dict[str, str] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return str(self.pod["metadata"]["namespace"])

    @property
    def tag(self) -> str:
        """The tag of the container's image."""
        return str(self.spec["image"]).partition("@")[0].rpartition(":")[2]

    @property
    def kubeconfig(self) -> Path:
        """Path of the kubeconfig for the pod's ServiceAccount, if the program has one."""
        return self.sandbox.root / "kubeconfig"

    def arguments(self) -> list[str]:
        """The arguments after the program's name, with local paths."""
        words = [*self.spec.get("command", [])[1:], *self.spec.get("args", [])]
        return [self.sandbox.rewrite(word) for word in words]

    def argument(self, *names: str) -> str | None:
        """The value of an argument `NAME=VALUE` or `NAME VALUE`."""
        words = iter(self.arguments())
        for word in words:
            name, equals, value = word.partition("=")
            if name in names:
                return value if equals else next(words, None)
        return None

    def kept(self, *flags: str) -> list[str]:
        """The arguments with these flags. Others, such as `--kubeconfig`, could make a program run another one."""
        kept, words = [], self.arguments()
        for word, following in zip(words, [*words[1:], ""], strict=True):
            name, equals, value = word.partition("=")
            values = [value] if equals else [following] if following and not following.startswith("-") else []
            if name in flags and not (name in FILES and any(map(self._elsewhere, values))):
                kept += [word] if equals else [word, *values]
            elif name.startswith("-") and name not in flags:
                log.warning("%s of %s is left out: it isn't known to be harmless", name, self.spec["image"])
        return kept

    def _elsewhere(self, value: str) -> bool:
        """Whether a file is in none of the container's volumes."""
        return not Path(value).is_relative_to(self.sandbox.root)

    def variables(self) -> dict[str, str]:
        """The environment variables that the pod itself sets."""
        metadata, status = self.pod["metadata"], self.pod["status"]
        fields = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
            "metadata.uid": metadata["uid"],
            "spec.nodeName": self.pod["spec"]["nodeName"],
            "spec.serviceAccountName": self.pod["spec"].get("serviceAccountName", "default"),
            "status.podIP": status.get("podIP", ""),
        }
        result = {}
        for variable in self.spec.get("env", []):
            path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            result[variable["name"]] = fields.get(path, "") if path else str(variable.get("value", ""))
        return result | self.secrets
