"""The resource `kubernetes:helm.sh/v3:Release`: a Helm release as the engine sees it."""

from __future__ import annotations

import threading
from typing import Any

from pulumi.runtime.proto import provider_pb2

from emulator.kubernetes_plugin.api import ApiError, Cluster
from emulator.kubernetes_plugin.helm import (
    DEFAULT_TIMEOUT_SECONDS,
    SUPPORTED,
    Helm,
    HelmError,
    Status,
    chart,
    recorded,
    resource_names,
)
from emulator.kubernetes_plugin.kubeconfig import Kubeconfig
from emulator.kubernetes_plugin.objects import Change, Path, differences, parse_id, redacted
from emulator.plugin import (
    UNKNOWN,
    InitFailed,
    Refused,
    Secret,
    has_unknown,
    mark_secrets,
    name_of,
    plain,
    random_suffix,
)

TYPE = "kubernetes:helm.sh/v3:Release"
Properties = dict[str, Any]
# Helm's words for a release that another made, or that an operation, killed or under way, still holds.
HELD = ("cannot re-use a name that is still in use", "is in progress")


def checked(request: provider_pb2.CheckRequest, olds: Properties, news: Properties, namespace: str) -> Properties:
    """The inputs with the official plugin's defaults: a name, the namespace, a timeout, the chart's version.

    Raises:
        Refused: The chart isn't there in the version asked for.
    """
    inputs = {key: value for key, value in news.items() if value is not None and key != "resourceNames"}
    if not inputs.get("name"):
        inputs["name"] = plain(olds.get("name")) or f"{name_of(request.urn)}-{random_suffix(request.randomSeed, 8)}"
    if not inputs.get("namespace"):
        inputs["namespace"] = namespace
    if not inputs.get("skipAwait"):
        inputs.setdefault("timeout", DEFAULT_TIMEOUT_SECONDS)
    if not has_unknown([inputs.get("chart"), inputs.get("version")]):
        inputs["version"] = chart(plain(inputs["chart"]), plain(inputs.get("version"))).version
    return inputs


def unsupported(news: Properties) -> list[tuple[str, str]]:
    """Arguments that the official plugin takes and this one doesn't."""
    reason = "not supported by this emulator; the official plugin is needed"
    return [(key, reason) for key, value in news.items() if plain(value) and key not in SUPPORTED and key[:2] != "__"]


def changes(state: Properties, news: Properties) -> dict[Path, Change]:
    old = plain(_stated(state)) or {}
    return differences({k: v for k, v in old.items() if k != "resourceNames"}, plain(news), typed=False)


def replaces(path: Path) -> bool:
    return path[0] in ("name", "namespace")


def previewed(inputs: Properties) -> Properties:
    return inputs | {"status": UNKNOWN, "resourceNames": UNKNOWN}


def _stated(state: Properties) -> Properties | None:
    """The inputs that a state was made of; None in an import.

    Raises:
        Refused: They lack the secret wrapper that the engine records them with; the official plugin breaks on that.
    """
    known = state.get("__inputs")
    if known is None:
        return None
    if not isinstance(known, Secret):
        raise Refused("__inputs of a Helm release is no secret in the state, and the kubernetes plugin can't read it")
    inputs: Properties = known.value
    return inputs


def _state(inputs: Properties, status: Status) -> Properties:
    outputs = inputs | {
        "resourceNames": resource_names(status.manifest),
        "status": {
            "appVersion": status.app_version,
            "chart": status.chart,
            "name": plain(inputs["name"]),
            "namespace": plain(inputs["namespace"]),
            "revision": status.revision,
            "status": status.state,
            "version": status.version,
        },
    }
    return {**mark_secrets(outputs, inputs), "__inputs": Secret(inputs)}


class Releases:
    """Installs, upgrades and removes the releases of one cluster.

    Args:
        kubeconfig: The cluster and the login, for helm.
        cluster: The same cluster; Helm's records of its releases are read there.
        cancelled: Ends a running helm when set.
    """

    def __init__(self, kubeconfig: Kubeconfig, cluster: Cluster, cancelled: threading.Event) -> None:
        self._helm = Helm(kubeconfig, cancelled)
        self._cluster = cluster

    def create(self, inputs: Properties) -> tuple[str, Properties]:
        """The id and the state. A release of that name that is there, also one that was killed half-way, is refused."""
        release = plain(inputs)
        release_id = f"{release['namespace']}/{release['name']}"
        try:
            self._helm.install(release)
        except HelmError as error:
            self._failed(release_id, inputs, error)
        return release_id, self._live(inputs)

    def update(self, inputs: Properties) -> Properties:
        """The new state. A release whose last operation was killed half-way is refused, until somebody settles it."""
        release = plain(inputs)
        try:
            self._helm.upgrade(release)
        except HelmError as error:
            self._failed(f"{release['namespace']}/{release['name']}", inputs, error)
        return self._live(inputs)

    def _recorded(self, namespace: str, name: str) -> Status | None:
        try:
            return recorded(self._cluster, namespace, name)
        except ApiError as error:
            raise Refused(f"Helm release {namespace}/{name}: {error}") from None

    def _live(self, inputs: Properties) -> Properties:
        release = plain(inputs)
        status = self._recorded(release["namespace"], release["name"])
        if status is None:
            raise Refused(f"Helm release {release['namespace']}/{release['name']} went while it was made")
        return _state(inputs, status)

    def _failed(self, release_id: str, inputs: Properties, error: HelmError) -> None:
        """A release that exists but failed is recorded, so that the next `up` upgrades it."""
        reason = f"Helm release {release_id}: {redacted(str(error), inputs)}"
        if any(words in str(error) for words in HELD):
            raise Refused(reason)
        try:
            state = self._live(inputs)
        except Refused:
            raise Refused(reason) from None
        raise InitFailed(release_id, state, [reason])

    def read(self, release_id: str, state: Properties, inputs: Properties) -> tuple[Properties, Properties] | None:
        """(state, inputs) as they are now; None if the release is gone.

        Whatever its status, as the official plugin has it: one that failed or was killed half-way is read as it is.
        """
        namespace, name = parse_id(release_id)
        status = self._recorded(namespace, name)
        if status is None or status.state == "uninstalled":
            return None
        known = state.get("__inputs")
        if isinstance(known, Secret):
            inputs = known.value
        elif known is not None:
            raise Refused(
                f"Helm release {release_id}: __inputs in the state is no secret; the engine records it as one"
            )
        elif not inputs:
            inputs = {
                "name": name,
                "namespace": namespace,
                "chart": status.chart,
                "version": status.version,
                "values": Secret(dict(status.values)),  # nobody says which of them are secret
                "timeout": DEFAULT_TIMEOUT_SECONDS,
            }
        return _state(inputs, status), inputs

    def delete(self, state: Properties) -> None:
        release = plain(state)
        wait = bool(release.get("atomic")) or not release.get("skipAwait")
        timeout = release.get("timeout") or DEFAULT_TIMEOUT_SECONDS
        try:
            self._helm.uninstall(release["namespace"], release["name"], wait=wait, timeout=timeout)
        except HelmError as error:
            raise Refused(f"Helm release {release['namespace']}/{release['name']}: {error}") from None
