"""The resource `kubernetes:helm.sh/v3:Release`: a Helm release for the engine."""

from __future__ import annotations

import threading

from pulumi.runtime.proto import provider_pb2

from emulator.pulumi.kubernetes.api import ApiError, Cluster
from emulator.pulumi.kubernetes.helm import (
    DEFAULT_TIMEOUT_SECONDS,
    SUPPORTED,
    Helm,
    HelmError,
    Status,
    chart,
    recorded,
    resource_names,
)
from emulator.pulumi.kubernetes.kubeconfig import Kubeconfig
from emulator.pulumi.kubernetes.objects import Change, Path, Properties, differences, parse_id, redacted
from emulator.pulumi.plugin import (
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
# The official plugin records every field of its Release structure (helm_release.go), with these values if not set, and
# no other argument: not the SDK's own `compat`.
DEFAULTS: Properties = {
    **dict.fromkeys(
        (
            *("allowNullValues", "atomic", "cleanupOnFail", "createNamespace", "dependencyUpdate", "devel"),
            *("disableCRDHooks", "disableOpenapiValidation", "disableWebhooks", "forceUpdate", "lint", "recreatePods"),
            *("renderSubchartNotes", "replace", "resetValues", "reuseValues", "skipAwait", "skipCrds", "verify"),
            "waitForJobs",
        ),
        False,
    ),
    **dict.fromkeys(("description", "keyring", "postrender"), ""),
    "values": {},
}
NOT_RECORDED = {"compat", "resourceNames"}
# Helm's errors for a release that somebody else created, or that a running or killed operation holds.
HELD = ("cannot re-use a name that is still in use", "is in progress")


def completed(news: Properties) -> Properties:
    """The arguments of a release as the official plugin records them."""
    inputs = DEFAULTS | {key: value for key, value in news.items() if value is not None and key not in NOT_RECORDED}
    return {"timeout": 0 if inputs["skipAwait"] else DEFAULT_TIMEOUT_SECONDS} | inputs


def checked(request: provider_pb2.CheckRequest, olds: Properties, news: Properties, namespace: str) -> Properties:
    """The inputs with the official plugin's defaults: a name, the namespace, a timeout, the chart's version.

    Raises:
        Refused: The chart doesn't exist in the requested version.
    """
    inputs = completed(news)
    if not inputs.get("name"):
        inputs["name"] = plain(olds.get("name")) or f"{name_of(request.urn)}-{random_suffix(request.randomSeed, 8)}"
    if not inputs.get("namespace"):
        inputs["namespace"] = namespace
    if not has_unknown([inputs.get("chart"), inputs.get("version")]):
        repository = (plain(inputs.get("repositoryOpts")) or {}).get("repo")
        inputs["version"] = chart(plain(inputs["chart"]), plain(inputs.get("version")), repository).version
    return inputs


def unsupported(news: Properties) -> list[tuple[str, str]]:
    """Arguments of the official plugin that this one doesn't support, as pairs (name, reason)."""
    reason = "the emulator doesn't support it; use the official plugin"
    return [(key, reason) for key, value in news.items() if plain(value) and key not in SUPPORTED and key[:2] != "__"]


def changes(state: Properties, news: Properties) -> dict[Path, Change]:
    old = plain(_stated(state)) or {}
    return differences({k: v for k, v in old.items() if k != "resourceNames"}, plain(news), typed=False)


def replaces(path: Path) -> bool:
    return path[0] in ("name", "namespace")


def previewed(inputs: Properties) -> Properties:
    return inputs | {"status": UNKNOWN, "resourceNames": UNKNOWN}


def _stated(state: Properties) -> Properties | None:
    """The inputs that the state recorded; None in an import.

    Raises:
        Refused: They aren't marked as secret, as the engine records them. The official plugin fails on that.
    """
    recorded_inputs = state.get("__inputs")
    if recorded_inputs is None:
        return None
    if not isinstance(recorded_inputs, Secret):
        raise Refused("__inputs of a Helm release is no secret in the state, and the kubernetes plugin can't read it")
    inputs: Properties = recorded_inputs.value
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
        cluster: The same cluster, to read Helm's records of releases.
        canceled: Ends a running helm when set.
    """

    def __init__(self, kubeconfig: Kubeconfig, cluster: Cluster, canceled: threading.Event) -> None:
        self._helm = Helm(kubeconfig, canceled)
        self._cluster = cluster

    def create(self, inputs: Properties) -> tuple[str, Properties]:
        """Installs a release.

        Returns its id and state. Refuses if a release of that name exists, complete or not.
        """
        release = plain(inputs)
        release_id = f"{release['namespace']}/{release['name']}"
        try:
            self._helm.install(release)
        except HelmError as error:
            self._failed(release_id, inputs, error)
        return release_id, self._live(inputs)

    def update(self, inputs: Properties) -> Properties:
        """Upgrades a release.

        Returns its state. Refuses while Helm's record says that an operation is in progress.
        """
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
            raise Refused(f"Helm release {release['namespace']}/{release['name']} was deleted during the operation")
        return _state(inputs, status)

    def _failed(self, release_id: str, inputs: Properties, error: HelmError) -> None:
        """Records a release that exists but failed, so that the next `up` upgrades it."""
        reason = f"Helm release {release_id}: {redacted(str(error), inputs)}"
        if any(words in str(error) for words in HELD):
            raise Refused(reason)
        try:
            state = self._live(inputs)
        except Refused:
            raise Refused(reason) from None
        raise InitFailed(release_id, state, [reason])

    def read(self, release_id: str, state: Properties, inputs: Properties) -> tuple[Properties, Properties] | None:
        """Returns the current (state, inputs), or None if the release doesn't exist.

        As in the official plugin, a release with any status is read, also a failed or an incomplete one.
        """
        namespace, name = parse_id(release_id)
        status = self._recorded(namespace, name)
        if status is None or status.state == "uninstalled":
            return None
        recorded_inputs = state.get("__inputs")
        if isinstance(recorded_inputs, Secret):
            inputs = recorded_inputs.value
        elif recorded_inputs is not None:
            raise Refused(
                f"Helm release {release_id}: __inputs in the state is no secret; the engine records it as one"
            )
        elif not inputs:
            values = Secret(dict(status.values))  # any of them may be secret
            named = {"name": name, "namespace": namespace, "chart": status.chart, "version": status.version}
            inputs = completed({**named, "values": values})
        return _state(inputs, status), inputs

    def delete(self, state: Properties) -> None:
        release = plain(state)
        wait = bool(release.get("atomic")) or not release.get("skipAwait")
        timeout = release.get("timeout") or DEFAULT_TIMEOUT_SECONDS
        try:
            self._helm.uninstall(release["namespace"], release["name"], wait=wait, timeout=timeout)
        except HelmError as error:
            raise Refused(f"Helm release {release['namespace']}/{release['name']}: {error}") from None
